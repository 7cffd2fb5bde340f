"""Numbers in running text, read exactly: 1,234.50, −$29.00, 3/4, 1 1/2, 1.2 × 10^3, 2 million."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pytest_tokenwatt.quality.notation import CURRENCIES, normalise

MAX_DIGITS = 100
"""Digits of the longest number that is read, and the largest power of ten."""

# Pieces of a text grow from the first size to the largest; the overlap holds the longest fraction and what precedes it.
_FIRST_PIECE = 128
_PIECE = 4096
_OVERLAP = 2 * MAX_DIGITS + 100
_EDGE = 40
_TRIES = 2000
_ANY_DIGIT = re.compile(r"[\d¼-¾⅐-⅞]")

# No optional part can match in two ways, and the runs of digits are atomic: the time is linear in the text.
_RUN = r"(?>(?:[0-9]+|(?<![\w.)])\.[0-9]+)(?:[.,'_][0-9]+)*)"
_PART = r"[ ]?-?[0-9][0-9.,]{0,40}[ ]?"
_TOKEN = re.compile(
    rf"""
    (?:(?P<whole>[0-9]{{1,9}})[ ]?)? \\[dtc]?frac[ ]?
        (?:\{{(?P<above>{_PART})\}} | (?P<above_digit>[0-9]))[ ]?
        (?:\{{(?P<below>{_PART})\}} | (?P<below_digit>[0-9]))
    | (?P<number>{_RUN})
      (?: (?P<joined>(?:[:/-]{_RUN})+)
        | [ ]/[ ](?P<divisor>{_RUN})
        | [ ](?P<over>[0-9]{{1,9}})/(?P<under>[0-9]{{1,9}})(?![0-9/])
        | [eE](?P<exponent>[-+]?[0-9]{{1,6}})(?![0-9A-Za-z])
        | [ ]?(?:[×x*·⋅∙]|\\times|\\cdot)[ ]?10[ ]?(?:\^|\*\*)[ ]?[{{(]?[ ]?(?P<ten>[-+]?[0-9]{{1,6}})
        | [ ]?(?:\^|\*\*)[ ]?[{{(]?[ ]?(?P<power>[-+]?[0-9]{{1,6}})
      )?
    """,
    re.VERBOSE,
)
_LETTER = "A-Za-z\u00aa-\u052f"
_WORD_BEHIND = re.compile(rf"[{_LETTER}]-?$|[0-9{_LETTER})}}]_\{{?$|\^[{{(]?[ ]?[-+]?$")
_LINE_BEHIND = re.compile(r"\n[ \t*#>-]{0,6}$")
_ROOT_BEHIND = re.compile(r"(?:√|\\sqrt)[ ]?[({]?$")
_AHEAD = re.compile(
    rf"""(?P<word>(?:st|nd|rd|th)\b | [{_LETTER}]{{0,20}}[0-9] | _[0-9{_LETTER}])
    | (?P<item>[.)][ \t]+\S)
    | [ ]?(?P<irrational>\^|√|π|\\sqrt|\\pi)
    | [ ]?(?P<scale>thousand|million|billion|trillion)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NEGATIVE = re.compile(
    rf"""(?:(?:^|[^\w)\]}}%-])-(?:[{CURRENCIES}][ ]?|[*_({{]){{0,3}}
    | [=({{\[≈][ ]?-[ ]
    | \bnegative[ ][{CURRENCIES}]?
    | (?:^|[=:(]|\b(?:is|equals|be|of|to))[ ]?minus[ ][{CURRENCIES}]?)$""",
    re.VERBOSE | re.IGNORECASE,
)

_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?P<mark>[,'_])[0-9]{3}(?:(?P=mark)[0-9]{3})*(?:\.[0-9]+)?")
_LAKHS = re.compile(r"[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]+)?")
_CONTINENTAL = re.compile(r"[1-9][0-9]{0,2}(?:(?:\.[0-9]{3})+,[0-9]+|(?:\.[0-9]{3}){2,})")
_DECIMAL_COMMA = re.compile(r"[0-9]+,[0-9]+")
_DECIMAL_POINT = re.compile(r"[0-9]*\.?[0-9]+")


@dataclass(frozen=True, slots=True)
class Found:
    """A number at ``start`` … ``end`` of a normalised text; ``value`` is ``None`` when it cannot be read.

    Such are lists (1,2,3), roots, multiples of π, a division by zero, and more than ``MAX_DIGITS`` digits.
    """

    start: int
    end: int
    value: Fraction | None


def numbers_in(text: str) -> Iterator[Found]:
    """The numbers of a short, normalised text, in order.

    No numbers are digits inside words (x2, GPT-4, H2O), exponents of units (cm^2), ordinals, numerals of a list,
    times, dates, ranges and versions.
    """
    return (found for token in _TOKEN.finditer(text) if (found := _read(text, token)))


def last_number(text: str) -> Found | None:
    """The last number of a raw text of any length; its place is relative to the piece that it was found in.

    Read from the end in pieces, so that a long text costs no more than its tail. Pieces overlap: what begins at the
    left edge of one may be the rest of a number, and is read again with the piece before.
    """
    end, tries, size = len(text), _TRIES, _FIRST_PIECE
    while end > 0 and tries > 0:
        start = max(0, end - size - _OVERLAP)
        raw = text[start:end]
        piece = normalise(raw) if _ANY_DIGIT.search(raw) else ""
        for token in reversed(list(_TOKEN.finditer(piece))):
            found = _read(piece, token)
            if found and (start == 0 or found.start > _EDGE):
                return found
            tries -= 1
        end, size = start + _OVERLAP if start else 0, min(4 * size, _PIECE)
    return None


def _read(text: str, token: re.Match[str]) -> Found | None:
    """The number of a token with its sign and scale; ``None`` when it is none at all."""
    start, end = token.span()
    behind = text[max(0, start - 24) : start]
    ahead = _AHEAD.match(text, end)
    if _is_part_of_a_word(token, behind, ahead):
        return None
    value = _value(token)
    if _ROOT_BEHIND.search(behind) or (ahead and ahead["irrational"]):
        return Found(start, end, None)
    if value is not None and ahead and ahead["scale"]:
        value, end = value * _SCALES[ahead["scale"].lower()], ahead.end()
    if value is not None and _NEGATIVE.search(behind):
        value = -value
    return Found(start, end, value)


def _is_part_of_a_word(token: re.Match[str], behind: str, ahead: re.Match[str] | None) -> bool:
    joined, number = token["joined"], token["number"]
    if joined and joined.strip("0123456789.,'_") != "/":
        return True
    if number is None:
        return False
    if _WORD_BEHIND.search(behind) or (number.count(".") > 1 and _plain(number) is None):
        return True
    if ahead is None:
        return False
    return bool(ahead["word"] or (ahead["item"] and _LINE_BEHIND.search(behind)))


def _value(token: re.Match[str]) -> Fraction | None:
    if token["number"] is None:
        above, below = token["above"] or token["above_digit"], token["below"] or token["below_digit"]
        return _mixed(token["whole"], _quotient(_plain(above.strip()), _plain(below.strip())))
    number = _plain(token["number"])
    if token["joined"] or token["divisor"]:
        return _quotient(number, _plain(token["divisor"] or token["joined"][1:]))
    if token["over"]:
        part = _quotient(Fraction(int(token["over"])), Fraction(int(token["under"])))
        return _mixed(token["number"], part)
    if token["exponent"] or token["ten"]:
        return _product(number, _power(Fraction(10), int(token["exponent"] or token["ten"])))
    return _power(number, int(token["power"])) if token["power"] else number


def _plain(run: str) -> Fraction | None:
    """A run of digits and separators; ``None`` when it is not one number.

    ``1,234`` and ``1,23,456`` group digits; ``1.234,56`` and ``1.234.567`` are continental; a single comma that cannot
    group is a decimal comma (``3,5``, ``29,00``, ``0,500``); ``1.234`` has a decimal point.
    """
    negative = run.startswith("-")
    run = run.removeprefix("-")
    if len(run) > MAX_DIGITS:
        return None
    if _GROUPED.fullmatch(run) or _LAKHS.fullmatch(run):
        run = run.replace(",", "").replace("'", "").replace("_", "")
    elif _CONTINENTAL.fullmatch(run):
        run = run.replace(".", "").replace(",", ".")
    elif _DECIMAL_COMMA.fullmatch(run):
        run = run.replace(",", ".")
    if not _DECIMAL_POINT.fullmatch(run):
        return None
    value = Fraction(Decimal(run))
    return -value if negative else value


def _quotient(above: Fraction | None, below: Fraction | None) -> Fraction | None:
    return above / below if above is not None and below else None


def _product(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    return one * other if one is not None and other is not None else None


def _mixed(whole: str | None, part: Fraction | None) -> Fraction | None:
    """1 1/2 is 3/2; in front of an improper fraction stands another number."""
    if whole is None or part is None or not whole.isdigit() or not 0 < part < 1:
        return part
    return int(whole) + part


def _power(base: Fraction | None, exponent: int) -> Fraction | None:
    if base is None or abs(exponent) > MAX_DIGITS or (base == 0 and exponent < 0):
        return None
    digits = max(len(str(base.numerator)), len(str(base.denominator))) * abs(exponent)
    return base**exponent if base == 10 or digits <= MAX_DIGITS else None


def spell(value: Fraction) -> str:
    """The shortest exact spelling: 29, -0.5, 1/3."""
    places = 0
    while 10**places % value.denominator and places < value.denominator.bit_length():
        places += 1
    if value * 10**places % 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    point = len(digits) - places
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:point]}.{digits[point:]}" if places else f"{sign}{digits}"
