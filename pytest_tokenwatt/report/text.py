"""Numbers, verdicts and foreign words as sentences of the report show them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_tokenwatt.records import Verdict

_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNSEEN = re.compile(r"[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""Letters without a width, and those that turn the direction of what stands beside them."""
_TORN = re.compile(r"[\ud800-\udfff]")
_INFORMATIONAL = "informational"
_ORDER = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.INFO)


def one_line(words: str) -> str:
    """``words`` on one line, without control codes and letters that cannot be seen or written."""
    seen = _UNSEEN.sub("", _TORN.sub("\ufffd", words))
    return _BREAKS.sub(" ", seen).strip()


def counted(verdicts: Iterable[str]) -> str:
    """How many gates have which verdict, the worst first: "1 fail, 2 inconclusive, 7 pass, 1 informational"."""
    counts = Counter(verdicts)
    names = [*(verdict.value for verdict in _ORDER), *sorted(set(counts) - set(_ORDER))]
    told = [f"{counts[name]} {verdict_word(name)}" for name in names if counts[name]]
    return ", ".join(told) or "no gate was judged"


def verdict_word(verdict: str) -> str:
    """A verdict as a word; the table's ``-`` is informational."""
    return _INFORMATIONAL if verdict == Verdict.INFO else verdict


def number(value: float) -> str:
    """Whole from 100 on, else three significant digits: 5057, 43.7, 0.0412."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    short = f"{value:.3g}"
    return short if "e" not in short else f"{value:.3f}"


def change(ratio: float) -> str:
    """A ratio as a signed change in per cent: 1.144 is +14.4 %."""
    return f"{100 * (ratio - 1):+.1f} %"


def points(value: float) -> str:
    """A difference in points: -0.5, +1.3, 0.0."""
    text = f"{value:+.1f}"
    return text if float(text) else "0.0"


def nats(value: float) -> str:
    """Nats per token: 0.0097, 0.0000, 3.2e-05."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2g}"


def duration(minutes: float) -> str:
    """Minutes as 45 s, 12 min or 1 h 05 min."""
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    if minutes < 59.5:
        return f"{minutes:.0f} min"
    hours, rest = divmod(round(minutes), 60)
    return f"{hours} h {rest:02d} min"


def listing(words: Sequence[str]) -> str:
    """slo; slo and kl; slo, kl and speed; nothing for none."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
