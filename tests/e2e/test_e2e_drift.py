"""Drift through the whole plugin: precision shows in KL, the control does not, and texts have their perplexity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_specs import SIMULATE, report_of

from pytest_tokenwatt.arithmetic import generate

RUN = ("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")
TEXT = "the time of the water and the light is that of the people who live by the river and work on the land " * 40


def write(root: Path, *tuned: str, **drift: Any) -> None:
    """A spec that samples continuations of sums; ``tuned`` are the candidate's arguments."""
    lines = [json.dumps({"id": item.id, "prompt": item.prompt, "answer": item.answer}) for item in generate(32)]
    (root / "sums.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (root / "text.txt").write_text(TEXT, encoding="utf-8")
    corpus = {"name": "river", "file": "text.txt", "window": 128, "windows": 8, "max_dnll": 0.02}
    spec = {
        "engine": {"command": SIMULATE, "ready_timeout_s": 60, "stop_timeout_s": 5},
        "configs": [
            {"key": "baseline", "role": "baseline"},
            {"key": "tuned", "role": "tuned", "engine": {"args": list(tuned)}},
        ],
        "drift": {
            "prompts": "sums.jsonl",
            "sequences": 96,
            "tokens": 24,
            "max_nats_per_token": 0.002,
            "perplexity": [corpus],
            **drift,
        },
        "gates": {"length": {"mode": "off"}},
    }
    (root / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def drift_of(root: Path, key: str = "tuned") -> dict[str, Any]:
    (path,) = root.glob("tokenwatt-runs/*")
    stored: dict[str, Any] = json.loads((path / f"record-{key}.json").read_text(encoding="utf-8"))["drift"]
    return stored


@pytest.mark.slow
def test_divergence_follows_the_precision(pytester: pytest.Pytester) -> None:
    found = {}
    for precision in ("fp8", "int4"):
        root = pytester.mkdir(precision)
        write(root, "--kv-cache-dtype", precision)
        pytester.runpytest(f"--rootdir={root}", f"--tokenwatt-spec={root}/spec.yaml", *RUN[1:])
        found[precision] = drift_of(root)["against"]
        control = drift_of(root, "baseline")["control"]
        assert control["kl"] == 0.0
    assert 0 < found["fp8"]["kl_lower"] <= found["fp8"]["kl"] + 1e-9
    assert found["fp8"]["kl"] * 10 < found["int4"]["kl"]
    assert found["int4"]["top1_agreement"] < found["fp8"]["top1_agreement"] <= 1.0


@pytest.mark.slow
def test_a_coarse_cache_fails_both_gates_and_tests_can_read_them(pytester: pytest.Pytester) -> None:
    write(pytester.path, "--kv-cache-dtype", "int4")
    pytester.makepyfile(
        test_own="""
        def test_drift(kl_drift, perplexity, tokenwatt):
            assert 0.008 < kl_drift.nats_per_token < 0.02
            assert kl_drift.control == 0.0
            assert perplexity.dnll > 0.02
        """
    )
    result = pytester.runpytest(*RUN, "test_own.py")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*tuned*kl*nats*fail*", "*tuned*perplexity[[]river]*fail*"])
    result.assert_outcomes(passed=3, failed=2)
    kl = next(entry for entry in report_of(pytester.path)["configs"] if entry["key"] == "tuned")["kl"]
    assert kl["ppl"]["river"]["dnll"] > 0.02
    assert kl["identity"]["kl"] == 0.0
    assert kl["route"] == "prompt_logprobs"


@pytest.mark.slow
def test_the_same_numbers_from_another_start_are_bit_identical(pytester: pytest.Pytester) -> None:
    write(pytester.path, "--max-num-seqs", "8")
    result = pytester.runpytest(*RUN)
    assert result.ret == 0
    assert drift_of(pytester.path)["against"]["kl"] == 0.0


@pytest.mark.slow
def test_what_cannot_be_used_costs_no_more_than_itself(pytester: pytest.Pytester) -> None:
    write(pytester.path, "--kv-cache-dtype", "int4", prompts=None)
    (pytester.path / "text.txt").write_text("brief", encoding="utf-8")
    suites = [{"suite": "sums.jsonl", "name": name, "max_drop_pts": 50} for name in ("one", "two")]
    spec = yaml.safe_load((pytester.path / "spec.yaml").read_text(encoding="utf-8"))
    spec = {**spec, "accuracy": suites, "model": {"vocab_size": 16}}
    (pytester.path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    result = pytester.runpytest(*RUN, "-k", "kl or perplexity")
    result.stdout.fnmatch_lines(["*tuned*kl*nats*fail*", "*tuned*perplexity[[]river]*invalid*"])
    stored = drift_of(pytester.path)
    assert stored["against"]["kl_lower"] > 0.002
    assert (stored["invalid"], stored["k"]) == ([], 16)
    assert "drift.top_k 20 is more than the vocabulary has: all 16 are asked for" in stored["notes"]
    assert [reason["code"] for reason in stored["perplexity"]["river"]["invalid"]] == ["text_too_short"]


@pytest.mark.slow
def test_the_binary_routes_are_used_where_they_are_offered(pytester: pytest.Pytester) -> None:
    short = ("--enable-scale-out", "--enable-trace-replay", "--max-model-len", "100")
    write(pytester.path, "--kv-cache-dtype", "int4", *short)
    pytester.runpytest(*RUN).stdout.fnmatch_lines(["*tuned*kl*nats*fail*", "*tuned*perplexity[[]river]*fail*"])
    baseline, tuned = drift_of(pytester.path, "baseline"), drift_of(pytester.path)
    assert (baseline["route"], baseline["decode_route"], baseline["k"]) == ("prompt_logprobs", "served_tokens", 20)
    assert (tuned["route"], tuned["decode_route"], tuned["k"]) == ("fixed_ids", "trace_replay", 19)
    assert any("start the server with --max-logprobs 21 for all of them" in note for note in tuned["notes"])
    assert 0.008 < tuned["against"]["kl"] < 0.02
    assert tuned["decode_gap"] == pytest.approx(0.0, abs=1e-4)
    assert any("the server replays no traces" in note for note in baseline["notes"])
    river, whole = tuned["perplexity"]["river"], baseline["perplexity"]["river"]
    assert (river["sha256"], river["invalid"]) == (whole["sha256"], [])
    assert (river["tokens"], whole["tokens"]) == (7 * 98, 7 * 127)
    assert len(river["base_nll"]) == 7
    assert "river: max_model_len is 100: 7 sequences are cut to 99 tokens" in tuned["notes"]
    assert [answer["id"] for answer in tuned["answers"]] == [answer["id"] for answer in baseline["answers"]]
    assert tuned["answers_sha256"] == baseline["answers_sha256"] != ""
    assert any(answer["tokens"] and not answer["cut"] for answer in baseline["answers"])


@pytest.mark.slow
def test_an_interrupted_run_keeps_what_was_scored(pytester: pytest.Pytester) -> None:
    write(pytester.path, "--kv-cache-dtype", "int4", sequences=24)
    run = ("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio", "-k", "kl")
    pytester.runpytest(*run, "--tokenwatt-out=run")
    out = pytester.path / "run"
    before = [json.loads((out / f"record-{key}.json").read_text(encoding="utf-8")) for key in ("baseline", "tuned")]
    (out / "record-tuned.json").write_text(json.dumps({**before[1], "drift": None}), encoding="utf-8")
    result = pytester.runpytest(*run, "--tokenwatt-resume=run")
    result.stdout.fnmatch_lines(["*baseline drift: kept from the interrupted run*"])
    result.stdout.no_fnmatch_line("*tuned drift: kept*")
    after = [json.loads((out / f"record-{key}.json").read_text(encoding="utf-8")) for key in ("baseline", "tuned")]
    assert [record["drift"] for record in after] == [record["drift"] for record in before]
    (out / "drift-baseline.npz").write_bytes(b"torn")
    result = pytester.runpytest(*run, "--tokenwatt-resume=run")
    result.stdout.fnmatch_lines(["*baseline drift: measured again:*damaged*", "*tuned drift: kept from the*"])
