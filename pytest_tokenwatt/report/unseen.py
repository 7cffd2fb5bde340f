"""What a run could not see of power, energy, throttling, bandwidth use and the accelerators, each with why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord
from pytest_tokenwatt.report.energy import missing_energy
from pytest_tokenwatt.report.power import NOT_ASKED, power_is_asked
from pytest_tokenwatt.report.stored_reasons import in_words_of
from pytest_tokenwatt.spec.model import Spec

BOARD_ONLY = "Whole-node power: energy figures are GPU board power only (no CPUs, memory, NICs, fans or PSU losses)"
CPU_ONLY = (
    "Whole-node power: energy figures are processor package power only (no accelerators, NICs, fans or PSU losses)"
)
COMMAND_ONLY = "Whole-node power: energy figures are of whatever the command reads"
SIMULATED_POWER = "Simulated power: energy and throttling are those of the embedded engine's model, not of any sensor"
ACCELERATORS = "Accelerator, driver, GPU identity"
_PARTIAL = {"board": BOARD_ONLY, "cpu": CPU_ONLY, "other": COMMAND_ONLY}
_NAMES = {
    "node_power_kw": "power and energy",
    "throttle_counts": "throttling",
    "mbu_pct": "memory bandwidth utilisation (mbu_pct)",
}


def unseen(spec: Spec, records: Sequence[ConfigRecord]) -> Iterator[str]:
    """One line for each thing that is absent, naming the configurations where it is not absent in all."""
    yield from _accelerators(records)
    if not any(power_is_asked(configuration) for configuration in spec.configurations):
        yield f"Power, energy and throttling: {NOT_ASKED.text}"
        yield from _absent(spec, records, ("mbu_pct",))
    else:
        yield from _absent(spec, records, tuple(_NAMES))
    yield from _partial(records)


def _accelerators(records: Sequence[ConfigRecord]) -> Iterator[str]:
    told = any(line.startswith(ACCELERATORS) for record in records for line in record.not_covered)
    if told or any(record.gpus for record in records):
        return
    boards = [source for record in records for source in record.power if source.kind == "board"]
    why = next((str(reason) for source in boards for reason in source.invalid), "no driver or power source named them")
    yield f"{ACCELERATORS}: {why} (a GPU count is the declared one)"


def _absent(spec: Spec, records: Sequence[ConfigRecord], names: Sequence[str]) -> Iterator[str]:
    """What is missing in the same configurations for the same reason stands in one line."""
    missing = {record.key: _missing(spec, record) for record in records}
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in names:
        for reason in dict.fromkeys(why[name] for why in missing.values() if name in why):
            keys = tuple(key for key, why in missing.items() if why.get(name) == reason)
            lines.setdefault((reason, keys), []).append(_NAMES[name])
    for (reason, keys), absent in lines.items():
        words = ", ".join(absent)
        line = f"{words[0].upper()}{words[1:]}: {reason}"
        yield line if len(keys) == len(records) else f"{', '.join(keys)}: {line}"


def _missing(spec: Spec, record: ConfigRecord) -> Mapping[str, str]:
    goodput = next(iter(record.scenarios.values()), None)
    reasons = [*record.invalid, *(goodput.invalid if goodput else ())]
    why = "; ".join(map(str, reasons)) or "no rate was confirmed"
    found = missing_energy(record, spec.configuration(record.key), goodput, why)
    return {name: in_words_of(record, reason) for name, reason in found.items()}


def _partial(records: Sequence[ConfigRecord]) -> Iterator[str]:
    """Figures that are of a part of the machine only, or of none."""
    measured = [goodput for record in records for goodput in record.scenarios.values() if _has_energy(goodput)]
    sources = {goodput.energy.source for goodput in measured if goodput.energy}
    if "simulated" in sources:
        yield SIMULATED_POWER
    whole = any(goodput.energy is not None and goodput.energy.gpu_share_pct is not None for goodput in measured)
    kinds = [goodput.energy.kind for goodput in measured if goodput.energy]
    for kind in dict.fromkeys(kinds):
        if kind in _PARTIAL and not (whole and kind == "board"):
            yield _PARTIAL[kind]


def _has_energy(goodput: GoodputRecord) -> bool:
    return goodput.energy is not None and goodput.energy.energy_j is not None
