"""What figures are drawn from: windows of records, stored requests and power samples."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.material import NOT_STORED, gather_material
from pytest_tokenwatt.metrics.latency import tpot_s, ttft_s
from pytest_tokenwatt.records import (
    ClientHealth,
    ClockAnchor,
    ConfigRecord,
    ErrorClass,
    Figure,
    GateResult,
    GoodputRecord,
    Percentile,
    PowerRecord,
    Reason,
    RequestRecord,
    SensorInfo,
    SloBound,
    Verdict,
    WindowResult,
    WindowSpan,
)
from pytest_tokenwatt.records.power import REASONS_UNKNOWN, PowerTrace, SensorTrace
from pytest_tokenwatt.report.html.material import LatencyPoint, Material
from pytest_tokenwatt.store.power_csv import write_power
from pytest_tokenwatt.store.requests_npz import write_requests

ANCHOR = ClockAnchor(5000.0, 1_790_000_000.0)
SPANS = (WindowSpan(5010.0, 5020.0), WindowSpan(5020.0, 5030.0))
FILE = "requests-tuned-confirm-04.npz"


def window(place: int, **changes: object) -> WindowResult:
    span = SPANS[place]
    found = WindowResult(
        kind="confirm",
        label=f"confirm-04-{place}",
        rate_rps=4.0,
        start_s=span.start_s,
        end_s=span.end_s,
        planned=40,
        ok=40,
        failures={},
        failure_example=None,
        percentiles=(
            Percentile("ttft", 99.0, None, True, 40, None, None, 2000.0),
            Percentile("tpot", 99.0, None, False, 40, None, None),
        ),
        stable=True,
        waiting_growth=None,
        output_tokens=400,
        good_tokens=400,
        output_tok_s=40.0,
        goodput_tok_s=40.0,
        passes=True,
        misses=(),
        decided="complete",
        invalid=(),
        client=ClientHealth(1.0, 20.0, 0.1, 40, 40, 0, 40, 0, 40, 0, 0.5, 0),
        requests_file=FILE,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def record(windows: Sequence[WindowResult], power: tuple[PowerRecord, ...] = ()) -> ConfigRecord:
    goodput = GoodputRecord(
        scenario="default",
        mode="search",
        slo=(SloBound("ttft", 99.0, 2000.0),),
        rate_rps=4.0,
        goodput_tok_s=40.0,
        output_tok_s=40.0,
        percentiles=(Percentile("ttft", 99.0, 340.0, False, 80, 320.0, None, 2000.0),),
        slo_pass_count=2,
        repeats=2,
        highest_passing_rps=4.0,
        lowest_failing_rps=None,
        bracket="closed",
        backoffs=0,
        error_pct=None,
        variance_band_pct=None,
        misses=(),
        invalid=(),
        notes=(),
        windows=tuple(windows),
        figures={},
    )
    return ConfigRecord(
        "tuned", "tuned", "fp8", None, None, None, None, {"default": goodput}, (), (), {}, {}, power=power
    )


def request(place: int, at_s: float, **changes: object) -> RequestRecord:
    chunk_s = [at_s + 0.3 + 0.05 * token for token in range(5)]
    found = RequestRecord(
        phase="measured",
        index=place,
        scheduled_s=at_s,
        planned_input_tokens=100,
        planned_output_tokens=6,
        sent_s=at_s,
        first_token_s=chunk_s[0],
        last_token_s=chunk_s[-1],
        end_s=chunk_s[-1],
        chunk_s=array("d", chunk_s),
        chunk_tokens=array("q", [2, 1, 1, 1, 1]),
        output_tokens=6,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def requests() -> list[RequestRecord]:
    """One of every kind; the last two lie outside of the windows or the measurement."""
    return [
        request(0, 5010.0),
        request(1, 5012.0, error=ErrorClass.TIMEOUT),
        request(2, 5019.999, output_tokens=None),
        request(
            3,
            5020.0,
            error=ErrorClass.ABORTED,
            end_s=None,
            first_token_s=None,
            last_token_s=None,
            chunk_s=array("d"),
            chunk_tokens=array("q"),
            output_tokens=None,
        ),
        request(
            4,
            5021.0,
            first_token_s=None,
            last_token_s=None,
            chunk_s=array("d"),
            chunk_tokens=array("q"),
            output_tokens=0,
        ),
        request(
            5,
            5025.0,
            chunk_s=array("d", [5025.5]),
            chunk_tokens=array("q", [6]),
            first_token_s=5025.5,
            last_token_s=5025.5,
        ),
        request(6, 5031.0),
        request(7, 5011.0, phase="warmup"),
    ]


def gathered(tmp_path: Path) -> Material:
    write_requests(tmp_path / FILE, requests(), SPANS, ANCHOR)
    return gather_material(tmp_path, [record([window(0), window(1)])])


def test_latencies_are_those_that_the_figures_are_of(tmp_path: Path) -> None:
    served = gathered(tmp_path).serving[0]
    inside = requests()[:6]
    for metric, latency in (("ttft", ttft_s), ("tpot", tpot_s)):
        known = [latency(each) for each in inside]
        finite = [1e3 * value for value in known if value is not None and math.isfinite(value)]
        found = served.samples[metric]
        assert sorted(found.values_ms) == pytest.approx(sorted(finite), abs=1e-3)
        assert found.failed == sum(value is not None and math.isinf(value) for value in known) == 2
        assert found.open == sum(value is None for value in known)
    assert served.no_samples == ""


def test_windows_become_probes_with_their_verdicts(tmp_path: Path) -> None:
    windows = [
        window(0),
        window(0, passes=False, misses=("TTFT p99 > 2000 ms", "unstable")),
        window(1, passes=True, invalid=(Reason("client_limited", "a worker was at 99 %"),)),
    ]
    served = gather_material(None, [record(windows)]).serving[0]
    assert [probe.state for probe in served.probes] == ["pass", "fail", "invalid"]
    assert served.probes[1].why == "TTFT p99 > 2000 ms; unstable"
    assert "a worker was at 99 %" in served.probes[2].why
    assert served.probes[0].latencies == {"ttft_p99_ms": LatencyPoint(None, infinite=True)}
    assert served.percentiles[0].high_ms is None


def test_without_the_raw_files_only_records_speak(tmp_path: Path) -> None:
    for run_dir in (None, tmp_path):
        material = gather_material(run_dir, [record([window(0)], (source(),))])
        assert material.serving[0].samples == {}
        assert material.serving[0].no_samples == NOT_STORED
        assert material.power == ()
        assert material.missing == ()


def test_half_of_the_windows_is_no_distribution(tmp_path: Path) -> None:
    write_requests(tmp_path / FILE, requests(), SPANS, ANCHOR)
    served = gather_material(tmp_path, [record([window(0), window(1, requests_file="gone.npz")])]).serving[0]
    assert served.samples == {}
    assert served.no_samples == NOT_STORED


def test_a_damaged_file_costs_its_figure_and_says_so(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no archive")
    (tmp_path / "power-tuned.csv").write_text("source,watts\n", encoding="utf-8")
    material = gather_material(tmp_path, [record([window(0)], (source(),))])
    assert material.serving[0].samples == {}
    assert len(material.missing) == 2
    assert all("\n" not in line and str(tmp_path) in line for line in material.missing)


def source(**changes: object) -> PowerRecord:
    sensors = tuple(SensorInfo(f"GPU-{place}", limit_w=700.0) for place in range(2))
    found = PowerRecord(
        "board",
        "board",
        "GPU board power sum",
        10.0,
        sensors,
        "all",
        Figure(150.0, "W"),
        9,
        0,
        0,
        None,
        (),
        file="power-tuned.csv",
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def trace(sensor: str) -> SensorTrace:
    return SensorTrace(
        SensorInfo(sensor),
        power_s=array("d", [5010.0, 5010.1, 5010.2]),
        watts=array("d", [300.0, math.nan, 310.5]),
        reasons=array("q", [0x4 | 0x1, REASONS_UNKNOWN, 0x4 | 0x8]),
        counter_s=array("d", [5010.05]),
        counter_j=array("d", [12.5]),
    )


def test_power_samples_come_back_with_what_throttled(tmp_path: Path) -> None:
    sensors = (trace("GPU-0"), trace("GPU-1"))
    told = PowerTrace("board", "board", "boards", 10.0, None, sensors, array("d"), 0, (), ANCHOR)
    write_power(tmp_path / "power-tuned.csv", [told], SPANS)
    (series,) = gather_material(tmp_path, [record([], (source(),))]).power
    assert (series.limit_w, series.idle_w, series.config) == (1400.0, 150.0, "tuned")
    assert [sensor.sensor for sensor in series.sensors] == ["GPU-0", "GPU-1"]
    first = series.sensors[0]
    assert first.at_s.tolist() == [5010.0, 5010.1, 5010.2]
    assert first.watts[2] == 310.5
    assert math.isnan(first.watts[1])
    assert {reason: at.tolist() for reason, at in first.throttles.items()} == {
        "sw_power_cap": [5010.0, 5010.2],
        "hw_slowdown": [5010.2],
    }


def test_a_limit_that_one_board_does_not_tell_is_not_known(tmp_path: Path) -> None:
    told = PowerTrace("board", "board", "boards", 10.0, None, (trace("GPU-0"),), array("d"), 0, (), ANCHOR)
    write_power(tmp_path / "power-tuned.csv", [told], SPANS)
    half = source(sensors=(SensorInfo("GPU-0", limit_w=700.0), SensorInfo("GPU-1")))
    (series,) = gather_material(tmp_path, [record([], (half,))]).power
    assert series.limit_w is None


def test_gates_keep_the_words_of_the_terminal() -> None:
    result = GateResult(
        "tuned::slo", "tuned", "slo", 1.0, "ms", 2.0, None, Verdict.PASS, "enforce", (), "1 ms", "<= 2 ms"
    )
    words = gather_material(None, [], [result]).gates["tuned::slo"]
    assert (words.value, words.rule) == ("1 ms", "<= 2 ms")
