"""Numbers in words, as sentences of the report show them."""

from __future__ import annotations

from collections.abc import Sequence


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
