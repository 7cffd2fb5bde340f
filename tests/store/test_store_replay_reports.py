"""Lab reports come back as records: every figure by hand, keys and roles, and a spec that loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.replay.read import read_stored
from pytest_tokenwatt.store.stored_run import StoredRun

REFERENCE = Path(__file__).parent.parent / "report" / "reference"
KV_CACHE = REFERENCE / "lab-kv-cache.json"
MOE = REFERENCE / "lab-moe-kernels.json"


def content_of(path: Path = KV_CACHE) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def believed(content: Any) -> Any:
    """One of our own reports, each measurement of which says that it is to be believed unless it says otherwise."""
    for entry in content["configs"] if isinstance(content, dict) and "schema" in content else ():
        listed = entry.get("accuracy") or []
        accuracy = listed if isinstance(listed, list) else [listed]
        named = [each for name in ("profiles", "budget", "timed_audit", "scenarios") for each in _values(entry, name)]
        runs = [run for profile in _values(entry, "profiles") for run in profile.get("runs") or ()]
        corpora = _values(entry.get("kl") or {}, "ppl")
        blocks = [entry, entry.get("energy"), entry.get("kl"), *accuracy, *named, *runs, *corpora]
        for block in filter(None, blocks):
            block.setdefault("validity", {"valid": True, "reasons": []})
    return content


def _values(entry: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return list((entry.get(name) or {}).values())


def stored(tmp_path: Path, content: Any) -> StoredRun:
    believed(content)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_stored(path)


def loaded(tmp_path: Path, run: StoredRun) -> Spec:
    path = tmp_path / "stored-spec.json"
    path.write_text(json.dumps(run.spec), encoding="utf-8")
    return load_spec(path, {})


def by_key(run: StoredRun) -> dict[str, ConfigRecord]:
    return {record.key: record for record in run.records}


def test_a_published_report_gives_its_figures() -> None:
    run = read_stored(KV_CACHE)
    assert (run.kind, run.status) == ("lab report", "draft")
    assert run.title == "Qwen3-30B-A3B FP8 on 1× H100: BF16 vs FP8 KV cache"
    baseline, tuned = run.records
    assert [(each.key, each.role, each.label) for each in run.records] == [
        ("baseline", "baseline", "vllm-default"),
        ("tuned", "tuned", "vllm-fp8kv"),
    ]
    goodput = baseline.scenarios["default"]
    assert (goodput.goodput_tok_s, goodput.slo_pass_count, goodput.repeats) == (4572.3, 2, 2)
    assert [(each.name, each.value_ms, each.bound_ms) for each in goodput.percentiles] == [
        ("ttft_p99_ms", 340.0, 2000.0),
        ("tpot_p99_ms", 44.6, 50.0),
    ]
    assert goodput.rate_rps is None
    assert goodput.windows == ()
    assert goodput.misses == ()
    assert goodput.figures["mbu_pct"].value == 56.6
    assert (baseline.suites["gsm8k-5shot"].score, tuned.suites["gsm8k-5shot"].score) == (96.0, 88.0)
    assert tuned.stored is not None
    assert tuned.stored.delta_pts == {"gsm8k-5shot": -8.0}
    assert tuned.stored.band_pct == 1.0
    assert tuned.stored.verdicts == {}
    assert tuned.identity is not None
    assert tuned.identity.version == "0.31.0"
    assert tuned.identity.cache_config == {"cache_dtype": "fp8"}
    assert [gpu.name for gpu in tuned.gpus] == ["NVIDIA H100 80GB HBM3"]


def test_tokens_per_joule_are_goodput_over_power() -> None:
    energies = [record.scenarios["default"].energy for record in read_stored(KV_CACHE).records]
    found = [energy.tokens_per_joule for energy in energies if energy]
    assert found == [pytest.approx(4572.3 / 637.0), pytest.approx(5056.9 / 616.0)]
    assert found == [pytest.approx(7.178, abs=5e-4), pytest.approx(8.209, abs=5e-4)]
    assert [energy.throttle_counts for energy in energies if energy] == [{"sw_power_cap": 199}, {"sw_power_cap": 133}]


def test_the_stored_spec_loads_and_names_every_gate(tmp_path: Path) -> None:
    run = read_stored(KV_CACHE)
    spec = loaded(tmp_path, run)
    gates = {f"{gate.config}::{gate.gate}" for gate in list_gates(spec)}
    assert {"baseline::slo", "tuned::slo", "tuned::goodput", "tuned::accuracy[gsm8k-5shot]", "tuned::energy"} <= gates
    assert spec.configuration("tuned").model.kv_dtype == "fp8"
    assert spec.configuration("baseline").model.kv_dtype == "bf16"
    assert spec.accuracy[0].max_drop_pts == 1.0


def test_without_roles_the_key_is_the_role() -> None:
    run = read_stored(MOE)
    assert [record.role for record in run.records] == ["baseline", "tuned", "other"]
    assert [record.scenarios["default"].goodput_tok_s for record in run.records] == [4515.0, 4522.8, 4516.4]
    assert run.records[0].stored is not None
    assert run.records[0].stored.band_pct == 0.7


def test_a_role_that_is_stored_wins(tmp_path: Path) -> None:
    content = content_of()
    content["configs"][0] |= {"key": "bf16", "role": "baseline"}
    content["configs"][1]["key"] = "fp8"
    run = stored(tmp_path, content)
    assert [(record.key, record.role) for record in run.records] == [("bf16", "baseline"), ("fp8", "tuned")]
    assert loaded(tmp_path, run).baseline is not None


def test_a_report_without_its_spec_keeps_its_limits(tmp_path: Path) -> None:
    content = content_of()
    del content["spec"]
    run = stored(tmp_path, content)
    spec = loaded(tmp_path, run)
    gates = {f"{gate.config}::{gate.gate}" for gate in list_gates(spec)}
    assert {"tuned::slo", "tuned::goodput", "tuned::accuracy[gsm8k-5shot]", "tuned::energy"} <= gates
    assert spec.slo == {"ttft_p99_ms": 2000.0, "tpot_p99_ms": 50.0}
    assert spec.measurement.repeats == 2
    assert by_key(run)["tuned"].suites["gsm8k-5shot"].score == 88.0


def test_a_report_that_lost_its_baseline_does_not_pass_as_recorded(tmp_path: Path) -> None:
    content = content_of()
    del content["configs"][0]
    assert loaded(tmp_path, stored(tmp_path, content)).gates.on_missing_baseline == "fail"


def test_scores_without_any_word_on_limits_are_still_judged(tmp_path: Path) -> None:
    content = content_of()
    del content["accuracy"], content["spec"]["accuracy"]
    run = stored(tmp_path, content)
    assert "tuned::accuracy[accuracy]" in {f"{gate.config}::{gate.gate}" for gate in list_gates(loaded(tmp_path, run))}
    assert by_key(run)["tuned"].suites["accuracy"].score == 88.0


def test_of_two_limits_the_stricter_counts(tmp_path: Path) -> None:
    content = content_of()
    content["spec"]["accuracy"]["max_drop_pts"] = 50.0
    content["spec"]["slo"]["ttft_p99_ms"] = 9000.0
    run = stored(tmp_path, content)
    spec = loaded(tmp_path, run)
    assert spec.accuracy[0].max_drop_pts == 1.0
    assert spec.slo == {"ttft_p99_ms": 2000.0, "tpot_p99_ms": 50.0}
    assert len(run.notes) == 2


def test_a_difference_that_its_scores_deny_is_invalid(tmp_path: Path) -> None:
    content = content_of()
    content["configs"][1]["accuracy"]["delta_pts"] = 0.0
    suite = by_key(stored(tmp_path, content))["tuned"].suites["gsm8k-5shot"]
    assert [reason.code for reason in suite.invalid] == ["contradiction"]


def test_no_rate_is_told_from_no_record_of_one(tmp_path: Path) -> None:
    content = content_of()
    content["configs"][0]["goodput_tok_s"] = None
    del content["configs"][1]["goodput_tok_s"]
    records = by_key(stored(tmp_path, content))
    assert records["baseline"].scenarios["default"].misses == ("no rate passed",)
    assert records["tuned"].scenarios["default"].misses == ()
    assert records["tuned"].scenarios["default"].goodput_tok_s is None


def test_a_percentile_beyond_its_bound_is_a_miss(tmp_path: Path) -> None:
    content = content_of()
    content["configs"][1]["tpot_p99_ms"] = 61.0
    assert by_key(stored(tmp_path, content))["tuned"].scenarios["default"].misses == ("TPOT p99 61 ms > 50 ms",)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("configs", 1, "goodput_tok_s"), "5056.9", "configs[1].goodput_tok_s: expected a number, found '5056.9'"),
        (("configs", 1, "goodput_tok_s"), True, "configs[1].goodput_tok_s: expected a number, found True"),
        (("configs", 0, "slo_pass_count"), 3, "configs[0].slo_pass_count: 3 of 2 repeats cannot have passed"),
        (("configs", 0, "accuracy", "score"), 101, "configs[0].accuracy.score: expected a number >= 0 and <= 100"),
        (("configs", 1, "key"), "baseline", "configs[1].key: baseline is taken"),
        (("configs",), [], "configs: there is no configuration"),
        (("spec", "slo"), 3, "spec.slo: expected a mapping, found 3"),
        (("schema",), "tokenwatt-report/9", "schema 'tokenwatt-report/9'"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_place(
    tmp_path: Path, path: tuple[str | int, ...], value: Any, told: str
) -> None:
    content = content_of()
    target: Any = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(UsageError) as caught:
        stored(tmp_path, content)
    assert told in str(caught.value)
    assert str(tmp_path / "report.json") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


def test_records_beside_a_report_are_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "record-tuned.json").write_text("{}", encoding="utf-8")
    run = stored(tmp_path, content_of())
    assert run.kind == "lab report"
    assert any("the records beside it hold more" in note for note in run.notes)


# --- what our own reports have more


def own_report() -> dict[str, Any]:
    """The reference's form with the fields that ours has beside them."""
    content = content_of()
    content["schema"] = "tokenwatt-report/1"
    content["gates"] = [{"id": "tuned::contract", "config": "tuned", "gate": "contract", "verdict": "pass"}]
    content["provenance"] = {
        "generated": "2026-11-30T12:00:00+00:00",
        "versions": {"pytest-tokenwatt": "0.1.0"},
        "hashes": {"load_sha256": {"tuned": {"default": "ab"}}, "suite_sha256": {"tuned": {"gsm8k-5shot": "cd"}}},
        "gpu_uuids": ["GPU-1"],
        "engines": {
            "tuned": {"version": "0.31.0", "model_ids": ["m"], "fingerprint": "f1", "launch": {"args": ["-q"]}}
        },
    }
    content["configs"][1] |= {
        "role": "tuned",
        "rate_rps": 12.4,
        "output_tok_s": 5100.0,
        "tokens_per_joule": 8.2093,
        "goodput_error_pct": None,
        "energy": {"source": "dcgm", "kind": "board", "sensors": 1, "variance_band_pct": 0.5},
        "length_shift": 0.02,
        "intervals": {
            "rate_rps": {"low": 12.4, "high": 12.9, "bracket": "closed"},
            "tpot_p99_ms": {"low": 43.0, "high": None, "n": 900},
            "length_shift": {"low": -0.01, "high": 0.05, "n": 50},
            "speeds": {"serve": {"low": None, "high": None}},
        },
        "efficiency": {"serve": 200.0},
        "peak_memory": {"serve": {"weights_gib": 1.0, "kv_gib": 2.0, "other_gib": 0.5, "peak_gib": 3.5, "error": None}},
        "profiles": {
            "serve": {
                "concurrency": 2,
                "input_tokens": 8,
                "output_tokens": 4,
                "requests": 6,
                "output_tok_s": 200.0,
                "load_sha256": "ef",
                "runs": [{"run": "serve-r0", "window_s": 2.0, "output_tok_s": 200.0, "requests": 6, "failed": 0}],
                "again": [{"run": "serve-a0", "window_s": 4.0, "output_tok_s": 190.0, "requests": 6, "failed": 0}],
            }
        },
        "kl": {
            "kl": 0.01,
            "kl_se": 0.001,
            "kl_lower": None,
            "k": 20,
            "sequences": 64,
            "tokens": 999,
            "route": "prompt_logprobs",
            "identity": {"kl": 0.0001, "kl_se": 0.00001, "sequences": 64, "tokens": 990},
            "ppl": {"wiki": {"dnll": 0.001, "dnll_se": None, "ppl": 9.7, "ppl_bf16": 9.6, "windows": 8, "tokens": 90}},
        },
        "timed_audit": {
            "online_slo": {
                "status": "audited",
                "run": "w",
                "picked": 4,
                "samples": 4,
                "empty": 0,
                "empty_alone": 0,
                "empty_reference": 0,
                "gap_median": 0.1,
                "length_ratio": 1.0,
            },
            "offline": {"status": "missing"},
        },
        "budget": {"serve@1.05": {"factor": 1.05, "healthy": True, "value": 199.0}},
        "precision": {"weights": 8, "activations": 8, "kv": 8, "label": "W8A8KV8", "stored_gib": 1.0},
        "startup": {"kv_cache_gib": 4.0, "max_concurrency": {"sequences": 10.5, "tokens_per_request": 4096}},
    }
    return content


def test_our_own_report_gives_more(tmp_path: Path) -> None:
    run = stored(tmp_path, own_report())
    tuned, baseline = by_key(run)["tuned"], by_key(run)["baseline"]
    goodput = tuned.scenarios["default"]
    assert (goodput.rate_rps, goodput.output_tok_s, goodput.lowest_failing_rps) == (12.4, 5100.0, 12.9)
    assert (goodput.percentiles[1].low_ms, goodput.percentiles[1].n) == (43.0, 900)
    assert goodput.load_sha256 == "ab"
    assert goodput.energy is not None
    assert (goodput.energy.tokens_per_joule, goodput.energy.source) == (8.2093, "dcgm")
    assert goodput.energy.variance_band_pct == 0.5
    assert tuned.suites["gsm8k-5shot"].sha256 == "cd"
    assert (tuned.fingerprint, tuned.launch, tuned.gpus[0].sensor) == ("f1", {"args": ["-q"]}, "GPU-1")
    serve = tuned.profiles["serve"]
    assert (serve.concurrency, serve.output_tok_s, serve.memory.peak_gib) == (2, 200.0, 3.5)
    assert [run.output_tokens for run in serve.runs] == [400]
    assert tuned.again["serve"].output_tok_s == pytest.approx(190.0)
    assert tuned.drift is not None
    assert tuned.drift.against is not None
    assert tuned.drift.against.kl == 0.01
    assert baseline.drift is not None
    assert baseline.drift.control is not None
    assert (baseline.drift.control.kl, baseline.drift.perplexity["wiki"].ppl) == (0.0001, 9.6)
    assert list(tuned.audits) == ["goodput"]
    assert tuned.audits["goodput"].gap_median == 0.1
    assert tuned.budgets["serve"].factor == 1.05
    assert tuned.precision is not None
    assert tuned.precision.label == "W8A8KV8"
    assert tuned.startup is not None
    assert tuned.startup.max_concurrency_tokens == 4096
    assert tuned.provenance.tool == "pytest-tokenwatt 0.1.0"


def test_stored_intervals_and_nulls_stay_apart(tmp_path: Path) -> None:
    figures = by_key(stored(tmp_path, own_report()))["tuned"].stored
    assert figures is not None
    assert figures.length_shift == 0.02
    assert figures.intervals == {"length_shift": (-0.01, 0.05)}
    assert figures.verdicts == {"contract": "pass"}
    assert figures.perplexity["wiki"].dnll == 0.001
    nulls = {"goodput_error_pct", "kl.kl_lower", "kl.ppl.wiki.dnll_se", "peak_memory.serve.error"}
    assert nulls | {"intervals.speeds.serve"} <= set(figures.unknown)
    assert "kl.kl_se" not in figures.unknown


def test_lengths_of_answers_that_were_cut_decide_nothing(tmp_path: Path) -> None:
    content = own_report()
    content["configs"][1]["intervals"]["length_shift"] |= {"truncated": 30}
    figures = by_key(stored(tmp_path, content))["tuned"].stored
    assert figures is not None
    assert figures.intervals == {}
    assert "intervals.length_shift" in figures.unknown


def test_blocks_are_made_for_figures_that_the_spec_does_not_ask_for(tmp_path: Path) -> None:
    gates = {f"{gate.config}::{gate.gate}" for gate in list_gates(loaded(tmp_path, stored(tmp_path, own_report())))}
    assert {"tuned::kl", "tuned::perplexity[wiki]", "tuned::speed", "tuned::audit", "tuned::budget"} <= gates


def test_contradicting_energy_and_memory_are_invalid(tmp_path: Path) -> None:
    content = own_report()
    content["configs"][1]["tokens_per_joule"] = 18.2
    content["configs"][1]["peak_memory"]["serve"]["peak_gib"] = 2.5
    tuned = by_key(stored(tmp_path, content))["tuned"]
    energy = tuned.scenarios["default"].energy
    assert energy is not None
    assert energy.tokens_per_joule is None
    assert [reason.code for reason in energy.invalid] == ["contradiction"]
    assert [reason.code for reason in tuned.profiles["serve"].invalid] == ["contradiction"]


def test_reasons_against_serving_are_not_against_accuracy(tmp_path: Path) -> None:
    content = own_report()
    content["configs"][1]["validity"] = {"valid": False, "reasons": [{"code": "too_few_requests", "text": "12"}]}
    content["configs"][1]["accuracy"]["validity"] = {"valid": True, "reasons": []}
    tuned = by_key(stored(tmp_path, content))["tuned"]
    assert tuned.invalid == ()
    assert [reason.code for reason in tuned.scenarios["default"].invalid] == ["too_few_requests"]
    content["configs"][1]["accuracy"]["validity"] = content["configs"][1]["validity"]
    assert [reason.code for reason in by_key(stored(tmp_path, content))["tuned"].invalid] == ["too_few_requests"]


def test_several_scenarios_keep_their_names_and_bounds(tmp_path: Path) -> None:
    content = own_report()
    content["spec"]["scenarios"] = [{"name": "chat"}, {"name": "rag", "slo": {"e2e_p90_ms": 900}}]
    content["scenarios"] = {"chat": {"slo": {"ttft_p99_ms": 2000.0}}, "rag": {"slo": {"e2e_p90_ms": 900.0}}}
    row = content["configs"][1]
    row["scenarios"] = {
        "chat": {name: row[name] for name in ("goodput_tok_s", "ttft_p99_ms", "slo_pass_count", "repeats", "rate_rps")},
        "rag": {"goodput_tok_s": 90.0, "e2e_p90_ms": 800.0, "slo_pass_count": 1, "repeats": 1, "rate_rps": 1.0},
    }
    tuned = by_key(stored(tmp_path, content))["tuned"]
    assert list(tuned.scenarios) == ["chat", "rag"]
    assert [each.name for each in tuned.scenarios["rag"].percentiles] == ["e2e_p90_ms"]
    assert tuned.scenarios["rag"].slo[0].bound_ms == 900.0
    assert list(tuned.audits) == ["goodput[chat]"]


@pytest.mark.parametrize("place", [(), ("energy",), ("profiles", "serve"), ("kl",)])
def test_a_measurement_that_lost_its_validity_is_not_taken_for_valid(tmp_path: Path, place: tuple[str, ...]) -> None:
    content = believed(own_report())
    block = content["configs"][1]
    for name in place:
        block = block.setdefault(name, {"validity": None, "note": "a measurement"})
    del block["validity"]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UsageError, match=r"validity: the key is missing"):
        read_stored(path)


def test_a_status_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither draft nor published"):
        stored(tmp_path, {**content_of(), "status": "many"})
