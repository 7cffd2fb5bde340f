"""Speed, memory, start-up, precision, reruns and audits of a configuration in a lab report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from submission_samples import AUDIT, BASELINE, RATES, SIZES, TUNED, profile_of, report_of

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import (
    BudgetRun,
    EnginePeaks,
    MemoryDelta,
    PeakMemory,
    Precision,
    Ratio,
    ScoreDelta,
    SpeedDelta,
)

STALE = Reason("client_overloaded", "a load worker used 97 % of a core")


def entries(tmp_path: Path, *records: ConfigRecord, **changes: Any) -> list[dict[str, Any]]:
    report = report_of(tmp_path, records or (BASELINE, TUNED), **changes)
    json.dumps(report, allow_nan=False)
    found: list[dict[str, Any]] = report["configs"]
    return found


def with_profiles(record: ConfigRecord, **changes: Any) -> ConfigRecord:
    return replace(record, profiles={name: replace(each, **changes) for name, each in record.profiles.items()})


# --- figures


def test_a_configuration_has_the_figures_of_published_records(tmp_path: Path) -> None:
    base, tuned = entries(tmp_path)
    assert base["efficiency"] == {name: float(f"{rate:.6g}") for name, rate in RATES["baseline"].items()}
    assert tuned["speeds"]["serve"] == tuned["speed_serve"] == pytest.approx(1.4367, abs=1e-4)
    assert tuned["memories"]["long_context"] == pytest.approx(1.94, abs=1e-3)
    assert (tuned["memory_saved"], tuned["peak_gib"]) == (pytest.approx(0.4587, abs=1e-4), pytest.approx(30.097))
    assert tuned["startup"]["max_concurrency"] == {"sequences": 66.73, "tokens_per_request": 32768, "missing": {}}
    assert tuned["precision"]["label"] == tuned["precision"]["declared"] == "W8A8KV8"
    assert tuned["precision"]["sources"]["weights"] == "config.json"
    assert tuned["budget"]["serve@1.02"]["healthy"] is True
    assert tuned["timed_audit"]["serve"]["gap_median"] == 0.0218


def test_a_baseline_is_compared_with_nothing(tmp_path: Path) -> None:
    base, _ = entries(tmp_path)
    for name in ("speed", "speeds", "speed_serve", "memory", "memories", "memory_saved", "budget"):
        assert (base[name], base["missing"][name]) == (None, "the baseline is what others are compared with")
    assert base["missing"]["timed_audit.serve"] == "the baseline is what others are audited by"


def test_gains_have_intervals_and_the_smallest_change(tmp_path: Path) -> None:
    base, tuned = entries(tmp_path)
    speed, memory = tuned["intervals"]["speed"], tuned["intervals"]["memory"]
    assert speed["low"] < tuned["speed"] < speed["high"]
    assert 0 < speed["smallest_change"] < 0.05
    assert "3 repeats" in speed["error_from"]
    assert memory["low"] < tuned["memory"] < memory["high"]
    assert set(tuned["intervals"]["speeds"]) == set(tuned["intervals"]["memories"]) == set(SIZES)
    assert "speed" not in base["intervals"]


def test_an_error_that_is_not_known_has_its_reason(tmp_path: Path) -> None:
    unsure = SpeedDelta({"serve": Ratio(1.4, None, "there is one repeat")}, Ratio(1.4, None, "there is one repeat"))
    report = report_of(tmp_path, speeds={"tuned": unsure})
    interval = report["configs"][1]["intervals"]["speed"]
    assert (interval["low"], interval["missing"]["low"]) == (None, "there is one repeat")
    assert "tuned: Error of the speed (serve): there is one repeat" in report["not_covered"]


def test_every_repeat_tells_what_the_client_did(tmp_path: Path) -> None:
    base, tuned = entries(tmp_path)
    serve = tuned["profiles"]["serve"]
    assert (serve["concurrency"], serve["input_tokens"], serve["output_tokens"]) == (32, 8192, 512)
    assert [run["run"] for run in serve["runs"]] == ["serve-r0", "serve-r1", "serve-r2"]
    assert (serve["runs"][0]["held_share"], serve["runs"][0]["client_cpu_share"]) == (0.997, 0.21)
    assert serve["runs"][0]["peaks"] == {
        "kv_usage": 0.1271,
        "running": 32.0,
        "preemptions": 0.0,
        "device_gib": 164.366,
        "readings": 140,
        "seconds": 35.5,
        "longest_gap_s": 0.3,
        "missing": {},
    }
    assert len(base["profiles"]["serve"]["again"]) == 3


def test_files_of_every_repeat_are_named(tmp_path: Path) -> None:
    served = replace(TUNED, files=("engine-tuned.log", "served-tuned-serve-r0.npz"))
    files = entries(tmp_path, BASELINE, served)[1]["files"]
    assert "served-tuned-serve-r0.npz" in files
    assert {f"requests-tuned-{name}-r{repeat}.npz" for name in SIZES for repeat in range(3)} <= set(files)


# --- the machine


def test_the_second_start_of_the_baseline_shows_how_far_the_machine_drifted(tmp_path: Path) -> None:
    drift = report_of(tmp_path)["machine_drift"]
    assert drift["profiles"] == {name: pytest.approx(0.4, abs=1e-4) for name in SIZES}
    assert (drift["variance_band_pct"], drift["missing"]) == (1.0, {})


def test_a_declared_repeat_shows_it_too(tmp_path: Path) -> None:
    slower = {name: profile_of("baseline", name, output_tok_s=RATES["baseline"][name] * 0.99) for name in SIZES}
    again = replace(BASELINE, key="again", role="other", like="baseline", profiles=slower, again={})
    configs = [
        {"key": "baseline", "role": "baseline"},
        {"key": "tuned", "role": "tuned"},
        {"key": "again", "role": "other", "like": "baseline"},
    ]
    report = report_of(tmp_path, (replace(BASELINE, again={}), TUNED, again), {"configs": configs})
    assert report["machine_drift"]["profiles"]["serve"] == pytest.approx(-1.0)


def test_without_a_repeat_the_drift_is_not_known(tmp_path: Path) -> None:
    drift = report_of(tmp_path, (replace(BASELINE, again={}), TUNED))["machine_drift"]
    assert drift["profiles"] == dict.fromkeys(SIZES)
    assert drift["missing"]["profiles.serve"] == "the baseline was not measured again"
    nothing = report_of(tmp_path, (TUNED,), variance_band_pct=None)["machine_drift"]
    assert (nothing["profiles"], nothing["variance_band_pct"]) == (None, None)
    assert set(nothing["missing"]) == {"profiles", "variance_band_pct"}


# --- profiles, audits


def test_the_search_is_a_profile_where_the_spec_says_so(tmp_path: Path) -> None:
    profiles: dict[str, Any] = {"profiles": {"serve": {}, "online_slo": {}}}
    audited = replace(TUNED, audits={"serve": AUDIT, "goodput": replace(AUDIT, run="confirm-1", gap_median=0.03)})
    base, tuned = entries(tmp_path, BASELINE, audited, asked=profiles)
    assert tuned["efficiency"]["online_slo"] == pytest.approx(TUNED.scenarios["default"].output_tok_s, rel=1e-5)
    assert tuned["speeds"]["online_slo"] == 1.0
    assert tuned["timed_audit"]["online_slo"]["run"] == "confirm-1"
    assert tuned["timed_audit"]["offline"] == {"status": "missing"}
    assert base["timed_audit"]["online_slo"] == {"status": "missing"}


def test_the_first_scenario_is_the_one_that_counts(tmp_path: Path) -> None:
    goodput = TUNED.scenarios["default"]
    scenarios = {name: replace(goodput, scenario=name) for name in ("chat", "rag")}
    audits = {"goodput[chat]": replace(AUDIT, run="chat-1"), "goodput[rag]": replace(AUDIT, run="rag-1")}
    found = replace(TUNED, scenarios=scenarios, audits=audits)
    audit = entries(tmp_path, BASELINE, found, asked={"scenarios": [{"name": "chat"}, {"name": "rag"}]})[1][
        "timed_audit"
    ]
    assert (audit["online_slo"]["run"], audit["online_slo[rag]"]["run"]) == ("chat-1", "rag-1")


def test_goodput_windows_that_were_not_audited_are_named(tmp_path: Path) -> None:
    goodput = TUNED.scenarios["default"]
    found = replace(TUNED, scenarios={name: replace(goodput, scenario=name) for name in ("chat", "rag")})
    asked = {"scenarios": [{"name": "chat"}, {"name": "rag"}]}
    lines = report_of(tmp_path, (BASELINE, found), asked)["not_covered"]
    assert "tuned: Audit of timed output (online_slo, online_slo[rag]): not measured in this run" in lines


def test_an_invalid_audit_keeps_its_counts_and_says_why(tmp_path: Path) -> None:
    reason = Reason("reference_failed", "the baseline answered 3 of 24")
    broken = replace(AUDIT, status="invalid", gap=None, gap_median=None, invalid=(reason,))
    report = report_of(tmp_path, (BASELINE, replace(TUNED, audits={**TUNED.audits, "serve": broken})))
    audit = report["configs"][1]["timed_audit"]["serve"]
    assert (audit["status"], audit["picked"], audit["gap"]) == ("invalid", 24, None)
    assert audit["missing"]["gap"] == str(reason)
    assert report["status"] == "draft"
    assert f"tuned: Audit of timed output (serve): {reason}" in report["not_covered"]


def test_an_invalid_repeat_makes_a_draft_and_is_no_figure(tmp_path: Path) -> None:
    runs = tuple(replace(run, output_tok_s=None, invalid=(STALE,)) for run in TUNED.profiles["serve"].runs)
    serve = replace(TUNED.profiles["serve"], runs=runs, output_tok_s=None)
    report = report_of(tmp_path, (BASELINE, replace(TUNED, profiles={**TUNED.profiles, "serve": serve})))
    tuned = report["configs"][1]
    assert report["status"] == "draft"
    assert (tuned["efficiency"]["serve"], tuned["missing"]["efficiency.serve"]) == (None, str(STALE))
    assert "serve" in tuned["missing"]["speed"]
    assert tuned["speeds"]["interactive"] == pytest.approx(1.2284, abs=1e-4)
    assert f"tuned: Output rate (serve): {STALE}" in report["not_covered"]
    stage = tuned["submission"]["stages"][3]
    assert (stage["status"], str(STALE) in stage["reason"]) == ("partial", True)


def test_a_rerun_that_could_not_be_taken_says_why(tmp_path: Path) -> None:
    reason = Reason("peak_unknown", "other_gib is not known")
    budgets = {name: BudgetRun(name, 1.02, None, None, None, None, None, None, (reason,)) for name in SIZES}
    report = report_of(tmp_path, (BASELINE, replace(TUNED, budgets=budgets)))
    rerun = report["configs"][1]["budget"]["serve@1.02"]
    assert (rerun["healthy"], rerun["factor"], rerun["missing"]["value"]) == (None, 1.02, str(reason))
    where = "serve, interactive, long_context"
    assert f"tuned: Rerun with less memory ({where}): {reason}" in report["not_covered"]


# --- what is not covered


def test_what_the_spec_does_not_ask_for_is_said(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("profiles", "audit", "budget", "score"))
    bare = replace(TUNED, profiles={}, budgets={}, audits={})
    report = report_of(tmp_path, (replace(BASELINE, profiles={}, again={}), bare), nothing)
    assert {
        "Closed-loop speed and memory: the spec has no profiles block",
        "Audit of timed output: the spec has no audit block",
        "Rerun with less memory: the spec has no budget block",
        "Leaderboard figures: the spec has no score block",
    } <= set(report["not_covered"])
    assert report["configs"][1]["efficiency"] == report["configs"][1]["peak_memory"] == {}
    assert report["configs"][1]["missing"]["speed"] == "the spec has no profiles block"
    assert not [line for line in report["not_covered"] if "not measured by this version" in line]


def test_standard_profiles_that_the_spec_lacks_are_named(tmp_path: Path) -> None:
    lines = report_of(tmp_path)["not_covered"]
    assert "Profiles that the spec does not have: offline, online_slo, memory_capped" in lines


def test_unknown_parts_of_memory_are_named_once(tmp_path: Path) -> None:
    memory = PeakMemory(1.0, 0.5, missing={"other_gib": "the CPU build logs none", "device_peak_gib": "no driver"})
    records = (with_profiles(BASELINE, memory=memory), with_profiles(TUNED, memory=memory))
    lines = report_of(tmp_path, records)["not_covered"]
    where = "serve, interactive, long_context"
    assert f"Peak memory ({where}): other_gib: the CPU build logs none" in lines
    assert f"Device memory ({where}): no driver" in lines


def test_a_declared_precision_that_was_not_read_is_said(tmp_path: Path) -> None:
    unread = replace(TUNED, precision=Precision(declared="W8A8KV8", missing={"label": "the checkpoint is not here"}))
    report = report_of(tmp_path, (BASELINE, unread))
    assert "tuned: Precision: the checkpoint is not here" in report["not_covered"]
    precision = report["configs"][1]["precision"]
    assert (precision["label"], precision["missing"]["label"]) == (None, "the checkpoint is not here")
    silent = report_of(tmp_path, (replace(BASELINE, precision=None), TUNED))["configs"][0]["precision"]
    assert silent["missing"]["declared"] == "the configuration declares none"


def test_readings_that_were_not_taken_have_their_reason(tmp_path: Path) -> None:
    peaks = EnginePeaks(missing={"device_gib": "no driver answers"})
    runs = tuple(replace(run, peaks=peaks, requests_file=None) for run in TUNED.profiles["serve"].runs)
    found = replace(TUNED, profiles={"serve": replace(TUNED.profiles["serve"], runs=runs)})
    run = entries(tmp_path, BASELINE, found)[1]["profiles"]["serve"]["runs"][0]
    assert run["peaks"]["missing"]["device_gib"] == "no driver answers"
    assert run["peaks"]["missing"]["running"] == "not read"
    assert run["missing"]["file"] == "its requests were not kept"


# --- in words


def summary_of(tmp_path: Path, **changes: Any) -> str:
    return str(report_of(tmp_path, (BASELINE, replace(TUNED, drift=None)), drift={}, **changes)["summary"])


def gains(speed: Ratio, memory: Ratio) -> dict[str, Any]:
    return {"speeds": {"tuned": SpeedDelta({}, speed)}, "memories": {"tuned": MemoryDelta({}, memory)}, "scores": {}}


@pytest.mark.parametrize(
    ("speed", "memory", "words"),
    [
        (
            Ratio(1.351, 0.006),
            Ratio(1.784, 0.01),
            "vllm-fp8kv improved speed 35.1 % (± 0.6 %) and memory 78.4 % (± 1.0 %).",
        ),
        (
            Ratio(1.351, 0.006),
            Ratio(1.004, 0.01),
            "vllm-fp8kv improved speed 35.1 % (± 0.6 %) and made no measurable difference to memory (+0.4 % ± 1.0 %).",
        ),
        (
            Ratio(0.9, 0.02),
            Ratio(1.2, None),
            "vllm-fp8kv worsened speed 10.0 % (± 2.0 %) and showed +20.0 % memory with an unknown error.",
        ),
        (Ratio(None, None, "no repeat"), Ratio(1.784, 0.01), "vllm-fp8kv improved memory 78.4 % (± 1.0 %)."),
    ],
)
def test_the_summary_says_only_what_is_beyond_its_error(
    tmp_path: Path, speed: Ratio, memory: Ratio, words: str
) -> None:
    assert summary_of(tmp_path, **gains(speed, memory)).endswith(words)


def test_the_summary_says_that_a_candidate_qualifies(tmp_path: Path) -> None:
    score = ScoreDelta(1.5, 0.5, 1.4563, 0.0394, "A", 0.5, 5, admitted=True, qualified=True)
    changes = {**gains(Ratio(1.351, 0.006), Ratio(1.784, 0.01)), "scores": {"tuned": score}}
    assert summary_of(tmp_path, **changes).endswith("qualified in tier A with a score of 1.456 (± 0.077).")
    changes["scores"] = {"tuned": replace(score, qualified=False)}
    assert "qualified" not in summary_of(tmp_path, **changes)
