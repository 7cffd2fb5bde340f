"""How gates write their figures."""

from __future__ import annotations

from pytest_tokenwatt.records import Percentile


def number(value: float) -> str:
    """Three significant digits, whole from a thousand on: 11.2, 340, 5057."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def apart(value: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    pairs = [(number(value), number(other))]
    pairs += [(f"{value:.{digits}g}", f"{other:.{digits}g}") for digits in range(4, 18)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def amount(value: float, unit: str | None) -> str:
    """A number with its unit."""
    return f"{number(value)} {unit}" if unit else number(value)


def percent(share: float) -> str:
    """A share in per cent with two significant digits, never as a power of ten: 2.9, 895, at least 0.01."""
    share = max(share, 1e-4)
    return f"{100 * share:,.0f}" if share >= 0.1 else f"{100 * share:.2g}"


def ratio(value: float, error: float | None) -> str:
    """A ratio with its interval if it has any width: "1.106 [1.08, 1.13]".

    No ratio is below 0: an error beyond 100 % is said instead, "2.038 (error 895 %)".
    """
    if error is None:
        return f"{value:.3f} (error not known)"
    if error == 0:
        return f"{value:.3f}"
    if error > value > 0:
        return f"{value:.3f} (error {percent(error / value)} %)"
    return f"{value:.3f} [{value - error:.3g}, {value + error:.3g}]"


def points(value: float) -> str:
    """A signed difference in points with one decimal: -0.5, +1.3, 0.0."""
    text = f"{value:+.1f}"
    return text if float(text) else "0.0"


def points_limit(value: float) -> str:
    """A limit in points, all its decimals but at least one: -1.0, -0.25."""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:g}"


def points_apart(value: float, limit: float) -> str:
    """A difference in points with the decimals that tell it from its limit, unless it meets it."""
    texts = [points(value), *(f"{value:+.{digits}f}" for digits in range(2, 10))]
    return next((text for text in texts if float(text) != limit), texts[0])


def nats(value: float) -> str:
    """A divergence or likelihood in nats per token: 0.0097, 0.0000, 3.2e-05."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2g}"


def nats_apart(value: float, limit: float) -> str:
    """Nats with the decimals that tell them from their limit, unless they meet it."""
    texts = [nats(value), *(f"{value:.{digits}f}" for digits in range(5, 12))]
    return next((text for text in texts if float(text) != limit), texts[0])


def interval(bounds: tuple[float, float]) -> str:
    """An interval in points: "[-2.4, +1.3]"."""
    return f"[{points(bounds[0])}, {points(bounds[1])}]"


def latency(percentile: Percentile) -> str:
    """A latency percentile: "TTFT p99 340 ms"; "infinite" when its rank falls on a failed request."""
    name = "e2e" if percentile.metric == "e2e" else percentile.metric.upper()
    value = "infinite" if percentile.infinite else "unknown"
    if percentile.value_ms is not None:
        value = f"{number(percentile.value_ms)} ms"
    return f"{name} p{percentile.percentile:g} {value}"
