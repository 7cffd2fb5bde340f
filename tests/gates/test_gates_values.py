"""Speed, memory and the audit as tests read them: no figure that was not measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from gates_builders import INVALID, peak, profile, with_profiles

from pytest_tokenwatt.errors import NotMeasured
from pytest_tokenwatt.gates.speeds import memory_delta, speed_delta
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.profiles import MemoryDelta, PeakMemory, SpeedDelta, Startup
from pytest_tokenwatt.values import Audit, Memory, Speed

TUNED = with_profiles(
    "tuned",
    profile(1100.0, 1102.0, memory=peak(30.0, weights_gib=8.84, kv_gib=19.0, kv_bytes_per_token=73563.0)),
    profile(300.0, 300.0, name="interactive", memory=peak(11.1, weights_gib=8.84, kv_gib=0.088)),
)
BASE = with_profiles("baseline", profile(1000.0, 1000.0), profile(250.0, 250.0, name="interactive", memory=peak(17.6)))
STARTUP = Startup(kv_cache_gib=150.14, load_seconds=3.35, missing={"cuda_graph_gib": "no graphs on a CPU"})


def memory() -> Memory:
    return Memory("tuned", TUNED.profiles, STARTUP, memory_delta(TUNED, BASE))


def test_speed_is_the_mean_ratio_with_its_error() -> None:
    speed = Speed("tuned", speed_delta(TUNED, BASE, {}), TUNED.profiles)
    assert speed.profiles == pytest.approx({"serve": 1.101, "interactive": 1.2})
    assert speed.ratio == pytest.approx((1.101 * 1.2) ** 0.5)
    assert 0 < speed.error < 0.02
    assert speed.smallest_change == pytest.approx(speed.error / speed.ratio)
    assert (speed.output_tok_s("interactive"), speed.validity) == (300.0, ())
    assert "2 repeats" in speed.how


def test_speed_that_was_not_measured_says_why() -> None:
    once = Speed("tuned", speed_delta(with_profiles("tuned", profile(1.0)), with_profiles("b", profile(1.0)), {}))
    assert once.ratio == 1.0
    for figure in ("error", "smallest_change"):
        with pytest.raises(NotMeasured, match=r"error|repeat"):
            getattr(once, figure)
    broken = Speed("tuned", SpeedDelta(faults=(INVALID,)), {"serve": profile(None, invalid=(INVALID,))})
    assert broken.validity == (INVALID,)
    for figure in ("ratio", "error", "smallest_change"):
        with pytest.raises(NotMeasured, match="client_cpu"):
            getattr(broken, figure)
    with pytest.raises(NotMeasured, match="client_cpu"):
        broken.output_tok_s("serve")
    with pytest.raises(NotMeasured, match="offline output_tok_s was not measured: profiles: serve"):
        broken.output_tok_s("offline")


def test_memory_is_that_of_the_largest_peak_or_of_one_profile() -> None:
    found = memory()
    assert (found.peak_gib(), found.peak_gib("interactive")) == (30.0, 11.1)
    assert (found.weights_gib, found.kv_gib, found.kv_bytes_per_token("serve")) == (8.84, 19.0, 73563.0)
    assert found.gain == pytest.approx((55.602 / 30.0 * 17.6 / 11.1) ** 0.5)
    assert found.saved == pytest.approx(1 - 30.0 / 55.602)
    assert found.gains == pytest.approx({"serve": 55.602 / 30.0, "interactive": 17.6 / 11.1})
    assert (found.kv_cache_gib, found.load_seconds, found.validity) == (150.14, 3.35, ())
    assert found.at_peak("serve").error == 0.001


def test_memory_that_was_not_measured_says_why() -> None:
    found = memory()
    with pytest.raises(NotMeasured, match="no graphs on a CPU"):
        found.cuda_graph_gib  # noqa: B018 - reading it raises
    with pytest.raises(NotMeasured, match="interactive kv_bytes_per_token was not measured: not read"):
        found.kv_bytes_per_token("interactive")
    with pytest.raises(NotMeasured, match="profiles: serve, interactive"):
        found.peak_gib("offline")
    alone = Memory("baseline", {}, None, None)
    reads: list[Callable[[], float]] = [alone.peak_gib, lambda: alone.gain, lambda: alone.kv_cache_tokens]
    for read in reads:
        with pytest.raises(NotMeasured):
            read()
    unknown = Memory("tuned", {"serve": profile(1.0, memory=PeakMemory(missing={"peak_gib": "no log"}))})
    with pytest.raises(NotMeasured, match="no log"):
        unknown.peak_gib()
    invalid = Memory("tuned", {"serve": profile(1.0, invalid=(INVALID,))}, delta=MemoryDelta(faults=(INVALID,)))
    assert invalid.validity == (INVALID,)
    with pytest.raises(NotMeasured, match="client_cpu"):
        invalid.peak_gib("serve")
    with pytest.raises(NotMeasured, match="client_cpu"):
        invalid.gain  # noqa: B018 - reading it raises


def test_an_audit_is_that_of_its_worst_run_or_of_one() -> None:
    serve = AuditRecord("serve", "audited", 24, 24, 0, 0, 0, gap_median=0.02, gap=0.03, length_ratio=1.0)
    other = replace(serve, run="interactive", gap_median=0.12, samples=23, empty=1, empty_alone=1, length_ratio=0.9)
    audit = Audit("tuned", {"serve": serve, "interactive": other})
    assert audit.runs == ("serve", "interactive")
    assert (audit.gap_median(), audit.gap_median("serve")) == (0.12, 0.02)
    assert (audit.length_ratio(), audit.empty_alone(), audit.samples(), audit.gap()) == (0.9, 1, 23, 0.03)
    assert (audit.record("serve"), audit.validity) == (serve, ())
    with pytest.raises(NotMeasured, match="no output that is not empty"):
        audit.top1_gap("serve")
    with pytest.raises(NotMeasured, match="runs: serve, interactive"):
        audit.gap_median("goodput")


def test_an_audit_that_is_not_valid_has_no_figures() -> None:
    broken = AuditRecord("serve", "invalid", 24, 24, 0, 0, 0, gap_median=0.0, invalid=(INVALID,))
    audit = Audit("tuned", {"serve": broken})
    assert audit.validity == (INVALID,)
    for read in (audit.gap_median, audit.empty_alone, lambda: audit.record("serve")):
        with pytest.raises(NotMeasured, match="client_cpu"):
            read()
    with pytest.raises(NotMeasured, match="nothing that was timed was audited"):
        Audit("tuned", {}).gap_median()
