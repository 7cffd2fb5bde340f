"""Which records may be compared: what must be equal between two of them, and what a user lets differ.

Engine version, arguments, checkpoint and precision may always differ: that is what is being compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, Reason, SuiteRecord
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.spec.model import Workload

OPTION = "--tokenwatt-allow-diff"
DRIVER, HARDWARE, POWER_LIMIT = "driver", "hardware", "power_limit"
SLO, SUITE, WORKLOAD = "slo", "suite", "workload"
ALLOWABLE = (DRIVER, HARDWARE, POWER_LIMIT, SLO, SUITE, WORKLOAD)
"""What records may be allowed to differ in."""
_ALWAYS = ("checkpoint", "engine", "precision")
"""What they may differ in anyway."""
_TIMED = frozenset({DRIVER, HARDWARE, POWER_LIMIT, SLO, WORKLOAD})
_MATTERS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("goodput", "energy", "speed", "rule", "score"), _TIMED),
    "memory": frozenset({HARDWARE, WORKLOAD}),
    **dict.fromkeys(("accuracy", "length"), frozenset({HARDWARE, SUITE})),
    **dict.fromkeys(("kl", "perplexity"), frozenset({HARDWARE})),
}
"""By kind of gate, the differences that make its two sides incomparable."""


@dataclass(frozen=True, slots=True)
class Comparing:
    """How candidates are compared with their baseline.

    ``allow`` are names of ``ALLOWABLE`` in which records may differ. ``baselines`` are all runs of the baseline that
    are on record, the one that is compared with among them: how far they are apart widens the errors of ratios.
    """

    allow: frozenset[str] = frozenset()
    baselines: tuple[ConfigRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Sides:
    """What two records are called in sentences on how they differ."""

    ours: str = "the candidate"
    theirs: str = "the baseline"
    both: str = "candidate and baseline"


_ROLES = Sides()


def allowed_names(names: Iterable[str]) -> frozenset[str]:
    """The names that a user gave. Raises ``UsageError`` for one that there is not, with the nearest."""
    asked = frozenset(names)
    known = (*ALLOWABLE, *_ALWAYS)
    for name in sorted(asked.difference(known)):
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        remedy = f"{hint}names: {', '.join(ALLOWABLE)} ({', '.join(_ALWAYS)} may differ anyway)"
        raise UsageError(f"records cannot be allowed to differ in {name!r}", where=OPTION, remedy=remedy)
    return asked


# --- the machine


def other_hardware(candidate: ConfigRecord, baseline: ConfigRecord, called: Sides = _ROLES) -> Reason | None:
    """Why two configurations cannot be compared: they ran on different accelerators. Unknown ones are not judged."""
    ours, theirs = (sorted({gpu.name for gpu in record.gpus if gpu.name}) for record in (candidate, baseline))
    if not ours or not theirs or ours == theirs:
        return None
    return _differs(HARDWARE, f"{called.ours} ran on {' and '.join(ours)}, {called.theirs} on {' and '.join(theirs)}")


def other_machine(candidate: ConfigRecord, baseline: ConfigRecord) -> Reason | None:
    """The same for figures of time and power, which also depend on the power limit and the driver."""
    return (
        other_hardware(candidate, baseline) or _other_limit(candidate, baseline) or _other_driver(candidate, baseline)
    )


def _other_limit(candidate: ConfigRecord, baseline: ConfigRecord, called: Sides = _ROLES) -> Reason | None:
    limits = [sorted({gpu.limit_w for gpu in record.gpus if gpu.limit_w}) for record in (candidate, baseline)]
    if not all(limits) or limits[0] == limits[1]:
        return None
    ours, theirs = ("/".join(f"{limit:g}" for limit in each) for each in limits)
    return _differs(POWER_LIMIT, f"{called.ours} ran at a power limit of {ours} W, {called.theirs} at {theirs} W")


def _other_driver(candidate: ConfigRecord, baseline: ConfigRecord, called: Sides = _ROLES) -> Reason | None:
    ours, theirs = _drivers(candidate), _drivers(baseline)
    if not ours or not theirs or ours == theirs:
        return None
    told = f"{called.ours} ran under driver {' and '.join(ours)}, {called.theirs} {' and '.join(theirs)}"
    return _differs(DRIVER, told)


def _drivers(record: ConfigRecord) -> list[str]:
    told = {gpu.driver for gpu in record.gpus if gpu.driver}
    return sorted(told or ({record.provenance.driver} if record.provenance.driver else set()))


# --- the load


def incomparable(record: GoodputRecord, base: GoodputRecord, called: Sides = _ROLES) -> Reason | None:
    """Why two records of one scenario cannot be compared: they were offered different loads."""
    if base.slo != record.slo:
        ours, theirs = (_bounds(each) for each in (record, base))
        return _differs(SLO, f"{called.ours} was measured under {ours}, {called.theirs} under {theirs}")
    hashes = {record.load_sha256, base.load_sha256} - {None}
    if len(hashes) > 1:
        return _differs(WORKLOAD, f"{called.both} were offered different workloads")
    return None


def _bounds(record: GoodputRecord) -> str:
    return ", ".join(f"{bound.name} <= {bound.bound_ms:g}" for bound in record.slo) or "no SLO"


def other_workload(
    candidate: ConfigRecord, baseline: ConfigRecord, scenario: str, called: Sides = _ROLES
) -> Reason | None:
    """The same of records without a hash, as in published reports: by the workloads of the specs that they store."""
    pair = [record.scenarios.get(scenario) for record in (candidate, baseline)]
    if all(each is not None and each.load_sha256 for each in pair):
        return None
    told = [_workload(record.spec) for record in (candidate, baseline)]
    if None in told or told[0] == told[1]:
        return None
    ours, theirs = (each or {} for each in told)
    keys = [name for name in ours if ours[name] != theirs.get(name)]
    shown = "; ".join(f"{name}: {ours[name]} against {theirs.get(name)}" for name in keys)
    return _differs(WORKLOAD, f"{called.both} were offered different workloads ({shown})")


def _workload(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The workload of a stored spec with its defaults; ``None`` without one that can be read."""
    written = spec.get("workload")
    if not isinstance(written, Mapping) or spec.get("scenarios"):
        return None
    try:
        return Workload.model_validate({key: value for key, value in written.items() if value is not None}).model_dump()
    except ValidationError:
        return None


def other_profile(record: ProfileRecord, base: ProfileRecord, called: Sides = _ROLES) -> Reason | None:
    """Why two records of one closed-loop profile cannot be compared; those of other tools have no hash."""
    if not unlike(record, base):
        return None
    return _differs(WORKLOAD, f"{record.name}: {called.both} were offered different workloads")


def unlike(one: ProfileRecord, other: ProfileRecord) -> bool:
    """Whether two records are of different loads; those of other tools have no hash, and are not judged on it."""
    return len({one.load_sha256, other.load_sha256} - {""}) > 1


def other_questions(record: SuiteRecord, base: SuiteRecord, called: Sides = _ROLES) -> Reason | None:
    """Why two records of one suite cannot be compared; those of other tools have no hash, but what their specs say."""
    hashes = {record.sha256, base.sha256}
    if hashes == {""}:
        if _how(record, base) == _NOT_TOLD:
            return None
    elif len(hashes - {""}) < 2:
        return None
    return _differs(SUITE, f"{called.both} were asked otherwise: {_how(record, base)}")


_NOT_TOLD = "prompts, golds, stops or sampling"
"""What may differ where no setting on record does."""


def _how(record: SuiteRecord, base: SuiteRecord) -> str:
    """Which settings differ, as far as the records hold them."""
    both: dict[str, tuple[object, object]] = {
        "scorer": (record.scorer, base.scorer),
        "api": (record.api, base.api),
        "shots": (record.shots, base.shots),
        "max_tokens": (record.max_tokens, base.max_tokens),
        "limit": (record.limit, base.limit),
        "suite": (PurePath(record.suite).name, PurePath(base.suite).name),
        "items": (len({item.id for item in record.items}), len({item.id for item in base.items})),
    }
    parts = [f"{name} {ours} against {theirs}" for name, (ours, theirs) in both.items() if ours != theirs]
    return ", ".join(parts) or _NOT_TOLD


def _differs(name: str, text: str) -> Reason:
    return Reason(f"{name}_differs", f"{text}; {OPTION}={name} compares them all the same")


# --- what a user lets differ


def differences(candidate: ConfigRecord, baseline: ConfigRecord, called: Sides = _ROLES) -> dict[str, str]:
    """All that keeps two records from being compared, by its name in ``ALLOWABLE``: a sentence without the remedy."""
    machine = (other_hardware, _other_limit, _other_driver)
    found = [differ(candidate, baseline, called) for differ in machine]
    for name in candidate.scenarios.keys() & baseline.scenarios.keys():
        found.append(incomparable(candidate.scenarios[name], baseline.scenarios[name], called))
        found.append(other_workload(candidate, baseline, name, called))
    for name in candidate.profiles.keys() & baseline.profiles.keys():
        found.append(other_profile(candidate.profiles[name], baseline.profiles[name], called))
    for name in candidate.suites.keys() & baseline.suites.keys():
        found.append(other_questions(candidate.suites[name], baseline.suites[name], called))
    told = {reason.code.removesuffix("_differs"): reason.text for reason in found if reason is not None}
    return {name: told[name].partition(f"; {OPTION}")[0] for name in ALLOWABLE if name in told}


def allowed_remark(kind: str, candidate: ConfigRecord, baseline: ConfigRecord, allow: frozenset[str]) -> str:
    """ ", although hardware and driver differ" for a gate whose two sides were compared all the same; else empty."""
    matters = _MATTERS.get(kind, frozenset()) & allow
    names = [name.replace("_", " ") for name in differences(candidate, baseline) if name in matters] if matters else []
    if not names:
        return ""
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return f", although {listed} {'differ' if len(names) > 1 else 'differs'}"


def levelled(candidate: ConfigRecord, baseline: ConfigRecord, allow: frozenset[str]) -> ConfigRecord:
    """The baseline's record as if it were equal to the candidate's in what may differ.

    What is compared are figures; names, limits and hashes only say whether they may be.
    """
    for name in sorted(allow):
        baseline = _LEVELLERS[name](candidate, baseline) if name in _LEVELLERS else baseline
    return baseline


def _level_hardware(_: ConfigRecord, baseline: ConfigRecord) -> ConfigRecord:
    return replace(baseline, gpus=tuple(replace(gpu, name=None) for gpu in baseline.gpus))


def _level_limit(_: ConfigRecord, baseline: ConfigRecord) -> ConfigRecord:
    return replace(baseline, gpus=tuple(replace(gpu, limit_w=None) for gpu in baseline.gpus))


def _level_driver(_: ConfigRecord, baseline: ConfigRecord) -> ConfigRecord:
    gpus = tuple(replace(gpu, driver=None) for gpu in baseline.gpus)
    return replace(baseline, gpus=gpus, provenance=replace(baseline.provenance, driver=None))


def _level_slo(candidate: ConfigRecord, baseline: ConfigRecord) -> ConfigRecord:
    """One hash holds SLO and workload: where the SLO differs, it no longer tells whether the workload does."""
    scenarios = dict(baseline.scenarios)
    for name, own in candidate.scenarios.items():
        if name in scenarios and scenarios[name].slo != own.slo:
            scenarios[name] = replace(scenarios[name], slo=own.slo, load_sha256=None)
    return replace(baseline, scenarios=scenarios)


def _level_workload(_: ConfigRecord, baseline: ConfigRecord) -> ConfigRecord:
    return replace(
        baseline,
        scenarios={name: replace(each, load_sha256=None) for name, each in baseline.scenarios.items()},
        profiles=_unhashed(baseline.profiles),
        again=_unhashed(baseline.again),
        spec={key: value for key, value in baseline.spec.items() if key != "workload"},
    )


def _unhashed(profiles: Mapping[str, ProfileRecord]) -> dict[str, ProfileRecord]:
    return {name: replace(each, load_sha256="") for name, each in profiles.items()}


def _level_suite(candidate: ConfigRecord, baseline: ConfigRecord) -> ConfigRecord:
    suites = {name: _level_questions(candidate.suites.get(name), each) for name, each in baseline.suites.items()}
    return replace(baseline, suites=suites)


def _level_questions(own: SuiteRecord | None, base: SuiteRecord) -> SuiteRecord:
    """Other items cannot be paired, so that only the scores are left; one of 0 may be of answers that nobody read."""
    items = {item.id for item in own.items} if own else set()
    if items == {item.id for item in base.items} or not base.score:
        return replace(base, sha256="")
    return replace(base, sha256="", items=(), control=(), counts={}, n=None)


_LEVELLERS: Mapping[str, Callable[[ConfigRecord, ConfigRecord], ConfigRecord]] = {
    DRIVER: _level_driver,
    HARDWARE: _level_hardware,
    POWER_LIMIT: _level_limit,
    SLO: _level_slo,
    SUITE: _level_suite,
    WORKLOAD: _level_workload,
}
