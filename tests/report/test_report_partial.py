"""Whatever a record lacks, there is a report, and every null in it has its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_samples import spec_of
from submission_samples import ASKED, BASELINE, TUNED, context_of
from test_report_submission import absent, unexplained

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import (
    EnginePeaks,
    PeakMemory,
    Precision,
    Ratio,
    ScoreDelta,
    SpeedDelta,
    Startup,
)
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.spec.model import Spec

EMPTY: Mapping[str, Any] = {
    "identity": None,
    "fingerprint": None,
    "contract": None,
    "scenarios": {},
    "launch": {},
    "minutes": {},
    "files": (),
    "spec": {},
    "power": (),
    "gpus": (),
    "rated_bandwidth": None,
    "suites": {},
    "drift": None,
    "startup": None,
    "precision": None,
    "profiles": {},
    "again": {},
    "budgets": {},
    "audits": {},
}
"""Every field of a record that may be empty."""
FAULT = Reason("interrupted", "Ctrl-C after 12 min")
GAIN_FIELDS = """efficiency speed speed_serve speeds memory memories memory_saved peak_memory peak_gib precision budget
    timed_audit startup profiles intervals"""


@cache
def spec_in(folder: Path, score: bool) -> Spec:
    return spec_of(folder, **(ASKED if score else {**ASKED, "score": None}))


def without(record: ConfigRecord, names: frozenset[str], faults: tuple[Reason, ...] = ()) -> ConfigRecord:
    return replace(record, invalid=faults, **{name: EMPTY[name] for name in names})


def check(report: dict[str, Any]) -> None:
    json.dumps(report, allow_nan=False)
    for entry in report["configs"]:
        shown = {name: entry[name] for name in GAIN_FIELDS.split()}
        # The intervals of latencies have their reasons in words of their own.
        shown["intervals"] = {
            name: entry["intervals"][name] for name in ("speed", "memory") if name in entry["intervals"]
        }
        assert list(unexplained({**shown, "missing": entry["missing"]})) == []
        if "submission" in entry:
            assert list(absent(entry["submission"])) == []
            assert list(unexplained(entry["submission"])) == []
    assert list(unexplained(report["machine_drift"])) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.frozensets(st.sampled_from(sorted(EMPTY))),
    st.frozensets(st.sampled_from(sorted(EMPTY))),
    st.sampled_from([(), (FAULT,)]),
    st.sampled_from(["both", "baseline", "tuned", "none"]),
    st.booleans(),
)
def test_any_fields_may_be_missing(
    tmp_path: Path,
    of_baseline: frozenset[str],
    of_tuned: frozenset[str],
    faults: tuple[Reason, ...],
    kept: str,
    deltas: bool,
) -> None:
    both = {"baseline": without(BASELINE, of_baseline), "tuned": without(TUNED, of_tuned, faults)}
    records = tuple(record for key, record in both.items() if kept in (key, "both"))
    spec = spec_in(tmp_path, True)
    context = context_of(spec, records)
    if not deltas:
        context = replace(context, drift={}, lengths={}, speeds={}, memories={}, scores={}, finished=None)
    check(build_report(spec, records, (), context))


FIGURES = st.sampled_from([None, math.nan, math.inf, 1.5])
PARTS = {
    PeakMemory: "weights_gib kv_gib other_gib peak_gib kv_usage kv_bytes_per_token device_peak_gib error",
    Startup: "weights_gib kv_cache_gib kv_cache_tokens kv_bytes_per_token cuda_graph_gib load_seconds",
    Precision: "weights activations kv weights_average stored_gib",
    ScoreDelta: "efficiency_gain drift score score_se mean_drop_pts",
    EnginePeaks: "kv_usage running preemptions device_gib",
}


def drawn(data: st.DataObject, kind: type[Any]) -> Any:
    """A value whose figures are known, not known, or no numbers."""
    return kind(**{name: data.draw(FIGURES) for name in PARTS[kind].split()})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_figure_may_be_missing_or_no_number(tmp_path: Path, data: st.DataObject) -> None:
    runs = tuple(
        replace(run, output_tok_s=data.draw(FIGURES), peaks=drawn(data, EnginePeaks))
        for run in TUNED.profiles["serve"].runs[: data.draw(st.integers(0, 2))]
    )
    rates = {name: data.draw(FIGURES) for name in TUNED.profiles}
    memory = drawn(data, PeakMemory)
    profiles = {
        name: replace(each, runs=runs, output_tok_s=rates[name], memory=memory, load_sha256="")
        for name, each in TUNED.profiles.items()
    }
    partial = replace(TUNED, profiles=profiles, startup=drawn(data, Startup), precision=drawn(data, Precision))
    ratio = Ratio(data.draw(FIGURES), data.draw(FIGURES))
    spec = spec_in(tmp_path, True)
    changes = {
        "speeds": {"tuned": SpeedDelta({"serve": ratio}, ratio, data.draw(FIGURES))},
        "scores": {"tuned": drawn(data, ScoreDelta)},
    }
    check(build_report(spec, (BASELINE, partial), (), context_of(spec, (BASELINE, TUNED), **changes)))


@pytest.mark.parametrize("score", [True, False])
def test_records_without_anything_give_a_report(tmp_path: Path, score: bool) -> None:
    names = frozenset(EMPTY)
    spec = spec_in(tmp_path, score)
    records = (without(BASELINE, names), without(TUNED, names))
    report = build_report(spec, records, (), context_of(spec, records, drift={}, interrupted="Ctrl-C"))
    check(report)
    assert report["status"] == "draft"
    assert ("submission" in report["configs"][1]) == score
    assert report["summary"].endswith("vllm-default was not measured. vllm-fp8kv was not measured.")
