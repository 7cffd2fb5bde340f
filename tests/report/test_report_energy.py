"""Power, energy, throttling and bandwidth use in the lab report, and why any of them is null."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import (
    CONTEXT,
    GATES,
    GPU,
    RECORDS,
    UNPOWERED,
    energy_of,
    gate,
    goodput_of,
    power_of,
    record_of,
    spec_of,
)

from pytest_tokenwatt.records import ConfigRecord, Figure, Reason, ServedIdentity, Verdict
from pytest_tokenwatt.report.lab import build_report

NO_DRIVER = Reason("no_power_source", "NVML: libnvidia-ml.so.1 was not found; install the NVIDIA driver")
RESET = Reason("energy_counter_reset", "GPU-6a1d: the counter fell")
ENERGY = ("node_power_kw", "tokens_per_joule", "output_tokens_per_joule", "energy_j")
THROTTLING = ("throttle_counts", "throttle_samples", "throttle_s")


def report_of(tmp_path: Path, *records: ConfigRecord, **changes: Any) -> dict[str, Any]:
    return build_report(spec_of(tmp_path, **changes), records or RECORDS, GATES, CONTEXT)


def test_a_configuration_has_the_published_figures_and_those_behind_them(tmp_path: Path) -> None:
    base, tuned = report_of(tmp_path)["configs"]
    assert (base["mbu_pct"], base["node_power_kw"], base["throttle_counts"]) == (56.6, 0.637, {"sw_power_cap": 199})
    assert (base["tokens_per_joule"], tuned["tokens_per_joule"]) == (7.178, 8.209)
    assert (tuned["node_power_kw"], tuned["energy_j"]) == (0.616, 147840.0)
    assert tuned["output_tokens_per_joule"] == pytest.approx(8.209 * 1.0025, rel=1e-5)
    assert (base["throttle_samples"], base["throttle_s"]) == (240, {"sw_power_cap": 197.5})
    assert base["idle_power_w"] == 72.4
    assert base["energy"] == {
        "source": "board",
        "kind": "board",
        "sensors": 1,
        "methods": ["energy_counter"],
        "variance_band_pct": 0.3,
        "gpu_share_pct": None,
        "validity": {"valid": True, "reasons": []},
        "notes": [],
    }


def test_a_configuration_names_its_power_sources(tmp_path: Path) -> None:
    slow = power_of(
        source="redfish", kind="node", label="BMC", invalid=(Reason("stale_source", "9 min"),), notes=("a",)
    )
    record = replace(RECORDS[0], power=(power_of(), slow))
    board, node = report_of(tmp_path, record)["configs"][0]["power"]
    assert (board["source"], board["kind"], board["label"]) == ("board", "board", "GPU board power sum (NVIDIA)")
    assert [sensor["sensor"] for sensor in board["sensors"]] == ["GPU-6a1d"]
    assert (board["lateness_p99_ms"], board["missed"], board["failed"], board["ticks"]) == (3.1, 1, 0, 900)
    assert (board["file"], board["chosen"]) == ("power-baseline.csv", "the engine's process tree")
    assert board["validity"]["valid"] is True
    assert node["validity"]["reasons"] == [{"code": "stale_source", "text": "9 min"}]
    assert node["notes"] == ["a"]


def test_the_power_block_is_that_of_published_reports(tmp_path: Path) -> None:
    block = {
        "source": "GPU board power sum (NVIDIA)",
        "kind": "board",
        "sampling_hz": 1,
        "window": "120 s steady state",
    }
    assert report_of(tmp_path)["power"] == block
    node = power_of(source="redfish", kind="node", label="node power (Redfish)", sampling_hz=0.5)
    both = report_of(tmp_path, replace(RECORDS[0], power=(power_of(), node)))["power"]
    assert both == {**block, "further": [{"source": "node power (Redfish)", "kind": "node", "sampling_hz": 0.5}]}


def test_a_source_that_gave_nothing_is_not_named_as_the_one_that_counts(tmp_path: Path) -> None:
    silent = power_of(sensors=(), ticks=0, invalid=(NO_DRIVER,), idle_w=Figure(None, "W", reason=str(NO_DRIVER)))
    # Every reading failed, and took so long that it made others be missed.
    failing = power_of(ticks=900, missed=600, failed=300)
    for source in (silent, failing):
        report = report_of(tmp_path, record_of("baseline", goodput_of(4572.3, energy=None), power=(source,)))
        assert set(report["power"].values()) == {None}


def test_the_accelerators_are_named(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert report["hardware"] == {
        "vendor": "NVIDIA",
        "accelerator": "NVIDIA H100 80GB HBM3",
        "count": 1,
        "rated_bw_tbs_per_gpu": 3.35,
        "rated_bw_source": "table",
        "driver": "580.105.08",
        "host": "Lambda Cloud instance",
    }
    assert report["provenance"]["driver"] == "580.105.08"
    assert report["provenance"]["gpu_uuids"] == ["GPU-6a1d"]


def test_what_was_read_wins_over_what_is_declared(tmp_path: Path) -> None:
    pair = (GPU, replace(GPU, sensor="GPU-77", name="NVIDIA H200"))
    read = report_of(tmp_path, replace(RECORDS[0], gpus=pair), hardware={"host": "x"})["hardware"]
    assert (read["count"], read["accelerator"]) == (2, "NVIDIA H100 80GB HBM3 / NVIDIA H200")
    assert read["vendor"] == "NVIDIA"
    declared = {"adapter": "amd", "rated_bw_tbs_per_gpu": 5.3}
    unread = report_of(tmp_path, replace(RECORDS[0], **UNPOWERED), hardware=declared)["hardware"]
    assert (unread["vendor"], unread["count"], unread["accelerator"], unread["driver"]) == ("AMD", 1, None, None)
    assert (unread["rated_bw_tbs_per_gpu"], unread["rated_bw_source"]) == (5.3, "spec")


def test_simulated_power_is_said_to_be_simulated(tmp_path: Path) -> None:
    energy = energy_of(7.0, 0.6, source="simulated")
    identity = ServedIdentity(("tiny",), simulated=True)
    record = record_of("baseline", goodput_of(4572.3, energy=energy), identity=identity)
    report = report_of(tmp_path, record)
    assert report["hardware"]["accelerator"] == "NVIDIA H100 80GB HBM3 (simulated)"
    assert [line for line in report["not_covered"] if line.startswith("Simulated power: ")]


# --- what is missing, and why


@pytest.mark.parametrize(
    ("record", "changes", "why"),
    [
        (
            record_of("baseline", goodput_of(4572.3, energy=None), power=()),
            {"power": None},
            "no_power_source: the spec asks for no power source",
        ),
        (
            record_of("baseline", goodput_of(4572.3, energy=None), power=()),
            {"power": {"source": "none"}},
            "no_power_source: the spec asks for no power source",
        ),
        (
            record_of("baseline", goodput_of(4572.3, energy=None), power=(power_of(invalid=(NO_DRIVER,)),)),
            {},
            str(NO_DRIVER),
        ),
        (record_of("baseline", goodput_of(4572.3, energy=energy_of(None, None, invalid=(RESET,)))), {}, str(RESET)),
        (
            record_of("baseline", goodput_of(0.0, rate_rps=None, goodput_tok_s=None, energy=None, misses=("TTFT",))),
            {},
            "TTFT",
        ),
        (
            record_of("baseline", None, invalid=(Reason("engine_start_failed", "exit 1"),)),
            {},
            "engine_start_failed: exit 1",
        ),
    ],
)
def test_a_null_has_its_reason(tmp_path: Path, record: ConfigRecord, changes: dict[str, Any], why: str) -> None:
    entry = report_of(tmp_path, record, **changes)["configs"][0]
    for name in ENERGY:
        assert entry[name] is None
        assert entry["missing"][name] == why
    assert all(entry["missing"][name] == why for name in THROTTLING if entry[name] is None)


def test_a_source_without_throttle_reasons_is_null_and_not_zero(tmp_path: Path) -> None:
    energy = energy_of(7.0, 0.6, source="redfish", kind="node", throttle_counts=None, throttle_samples=0, throttle_s={})
    report = report_of(tmp_path, record_of("baseline", goodput_of(4572.3, energy=energy)))
    entry = report["configs"][0]
    assert [entry[name] for name in THROTTLING] == [None] * 3
    assert {entry["missing"][name] for name in THROTTLING} == {"the source redfish gives no throttle reasons"}
    assert "Throttling: the source redfish gives no throttle reasons" in report["not_covered"]
    assert not [line for line in report["not_covered"] if line.startswith(("Whole-node power", "Power and energy"))]
    none_seen = energy_of(7.0, 0.6, throttle_counts={})
    assert (
        report_of(tmp_path, record_of("baseline", goodput_of(1.0, energy=none_seen)))["configs"][0]["throttle_counts"]
        == {}
    )


def test_bandwidth_use_says_why_it_is_null(tmp_path: Path) -> None:
    figures = {"mbu_pct": Figure(None, "%", reason="geometry_unknown: no config.json")}
    report = report_of(tmp_path, record_of("baseline", goodput_of(4572.3, figures=figures)))
    assert report["configs"][0]["missing"]["mbu_pct"] == "geometry_unknown: no config.json"
    line = "Memory bandwidth utilisation (mbu_pct): geometry_unknown: no config.json"
    assert line in report["not_covered"]
    assert line not in report_of(tmp_path)["not_covered"]


def test_idle_power_says_why_it_is_null(tmp_path: Path) -> None:
    busy = power_of(idle_w=Figure(None, "W", reason="the engine was serving others"))
    entry = report_of(tmp_path, replace(RECORDS[0], power=(busy,)))["configs"][0]
    assert (entry["idle_power_w"], entry["missing"]["idle_power_w"]) == (None, "the engine was serving others")


def test_what_was_measured_is_not_said_to_be_absent(tmp_path: Path) -> None:
    lines = report_of(tmp_path)["not_covered"]
    absent = ("Power", "Throttling", "Memory bandwidth", "Accelerator")
    assert not [line for line in lines if line.startswith(absent)]
    assert (
        "Whole-node power: energy figures are GPU board power only (no CPUs, memory, NICs, fans or PSU losses)" in lines
    )


def test_a_node_source_beside_the_boards_sees_the_whole_node(tmp_path: Path) -> None:
    records = [
        replace(each, scenarios={"default": goodput_of(1.0, energy=energy_of(7.0, 0.6, gpu_share_pct=71.0))})
        for each in RECORDS
    ]
    report = report_of(tmp_path, *records)
    assert not [line for line in report["not_covered"] if line.startswith("Whole-node power")]
    assert report["configs"][0]["energy"]["gpu_share_pct"] == 71.0


def test_the_same_absence_is_one_line_that_names_who_is_concerned(tmp_path: Path) -> None:
    silent: dict[str, Any] = {"power": (power_of(invalid=(NO_DRIVER,), ticks=0),), "gpus": (), "rated_bandwidth": None}
    records = [replace(each, **silent, scenarios={"default": goodput_of(4572.3, energy=None)}) for each in RECORDS]
    lines = report_of(tmp_path, *records)["not_covered"]
    assert f"Power and energy, throttling: {NO_DRIVER}" in lines
    assert f"Accelerator, driver, GPU identity: {NO_DRIVER} (a GPU count is the declared one)" in lines
    lines = report_of(tmp_path, RECORDS[0], records[1])["not_covered"]
    assert f"tuned: Power and energy, throttling: {NO_DRIVER}" in lines


def test_without_a_power_block_one_line_says_so(tmp_path: Path) -> None:
    record = record_of("baseline", goodput_of(4572.3, energy=None), **UNPOWERED)
    lines = report_of(tmp_path, record, power=None)["not_covered"]
    assert "Power, energy and throttling: the spec asks for no power source" in lines
    assert [line for line in lines if line.startswith("Accelerator, driver, GPU identity: no driver or power source")]
    told = replace(record, not_covered=("Accelerator, driver, GPU identity: NVML is not there",))
    lines = report_of(tmp_path, told, power=None)["not_covered"]
    assert [line for line in lines if line.startswith("Accelerator")] == list(told.not_covered)


def test_an_invalid_energy_makes_a_draft(tmp_path: Path) -> None:
    spoilt = record_of("baseline", goodput_of(4572.3, energy=energy_of(None, None, invalid=(RESET,))))
    assert report_of(tmp_path, spoilt)["status"] == "draft"
    assert report_of(tmp_path, spoilt)["configs"][0]["energy"]["validity"]["reasons"][0]["code"] == RESET.code
    assert report_of(tmp_path)["status"] == "published"


def test_every_scenario_has_its_energy(tmp_path: Path) -> None:
    scenarios = {"chat": goodput_of(4572.3, scenario="chat"), "rag": goodput_of(900.0, energy=energy_of(1.4, 0.66))}
    block = [{"name": "chat"}, {"name": "rag"}]
    report = report_of(tmp_path, record_of("baseline", None, scenarios=scenarios), scenarios=block)
    entry = report["configs"][0]
    assert entry["tokens_per_joule"] == entry["scenarios"]["chat"]["tokens_per_joule"] == 7.178
    assert entry["scenarios"]["rag"]["tokens_per_joule"] == 1.4
    assert entry["scenarios"]["rag"]["energy"]["kind"] == "board"
    chat, rag = (entry["scenarios"][name]["intervals"]["tokens_per_joule"] for name in ("chat", "rag"))
    assert chat == entry["intervals"]["tokens_per_joule"] == {"low": 7.12058, "high": 7.23542, "n": 2}
    assert rag == {"low": 1.3958, "high": 1.4042, "n": 2}
    json.dumps(report, allow_nan=False)


def test_the_summary_tells_tokens_per_joule(tmp_path: Path) -> None:
    gates = (*GATES, gate("tuned", "energy", Verdict.INFO, value=8.209 / 7.178, unit="ratio", error=0.008))
    summary = build_report(spec_of(tmp_path), RECORDS, gates, CONTEXT)["summary"]
    assert "raised SLO goodput 10.6 % (± 3.6 %) and raised tokens per joule 14.4 % (± 0.8 %)" in summary
