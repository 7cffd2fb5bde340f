"""What a report's figures are drawn from: windows of the records, and the raw samples of the run directory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord, GateResult, GoodputRecord, Percentile, WindowResult
from pytest_tokenwatt.records.power import HARMLESS_REASONS, REASON_BITS, PowerRecord
from pytest_tokenwatt.report.html.material import (
    Bound,
    GateWords,
    LatencyPoint,
    LatencySample,
    Material,
    PercentileRow,
    PowerSeries,
    Probe,
    SensorSeries,
    Serving,
)
from pytest_tokenwatt.store.power_rows import Readings, read_power
from pytest_tokenwatt.store.request_stamps import RequestStamps, read_stamps

CONFIRMING = ("confirm", "fixed")
"""Kinds of windows that figures may be of; those of the search only looked for the rate."""
NOT_STORED = "the single requests are not stored with this report"
MS = 1e3


def gather_material(
    run_dir: Path | None, records: Sequence[ConfigRecord], results: Sequence[GateResult] = ()
) -> Material:
    """Everything that figures need of ``records``; raw samples are those in ``run_dir`` (``None``: there are none).

    A file that is absent or damaged costs its figure only: ``missing`` says why.
    """
    missing: list[str] = []
    stamps = _Stamps(run_dir, missing)
    return Material(
        serving=tuple(_serving(record, goodput, stamps) for record in records for goodput in record.scenarios.values()),
        power=tuple(_power(records, run_dir, missing)),
        gates={result.id: GateWords(result.text, result.rule) for result in results},
        missing=tuple(missing),
    )


class _Stamps:
    """Requests files, each read once and without its chunks."""

    def __init__(self, run_dir: Path | None, missing: list[str]) -> None:
        self._run_dir = run_dir
        self._missing = missing
        self._read: dict[str, RequestStamps | None] = {}

    def of(self, name: str | None) -> RequestStamps | None:
        """The requests of a file; ``None`` when there is none to be had."""
        if name is None or self._run_dir is None:
            return None
        if name not in self._read:
            self._read[name] = self._load(self._run_dir / name)
        return self._read[name]

    def _load(self, path: Path) -> RequestStamps | None:
        if not path.is_file():
            return None
        try:
            return read_stamps(path)
        except UsageError as error:
            self._missing.append(f"Latency distributions: {error}")
            return None


def _serving(record: ConfigRecord, goodput: GoodputRecord, stamps: _Stamps) -> Serving:
    windows = [window for window in goodput.windows if _counts(window, goodput)]
    found = [(window, stamps.of(window.requests_file)) for window in windows]
    known = [(window, columns) for window, columns in found if columns is not None]
    whole = bool(known) and len(known) == len(windows)
    return Serving(
        config=record.key,
        scenario=goodput.scenario,
        slo=tuple(Bound(bound.metric, bound.percentile, bound.bound_ms) for bound in goodput.slo),
        probes=tuple(_probe(window) for window in goodput.windows),
        percentiles=tuple(map(_row, goodput.percentiles)) if goodput.confirmed else (),
        samples=_samples(known) if whole else {},
        no_samples=NOT_STORED if windows and not whole else "",
    )


def _counts(window: WindowResult, goodput: GoodputRecord) -> bool:
    """Whether the figures of the scenario are of this window."""
    return window.kind in CONFIRMING and window.rate_rps == goodput.rate_rps and not window.invalid


def _probe(window: WindowResult) -> Probe:
    state = "invalid" if window.invalid or window.undecided else "pass" if window.passes else "fail"
    return Probe(
        label=window.label,
        kind=window.kind,
        rate_rps=window.rate_rps,
        state=state,
        start_s=window.start_s,
        end_s=window.end_s,
        latencies={
            each.name: _point(each) for each in window.percentiles if each.infinite or each.value_ms is not None
        },
        goodput_tok_s=window.goodput_tok_s,
        why=window.undecided or "; ".join(map(str, window.invalid)) or "; ".join(window.misses),
    )


def _point(percentile: Percentile) -> LatencyPoint:
    return LatencyPoint(percentile.value_ms, percentile.infinite)


def _row(each: Percentile) -> PercentileRow:
    return PercentileRow(each.metric, each.percentile, _point(each), each.low_ms, each.high_ms, each.n, each.bound_ms)


def _samples(known: Sequence[tuple[WindowResult, RequestStamps]]) -> dict[str, LatencySample]:
    parts = [columns.within(window.start_s, window.end_s) for window, columns in known]
    return {"ttft": _pooled([part.ttft_s() for part in parts]), "tpot": _pooled([part.tpot_s() for part in parts])}


def _pooled(parts: Sequence[np.typing.NDArray[np.float64]]) -> LatencySample:
    """Seconds to ms: infinite ones failed, NaN is open."""
    values = np.concatenate(parts)
    finite = values[np.isfinite(values)] * MS
    return LatencySample(array("d", finite.tobytes()), int(np.isinf(values).sum()), int(np.isnan(values).sum()))


def _power(records: Sequence[ConfigRecord], run_dir: Path | None, missing: list[str]) -> Iterator[PowerSeries]:
    for record in records:
        for file in dict.fromkeys(source.file for source in record.power):
            readings = _readings(run_dir, file, missing)
            sources = [source for source in record.power if source.file == file and source.source in readings]
            yield from (_series(record.key, source, readings[source.source]) for source in sources)


def _readings(run_dir: Path | None, name: str | None, missing: list[str]) -> Mapping[str, Mapping[str, Readings]]:
    if run_dir is None or name is None or not (run_dir / name).is_file():
        return {}
    try:
        return read_power(run_dir / name)
    except UsageError as error:
        missing.append(f"Power over time: {error}")
        return {}


def _series(key: str, source: PowerRecord, readings: Mapping[str, Readings]) -> PowerSeries:
    limits = [sensor.limit_w for sensor in source.sensors]
    known = [limit for limit in limits if limit is not None]
    return PowerSeries(
        config=key,
        source=source.source,
        label=source.label,
        sampling_hz=source.sampling_hz,
        sensors=tuple(_sensor(name, each) for name, each in readings.items()),
        limit_w=sum(known) if known and len(known) == len(limits) else None,
        idle_w=source.idle_w.value,
    )


def _sensor(name: str, readings: Readings) -> SensorSeries:
    at_s, bits = np.array(readings.at_s), np.array(readings.reasons)
    throttles = {
        reason: array("d", at_s[(bits >= 0) & (bits & bit != 0)].tobytes())
        for bit, reason in REASON_BITS.items()
        if reason not in HARMLESS_REASONS
    }
    return SensorSeries(
        name, readings.at_s, readings.watts, {reason: at for reason, at in throttles.items() if len(at)}
    )
