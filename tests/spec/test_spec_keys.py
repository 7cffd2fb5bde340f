"""Every key loads, with the defaults that the contract states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from spec_texts import load

from pytest_tokenwatt.records import DEFAULT_SCENARIO, SloBound
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import LengthMix, Spec

DATA = Path(__file__).parent / "data"
SPECS = Path(__file__).parents[2] / "specs"
MINIMAL = "engine: {endpoint: 'http://127.0.0.1:8000/v1'}\n"


@pytest.fixture(scope="module")
def complete() -> Spec:
    return load_spec(DATA / "complete.yaml", {})


def test_the_complete_form_loads(complete: Spec) -> None:
    assert complete.name == "complete"
    assert complete.title == "Everything"
    assert complete.hardware.gpus == ("GPU-1", "GPU-2")
    assert [config.key for config in complete.configurations] == ["baseline", "tuned", "again"]
    assert complete.workload.input_tokens == LengthMix(median=1024, p90=4096)
    assert complete.workload.output_tokens == 256
    assert complete.measurement.model_dump() == {
        "warmup_s": 10,
        "warmup_max_s": 20,
        "window_s": 30,
        "search_window_s": 15,
        "repeats": 3,
        "request_timeout_s": 60,
        "max_concurrency": 100,
    }
    assert complete.sweep.rates == (1, 2.5)
    assert complete.profiles["own"].repeats == 3
    assert [suite.title for suite in complete.accuracy] == ["gsm8k", "facts"]
    assert complete.accuracy[0].sampling.top_p == 0.95
    assert complete.drift is not None
    assert complete.drift.top_k == -1
    assert complete.drift.perplexity[0].max_dnll == 0.1
    assert complete.score is not None
    assert complete.score.tiers == {"A": 1, "B": 3}
    assert [source.source for source in complete.power] == ["redfish", "dcgm", "command"]
    assert complete.load.workers == 4
    assert complete.gates.perplexity.mode == "off"
    assert complete.gates.inconclusive(complete.gates.slo) == "xfail"
    assert complete.gates.inconclusive(complete.gates.audit) == "skip"
    assert complete.gates.rules[0].relative
    assert not complete.gates.rules[1].relative
    assert complete.not_covered == ("Whole-node power",)


def test_the_engine_of_the_complete_form(complete: Spec) -> None:
    engine = complete.configurations[0].engine
    assert engine.method == "command"
    assert engine.args == ("--gpu-memory-utilization", "0.90", "--seed", "0"), "numbers are kept as written"
    assert engine.env == {"VLLM_LOGGING_LEVEL": "INFO", "PYTHONPATH": None, "OMP_NUM_THREADS": "2", "FLAG": "true"}
    assert engine.prepare == (("nvidia-smi", "-pl", "500"),)
    assert engine.cleanup == (("nvidia-smi", "-pl", "700"), ("nvidia-smi", "-rgc"))
    assert engine.version == "0.32", "a version is text even without quotes"
    assert engine.extra_body == {"x-free": 1, "nested": {"list": [1, "two"]}}
    assert engine.headers_env == {"x-tenant": "TENANT"}, "a header may start with x-"
    assert engine.metrics == ("http://127.0.0.1:9000/metrics",)


@pytest.mark.parametrize("name", ["lab-kv-cache", "lab-moe-kernels"])
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_the_specs_of_published_reports_load_unchanged(name: str, suffix: str, tmp_path: Path) -> None:
    published: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    path = tmp_path / f"{name}.{suffix}"
    path.write_text(json.dumps(published) if suffix == "json" else yaml.safe_dump(published), encoding="utf-8")
    spec = load_spec(path, {})
    (config,) = spec.configurations
    (scenario,) = config.scenarios
    assert spec.name == "lambda-qwen3-30b-a3b-fp8-tp1-dp1"
    assert (config.key, config.role, scenario.name) == ("baseline", "baseline", DEFAULT_SCENARIO)
    assert config.engine.method == "attach"
    assert config.model_name == "Qwen/Qwen3-30B-A3B-FP8"
    assert scenario.bounds == (SloBound("ttft", 99, 2000), SloBound("tpot", 99, 50))
    assert spec.accuracy[0].limit == 50
    assert spec.accuracy[0].stop == ("\n\nQuestion:",)
    assert spec.power[0].verify_tls is False
    assert spec.raw == published
    assert scenario.sweep.start_rps == published["sweep"]["start_rps"]
    assert config.gates.on_missing_baseline == "record"


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: str(path.name))
def test_a_shipped_spec_loads_with_no_variable_set(path: Path) -> None:
    spec = load_spec(path, {})
    assert spec.slo or spec.scenarios
    assert all(config.engine.command or config.engine.endpoint for config in spec.configurations)


def test_the_reference_experiment_is_shipped() -> None:
    spec = load_spec(SPECS / "h100-qwen3-30b-a3b-fp8.yaml", {})
    published = load_spec(DATA / "lab-kv-cache.json", {})
    base, tuned = spec.configurations
    assert (base.label, tuned.label) == ("vllm-default", "vllm-fp8kv")
    assert tuned.engine.args == ("--kv-cache-dtype", "fp8")
    assert (base.model.kv_dtype, tuned.model.kv_dtype) == ("bf16", "fp8")
    assert spec.slo == published.slo
    assert spec.measurement == published.measurement
    assert spec.sweep == published.sweep
    assert base.engine.model == published.configurations[0].engine.model
    assert base.model.name == published.model.name
    assert [source.source for source in spec.power] == [source.source for source in published.power]


def test_defaults_of_what_is_absent() -> None:
    spec = load(MINIMAL, name="my run.yaml")
    assert spec.name == "my-run", "the file's name, fit for a directory"
    assert spec.measurement.model_dump() == {
        "warmup_s": 45,
        "warmup_max_s": 120,
        "window_s": 120,
        "search_window_s": 60,
        "repeats": 2,
        "request_timeout_s": 300,
        "max_concurrency": 8192,
    }
    assert spec.sweep.model_dump() == {
        "rates": None,
        "start_rps": 2,
        "growth": 2,
        "bisect_steps": 3,
        "resolution": None,
        "max_rps": 2000,
        "backoff": 0.9,
        "max_backoffs": 4,
    }
    assert spec.workload.model_dump() == {
        "trace": "chat-mix-v1",
        "input_tokens": None,
        "output_tokens": None,
        "max_output_tokens": None,
        "content": "random",
        "seed": 0,
    }
    assert (spec.load.workers, spec.load.backend) == ("auto", "process")
    gates = spec.configurations[0].gates
    assert (gates.goodput.min, gates.goodput.min_tok_s, gates.goodput.min_rps) == (0.95, None, None)
    assert (gates.speed.min, gates.speed.max_error, gates.memory.min) == (0.95, 0.05, 1.0)
    assert (gates.energy.min, gates.energy.min_tok_j) == (None, None)
    assert (gates.accuracy.rule, gates.accuracy.max_mean_drop_pts, gates.length.max_shift) == ("point", 1.0, 0.10)
    assert (gates.slo.at_rps, gates.slo.mode, gates.on_inconclusive, gates.rules) == (None, "enforce", "fail", ())
    absent = (spec.slo, spec.profiles, spec.accuracy, spec.drift, spec.audit, spec.budget, spec.score, spec.fleet)
    assert not any(absent)
    assert spec.power == ()
    engine = spec.configurations[0].engine
    assert (engine.ready_timeout_s, engine.stop_timeout_s, engine.verify_tls, engine.prompt) == (1800, 60, True, "ids")


def test_defaults_of_what_is_present_and_empty() -> None:
    spec = load(
        MINIMAL
        + "profiles: {serve: {}, interactive: , long_context: {repeats: 1}}\n"
        + "accuracy: {suite: a/gsm8k-200.jsonl}\n"
        + "drift: {}\naudit: {}\nbudget: {}\nscore: {}\nfleet: {}\npower: {}\n"
    )
    assert [tuple(profile.model_dump().values()) for profile in spec.profiles.values()] == [
        (32, 8192, 512, 128, 3, None),
        (1, 1024, 256, 16, 3, None),
        (64, 16000, 256, 128, 1, None),
    ]
    suite = spec.accuracy[0]
    assert (suite.title, suite.scorer, suite.limit, suite.seeds, suite.max_tokens) == (
        "gsm8k-200",
        "numeric",
        200,
        1,
        384,
    )
    assert (suite.max_drop_pts, suite.min_score, suite.concurrency, suite.control) == (1.0, None, 32, False)
    assert suite.sampling.model_dump(exclude={"seed"}) == {
        "temperature": 0,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
    }
    assert spec.drift is not None
    assert spec.drift.model_dump() == {
        "prompts": None,
        "sequences": 256,
        "tokens": 256,
        "top_k": 20,
        "max_nats_per_token": 0.02,
        "control": True,
        "decode": True,
        "perplexity": (),
    }
    assert spec.audit is not None
    assert tuple(spec.audit.model_dump().values()) == (24, 0.5, 1, 0.8)
    assert spec.budget is not None
    assert spec.budget.factor == 1.02
    assert spec.score is not None
    assert (spec.score.points_per_nat, spec.score.tiers) == (56.8, {"A": 1, "B": 2, "C": 5})
    assert spec.fleet is not None
    assert spec.fleet.cards == 64
    assert [(source.source, source.sampling_hz) for source in spec.power] == [("board", 1)]


def test_null_is_the_default_and_a_null_block_is_absent() -> None:
    spec = load(MINIMAL + "measurement: {repeats: null}\nsweep:\naccuracy: null\ngates: {slo: null}\n")
    assert spec.measurement.repeats == 2
    assert spec.sweep.start_rps == 2
    assert spec.gates.slo.at_rps is None
    assert not spec.present("accuracy")
    assert spec.present("measurement")


def test_a_long_warm_up_lifts_the_default_maximum() -> None:
    assert load(MINIMAL + "measurement: {warmup_s: 300}\n").measurement.warmup_max_s == 300


def test_lines_of_key_paths() -> None:
    spec = load(
        MINIMAL
        + "gates:\n  rules:\n    - {name: a, metric: ttft_p50_ms, max: 1}\n\n"
        + "    - name: b\n      metric: c\n      min: 0\n"
    )
    assert spec.line("engine", "endpoint") == 1
    assert spec.line("gates", "rules", 0) == 4
    assert spec.line("gates", "rules", 1, "min") == 8
    assert spec.line("gates", "rules", 2) is None


def test_a_block_is_immutable(complete: Spec) -> None:
    with pytest.raises(ValueError, match="frozen"):
        complete.sweep.start_rps = 3
