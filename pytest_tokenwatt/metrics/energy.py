"""Energy of a scenario: tokens per joule, mean power and throttling over the confirming windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pytest_tokenwatt.metrics.spread import drift_pct, spread_pct, widest
from pytest_tokenwatt.records import (
    HARMLESS_REASONS,
    REASON_BITS,
    EnergyRecord,
    Figure,
    Reason,
    WindowPower,
    WindowResult,
)

THROTTLE_REASONS = tuple(name for name in REASON_BITS.values() if name not in HARMLESS_REASONS)
"""Reasons that always have a figure, in the order of their bits."""
FIRST = 0
"""Position of the source whose figures count: the first one of the spec."""


POWER_FIGURES = frozenset(
    [
        "tokens_per_joule",
        "output_tokens_per_joule",
        "energy_j",
        "node_power_kw",
        "idle_power_w",
        "throttle_samples",
        *(f"throttle_{name}" for name in THROTTLE_REASONS),
    ]
)
"""Figures that only a power source gives."""


def energy_record(windows: Sequence[WindowResult]) -> EnergyRecord | None:
    """The energy of one scenario over its confirming ``windows``; ``None`` when no source was read in any of them.

    Tokens and joules are sums over the windows, so that a longer window weighs more: tokens_per_joule = Σ good tokens
    / Σ energy, node_power_kw = Σ energy / Σ length / 1000. A window whose energy or tokens are not known leaves no
    figure at all, only its reasons. Throttling is that of the first source that tells the reasons. What ails a further
    source, such as a node that draws less than its GPUs, spoils no figure and is a note.
    """
    readings = [_reading(window, FIRST) for window in windows]
    known = [reading for reading in readings if reading is not None]
    if not known:
        return None
    invalid = tuple(dict.fromkeys(reason for window in windows for reason in _faults(window)))
    energy_j = None if invalid else sum(reading.energy_j or 0.0 for reading in known)
    seconds = sum(window.end_s - window.start_s for window in windows)
    counts, samples, throttle_s = _throttling(windows)
    return EnergyRecord(
        source=known[0].source,
        kind=known[0].kind,
        sensors=max(reading.sensors for reading in known),
        energy_j=energy_j,
        node_power_kw=None if energy_j is None else energy_j / seconds / 1000.0,
        tokens_per_joule=_per_joule([window.good_tokens for window in windows], energy_j),
        output_tokens_per_joule=_per_joule([window.output_tokens for window in windows], energy_j),
        variance_band_pct=None if invalid else spread_pct([_tokens_per_joule(window) for window in windows]),
        throttle_counts=counts,
        throttle_samples=samples,
        throttle_s=throttle_s,
        gpu_share_pct=_gpu_share_pct(windows),
        invalid=invalid,
        notes=tuple(dict.fromkeys(_notes(windows))),
    )


def _reading(window: WindowResult, position: int) -> WindowPower | None:
    return window.power[position] if position < len(window.power) else None


def _faults(window: WindowResult) -> Iterator[Reason]:
    """Why a window's energy or tokens cannot be used."""
    reading = _reading(window, FIRST)
    if reading is None:
        yield Reason("no_power_source", f"{window.label}: no power was read")
        return
    yield from reading.invalid
    if not reading.energy_j and not reading.invalid:
        yield Reason("implausible_power", f"{window.label}: {reading.source} gave an energy of {reading.energy_j} J")
    if window.output_tok_s is None:
        yield Reason("token_count_missing", f"{window.label}: the server's token counts are incomplete")


def _notes(windows: Sequence[WindowResult]) -> Iterator[str]:
    """Notes of the source that counts, and why others gave nothing."""
    for window in windows:
        for position, reading in enumerate(window.power):
            yield from reading.notes if position == FIRST else map(str, reading.invalid)


def _per_joule(tokens: Sequence[int], energy_j: float | None) -> float | None:
    return None if energy_j is None else sum(tokens) / energy_j


def _tokens_per_joule(window: WindowResult) -> float | None:
    reading = _reading(window, FIRST)
    return None if reading is None else _per_joule([window.good_tokens], reading.energy_j)


def _throttling(windows: Sequence[WindowResult]) -> tuple[Mapping[str, int] | None, int, Mapping[str, float]]:
    """Samples by reason, samples in all and seconds by reason, of the first source that read any reasons."""
    for position in range(max(len(window.power) for window in windows)):
        found = [reading for window in windows if (reading := _reading(window, position)) is not None]
        samples = sum(reading.throttle_samples for reading in found)
        if samples:
            counts, seconds = Counter[str](), dict[str, float]()
            for reading in found:
                counts.update(reading.throttle_counts or {})
                for name, value in reading.throttle_s.items():
                    seconds[name] = seconds.get(name, 0.0) + value
            return dict(counts), samples, seconds
    return None, 0, {}


def _gpu_share_pct(windows: Sequence[WindowResult]) -> float | None:
    """100 · board energy / node energy; ``None`` unless both are known in every window.

    Of several nodes nobody says which boards are in which: ``None``, too.
    """
    if any(sum(1 for reading in window.power if reading.kind == "node") > 1 for window in windows):
        return None
    board_j, node_j = _energy_of("board", windows), _energy_of("node", windows)
    return 100.0 * board_j / node_j if board_j is not None and node_j else None


def _energy_of(kind: str, windows: Sequence[WindowResult]) -> float | None:
    """Joules of the first source of that kind over all windows; ``None`` when one window has none."""
    total_j = 0.0
    for window in windows:
        reading = next((reading for reading in window.power if reading.kind == kind), None)
        if reading is None or reading.energy_j is None:
            return None
        total_j += reading.energy_j
    return total_j


def energy_band_pct(
    records: Sequence[EnergyRecord], again: Sequence[tuple[EnergyRecord, EnergyRecord]] = ()
) -> float | None:
    """The largest spread of tokens per joule over repeats of any configuration and |A′ − A| / A of pairs (A, A′).

    ``None`` when nothing was measured twice.
    """
    drifts = [drift_pct(first.tokens_per_joule, second.tokens_per_joule) for first, second in again]
    return widest([*(record.variance_band_pct for record in records), *drifts])


def energy_figures(record: EnergyRecord | None, why: str) -> Mapping[str, Figure]:
    """Every number about energy and throttling that a rule may name; ``why`` there is none without a ``record``.

    ``throttle_<reason>`` counts samples with that reason set, of ``throttle_samples`` in which reasons were read: 0 is
    a measured value.
    """
    return {**_joules(record, why), **_throttle_figures(record, why)}


def _joules(record: EnergyRecord | None, why: str) -> dict[str, Figure]:
    units = {"tokens_per_joule": "tok/J", "output_tokens_per_joule": "tok/J", "energy_j": "J", "node_power_kw": "kW"}
    if record is None:
        return {name: Figure(None, unit, reason=why) for name, unit in units.items()}
    reason = "; ".join(map(str, record.invalid)) or why
    values: dict[str, float | None] = {name: getattr(record, name) for name in units}
    return {
        name: Figure(value, units[name], reason=reason if value is None else None) for name, value in values.items()
    }


def _throttle_figures(record: EnergyRecord | None, why: str) -> dict[str, Figure]:
    counts = record.throttle_counts if record else None
    names = [f"throttle_{name}" for name in dict.fromkeys([*THROTTLE_REASONS, *(counts or {})])]
    if record is None or counts is None:
        reason = why if record is None else f"the source {record.source} gave no throttle reasons"
        return dict.fromkeys([*names, "throttle_samples"], Figure(None, "samples", reason=reason))
    found = {name: Figure(float(counts.get(name.removeprefix("throttle_"), 0)), "samples") for name in names}
    return {**found, "throttle_samples": Figure(float(record.throttle_samples), "samples")}
