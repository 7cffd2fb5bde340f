"""A configuration's closed-loop speed and memory against the baseline's: what gates and reports say of the difference.

Ratios are better when they are larger: candidate / baseline tokens per second, baseline / candidate memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_tokenwatt.gates.band import session_band_pct
from pytest_tokenwatt.gates.between import peaks_gib, rates, widened
from pytest_tokenwatt.gates.comparable import incomparable, other_hardware, other_machine, other_profile, unlike
from pytest_tokenwatt.gates.finding import baseline_fault
from pytest_tokenwatt.gates.stated import COUNTED_AS_0, counted_as_0, lacks_error, stated_mean_ratio, stated_ratio
from pytest_tokenwatt.gates.telling import why_no_peak
from pytest_tokenwatt.metrics.goodput import goodput_ratio_error
from pytest_tokenwatt.metrics.memory import memory_gain, memory_saved
from pytest_tokenwatt.metrics.speed import error_source, geometric_mean, smallest_change, speed_ratio
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import MemoryDelta, ProfileRecord, Ratio, SpeedDelta
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.traffic import ONLINE_SLO


@dataclass(frozen=True, slots=True)
class Online:
    """The goodput search as a profile: its scenario, and the session's band of goodput in per cent."""

    scenario: str
    band_pct: float | None = None


def repeated_profiles(baseline: ConfigRecord, records: Sequence[ConfigRecord]) -> Mapping[str, ProfileRecord]:
    """The baseline's profiles as they were measured again: by its second start, else by a declared repeat of it."""
    repeats = (record.profiles for record in records if record.like == baseline.key and not record.invalid)
    return baseline.again or next(repeats, {})


def online_profile(
    scenario: str | None, records: Sequence[ConfigRecord], baselines: Sequence[ConfigRecord] = ()
) -> Online | None:
    """The goodput search of ``scenario`` with the band of all ``records``; ``None`` where it is no profile."""
    return None if scenario is None else Online(scenario, session_band_pct(records, scenario, baselines))


def speed_deltas(
    spec: Spec,
    records: Sequence[ConfigRecord],
    baseline: ConfigRecord | None = None,
    baselines: Sequence[ConfigRecord] = (),
) -> dict[str, SpeedDelta]:
    """By configuration, its speed against that of ``baseline`` (else of the record whose role that is).

    ``baselines`` are all runs of the baseline on record. Nothing for a baseline itself, without any, or without
    profiles.
    """
    base = baseline or next((record for record in records if record.role == "baseline"), None)
    if base is None or not (spec.profiles or spec.online_slo):
        return {}
    again = repeated_profiles(base, records)
    scenario = spec.configurations[0].scenarios[0].name if spec.online_slo else None
    online, names = online_profile(scenario, records, baselines), list(spec.profiles)
    return {
        record.key: speed_delta(record, base, again, names=names, online=online, baselines=baselines)
        for record in records
        if record.role != "baseline"
    }


def memory_deltas(
    spec: Spec,
    records: Sequence[ConfigRecord],
    baseline: ConfigRecord | None = None,
    baselines: Sequence[ConfigRecord] = (),
) -> dict[str, MemoryDelta]:
    """By configuration, its memory against the baseline's, as ``speed_deltas``."""
    base = baseline or next((record for record in records if record.role == "baseline"), None)
    if base is None or not spec.profiles:
        return {}
    names = list(spec.profiles)
    return {
        record.key: memory_delta(record, base, names=names, baselines=baselines)
        for record in records
        if record.role != "baseline"
    }


# --- speed


def speed_delta(
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    again: Mapping[str, ProfileRecord],
    *,
    names: Sequence[str] | None = None,
    online: Online | None = None,
    baselines: Sequence[ConfigRecord] = (),
) -> SpeedDelta:
    """Output tok/s of the profiles ``names`` (default: all of either side) and of ``online``, and their mean.

    ``again`` are the baseline's profiles of its second measurement, which bound the machine's drift, as do further runs
    of it on record (``baselines``). One profile that
    cannot be compared leaves no mean: that of the others would be one of something else.
    """
    asked = list(_names(candidate, baseline) if names is None else names)
    fault = _sides_fault(candidate, baseline) or other_machine(candidate, baseline)
    if fault is not None:
        return SpeedDelta(faults=(fault,))
    found = {name: _speed(name, candidate, baseline, again, baselines) for name in asked}
    if online is not None:
        found[ONLINE_SLO] = _online_ratio(online, candidate, baseline)
    profiles, faults = _sorted_out(found)
    overall = _overall(profiles, faults, "speed", candidate)
    smallest = None if overall is None or counted_as_0(profiles) else smallest_change(overall)
    return SpeedDelta(profiles, overall, smallest, _how(profiles, candidate, baseline, again, baselines), faults)


def _overall(
    ratios: Mapping[str, Ratio], faults: Sequence[Reason], figure: str, candidate: ConfigRecord
) -> Ratio | None:
    """The mean of all profiles; ``None`` where one is missing."""
    return None if faults or not ratios else stated_mean_ratio(geometric_mean(ratios), ratios, figure, candidate)


def _names(candidate: ConfigRecord, baseline: ConfigRecord) -> Iterator[str]:
    yield from dict.fromkeys([*baseline.profiles, *candidate.profiles])


def _speed(
    name: str,
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    again: Mapping[str, ProfileRecord],
    baselines: Sequence[ConfigRecord],
) -> Ratio | Reason:
    fault = _profile_fault(name, candidate, baseline)
    if fault is not None:
        return fault
    found = speed_ratio(candidate.profiles[name], baseline.profiles[name], _repeat(name, baseline, again))
    return stated_ratio(widened(found, rates(name, baselines)), f"speeds.{name}", candidate)


def _repeat(name: str, baseline: ConfigRecord, again: Mapping[str, ProfileRecord]) -> ProfileRecord | None:
    """The second measurement of a profile; one of another load says nothing of the machine's drift."""
    record = again.get(name)
    return None if record is None or unlike(record, baseline.profiles[name]) else record


def _sorted_out(found: Mapping[str, Ratio | Reason]) -> tuple[dict[str, Ratio], tuple[Reason, ...]]:
    """The ratios, and why others are missing, each with the profile's name."""
    ratios = {name: each for name, each in found.items() if isinstance(each, Ratio) and each.value is not None}
    faults = [each for each in found.values() if isinstance(each, Reason)]
    faults += [
        Reason("not_measured", f"{name}: {each.missing or 'no ratio'}")
        for name, each in found.items()
        if isinstance(each, Ratio) and each.value is None
    ]
    return ratios, tuple(faults)


def _how(
    profiles: Mapping[str, Ratio],
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    again: Mapping[str, ProfileRecord],
    baselines: Sequence[ConfigRecord],
) -> str:
    """Where the errors come from: once where it is the same for all profiles."""
    if candidate.stored is not None and not any(record.runs for record in candidate.profiles.values()):
        return COUNTED_AS_0 if counted_as_0(profiles) else "as stored"
    told = {
        name: error_source(candidate.profiles[name], baseline.profiles[name], _repeat(name, baseline, again))
        for name in profiles
        if name in candidate.profiles
    }
    if ONLINE_SLO in profiles:
        told[ONLINE_SLO] = "the error of the ratio of goodputs"
    each = [f"{name}: {source}" for name, source in told.items()]
    how = next(iter(told.values()), "") if len(set(told.values())) < 2 else "; ".join(each)
    return f"{how}, and {len(baselines)} runs of the baseline" if how and len(baselines) > 1 else how


def _online_ratio(online: Online, candidate: ConfigRecord, baseline: ConfigRecord) -> Ratio | Reason:
    """Output tok/s at the rates that the searches found; the error is that of the ratio of goodputs."""
    name, record = ONLINE_SLO, candidate.scenarios.get(online.scenario)
    if record is None or record.invalid or not record.output_tok_s:
        why = record.invalid[0] if record and record.invalid else "no rate was confirmed"
        code = record.invalid[0].code if record and record.invalid else "not_measured"
        return Reason(code, f"{name}: {why}")
    fault = baseline_fault(baseline, online.scenario) or incomparable(record, baseline.scenarios[online.scenario])
    if fault is not None:
        return Reason(fault.code, f"{name}: {fault.text}")
    base = baseline.scenarios[online.scenario]
    if not base.output_tok_s:
        return Reason("baseline_invalid", f"{name}: no rate of baseline {baseline.key} was confirmed")
    value = record.output_tok_s / base.output_tok_s
    if base.bracket == "open" and record.bracket != "open":
        return Ratio(value, None, "the baseline passed at max_rps, so that it may be faster")
    error = goodput_ratio_error(record, base, online.band_pct)
    if lacks_error(candidate, error, "goodput_error_pct", "variance_band_pct"):
        return Ratio(value, 0.0, COUNTED_AS_0)
    return Ratio(value, error)


# --- memory


def memory_delta(
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    *,
    names: Sequence[str] | None = None,
    baselines: Sequence[ConfigRecord] = (),
) -> MemoryDelta:
    """Baseline / candidate peak memory of the profiles ``names`` (default: all of either side), and their mean.

    ``baselines`` are all runs of the baseline on record.
    """
    fault = _sides_fault(candidate, baseline)
    if fault is not None:
        return MemoryDelta(faults=(fault,))
    asked = _names(candidate, baseline) if names is None else names
    profiles, faults = _sorted_out({name: _gain(name, candidate, baseline, baselines) for name in asked})
    return MemoryDelta(profiles, _overall(profiles, faults, "memory", candidate), memory_saved(profiles), faults)


def _gain(
    name: str, candidate: ConfigRecord, baseline: ConfigRecord, baselines: Sequence[ConfigRecord]
) -> Ratio | Reason:
    fault = _profile_fault(name, candidate, baseline)
    if fault is not None:
        return fault
    ours, theirs = candidate.profiles[name].memory, baseline.profiles[name].memory
    found = memory_gain(ours, theirs)
    if found.value is None:
        return replace(found, missing=why_no_peak(ours, theirs) or found.missing)
    nulls = (f"peak_memory.{name}.error", f"anchor_peak_memory.{name}.error")
    return stated_ratio(widened(found, peaks_gib(name, baselines), 0.5), f"memories.{name}", candidate, *nulls)


# --- what cannot be compared


def profile_faults(record: ProfileRecord) -> tuple[Reason, ...]:
    """Why a profile's figures are not to be believed; empty when they are."""
    broken = [reason for run in record.runs for reason in run.invalid]
    reasons = tuple(dict.fromkeys((*record.invalid, *broken)))
    # Of other tools only the figures are known, which need not be all.
    figures = (record.output_tok_s,) if record.runs else (record.output_tok_s, record.memory.peak_gib)
    if reasons or (any(figures) and (record.runs or not record.load_sha256)):
        return reasons
    return (Reason("not_measured", f"{record.name}: no output was counted"),)


def config_profile_faults(config: ConfigRecord, name: str) -> tuple[Reason, ...]:
    """Why a configuration's figures of the profile ``name`` are not to be believed; empty when they are."""
    if config.invalid:
        return config.invalid
    record = config.profiles.get(name)
    if record is None:
        return (Reason("not_measured", f"{config.key} has no record of profile {name}"),)
    return tuple(_named(name, reason) for reason in profile_faults(record))


def _sides_fault(candidate: ConfigRecord, baseline: ConfigRecord) -> Reason | None:
    if candidate.invalid:
        return candidate.invalid[0]
    if baseline.invalid:
        return Reason("baseline_invalid", f"baseline {baseline.key}: {baseline.invalid[0]}")
    return other_hardware(candidate, baseline)


def _profile_fault(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> Reason | None:
    """Why one profile of two configurations cannot be compared."""
    own, theirs = config_profile_faults(candidate, name), config_profile_faults(baseline, name)
    if own:
        return own[0]
    record = candidate.profiles[name]
    paired = [_named(name, reason) for run in record.paired for reason in run.invalid]
    if theirs or paired:
        return Reason("baseline_invalid", f"baseline {baseline.key}: {(*theirs, *paired)[0]}")
    return other_profile(record, baseline.profiles[name])


def _named(name: str, reason: Reason) -> Reason:
    """A reason that says which profile it is about."""
    return reason if reason.text.startswith(name) else Reason(reason.code, f"{name}: {reason.text}")
