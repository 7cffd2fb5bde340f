"""The submission record: every field of published ones, measured or null with the reason, and the same arithmetic."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from submission_samples import BASELINE, SIZES, TUNED, report_of

from pytest_tokenwatt.records import Contract, ProbeOutcome, Reason
from pytest_tokenwatt.records.profiles import PeakMemory, ScoreDelta

PROFILES = "interactive long_context serve"
AUDITED = f"{PROFILES} memory_capped offline online_slo"
AUDIT = """bf16_mean bf16_top1 empty empty_alone empty_reference engine_mean engine_top1 gap gap_max gap_median
    length_ratio length_ratio_min picked run samples status top1_gap"""
PEAK = "device_peak_gib kv_bytes_per_token kv_gib kv_usage other_gib peak_gib weights_gib"
BUDGET = "budget_gib factor full_running healthy running value"
BUDGETS = " ".join(f"{name}@1.02" for name in PROFILES.split())
TREE = {
    "": """agent created_at error id participant partition result runner solution split stages status task_id track
        updated_at""",
    "solution": "checkpoint declared_precision detected_precision method precision",
    "stages": "name status",
    "result": """admitted anchor_efficiency anchor_peak_memory bf16_peak_gib drift efficiency efficiency_gain engine
        gpu_hours kl length_shift mean_drop memories memory memory_saved metric peak_gib peak_memory precision qualified
        quality reason score score_se speed speed_serve speeds task_id timed_audit""",
    **dict.fromkeys((f"result.{name}" for name in ["anchor_efficiency", "efficiency", "memories", "speeds"]), PROFILES),
    **dict.fromkeys(("result.anchor_peak_memory", "result.peak_memory"), PROFILES),
    **{f"result.{side}.{name}": PEAK for side in ("anchor_peak_memory", "peak_memory") for name in PROFILES.split()},
    "result.engine": "audit budget startup stored_gib",
    **dict.fromkeys(("result.engine.audit", "result.timed_audit"), AUDITED),
    **{f"result.{side}.{name}": AUDIT for side in ("engine.audit", "timed_audit") for name in PROFILES.split()},
    "result.engine.budget": BUDGETS,
    **{
        f"result.engine.budget.{name}": "budget_gib factor full_running healthy running value"
        for name in BUDGETS.split()
    },
    "result.engine.startup": """cuda_graph_gib engine_init_seconds kv_bytes_per_token kv_cache_dtype kv_cache_gib
        kv_cache_tokens load_seconds max_concurrency speculative_config vllm_version weights_gib""",
    "result.engine.startup.max_concurrency": "sequences tokens_per_request",
    "result.kl": "identity kl kl_median kl_per_token kl_se ppl sequences tokens",
    "result.kl.identity": "kl kl_median kl_per_token kl_se sequences tokens",
    "result.kl.ppl": "wikitext2",
    "result.kl.ppl.wikitext2": "dnll dnll_se ppl ppl_bf16 tokens windows",
    "result.precision": "activations kv label weights weights_average",
    "result.quality": "tier valid_domains",
}
"""Keys of a published record by the path of what holds them; a list's elements are at the list's path."""
TEXTS = """created_at id label checkpoint method kv_cache_dtype speculative_config vllm_version metric name run status
    participant task_id updated_at tier detected_precision"""
FLAGS = "admitted qualified declared_precision healthy"
COUNTS = "empty empty_alone empty_reference picked samples sequences tokens windows valid_domains"
STAGES = ["build", "contract", "quality", "efficiency", "score"]
SAYS_NOTHING = {"error", "reason"}
"""Null where nothing went wrong."""
GIB = 2.0**30
SCORE = ScoreDelta(1.5388, 0.5509, 1.4563, 0.0394, "A", 0.587, 5, admitted=True, qualified=True)


def submission_of(tmp_path: Path, *records: Any, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = report_of(tmp_path, records or (BASELINE, TUNED), **changes)["configs"][-1]["submission"]
    json.dumps(found, allow_nan=False)
    return found


def holders(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping of a record with its path."""
    if isinstance(value, Mapping):
        yield "/".join(path), value
        for key, inner in value.items():
            yield from holders(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from holders(inner, path)


def unexplained(value: Any, path: tuple[str, ...] = (), told: tuple[str, ...] = ()) -> Iterator[str]:
    """Paths of nulls for which nothing above them has a reason; ``told`` are paths that some ``missing`` names."""
    if value is None and path[-1] not in SAYS_NOTHING and ".".join(path) not in told:
        yield ".".join(path)
    elif isinstance(value, Mapping):
        reasons = value.get("missing") or {}
        assert all(reasons.values()), f"{path}: {reasons}"
        further = tuple(".".join((*path, name)) for name in reasons)
        for key, inner in value.items():
            yield from unexplained(inner, (*path, key), (*told, *further))
    elif isinstance(value, list):
        for inner in value:
            yield from unexplained(inner, path, told)


def absent(record: Any, path: str = "", where: str = "") -> Iterator[str]:
    """Keys of the tree that a record does not have, below nulls and missing audits excepted."""
    for each in record if isinstance(record, list) else [record]:
        if each is None or (each.get("status") == "missing" and "name" not in each):
            continue
        for key in TREE.get(path, "").split():
            place = f"{path}.{key}" if path else key
            if key not in each:
                yield place
            elif place in TREE:
                yield from absent(each[key], place)


# --- the form


def test_every_field_of_a_published_record_is_there(tmp_path: Path) -> None:
    submission = submission_of(tmp_path)
    assert list(absent(submission)) == []
    assert list(unexplained(submission)) == []


def test_figures_have_their_types(tmp_path: Path) -> None:
    found = dict(holders(submission_of(tmp_path)))
    for path, holder in found.items():
        place = ".".join(path.split("/"))
        for key in TREE.get(place, "").split():
            value = holder[key]
            if value is None or isinstance(value, dict | list):
                continue
            if key in FLAGS.split():
                assert isinstance(value, bool), (place, key)
            elif key in COUNTS.split() and "max_concurrency" not in place:
                assert isinstance(value, int), (place, key)
            elif key in TEXTS.split() or (place in ("", "solution") and isinstance(value, str)):
                assert isinstance(value, str), (place, key)
            else:
                assert isinstance(value, int | float), (place, key)
                assert not isinstance(value, bool), (place, key)


def test_stages_are_those_of_published_records(tmp_path: Path) -> None:
    submission = submission_of(tmp_path)
    assert submission["stages"] == [{"name": name, "status": "done"} for name in STAGES]
    assert (submission["status"], submission["error"], submission["result"]["reason"]) == ("done", None, None)


def test_who_and_where_are_as_the_spec_says_or_null(tmp_path: Path) -> None:
    submission = submission_of(tmp_path)
    assert submission["task_id"] == submission["result"]["task_id"] == "qwen3-8b"
    assert submission["participant"] == "vllm-fp8kv"
    assert submission["solution"] == {
        "checkpoint": "Qwen3-8B-FP8-Dynamic",
        "declared_precision": True,
        "detected_precision": "W8A8KV8",
        "method": "tuned",
        "precision": "W8A8KV8",
        "missing": {},
    }
    assert (submission["created_at"], submission["updated_at"]) == ("2026-10-06T12:00:00Z", "2026-10-06T12:55:30Z")
    assert len(submission["id"]) == 16
    unsaid = [name for name in ("agent", "partition", "runner", "split", "track") if submission[name] is None]
    assert {submission["missing"][name] for name in unsaid} == {"the spec does not say"}


def test_standard_profiles_that_were_not_run_are_missing_with_the_reason(tmp_path: Path) -> None:
    result = submission_of(tmp_path)["result"]
    for audits in (result["timed_audit"], result["engine"]["audit"]):
        assert {name for name, block in audits.items() if block == {"status": "missing"}} == {
            "offline",
            "online_slo",
            "memory_capped",
        }
    assert result["missing"]["timed_audit.offline"] == "the spec has no profile offline"


def test_only_candidates_of_a_spec_with_a_score_have_one(tmp_path: Path) -> None:
    again = replace(BASELINE, key="again", role="other", like="baseline")
    configs = [
        {"key": "baseline", "role": "baseline", "label": "vllm-default"},
        {"key": "again", "role": "other", "label": "default (repeat)", "like": "baseline"},
        {"key": "tuned", "role": "tuned", "label": "vllm-fp8kv"},
    ]
    entries = report_of(tmp_path, (BASELINE, again, TUNED), {"configs": configs})["configs"]
    assert [entry["key"] for entry in entries if "submission" in entry] == ["tuned"]
    report = report_of(tmp_path, asked={"score": None})
    assert "submission" not in report["configs"][1]
    assert "Leaderboard figures: the spec has no score block" in report["not_covered"]


# --- the arithmetic, from the parts that the record itself holds


@pytest.mark.parametrize("side", ["peak_memory", "anchor_peak_memory"])
def test_a_peak_is_the_sum_of_its_parts(tmp_path: Path, side: str) -> None:
    for name, peak in submission_of(tmp_path)["result"][side].items():
        parts = peak["weights_gib"] + peak["kv_gib"] + peak["other_gib"]
        assert peak["peak_gib"] == pytest.approx(parts, abs=0.0015)
        concurrency, input_tokens, output_tokens, _ = SIZES[name]
        tokens = concurrency * (input_tokens + output_tokens)
        # kv_gib is rounded to a thousandth, and the bytes are whole.
        rounding = 0.0005 * GIB / tokens + 0.5
        assert peak["kv_bytes_per_token"] == pytest.approx(peak["kv_gib"] * GIB / tokens, abs=rounding)


def test_the_pool_at_start_up_has_its_bytes_per_token(tmp_path: Path) -> None:
    startup = submission_of(tmp_path)["result"]["engine"]["startup"]
    own = startup["kv_cache_gib"] * GIB / startup["kv_cache_tokens"]
    assert own == pytest.approx(73727.87, abs=0.01)
    assert startup["kv_bytes_per_token"] == pytest.approx(own, rel=1e-6)


def test_gains_are_ratios_to_the_baseline_and_their_geometric_means(tmp_path: Path) -> None:
    result = submission_of(tmp_path)["result"]
    for name in SIZES:
        rates, peaks = (result[key][name] for key in ("anchor_efficiency", "anchor_peak_memory"))
        assert result["speeds"][name] == pytest.approx(result["efficiency"][name] / rates, abs=5e-5)
        gain = peaks["peak_gib"] / result["peak_memory"][name]["peak_gib"]
        assert result["memories"][name] == pytest.approx(gain, abs=3e-4)
    for mean, each in (("speed", "speeds"), ("memory", "memories")):
        own = math.prod(result[each].values()) ** (1 / len(SIZES))
        assert result[mean] == pytest.approx(own, abs=5e-5)
    assert (result["speed"], result["memory"]) == (pytest.approx(1.3506, abs=1e-4), pytest.approx(1.784, abs=3e-4))
    assert result["speed_serve"] == result["speeds"]["serve"]
    assert result["memory_saved"] == pytest.approx(1 - 1 / result["memories"]["serve"], abs=1e-5)
    assert result["bf16_peak_gib"] == result["anchor_peak_memory"]["serve"]["peak_gib"]
    assert result["peak_gib"] == result["peak_memory"]["serve"]["peak_gib"]


def test_the_score_follows_from_gains_length_and_drift(tmp_path: Path) -> None:
    result = submission_of(tmp_path)["result"]
    gain = math.sqrt(result["speed"] / (1 + max(0.0, result["length_shift"])) * result["memory"])
    assert result["efficiency_gain"] == pytest.approx(gain, abs=3e-4)
    assert result["drift"] == pytest.approx(56.8 * result["kl"]["kl"], abs=3e-4)
    assert (result["efficiency_gain"], result["score"]) == (
        pytest.approx(1.5388, abs=3e-4),
        pytest.approx(1.4563, abs=3e-4),
    )
    assert result["score"] == pytest.approx(result["efficiency_gain"] * math.exp(-result["drift"] / 10), abs=3e-4)
    assert result["mean_drop"] == pytest.approx(0.00587)
    assert result["quality"] == {"tier": "A", "valid_domains": 5, "missing": {}}


def test_gpu_hours_are_minutes_of_all_phases_on_all_gpus(tmp_path: Path) -> None:
    assert submission_of(tmp_path)["result"]["gpu_hours"] == pytest.approx(0.779)
    two = replace(TUNED, gpus=TUNED.gpus * 2)
    assert submission_of(tmp_path, BASELINE, two)["result"]["gpu_hours"] == pytest.approx(1.558)
    unread = submission_of(tmp_path, BASELINE, replace(TUNED, gpus=(), power=()))["result"]
    assert (unread["gpu_hours"], unread["missing"]["gpu_hours"]) == (None, "on how many GPUs it ran is not known")


# --- what is missing


def test_without_a_baseline_what_compares_is_null_with_the_reason(tmp_path: Path) -> None:
    submission = submission_of(tmp_path, TUNED, scores={}, lengths={}, drift={})
    result = submission["result"]
    assert list(absent(submission)) == list(unexplained(submission)) == []
    for name in ("anchor_efficiency", "bf16_peak_gib", "speed", "memories", "score", "qualified", "mean_drop"):
        assert (result[name], result["missing"][name]) == (None, "there is no baseline to compare with")
    assert result["efficiency"]["serve"] == pytest.approx(2783.09)
    assert submission["stages"][-1] == {
        "name": "score",
        "status": "missing",
        "reason": "nothing was compared with a baseline",
    }
    assert submission["status"] == "partial"


def test_a_peak_without_its_parts_names_them(tmp_path: Path) -> None:
    memory = PeakMemory(weights_gib=1.0, kv_gib=0.5, missing={"other_gib": "the log has no line of it"})
    profiles = {name: replace(each, memory=memory) for name, each in TUNED.profiles.items()}
    report = report_of(tmp_path, (BASELINE, replace(TUNED, profiles=profiles)))
    result = report["configs"][1]["submission"]["result"]
    assert result["missing"]["peak_gib"] == "other_gib: the log has no line of it"
    assert result["peak_memory"]["serve"]["missing"]["peak_gib"] == "other_gib: the log has no line of it"
    assert result["missing"]["memories.serve"]
    where = "serve, interactive, long_context"
    assert f"tuned: Peak memory ({where}): other_gib: the log has no line of it" in report["not_covered"]
    stage = report["configs"][1]["submission"]["stages"][3]
    assert (stage["status"], stage["reason"].count("peak memory of")) == ("partial", 3)


def test_a_candidate_that_does_not_qualify_says_why(tmp_path: Path) -> None:
    failed = replace(SCORE, qualified=False, reason="the length gate failed")
    result = submission_of(tmp_path, scores={"tuned": failed})["result"]
    assert (result["qualified"], result["reason"], result["score"]) == (False, "the length gate failed", 1.4563)
    unsure = replace(SCORE, qualified=None, undecided=("kl", "speed"))
    result = submission_of(tmp_path, scores={"tuned": unsure})["result"]
    assert (result["qualified"], result["missing"]["qualified"]) == (None, "undecided: kl, speed")


def test_a_score_that_is_not_known_has_the_gates_reason(tmp_path: Path) -> None:
    unknown = replace(
        SCORE, score=None, score_se=None, missing={"score": "memory is not known", "score_se": "no error"}
    )
    submission = submission_of(tmp_path, scores={"tuned": unknown})
    assert submission["result"]["missing"]["score"] == "memory is not known"
    assert submission["stages"][-1]["reason"] == "memory is not known"


@pytest.mark.parametrize(
    ("changes", "states"),
    [
        ({}, "done done done done done"),
        ({"identity": None}, "missing done done done done"),
        ({"contract": None}, "done missing done done done"),
        ({"contract": Contract((ProbeOutcome("stream", True, "wrong", "no usage"),))}, "done failed done done done"),
        ({"suites": {}}, "done done partial done done"),
        ({"suites": {}, "drift": None}, "done done missing done done"),
        ({"profiles": {}}, "done done done missing missing"),
        ({"profiles": {"serve": TUNED.profiles["serve"]}}, "done done done partial missing"),
    ],
)
def test_stages_follow_from_the_record(tmp_path: Path, changes: dict[str, Any], states: str) -> None:
    submission = submission_of(tmp_path, BASELINE, replace(TUNED, **changes))
    assert " ".join(stage["status"] for stage in submission["stages"]) == states
    assert all(stage.get("reason") for stage in submission["stages"] if stage["status"] != "done")


def test_an_engine_that_did_not_start_fails_the_build(tmp_path: Path) -> None:
    reason = Reason("engine_start_failed", "exit code 1")
    broken = replace(TUNED, identity=None, contract=None, invalid=(reason,), suites={}, drift=None, profiles={})
    submission = submission_of(tmp_path, BASELINE, broken, scores={})
    assert (submission["status"], submission["error"]) == ("failed", "engine_start_failed: exit code 1")
    states = {stage["name"]: stage["status"] for stage in submission["stages"]}
    assert states == {
        "build": "failed",
        "contract": "missing",
        "quality": "failed",
        "efficiency": "failed",
        "score": "missing",
    }
    assert list(absent(submission)) == list(unexplained(submission)) == []
