"""One line of a suite: which keys it has, of which types, and what must not be empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.quality.complaints import Complain, nearest
from pytest_tokenwatt.quality.jsonl import Written
from pytest_tokenwatt.records.accuracy import SuiteItem

KEYS = ("id", "prompt", "messages", "question", "solution", "answer", "choices", "domain", "template")
"""Keys of a line; ``x-*`` are the user's own."""

FORMS = ("prompt", "messages", "question")
"""What a line asks: the text as it is sent, the conversation, or a question from which the prompt is composed."""

_WRITE_TEXT = "write it as text in quotes"


@dataclass(frozen=True, slots=True)
class SuiteLine:
    """A line as the file has it; with ``question`` set, ``item`` has neither prompt nor messages yet."""

    number: int
    item: SuiteItem
    question: str | None = None
    solution: str | None = None

    @property
    def form(self) -> str:
        """Which of ``FORMS`` the line has."""
        if self.question is not None:
            return "question"
        return "prompt" if self.item.prompt is not None else "messages"


def parse_line(number: int, row: Mapping[str, Any], complain: Complain) -> SuiteLine | None:
    """The line that an object makes, or ``None`` with everything that is wrong with it told."""
    reader = _Reader(number, {key: value for key, value in row.items() if value is not None}, complain)
    reader.check_keys()
    item = SuiteItem(
        id=reader.value("id") or "",
        answer=reader.value("answer") or "",
        prompt=reader.text("prompt"),
        messages=reader.messages(),
        choices=reader.choices(),
        domain=reader.text("domain"),
        template=reader.text("template"),
    )
    line = SuiteLine(number, item, reader.text("question"), reader.text("solution"))
    return None if reader.flawed else line


class _Reader:
    """Reads the values of one object; remembers whether any was wrong."""

    def __init__(self, number: int, row: Mapping[str, Any], complain: Complain) -> None:
        self._number = number
        self._row = row
        self._complain = complain
        self.flawed = False

    def check_keys(self) -> None:
        for key in self._row:
            if key not in KEYS and not key.startswith("x-"):
                self._wrong(_shown(key), "unknown key", nearest(key, KEYS))
        forms = [form for form in FORMS if form in self._row]
        if not forms:
            self._wrong(None, "has neither prompt nor messages", "add what is asked")
        elif len(forms) > 1:
            self._wrong(None, f"has both {forms[0]} and {forms[1]}", "remove one of the two")
        if "solution" in self._row and forms and "question" not in forms:
            self._wrong("solution", "has no place without a question", "remove it, or give question for prompt")

    def value(self, key: str) -> str | None:
        """Text that must be there; a number counts as it is written."""
        if key not in self._row:
            self._wrong(key, "is missing", f"add {key}")
            return None
        return self._text(key, _numeral(self._row[key]))

    def text(self, key: str) -> str | None:
        """Text that is not blank, or ``None`` without the key."""
        return self._text(key, self._row[key]) if key in self._row else None

    def choices(self) -> tuple[str, ...]:
        value = self._row.get("choices")
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) < 2:
            self._wrong("choices", f"must be a list of at least two texts, not {kind(value)}", "list all options")
            return ()
        texts = tuple(text for choice in value if (text := self._text("choices", _numeral(choice))) is not None)
        if len(texts) == len(value) and len(set(texts)) < len(texts):
            self._wrong("choices", "has an option twice", "options must differ")
        return texts

    def messages(self) -> tuple[Mapping[str, Any], ...] | None:
        value = self._row.get("messages")
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
            what = f"must be a list of messages, not {kind(value)}"
            self._wrong("messages", what, 'write [{"role": "user", "content": …}]')
            return None
        for message in value:
            self._check_message(message)
        if not value or _blank(value[-1].get("content")):
            self._wrong("messages", "is empty", "end with a message that asks something")
        return tuple(value)

    def _check_message(self, message: Mapping[str, Any]) -> None:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role.strip():
            self._wrong("messages", "has a message without role", "give role: user, assistant or system")
        if not isinstance(content, str | list | None):
            self._wrong("messages", f"content must be text or a list of parts, not {kind(content)}", _WRITE_TEXT)
        if not _encodable(message):
            self._half_character("messages")

    def _text(self, key: str, value: Any) -> str | None:
        if not isinstance(value, str):
            self._wrong(key, f"must be text, not {kind(value)}", _WRITE_TEXT)
        elif not value.strip():
            self._wrong(key, "is empty", "fill it in, or remove the line")
        elif not _encodable(value):
            self._half_character(key)
        else:
            return value
        return None

    def _half_character(self, key: str) -> None:
        self._wrong(key, "holds half of a surrogate pair, which is no character", "correct the \\u escape")

    def _wrong(self, key: str | None, what: str, remedy: str) -> None:
        self.flawed = True
        self._complain(self._number, key, what, remedy)


def kind(value: object) -> str:
    """What a JSON value is, for a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "an empty list" if not value else f"a list of {len(value)}"
    names = ((str, "text"), (int | float, "a number"), (dict, "an object"))
    return next((name for type_, name in names if isinstance(value, type_)), "null")


def _numeral(value: Any) -> Any:
    """The digits of a number; anything else as it is."""
    if isinstance(value, Written):
        return value.text
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _blank(content: object) -> bool:
    """Whether a message says nothing; parts of a list may be anything but must be there."""
    return not content.strip() if isinstance(content, str) else not content


def _encodable(value: object) -> bool:
    """Whether text, or all text inside a value, can be sent as UTF-8: a lone surrogate cannot."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, Mapping):
        return all(_encodable(part) for pair in value.items() for part in pair)
    return all(map(_encodable, value)) if isinstance(value, Sequence) else True


def _shown(key: str) -> str:
    """A key for a message: short and on one line."""
    return key if key.isprintable() and len(key) <= 40 else ascii(key)[:40]
