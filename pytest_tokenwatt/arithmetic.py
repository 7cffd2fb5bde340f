"""Sums whose answers are certain: seeded, without end, and without a download; how they are asked, and solved.

For demonstrations, and to see how many items a margin needs. Every question is asked once, however many are drawn: a
question's operands are a bijective scramble of its number, not a draw with replacement. The suite asks them, and the
embedded engine answers them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records.accuracy import SuiteItem

ANSWER_MARK = "Answer:"
"""What a prompt for completions ends with."""

_QUESTION_MARK = "Question:"


@dataclass(frozen=True, slots=True)
class _Operation:
    """``bits`` of each operand; templates differ in wording only, and ``{a}`` and ``{b}`` are the operands."""

    bits: int
    compute: Callable[[int, int], int]
    templates: Mapping[str, str]


_OPERATIONS: Mapping[str, _Operation] = MappingProxyType(
    {
        "addition": _Operation(
            9,
            lambda a, b: a + b,
            {
                "symbols": "{a} + {b} = ?",
                "words": "What is {a} plus {b}?",
                "story": "Ana has {a} stamps and is given {b} more. How many stamps does she have now?",
            },
        ),
        "subtraction": _Operation(
            9,
            lambda a, b: a - b,
            {
                "symbols": "{a} - {b} = ?",
                "words": "What is {a} minus {b}?",
                "story": "At noon a lift is on floor {a} and goes {b} floors down. On which floor is it then?",
            },
        ),
        "multiplication": _Operation(
            6,
            lambda a, b: a * b,
            {
                "symbols": "{a} * {b} = ?",
                "words": "What is {a} times {b}?",
                "story": "A hall has {a} rows of {b} seats each. How many seats does it have?",
            },
        ),
    }
)

OPERATIONS = tuple(_OPERATIONS)
"""Names of the operations; each is a domain of the suite."""

_LEAST = 2


def generate(count: int | None, seed: int = 0, operations: Sequence[str] = OPERATIONS) -> Iterator[SuiteItem]:
    """``count`` items (``None``: without end), operations and wordings in turn; differences may be negative.

    The first n items are the same whatever ``count`` is. Raises ``UsageError`` for an unknown operation.
    """
    unknown = [name for name in operations if name not in _OPERATIONS]
    if unknown or not operations:
        what = f"there is no operation {unknown[0]}" if unknown else "names no operation"
        raise UsageError(what, where="arithmetic suite", remedy=f"known: {', '.join(OPERATIONS)}")
    return _items(count, seed, tuple(dict.fromkeys(operations)))


def asked(question: str) -> str:
    """A question as a completion's prompt asks it; it ends where the answer begins."""
    return f"{_QUESTION_MARK} {question.strip()}\n{ANSWER_MARK}"


def last_question(prompt: str) -> str:
    """The last question of a prompt, its examples passed over; without a mark, the first line.

    A conversation rendered as text will do, too: whatever follows the line of the question is ignored.
    """
    return prompt.rpartition(_QUESTION_MARK)[2].strip().split("\n", 1)[0].strip()


def solve(prompt: str) -> str | None:
    """The answer to the last question of a prompt; ``None`` if it is none of this suite."""
    question = last_question(prompt)
    for operation, pattern in _PATTERNS:
        match = pattern.fullmatch(question)
        if match is not None:
            return str(operation.compute(int(match["a"]), int(match["b"])))
    return None


def _items(count: int | None, seed: int, names: tuple[str, ...]) -> Iterator[SuiteItem]:
    kinds = [(name, wording) for wording in ("symbols", "words", "story") for name in names]
    number = 0
    while count is None or number < count:
        round_, kind = divmod(number, len(kinds))
        number += 1
        yield _item(number, seed, round_, *kinds[kind])


def _item(number: int, seed: int, round_: int, name: str, wording: str) -> SuiteItem:
    operation = _OPERATIONS[name]
    a, b = _operands(round_, operation.bits, f"{seed}/{name}/{wording}")
    return SuiteItem(
        id=f"arithmetic-{seed}-{number}",
        answer=str(operation.compute(a, b)),
        prompt=asked(operation.templates[wording].format(a=a, b=b)),
        # No template: wordings share no item, and nine of them would leave a suite of any size nine clusters.
        domain=name,
    )


def _operands(round_: int, bits: int, key: str) -> tuple[int, int]:
    """A pair of its own for each round; when all pairs of this many bits are used, the first one grows."""
    ring, place = divmod(round_, 4**bits)
    high, low = divmod(_scrambled(place, 2 * bits, key), 2**bits)
    return _LEAST + ring * 2**bits + high, _LEAST + low


def _scrambled(value: int, bits: int, key: str) -> int:
    """A bijection of the numbers below ``2**bits``: steps that can each be undone (shift-xor, odd factor, sum)."""
    mask = 2**bits - 1
    keys = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=32).digest())
    for _ in range(4):
        value = (value + keys) & mask
        value = value * (keys >> bits | 1) & mask
        value ^= value >> (bits // 2)
        keys >>= 2 * bits
    return value


def _pattern(template: str) -> re.Pattern[str]:
    escaped = re.escape(template).replace(re.escape("{a}"), r"(?P<a>\d{1,100})")
    return re.compile(escaped.replace(re.escape("{b}"), r"(?P<b>\d{1,100})"), re.ASCII)


_PATTERNS = tuple(
    (operation, _pattern(template)) for operation in _OPERATIONS.values() for template in operation.templates.values()
)
