"""Suites from their files: checked whole, kept only as far as they are asked.

Every line is read and checked for its shape, and ids must differ in the whole file; golds are checked for the lines
that are asked, and only those are kept. Those are the first ``limit`` in the order of the file, so that everybody asks
the same ones. A file of any size therefore takes the memory of its asked items and 16 bytes for each line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from pytest_tokenwatt.quality.complaints import Complain, Complaints
from pytest_tokenwatt.quality.few_shot import Example, as_prefix, as_prompt, as_turns
from pytest_tokenwatt.quality.jsonl import read_rows
from pytest_tokenwatt.quality.suite_digest import asked_sha256
from pytest_tokenwatt.quality.suite_ids import Ids
from pytest_tokenwatt.quality.suite_lines import SuiteLine, parse_line
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Suite

CheckGold: TypeAlias = Callable[[SuiteItem], str | None]
"""Says of an item why no answer could be scored against its gold, as a sentence; ``None`` when all is well."""


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """What one suite asks, in order; each item with its examples, as prompt or (for chat) as messages.

    ``sha256`` is the hash of what is asked (see ``asked_sha256``), ``domains`` the domain by id where there is one,
    ``prefix`` the text of the examples that were composed, ``available`` the items that the whole file offers.
    ``notes`` are statements for the report.
    """

    path: Path
    items: tuple[SuiteItem, ...]
    sha256: str
    domains: Mapping[str, str]
    prefix: str
    available: int
    notes: tuple[str, ...] = ()


def open_suite(path: Path, settings: Suite, check_gold: CheckGold) -> LoadedSuite:
    """Read and check a suite. Raises ``SpecError`` with all that is wrong, twenty problems at most one by one."""
    complaints = Complaints(path)
    composer = _Composer(settings, complaints.add)
    ids, selection = Ids(), _Selection(settings.limit)
    for line in _lines(path, complaints.add):
        ids.add(line.item.id, line.number)
        item = composer.item(line)
        if item is not None and selection.takes(item):
            _check_gold(item, line.number, check_gold, complaints.add)
    for number, earlier in ids.repeated():
        complaints.add(number, "id", f"is that of line {earlier}, too", "ids must differ")
    if not selection.items and not complaints.count:
        complaints.add(None, None, composer.nothing_left(), "give it at least one more line")
    complaints.raise_any()
    return LoadedSuite(
        path=path,
        items=tuple(selection.items),
        sha256=asked_sha256(selection.items, settings),
        domains={item.id: item.domain for item in selection.items if item.domain is not None},
        prefix=as_prefix(composer.examples),
        available=selection.available,
        notes=tuple(selection.notes(settings.title)),
    )


def iter_items(path: Path, settings: Suite) -> Iterator[SuiteItem]:
    """All items of a suite as they would be asked, whatever its limit, one in memory at a time; golds unchecked.

    Raises ``SpecError`` at the first line that is wrong.
    """
    complaints = Complaints(path)
    composer = _Composer(settings, complaints.add)
    for line in _lines(path, complaints.add):
        item = composer.item(line)
        complaints.raise_any()
        if item is not None:
            yield item
    complaints.raise_any()


def _lines(path: Path, complain: Complain) -> Iterator[SuiteLine]:
    for number, row in read_rows(path, complain):
        line = parse_line(number, row, complain)
        if line is not None:
            yield line


def _check_gold(item: SuiteItem, number: int, check_gold: CheckGold, complain: Complain) -> None:
    try:
        flaw = check_gold(item)
    except Exception as error:  # a scorer may be anybody's code
        complain(number, None, f"the scorer failed on its gold: {type(error).__name__}: {error}", "mend the scorer")
        return
    if flaw is not None:
        complain(number, None, flaw, "correct it, or choose the scorer that reads it")


class _Selection:
    """The first items of a file, and what the others are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._domains: set[str | None] = set()
        self._left_out: str | None = None
        self.items: list[SuiteItem] = []
        self.available = 0

    def takes(self, item: SuiteItem) -> bool:
        """Whether the next item is among those that are asked."""
        self.available += 1
        if self.available <= self._limit:
            self.items.append(item)
            self._domains.add(item.domain)
            return True
        if item.domain not in self._domains:
            self._left_out = self._left_out or item.domain
        return False

    def notes(self, title: str) -> Iterator[str]:
        """What a reader of the score should know."""
        if self.available < self._limit:
            yield f"{title} has fewer items ({self.available}) than its limit of {self._limit}: all are asked"
        if self._left_out is not None:
            yield (
                f"the first {self._limit} of {self.available} items of {title} are asked, and none of them is of the"
                f" domain {self._left_out}"
            )


class _Composer:
    """Turns lines into what is asked; the first ``shots`` lines of a file of questions become the examples."""

    def __init__(self, settings: Suite, complain: Complain) -> None:
        self._settings = settings
        self._complain = complain
        self._form: str | None = None
        self.examples: list[Example] = []

    def item(self, line: SuiteLine) -> SuiteItem | None:
        """``None`` for an example, and for a line that cannot be asked, which is then complained of."""
        self._form = self._form or line.form
        if "question" in (self._form, line.form) and line.form != self._form:
            what = f"has {line.form}, and the lines before it have {self._form}"
            self._complain(line.number, None, what, "use one form throughout the file")
            return None
        if line.question is None:
            return self._ready(line)
        if len(self.examples) < (self._settings.shots or 0):
            self._take_example(line, line.question)
            return None
        if self._settings.api == "chat":
            return replace(line.item, messages=as_turns(self.examples, line.question))
        return replace(line.item, prompt=as_prompt(self.examples, line.question))

    def nothing_left(self) -> str:
        """What is wrong with a file of which nothing is asked."""
        if not self.examples:
            return "holds no items"
        return f"holds no items beside the {len(self.examples)} that shots takes as examples"

    def _ready(self, line: SuiteLine) -> SuiteItem | None:
        item, api = line.item, self._settings.api
        if item.messages is not None and api == "completions":
            self._complain(line.number, "messages", "is for chat, and the suite asks completions", "set api: chat")
            return None
        if item.prompt is not None and api == "chat":
            return replace(item, prompt=None, messages=({"role": "user", "content": item.prompt},))
        return item

    def _take_example(self, line: SuiteLine, question: str) -> None:
        if line.solution is None:
            what = f"is missing, and shots makes the first {self._settings.shots} lines examples"
            self._complain(line.number, "solution", what, "add the worked solution, or lower shots")
        self.examples.append(Example(question, line.solution or ""))
