"""A configuration's drift against the baseline's: what gates and reports say of the difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_tokenwatt.gates.comparable import other_hardware
from pytest_tokenwatt.gates.identity import same_numbers, separate_starts
from pytest_tokenwatt.gates.stated import lacks_error, stated_perplexity
from pytest_tokenwatt.gates.wording import nats
from pytest_tokenwatt.metrics.divergence import is_exact_zero
from pytest_tokenwatt.metrics.perplexity import perplexity
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.drift import Divergence, DriftDelta, KlDelta, PerplexityDelta, PerplexityRecord
from pytest_tokenwatt.spec.model import Spec

ONE_SIDED = 1.645
"""Standard errors to a one-sided 95 % bound."""
JOINT_ERRORS = 3.0
"""Joint standard errors beyond which two estimators of one divergence contradict each other."""
_IN_ONE_RUN = "score both in one run, or the candidate with --tokenwatt-baseline"
_ROUNDING = 1e-5
"""A divergence is never below 0; one of 32-bit logarithms may come out so far below it."""


def drift_deltas(
    spec: Spec, records: Sequence[ConfigRecord], baseline: ConfigRecord | None = None
) -> dict[str, DriftDelta]:
    """By configuration, its drift from ``baseline`` (else from the record whose role that is).

    Nothing for a baseline itself, without any, or without a ``drift`` block.
    """
    base = baseline or next((record for record in records if record.role == "baseline"), None)
    if base is None or spec.drift is None:
        return {}
    control, names = spec.drift.control, [corpus.name for corpus in spec.drift.perplexity]
    return {
        record.key: DriftDelta(
            kl_delta(record, base, control=control),
            _control(base),
            {name: perplexity_delta(name, record, base) for name in names},
        )
        for record in records
        if record.role != "baseline"
    }


def drift_faults(config: ConfigRecord) -> tuple[Reason, ...]:
    """Why nothing that was scored on a configuration is to be believed; empty when it is."""
    if config.invalid:
        return config.invalid
    if config.drift is None:
        return (Reason("not_measured", f"{config.key} was not scored"),)
    return config.drift.invalid


# --- KL divergence


def kl_delta(candidate: ConfigRecord, baseline: ConfigRecord, *, control: bool = True) -> KlDelta:
    """The divergence over the baseline's from itself; ``control`` says that the latter was to be measured.

    Errors join in quadrature: both divergences are of the same sequences, and what they share only makes the error of
    their difference smaller. Without an expected control neither bound is known; where none was to be measured it
    counts as 0.
    """
    faults = tuple(_kl_faults(candidate, baseline))
    found, own = _against(candidate), _control(baseline)
    if faults or found is None:
        return KlDelta(faults=faults)
    found = _completed(found, candidate)
    own = None if own is None else _completed(own, baseline)
    if own is None or own.kl is None:
        if control:
            text = f"the noise of baseline {baseline.key} is not known: it was not scored against itself"
            return KlDelta(value=found.kl, se=found.kl_se, doubts=(Reason("no_control", text),))
        return _over(found, None, 0.0)
    return _over(found, own.kl, own.kl_se)


def _completed(found: Divergence, config: ConfigRecord) -> Divergence:
    """A divergence of another tool: an error that it has no field for counts as 0, and so does that of a bound.

    One without a bound of its own is exact as far as is known, so that it is its own bound.
    """
    if config.stored is None or found.kl is None:
        return found
    if lacks_error(config, found.kl_se, "kl.kl_se", "kl_se", "kl.identity.kl_se"):
        found = replace(found, kl_se=0.0)
    if found.kl_lower is None and lacks_error(config, None, "kl.kl_lower", "kl_lower"):
        return replace(found, kl_lower=found.kl, kl_lower_se=found.kl_se)
    if lacks_error(config, found.kl_lower_se, "kl.kl_lower_se", "kl_lower_se"):
        return replace(found, kl_lower_se=found.kl_se)
    return found


def _against(config: ConfigRecord) -> Divergence | None:
    return config.drift.against if config.drift else None


def _control(config: ConfigRecord) -> Divergence | None:
    return config.drift.control if config.drift else None


def _over(found: Divergence, control: float | None, control_se: float | None) -> KlDelta:
    level, se = control or 0.0, _joint(found.kl_se, control_se)
    lower_se = _joint(found.kl_lower_se, control_se)
    return KlDelta(
        value=None if found.kl is None else found.kl - level,
        se=se,
        lower=None if found.kl_lower is None or lower_se is None else found.kl_lower - level - ONE_SIDED * lower_se,
        upper=None if found.kl is None or se is None else found.kl - level + ONE_SIDED * se,
        control=control,
        bit_identical=is_exact_zero(found),
        doubts=tuple(_doubts(found, se)),
    )


def _joint(*errors: float | None) -> float | None:
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def _doubts(found: Divergence, se: float | None) -> Iterator[Reason]:
    yield from found.doubts
    if found.doubts:
        return
    joint = _joint(found.kl_se, found.kl_sampled_se)
    if found.kl is None:
        yield Reason("not_extrapolated", "only the guaranteed bound is known")
    elif se is None:
        yield Reason("error_unknown", "one sequence tells no error; score more of them")
    elif found.kl_sampled is not None and joint is not None and _contradict(found.kl, found.kl_sampled, joint):
        text = f"extrapolated {nats(found.kl)} and sampled {nats(found.kl_sampled)} nats"
        text = f"{text} differ by more than {JOINT_ERRORS:g} joint errors of {nats(joint)}"
        yield Reason("estimators_disagree", f"{text}; score with a larger top_k")


def _contradict(one: float, other: float, joint: float) -> bool:
    """Single precision tells no differences below the rounding, however small the errors."""
    return abs(one - other) > max(JOINT_ERRORS * joint, _ROUNDING)


def _kl_faults(candidate: ConfigRecord, baseline: ConfigRecord) -> Iterator[Reason]:
    """Why there is no divergence to speak of: the first kind of fault only."""
    own = [*drift_faults(candidate), *_scoring_faults(candidate)]
    # What another tool says of a divergence needs no record of what the baseline was scored on.
    alone = candidate.stored is not None and baseline.drift is None and not baseline.invalid
    theirs = [] if alone else [*drift_faults(baseline), *_figure_faults(baseline, _control(baseline))]
    if own:
        yield from own
    elif theirs:
        yield Reason("baseline_invalid", f"baseline {baseline.key}: {theirs[0]}")
    elif _differ(candidate.drift.sha256 if candidate.drift else "", baseline.drift.sha256 if baseline.drift else ""):
        yield Reason(
            "incomparable", f"{candidate.key} and {baseline.key} were scored on different token ids; {_IN_ONE_RUN}"
        )
    elif (hardware := other_hardware(candidate, baseline)) is not None:
        yield hardware
    else:
        yield from _zero_faults(candidate, baseline)


def _differ(ours: str, theirs: str) -> bool:
    """Records of other tools have no hash, and are not judged on it."""
    return len({ours, theirs} - {""}) > 1


def _scoring_faults(candidate: ConfigRecord) -> Iterator[Reason]:
    if candidate.drift is None or candidate.drift.invalid:
        return
    found = candidate.drift.against
    if found is None or (found.kl is None and found.kl_lower is None and not found.invalid):
        text = f"{candidate.key} has no divergence from the baseline; measure it as a candidate of that baseline"
        yield Reason("not_measured", text)
    yield from _figure_faults(candidate, found)


def _figure_faults(config: ConfigRecord, found: Divergence | None) -> Iterator[Reason]:
    """What is wrong with a divergence by itself."""
    if found is None:
        return
    yield from found.invalid
    figures = {
        "kl": found.kl,
        "kl_se": found.kl_se,
        "kl_lower": found.kl_lower,
        "kl_lower_se": found.kl_lower_se,
        "kl_sampled": found.kl_sampled,
        "kl_sampled_se": found.kl_sampled_se,
    }
    broken = [f"{name} {value}" for name, value in figures.items() if value is not None and not math.isfinite(value)]
    if broken:
        yield Reason("not_finite", f"{config.key}: {', '.join(broken)}")
    elif found.kl is not None and found.kl < -(_ROUNDING + JOINT_ERRORS * (found.kl_se or 0.0)):
        text = f"{config.key}: a divergence of {nats(found.kl)} nats is below 0: these are no log-probabilities"
        yield Reason("negative_divergence", text)


def _zero_faults(candidate: ConfigRecord, baseline: ConfigRecord) -> Iterator[Reason]:
    """A divergence of exactly 0 is that of one engine from itself, unless two of them compute the same."""
    found = _against(candidate)
    if found is None or not is_exact_zero(found):
        return
    if not separate_starts(candidate, baseline):
        why = "both were scored on one engine"
    elif not same_numbers(candidate, baseline):
        why = "the two are not known to have the same weights and KV cache type"
    else:
        return
    text = f"{candidate.key} does not differ from {baseline.key} at all, but {why}"
    yield Reason("zero_divergence", f"{text}; check that its settings take effect")


# --- perplexity


def perplexity_delta(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> PerplexityDelta:
    """The corpus ``name`` on two configurations, paired by window."""
    ours, theirs = perplexity_of(name, candidate), perplexity_of(name, baseline)
    stated = None if ours and ours.nll else stated_perplexity(name, candidate, baseline)
    if stated is not None and not (candidate.drift and candidate.drift.invalid):
        return stated
    faults = tuple(_perplexity_faults(name, candidate, baseline))
    if faults or ours is None or theirs is None:
        windows, tokens = (ours.windows, ours.tokens) if ours else (0, 0)
        return PerplexityDelta(name, None, None, None, None, windows, tokens, faults)
    return perplexity(theirs, ours)


def perplexity_of(name: str, config: ConfigRecord) -> PerplexityRecord | None:
    """What a configuration says of the corpus ``name``."""
    return config.drift.perplexity.get(name) if config.drift else None


def perplexity_faults(name: str, config: ConfigRecord) -> tuple[Reason, ...]:
    """Why a configuration's perplexity on a corpus is not to be believed; empty when it is."""
    record = perplexity_of(name, config)
    faults = drift_faults(config) or (record.invalid if record else ())
    if faults:
        return faults
    if record is None or not record.nll:
        return (Reason("not_measured", f"{config.key} has no perplexity of {name}"),)
    if not all(map(math.isfinite, record.nll)):
        return (Reason("not_finite", f"{config.key}: a window of {name} has no finite likelihood"),)
    return ()


def _perplexity_faults(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> Iterator[Reason]:
    own, theirs = perplexity_faults(name, candidate), perplexity_faults(name, baseline)
    if own:
        yield from own
        return
    if theirs:
        yield Reason("baseline_invalid", f"baseline {baseline.key}: {theirs[0]}")
        return
    ours, base = perplexity_of(name, candidate), perplexity_of(name, baseline)
    if ours and base and (_differ(ours.sha256, base.sha256) or len(ours.nll) != len(base.nll)):
        yield Reason("incomparable", f"{candidate.key} and {baseline.key} were scored on different windows of {name}")
    elif (hardware := other_hardware(candidate, baseline)) is not None:
        yield hardware
