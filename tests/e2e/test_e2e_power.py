"""Power through the whole plugin: the real NVML binding over a fake driver, lists of sources, no sensor at all."""

from __future__ import annotations

import base64
import csv
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e_specs import quick_spec, report_of

from pytest_tokenwatt.testing import FakeBmc, FakeNvml

RUN = ("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")
GEOMETRY = {"weight_bytes": 102000000, "num_hidden_layers": 16, "num_key_value_heads": 8, "head_dim": 128}
BOARD = {"source": "board", "sampling_hz": 20}


def entry_of(root: Path) -> dict[str, Any]:
    (entry,) = report_of(root)["configs"]
    assert isinstance(entry, dict)
    return entry


@pytest.mark.slow
def test_what_the_driver_says_is_what_the_report_says(pytester: pytest.Pytester, fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_power(420.0)
    gpu.set_reasons(0x4 | 0x1)
    pytester.makefile(".yaml", spec=quick_spec(power=BOARD, gates={"energy": {"min_tok_j": 0.1}}))
    pytester.makepyfile(
        test_own="""
        def test_energy(energy, power, goodput, tokenwatt):
            tokenwatt.gate("watts", 1000 * energy.node_power_kw, "<=", 430, unit="W")
            assert energy.tokens_per_joule == goodput.tokens_per_joule
            assert abs(power.idle_w - 420) < 5
            assert power.sources[0].sensors[0].name == "NVIDIA H100 80GB HBM3"
            assert power.trace.is_file()
            assert set(energy.throttle_counts) == {"sw_power_cap"}
        """
    )
    result = pytester.runpytest(*RUN, "test_own.py")
    result.assert_outcomes(passed=4)
    report, entry = report_of(pytester.path), entry_of(pytester.path)
    assert entry["node_power_kw"] == pytest.approx(0.420, rel=0.005)
    assert entry["energy_j"] == pytest.approx(420.0 * 3.0, rel=0.005)
    assert entry["tokens_per_joule"] == pytest.approx(entry["goodput_tok_s"] / 420.0, rel=0.01)
    # The engine is simulated, and whatever stands beside it is never shown as a measured machine.
    assert report["hardware"]["accelerator"] == f"{gpu.name} (simulated)"
    assert report["provenance"]["gpu_uuids"] == [gpu.uuid]
    assert report["power"]["kind"] == "board"
    stored = json.loads((next(pytester.path.glob("tokenwatt-runs/*")) / "record-baseline.json").read_text())
    windows = [window["power"][0] for window in stored["scenarios"]["default"]["windows"]]
    assert all(each["throttle_counts"] == {"sw_power_cap": each["throttle_samples"]} for each in windows)
    assert entry["throttle_counts"] == {"sw_power_cap": sum(each["throttle_samples"] for each in windows)}


@pytest.mark.slow
def test_without_a_driver_there_is_no_figure(pytester: pytest.Pytester, fake_nvml: FakeNvml) -> None:
    fake_nvml.fail_init(12)
    pytester.makefile(".yaml", spec=quick_spec(power=BOARD, gates={"energy": {"min_tok_j": 0.1}}))
    result = pytester.runpytest(*RUN)
    result.assert_outcomes(passed=2, failed=1)
    assert result.ret == 11
    result.stdout.fnmatch_lines(["baseline energy invalid: *", "*(no_power_source)"])
    entry = entry_of(pytester.path)
    assert (entry["tokens_per_joule"], entry["energy_j"], entry["node_power_kw"]) == (None, None, None)
    assert "no_power_source" in entry["missing"]["tokens_per_joule"]
    assert report_of(pytester.path)["status"] == "draft"


@pytest.mark.slow
def test_mbu_power_and_throttling_of_the_embedded_engine(pytester: pytest.Pytester) -> None:
    blocks: dict[str, Any] = {"power": {"source": "simulated", "sampling_hz": 20}, "model": {"geometry": GEOMETRY}}
    rules = [{"name": "cool", "metric": "throttle_hw_thermal_slowdown", "max": 0}]
    pytester.makefile(".yaml", spec=quick_spec(**blocks, gates={"rules": rules}, measurement={"window_s": 2.5}))
    result = pytester.runpytest(*RUN)
    result.assert_outcomes(passed=3)
    entry = entry_of(pytester.path)
    assert 0 < entry["mbu_pct"] < 100
    assert entry["mbu_pct"] == pytest.approx(entry["mbu_engine_pct"], rel=0.2)
    assert entry["idle_power_w"] < 1000 * entry["node_power_kw"]
    with (next(pytester.path.glob("tokenwatt-runs/*")) / "power-baseline.csv").open(encoding="utf-8") as file:
        watts = [float(row["watts"]) for row in csv.DictReader(file) if row["watts"]]
    assert len(watts) > 40
    assert any("Simulated power" in line for line in report_of(pytester.path)["not_covered"])


@pytest.mark.slow
def test_a_source_that_the_engine_does_not_offer_is_no_source(pytester: pytest.Pytester, fake_nvml: FakeNvml) -> None:
    """A list of sources: the first one counts, and a broken one leaves the other as it is."""
    fake_nvml.add_gpu().set_power(300.0)
    broken = {"source": "command", "command": ["./no-watts"], "sampling_hz": 5}
    program = pytester.path / "no-watts"
    program.write_text("#!/bin/sh\necho not a number\n", encoding="utf-8")
    program.chmod(0o755)
    pytester.makefile(".yaml", spec=quick_spec(power=[BOARD, broken]))
    result = pytester.runpytest(*RUN)
    result.assert_outcomes(passed=2)
    board, command = entry_of(pytester.path)["power"]
    assert board["validity"]["valid"]
    stored = json.loads((next(pytester.path.glob("tokenwatt-runs/*")) / "record-baseline.json").read_text())
    windows = stored["scenarios"]["default"]["windows"]
    assert all(window["power"][0]["energy_j"] > 0 for window in windows)
    assert all(window["power"][1]["energy_j"] is None for window in windows)
    assert "not a number" in str(windows[0]["power"][1]["invalid"])
    assert command["source"] == "command"


@pytest.mark.slow
@pytest.mark.parametrize(("node_w", "share"), [(1000.0, True), (200.0, False)])
def test_the_share_of_the_gpus_in_a_node_is_checked_and_reported(
    pytester: pytest.Pytester,
    fake_nvml: FakeNvml,
    fake_bmc: FakeBmc,
    monkeypatch: pytest.MonkeyPatch,
    node_w: float,
    share: bool,
) -> None:
    fake_nvml.add_gpu().set_power(420.0)
    monkeypatch.setenv("BMC_PASSWORD", fake_bmc.password)
    access = {"username": fake_bmc.username, "password_env": "BMC_PASSWORD", "ca_file": str(fake_bmc.ca_file)}
    node = {"source": "redfish", "url": fake_bmc.url, **access, "sampling_hz": 20}
    pytester.makefile(".yaml", spec=quick_spec(power=[BOARD, node], measurement={"window_s": 2.0}))
    with moving(fake_bmc, node_w):
        result = pytester.runpytest(*RUN)
    result.assert_outcomes(passed=2)
    energy = entry_of(pytester.path)["energy"]
    if share:
        assert energy["gpu_share_pct"] == pytest.approx(42.0, rel=0.03)
    else:
        assert energy["gpu_share_pct"] is None
        assert "node_below_gpu: redfish has" in energy["notes"][0]
    written = [path.read_bytes() for path in pytester.path.rglob("*") if path.is_file()]
    basic = base64.b64encode(f"{fake_bmc.username}:{fake_bmc.password}".encode())
    assert not any(secret in text for text in written for secret in (fake_bmc.password.encode(), basic))
    assert fake_bmc.password not in result.stdout.str()


@contextmanager
def moving(bmc: FakeBmc, watts: float) -> Iterator[None]:
    """Readings that differ from one to the next, as those of a BMC that lives do."""
    ended = threading.Event()

    def move() -> None:
        for step in itertools.count():
            bmc.set_power_control(watts + step % 7)
            if ended.wait(0.02):
                return

    mover = threading.Thread(target=move, daemon=True)
    mover.start()
    try:
        yield
    finally:
        ended.set()
        mover.join()
