"""GSM8K as its authors publish it: ``{"question", "answer"}`` a line, the number after ``####``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_tokenwatt.quality.complaints import Complain, Complaints
from pytest_tokenwatt.quality.few_shot import Example, as_prompt
from pytest_tokenwatt.quality.jsonl import read_rows

LICENSE = "GSM8K: MIT (OpenAI, github.com/openai/grade-school-math); keep its notice with copies"
GOLD_MARK = "####"
"""What stands before the answer in a worked solution."""


@dataclass(frozen=True, slots=True)
class Gsm8k:
    """Reads GSM8K with ``shots`` examples: the first lines of ``examples``, else of the file itself, unasked then."""

    shots: int = 0
    examples: Path | None = None

    def __call__(self, path: Path, complain: Complain) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The lines of a suite. Raises ``SpecError`` for flaws of the file of examples."""
        shown = [] if self.examples is None else self._from_file(self.examples)
        for number, pair in _pairs(path, complain):
            if len(shown) < self.shots:
                shown.append(pair)
                continue
            gold = pair.solution.rpartition(GOLD_MARK)[2].strip()
            yield number, {"id": f"gsm8k-{number}", "prompt": as_prompt(shown, pair.question), "answer": gold}
        if len(shown) < self.shots:
            complain(None, None, f"has {len(shown)} lines, too few for {self.shots} shots", "lower shots")

    def _from_file(self, path: Path) -> list[Example]:
        complaints = Complaints(path)
        shown = [pair for _, pair in islice(_pairs(path, complaints.add), self.shots)]
        complaints.raise_any()
        if len(shown) < self.shots:
            complaints.add(None, None, f"has {len(shown)} lines, too few for {self.shots} shots", "lower shots")
        complaints.raise_any()
        return shown


def _pairs(path: Path, complain: Complain) -> Iterator[tuple[int, Example]]:
    for number, row in read_rows(path, complain):
        pair = [_text(number, row, key, complain) for key in ("question", "answer")]
        if pair[0] is None or pair[1] is None:
            continue
        if GOLD_MARK not in pair[1]:
            what = f"has no {GOLD_MARK}, after which GSM8K gives the number"
            complain(number, "answer", what, "give the original file; other forms can come as CSV")
            continue
        yield number, Example(pair[0], pair[1])


def _text(number: int, row: Mapping[str, Any], key: str, complain: Complain) -> str | None:
    value = row.get(key)
    if isinstance(value, str) and value.strip():
        return value
    what = "is missing" if value is None else "is empty" if isinstance(value, str) else "must be text"
    complain(number, key, what, "give the original file, with question and answer in each line")
    return None
