"""A submission record gives a baseline and a candidate with every figure that it holds, and the gates to judge them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.replay.read import read_stored
from pytest_tokenwatt.store.stored_run import StoredRun

REFERENCE = Path(__file__).parent.parent / "report" / "reference" / "submission-fp8-chunked-prefill.json"
PROFILES = {"interactive": (1, 1024, 256), "long_context": (64, 16000, 256), "serve": (32, 8192, 512)}


def content_of() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(REFERENCE.read_text(encoding="utf-8"))
    return content


def stored(tmp_path: Path, content: Any) -> StoredRun:
    path = tmp_path / "submission.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_stored(path)


def gates_of(tmp_path: Path, run: StoredRun) -> list[str]:
    path = tmp_path / "stored-spec.json"
    path.write_text(json.dumps(run.spec), encoding="utf-8")
    return [f"{gate.config}::{gate.gate}" for gate in list_gates(load_spec(path, {}))]


def test_the_reference_gives_two_records_with_their_figures() -> None:
    run = read_stored(REFERENCE)
    assert (run.kind, run.status) == ("submission", None)
    baseline, tuned = run.records
    assert (baseline.key, tuned.key, tuned.label) == (
        "baseline",
        "tuned",
        "Own engine: FP8 + FP8 KV, 16K prefill chunks",
    )
    speeds = {
        name: (tuned.profiles[name].output_tok_s or 0) / (baseline.profiles[name].output_tok_s or 1)
        for name in PROFILES
    }
    assert speeds == {
        "interactive": pytest.approx(1.2284, abs=5e-5),
        "long_context": pytest.approx(1.3961, abs=5e-5),
        "serve": pytest.approx(1.4367, abs=5e-5),
    }
    assert math.prod(speeds.values()) ** (1 / 3) == pytest.approx(1.3506, abs=1e-4)
    gains = [
        (baseline.profiles[name].memory.peak_gib or 0) / (tuned.profiles[name].memory.peak_gib or 1)
        for name in PROFILES
    ]
    assert gains == [pytest.approx(1.5843, abs=2e-4), pytest.approx(1.94, abs=1e-4), pytest.approx(1.8474, abs=1e-4)]
    assert not any(profile.invalid for record in run.records for profile in record.profiles.values())


def test_the_usual_profiles_have_their_usual_settings() -> None:
    profiles = read_stored(REFERENCE).records[1].profiles
    found = {name: (each.concurrency, each.input_tokens, each.output_tokens) for name, each in profiles.items()}
    assert found == PROFILES


def test_quality_and_what_is_only_stated() -> None:
    baseline, tuned = read_stored(REFERENCE).records
    figures = tuned.stored
    assert figures is not None
    assert figures.mean_drop_pts == pytest.approx(0.587)
    assert figures.valid_domains == 5
    assert (figures.length_shift, figures.drift_points, figures.score_se) == (0.01762, 0.5509, 0.0394)
    assert figures.gpu_hours == 0.779
    assert figures.verdicts == {"contract": "pass"}
    assert figures.unknown == ()
    assert tuned.drift is not None
    assert tuned.drift.against is not None
    assert tuned.drift.against.kl == 0.009696001195112797
    assert tuned.drift.against.kl_se == 0.0007364314878597962
    assert tuned.drift.against.kl_lower is None
    assert baseline.drift is not None
    assert baseline.drift.control is not None
    assert baseline.drift.control.kl == 0.0
    assert figures.perplexity["wikitext2"].dnll == 0.0011002849716787954
    assert baseline.drift.perplexity["wikitext2"].ppl == 9.721906631657593


def test_the_engine_itself() -> None:
    tuned = read_stored(REFERENCE).records[1]
    assert tuned.precision is not None
    assert tuned.startup is not None
    assert (tuned.precision.label, tuned.precision.declared, tuned.precision.stored_gib) == ("W8A8KV8", "W8A8KV8", 8.79)
    assert tuned.startup.kv_bytes_per_token == pytest.approx(73727.87)
    assert tuned.startup.max_concurrency_sequences == 66.73
    assert sorted(tuned.audits) == sorted(PROFILES)
    assert tuned.audits["interactive"].samples == 23
    assert tuned.budgets["serve"].healthy is True
    assert tuned.budgets["serve"].budget_gib == 30.7
    assert tuned.identity is not None
    assert tuned.identity.model_ids == ("Qwen3-8B-FP8-Dynamic",)


def test_every_stored_block_becomes_a_gate(tmp_path: Path) -> None:
    found = gates_of(tmp_path, read_stored(REFERENCE))
    kinds = [
        "kl",
        "perplexity[hidden]",
        "perplexity[wikitext2]",
        "length",
        "speed",
        "memory",
        "audit",
        "budget",
        "precision",
        "score",
    ]
    assert [f"tuned::{kind}" for kind in kinds] == [gate for gate in found if not gate.endswith("contract")]


def test_a_submission_may_lack_a_block(tmp_path: Path) -> None:
    content = content_of()
    del content["result"]["timed_audit"], content["result"]["engine"]["audit"], content["solution"]
    found = gates_of(tmp_path, stored(tmp_path, content))
    assert "tuned::audit" in found  # not decidable, and the score with it
    assert "tuned::precision" not in found
    assert "tuned::speed" in found
    assert "tuned::score" in found


def test_what_was_not_admitted_is_not_believed(tmp_path: Path) -> None:
    content = content_of()
    content["result"] |= {"admitted": False, "qualified": False, "reason": "the audit of serve failed"}
    tuned = stored(tmp_path, content).records[1]
    assert [(reason.code, reason.text) for reason in tuned.invalid] == [("not_admitted", "the audit of serve failed")]
    assert tuned.stored is not None
    assert tuned.stored.verdicts["score"] == "fail"


def test_a_contract_that_failed_is_said(tmp_path: Path) -> None:
    content = content_of()
    content["stages"][1]["status"] = "failed"
    content["result"]["admitted"] = False
    tuned = stored(tmp_path, content).records[1]
    assert tuned.stored is not None
    assert tuned.stored.verdicts["contract"] == "fail"
    content["stages"].pop(1)
    assert "contract" not in (stored(tmp_path, content).records[1].stored or tuned.stored).verdicts


def test_an_error_that_is_null_stays_unknown(tmp_path: Path) -> None:
    content = content_of()
    content["result"]["kl"]["kl_se"] = None
    content["result"]["anchor_peak_memory"]["serve"]["error"] = None
    figures = stored(tmp_path, content).records[1].stored
    assert figures is not None
    assert set(figures.unknown) == {"kl.kl_se", "anchor_peak_memory.serve.error"}


def test_a_submission_without_result_is_one_line(tmp_path: Path) -> None:
    content = content_of()
    del content["result"]
    with pytest.raises(UsageError, match=r"submission\.json: result: the key is missing; ") as caught:
        stored(tmp_path, content)
    assert "\n" not in str(caught.value)
