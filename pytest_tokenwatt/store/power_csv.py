"""Every power reading of one configuration as plain rows: ``power-<config>.csv``."""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_tokenwatt.records.load import WindowSpan
from pytest_tokenwatt.records.power import REASONS_UNKNOWN, PowerTrace, SensorTrace
from pytest_tokenwatt.store.atomic import write_text

COLUMNS = ("source", "sensor", "at_s", "wall_s", "watts", "energy_j", "reasons", "window")

_Reading = tuple[float, str, str, str]


def write_power(path: Path, traces: Sequence[PowerTrace], spans: Sequence[WindowSpan]) -> None:
    """Store all readings, one a row, ordered by source, sensor and time. Raises ``OSError``.

    ``at_s`` is monotonic, ``wall_s`` the same instant in seconds since 1970. A row has ``watts`` (power sample) or
    ``energy_j`` (cumulative counter) or, where a read failed, neither; ``reasons`` are the driver's clock-event bits in
    hexadecimal; ``window`` is the number, from 1, of the span that the reading lies in. Cells may be empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    ordered = sorted(enumerate(spans, start=1), key=lambda each: each[1].start_s)
    starts_s = [span.start_s for _, span in ordered]
    for trace in traces:
        ahead_s = trace.anchor.wall_s - trace.anchor.monotonic_s
        for sensor in trace.sensors:
            for at_s, watts, energy_j, reasons in sorted(_readings(sensor)):
                place = bisect_right(starts_s, at_s) - 1
                inside = place >= 0 and at_s < ordered[place][1].end_s
                stamps = (f"{at_s:.4f}", f"{at_s + ahead_s:.4f}")
                window = ordered[place][0] if inside else ""
                writer.writerow((trace.source, sensor.info.sensor, *stamps, watts, energy_j, reasons, window))
    write_text(path, text.getvalue())


def _readings(sensor: SensorTrace) -> Iterator[_Reading]:
    for at_s, watts, reasons in zip(sensor.power_s, sensor.watts, sensor.reasons, strict=True):
        bits = "" if reasons == REASONS_UNKNOWN else f"{reasons:#x}"
        yield at_s, "" if math.isnan(watts) else f"{watts:.3f}", "", bits
    for at_s, energy_j in zip(sensor.counter_s, sensor.counter_j, strict=True):
        yield at_s, "", f"{energy_j:.3f}", ""
