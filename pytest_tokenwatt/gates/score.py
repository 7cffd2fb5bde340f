"""The leaderboard figures of a configuration from plain numbers, so that a stored record is scored by the same rules.

E = sqrt(speed / (1 + max(0, length shift)) · memory), D = points per nat · KL, score = E · exp(−D / 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.metrics.domains import tier_of
from pytest_tokenwatt.records import Reason, Verdict
from pytest_tokenwatt.records.profiles import ScoreDelta

DRIFT_SCALE = 10.0
"""Points of drift that divide a score by e."""


@dataclass(frozen=True, slots=True)
class Term:
    """One number that a score is made of and its standard error; ``None``: not known, ``missing`` says why."""

    value: float | None = None
    se: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What a gate that the score rests on found; ``text`` says why it did not pass."""

    verdict: Verdict
    text: str = ""


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """All that a score is made of. ``speed`` and ``memory`` are gains, ``length_shift`` a share, ``drift`` in points.

    ``mean_drop_pts`` is over ``valid_domains`` suites, and ``tiers`` maps names to the largest mean drop. ``gates`` are
    those that must pass, in the order in which a reason names the first that did not. ``faults`` say why the record is
    not admitted: its contract, or measurements that are not to be believed.
    """

    speed: Term
    memory: Term
    length_shift: Term
    drift: Term
    mean_drop_pts: float | None = None
    valid_domains: int | None = None
    tiers: Mapping[str, float] = field(default_factory=dict)
    gates: Mapping[str, Standing] = field(default_factory=dict)
    faults: tuple[Reason, ...] = ()


def score_of(parts: ScoreParts) -> ScoreDelta:
    """Score a record. Figures without all that they are made of are ``None`` with the reason in ``missing``.

    A gate that failed, or a fault, disqualifies; otherwise an undecided gate leaves open whether it qualifies, and so
    does a score that is not known.
    """
    gain, drift = _gain(parts), parts.drift.value
    score = None if gain is None or drift is None else gain * math.exp(-drift / DRIFT_SCALE)
    tier = None if parts.mean_drop_pts is None else tier_of(parts.mean_drop_pts, parts.tiers)
    figures = {
        "efficiency_gain": gain,
        "drift": drift,
        "score": score,
        "score_se": None if score is None else _score_se(parts, score),
        "mean_drop_pts": parts.mean_drop_pts,
    }
    missing = {name: _why(name, parts) for name, value in figures.items() if value is None}
    if tier is None:
        missing["tier"] = missing.get("mean_drop_pts") or f"a mean drop of {parts.mean_drop_pts:.3g} pt is beyond all"
    undecided = tuple(name for name, each in parts.gates.items() if each.verdict is Verdict.INCONCLUSIVE)
    qualified, reason = _standing(parts, undecided, missing.get("score"))
    return ScoreDelta(
        **figures,
        tier=tier,
        valid_domains=parts.valid_domains,
        admitted=not parts.faults,
        qualified=qualified,
        reason=reason,
        undecided=undecided,
        missing=missing,
    )


def drift_points(kl: float, kl_se: float | None, points_per_nat: float) -> Term:
    """D = points per nat · KL, in nats per token; a KL below 0 is rounding, and counts as 0."""
    return Term(points_per_nat * max(0.0, kl), None if kl_se is None else points_per_nat * kl_se)


def _gain(parts: ScoreParts) -> float | None:
    speed, memory, shift = parts.speed.value, parts.memory.value, parts.length_shift.value
    if speed is None or memory is None or shift is None or speed < 0 or memory < 0:
        return None
    return math.sqrt(speed / (1.0 + max(0.0, shift)) * memory)


def _score_se(parts: ScoreParts, score: float) -> float | None:
    """By propagation of independent errors through ln score = (ln speed − ln(1 + L) + ln memory) / 2 − D / 10.

    se² = score² · {[(se_speed / speed)² + (se_memory / memory)² + (se_L / (1 + L))²] / 4 + (se_D / 10)²}, the third
    term only for L > 0: shorter answers do not count. ``None`` when a needed error is not known.
    """
    shift = parts.length_shift.value or 0.0
    terms = [
        _relative(parts.speed, 2.0),
        _relative(parts.memory, 2.0),
        None if parts.drift.se is None else parts.drift.se / DRIFT_SCALE,
    ]
    if shift > 0:
        error = parts.length_shift.se
        terms.append(None if error is None else error / (1.0 + shift) / 2.0)
    known = [term for term in terms if term is not None]
    return score * math.hypot(*known) if len(known) == len(terms) else None


def _relative(term: Term, divisor: float) -> float | None:
    return None if term.se is None or not term.value else term.se / term.value / divisor


_NEEDS = {
    "efficiency_gain": ("speed", "memory", "length_shift"),
    "drift": ("drift",),
    "score": ("speed", "memory", "length_shift", "drift"),
    "score_se": ("speed", "memory", "length_shift", "drift"),
}
"""Which parts a figure is made of."""


def _why(figure: str, parts: ScoreParts) -> str:
    """Why a figure is not known."""
    if figure == "mean_drop_pts":
        return "no accuracy suite can be compared"
    terms: dict[str, Term] = {name: getattr(parts, name) for name in _NEEDS[figure]}
    lacking = [f"{name}: {term.missing or 'not measured'}" for name, term in terms.items() if term.value is None]
    if lacking or figure != "score_se":
        return "; ".join(lacking) or "not a number that can be scored"
    unsure = [name for name, term in terms.items() if term.se is None]
    return f"the error is not known of {', '.join(unsure)}"


def _standing(parts: ScoreParts, undecided: tuple[str, ...], no_score: str | None) -> tuple[bool | None, str | None]:
    """Whether the record qualifies (``None``: open), and why it does not."""
    first = next(_failed(parts), None)
    if first is not None:
        return False, first
    if parts.faults:
        return False, str(parts.faults[0])
    if undecided:
        return None, f"{undecided[0]} is undecided: {parts.gates[undecided[0]].text}"
    return (True, None) if no_score is None else (None, f"there is no score: {no_score}")


def _failed(parts: ScoreParts) -> Iterator[str]:
    for name, each in parts.gates.items():
        if each.verdict is Verdict.FAIL:
            yield f"{name} failed: {each.text}"
