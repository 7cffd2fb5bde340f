"""Text of the page: numbers as people read them, and nothing that could garble the lines around it."""

from __future__ import annotations

import re

NOT_KNOWN = "–"
MINUS = "−"
# What XML forbids, what reorders the text around it, and halves of characters that cannot be encoded.
_GARBLING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """``text`` with a replacement character for each one that a page must not hold."""
    return _GARBLING.sub("�", text)


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters, the rest shown by an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def figure(value: float | None, *, digits: int = 3, sign: bool = False) -> str:
    """Whole numbers from 1000 on with separators, else ``digits`` significant digits; a dash for ``None``."""
    if value is None:
        return NOT_KNOWN
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        written = f"{size:,.0f}"
    elif size >= 0.0005:
        written = _plain(size, digits)
    else:
        written = f"{size:.2g}"
    return f"{'+' if sign and value > 0 else MINUS if value < 0 else ''}{written}"


def _plain(size: float, digits: int) -> str:
    """Significant digits without an exponent: 43.70 is 43.7, 0.00123 stays."""
    rounded = float(f"{size:.{digits}g}")
    places = 0
    while places < 9 and round(rounded, places) != rounded:
        places += 1
    return f"{rounded:,.{places}f}"


_UNITS = {"ratio": "×", "gain": "×"}
"""Units of gates as people write them."""


def with_unit(value: float | None, unit: str, *, digits: int = 3, sign: bool = False) -> str:
    """The figure with its unit; a dash alone for ``None``. A ``share`` is shown in per cent."""
    if unit == "share":
        return with_unit(None if value is None else 100 * value, "%", digits=digits, sign=sign)
    unit = _UNITS.get(unit, unit)
    written = figure(value, digits=digits, sign=sign)
    return written if value is None or not unit else f"{written} {unit}"


def measured(value: float, error: float | None, unit: str) -> str:
    """``1.1 ± 0.02 ×``; without an error the value alone."""
    if error is None:
        return with_unit(value, unit)
    scale = 100 if unit == "share" else 1
    return f"{figure(scale * value)} ± {with_unit(error, unit)}"


def interval(low: float | None, high: float | None) -> str:
    """``[27.1, 33.0]``; an open end is an ellipsis, and nothing is said where both are unknown."""
    if low is None and high is None:
        return ""
    ends = ["…" if end is None else figure(end) for end in (low, high)]
    return f"[{ends[0]}, {ends[1]}]"


def percentile_name(metric: str, percentile: float) -> str:
    """TTFT p99."""
    return f"{metric.upper()} p{percentile:g}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """1 request, 2 requests."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
