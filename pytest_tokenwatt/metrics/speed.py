"""Speed of a candidate against the baseline's by profile, how sure it is, and the mean over profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from pytest_tokenwatt.metrics.profile import profile_rate
from pytest_tokenwatt.metrics.spread import drift_pct
from pytest_tokenwatt.records.profiles import ProfileRecord, ProfileRun, Ratio

_TWO_SIDED_95 = 0.975


def speed_ratio(candidate: ProfileRecord, baseline: ProfileRecord, again: ProfileRecord | None) -> Ratio:
    """Output tok/s of the candidate / the baseline's, with its 95 % half-width.

    Value: tokens over seconds of all repeats on both sides. Error from the log-ratios d of paired repeats (the r-th of
    each side), n ≥ 2: h = t(0.975, n − 1) · sd(d) / √n, as a share e^h − 1, which holds both ends of the interval
    [e^−h, e^h]. Two starts of one engine may differ by more than its repeats do: |A′ − A| / A of the baseline's two
    starts (``again`` is A′) is added, a bound and no random part, hence not in quadrature. With one repeat it is the
    error alone. Without A′ only what repeats show is in the error (``error_source`` says so); an A′ that is invalid
    leaves it unknown.

    A candidate with ``paired`` runs is compared with those instead, value and error: they were taken in turn with its
    own, so that drift of the machine is in the pairs already and A′ is not needed.
    """
    base_rate = profile_rate(candidate.paired) if candidate.paired else baseline.output_tok_s
    if candidate.output_tok_s is None or not base_rate:
        return Ratio(None, None, _without_rate(candidate, baseline))
    value = candidate.output_tok_s / base_rate
    spread = _half_width(*_sides(candidate, baseline))
    if candidate.paired and spread is not None:
        return Ratio(value, value * spread)
    if again is not None and drift(baseline, again) is None:
        return Ratio(value, None, f"the baseline's repeat gave no rate: {_why(again)}")
    moved = None if again is None else drift(baseline, again)
    if spread is None and moved is None:
        return Ratio(value, None, f"{_repeats(candidate, baseline)}, and the baseline was not measured again")
    return Ratio(value, value * ((spread or 0.0) + (moved or 0.0)), drift=value * (moved or 0.0))


def drift(baseline: ProfileRecord, again: ProfileRecord) -> float | None:
    """|A′ − A| / A of the output rate between two starts of the baseline; ``None`` when either has none."""
    moved_pct = drift_pct(baseline.output_tok_s, again.output_tok_s)
    return None if moved_pct is None else moved_pct / 100.0


def error_source(candidate: ProfileRecord, baseline: ProfileRecord, again: ProfileRecord | None) -> str:
    """In words, where the error of ``speed_ratio`` comes from."""
    ours, theirs = _sides(candidate, baseline)
    pairs = min(len(ours), len(theirs))
    if candidate.paired and pairs > 1:
        return f"{pairs} repeats in turn with the baseline's"
    moved = "the baseline's change from its first to its second start"
    if pairs > 1:
        return f"{pairs} repeats, {f'and {moved}' if again is not None else 'without a bound on drift between starts'}"
    return f"{moved}, from one repeat" if again is not None else "not known from one repeat"


def geometric_mean(ratios: Mapping[str, Ratio]) -> Ratio:
    """The geometric mean G of k ratios and its error; of speeds over profiles, and of memory gains.

    The log of G is the mean of the logs. What repeats show of one profile says nothing of another: such parts s_i
    (relative) are independent and add up to √(Σ s_i²) / k; put together from half-widths with a t quantile each, that
    still covers 95 % (Banerjee, Sankhyā 23, 1961, on weighted sums of means). Drift is of the machine, one and the
    same for all profiles: those parts d_i do not average out and add up to Σ d_i / k. Error = G · (both). ``None`` with
    its profile named when any error is, since a part that is not known bounds nothing.
    """
    if not ratios:
        return Ratio(None, None, "no profile was compared")
    unknown = [
        f"{name}: {ratio.missing or 'not known'}" for name, ratio in ratios.items() if not (ratio.value or 0.0) > 0
    ]
    if unknown:
        return Ratio(None, None, "; ".join(unknown))
    known = [(ratio.value or 0.0, ratio) for ratio in ratios.values()]
    mean = math.exp(math.fsum(math.log(value) for value, _ in known) / len(known))
    unsure = [f"{name}: {ratio.missing or 'not known'}" for name, ratio in ratios.items() if ratio.error is None]
    if unsure:
        return Ratio(mean, None, "; ".join(unsure))
    own = math.hypot(*(((ratio.error or 0.0) - ratio.drift) / value for value, ratio in known)) / len(known)
    common = math.fsum(ratio.drift / value for value, ratio in known) / len(known)
    return Ratio(mean, mean * (own + common), drift=mean * common)


def smallest_change(ratio: Ratio) -> float | None:
    """The smallest relative change that such a measurement tells from none: its error over its value.

    Were both engines equally fast, the half-width would be this share around 1, and a ratio inside it is no measurable
    difference. ``None`` when the error is not known.
    """
    return None if ratio.error is None or not ratio.value else ratio.error / ratio.value


def _sides(candidate: ProfileRecord, baseline: ProfileRecord) -> tuple[Sequence[ProfileRun], Sequence[ProfileRun]]:
    return candidate.runs, candidate.paired or baseline.runs


def _repeats(candidate: ProfileRecord, baseline: ProfileRecord) -> str:
    return "there is one repeat" if all(_sides(candidate, baseline)) else "repeats are not on record"


def _half_width(candidate: Sequence[ProfileRun], baseline: Sequence[ProfileRun]) -> float | None:
    """The relative half-width from paired repeats; ``None`` below two pairs. Repeats without a partner are left out."""
    pairs = [(ours.output_tok_s, theirs.output_tok_s) for ours, theirs in zip(candidate, baseline, strict=False)]
    logs = [math.log(ours / theirs) for ours, theirs in pairs if ours and theirs and ours / theirs > 0]
    if len(logs) < 2 or len(logs) < len(pairs):
        return None
    half = stdtrit(len(logs) - 1, _TWO_SIDED_95) * np.std(logs, ddof=1) / math.sqrt(len(logs))
    return float(np.expm1(half))


def _without_rate(candidate: ProfileRecord, baseline: ProfileRecord) -> str:
    if candidate.output_tok_s is None:
        return f"candidate: {_why(candidate)}"
    run = next((run for run in candidate.paired if run.invalid), None)
    if run is not None:
        return f"baseline, in turn with the candidate: {run.invalid[0]}"
    return f"baseline: {_why(baseline)}"


def _why(record: ProfileRecord) -> str:
    return str(record.invalid[0]) if record.invalid else f"{record.name} gave no output rate"
