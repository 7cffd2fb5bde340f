"""Power readings as CSV: what was read comes back, and nothing else."""

from __future__ import annotations

import csv
import math
from array import array
from pathlib import Path

import pytest

from pytest_tokenwatt.records.base import ClockAnchor
from pytest_tokenwatt.records.load import WindowSpan
from pytest_tokenwatt.records.power import PowerTrace, SensorInfo, SensorTrace
from pytest_tokenwatt.store.power_csv import write_power


def trace(*sensors: SensorTrace, source: str = "board") -> PowerTrace:
    return PowerTrace(
        source=source,
        kind="board",
        label="GPU board power",
        sampling_hz=1.0,
        refresh_s=1.0,
        sensors=sensors,
        lateness_ms=array("d"),
        missed=0,
        events=(),
        anchor=ClockAnchor(1000.0, 1_796_000_000.5),
    )


def board(name: str) -> SensorTrace:
    return SensorTrace(
        SensorInfo(name),
        power_s=array("d", [1001.25, 1002.25, 1003.25]),
        watts=array("d", [412.5, math.nan, 0.0]),
        reasons=array("q", [0x44, -1, 0]),
        counter_s=array("d", [1001.5, 1002.5]),
        counter_j=array("d", [123456.789, 123868.0]),
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_reading_is_one_row_in_order(tmp_path: Path) -> None:
    path = tmp_path / "power-base.csv"
    write_power(path, [trace(board("GPU-a")), trace(board("node, 1"), source="redfish")], [])
    found = rows(path)
    assert [row["source"] for row in found] == ["board"] * 5 + ["redfish"] * 5
    assert {row["sensor"] for row in found[5:]} == {"node, 1"}
    assert [float(row["at_s"]) for row in found[:5]] == [1001.25, 1001.5, 1002.25, 1002.5, 1003.25]
    assert [row["watts"] for row in found[:5]] == ["412.500", "", "", "", "0.000"]
    assert [row["energy_j"] for row in found[:5]] == ["", "123456.789", "", "123868.000", ""]
    assert [row["reasons"] for row in found[:5]] == ["0x44", "", "", "", "0x0"]
    assert float(found[0]["wall_s"]) == pytest.approx(1_796_000_001.75, abs=1e-3)
    assert list(path.parent.iterdir()) == [path]


def test_readings_name_the_window_they_lie_in(tmp_path: Path) -> None:
    path = tmp_path / "power-base.csv"
    write_power(path, [trace(board("GPU-a"))], [WindowSpan(1002.3, 1003.25), WindowSpan(1001.0, 1002.0)])
    assert [row["window"] for row in rows(path)] == ["2", "2", "", "1", ""]


def test_without_readings_there_is_only_the_header(tmp_path: Path) -> None:
    path = tmp_path / "power-base.csv"
    write_power(path, [trace()], [WindowSpan(0.0, 1.0)])
    assert path.read_text(encoding="utf-8") == "source,sensor,at_s,wall_s,watts,energy_j,reasons,window\n"
