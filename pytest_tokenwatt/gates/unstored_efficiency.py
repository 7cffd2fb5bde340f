"""What the gates of speed, memory, audits and reruns need of a stored run and do not find."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.gates.audit import MISSING, beyond_limits
from pytest_tokenwatt.gates.lacking import Sides, both, lacks
from pytest_tokenwatt.gates.promised import under_another
from pytest_tokenwatt.records import ConfigRecord, GateSpec


def speed(sides: Sides) -> Iterator[str]:
    """Output rates of all profiles on both sides."""
    gate, candidate, baseline = sides
    for config in both(candidate, baseline):
        yield from _profiles(gate, config, "output tok/s")
        record = config.scenarios.get(gate.limits.get("online_slo") or "")
        if record is not None and (told := under_another(record)):
            yield f"output_tok_s of {config.key}: {told}"
        if (
            gate.limits.get("online_slo")
            and config.stored is not None
            and (record is None or (not record.output_tok_s and not record.invalid and not record.misses))
        ):
            yield lacks("output_tok_s", config)


def memory(sides: Sides) -> Iterator[str]:
    """Peaks of all profiles on both sides."""
    gate, candidate, baseline = sides
    for config in both(candidate, baseline):
        yield from _profiles(gate, config, "peak memory")


def _profiles(gate: GateSpec, config: ConfigRecord, figure: str) -> Iterator[str]:
    """Profiles without the figure; of our own records only where none was run at all."""
    for name in gate.limits.get("profiles") or ():
        record = config.profiles.get(name)
        if record is None:
            if config.stored is not None or not config.profiles:
                yield lacks(f"{figure} in profile {name}", config)
        elif config.stored is not None and not record.invalid:
            value = record.memory.peak_gib if figure == "peak memory" else record.output_tok_s
            if value is None and not (figure == "peak memory" and record.memory.missing):
                yield lacks(f"{figure} in profile {name}", config)


def audit(sides: Sides) -> Iterator[str]:
    """An audit of every profile."""
    gate, candidate, _ = sides
    if not candidate.audits:
        yield lacks("the audit", candidate)
    # One that breaks a limit decides, whatever the others would say.
    if any(any(beyond_limits(gate, name, audit)) for name, audit in candidate.audits.items()):
        return
    for name in gate.limits.get("profiles") or () if candidate.stored is not None else ():
        audit = candidate.audits.get(name)
        if audit is None or audit.status == MISSING:
            yield lacks(f"the audit of {name}", candidate)
        elif not audit.invalid and (audit.gap_median is None or audit.length_ratio is None):
            yield lacks(f"gap_median or length_ratio of {name}", candidate)


def budget(sides: Sides) -> Iterator[str]:
    """A rerun of every profile."""
    gate, candidate, _ = sides
    if not candidate.budgets:
        yield lacks("the budget", candidate)
    if any(run.healthy is False and not run.invalid for run in candidate.budgets.values()):
        return
    for name in gate.limits.get("profiles") or () if candidate.stored is not None else ():
        run = candidate.budgets.get(name)
        if run is None or (run.healthy is None and not run.invalid and not run.notes):
            yield lacks(f"the rerun of {name}", candidate)


def precision(sides: Sides) -> Iterator[str]:
    """The widths that were read."""
    _, candidate, _ = sides
    if candidate.precision is None and candidate.stored is not None:
        yield lacks("the precision", candidate)
