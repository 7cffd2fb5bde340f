from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.records import GateSpec
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

ENGINE = "engine: {command: [serve, --port, '{port}'], model: tiny}\n"
SLO = "slo: {ttft_p99_ms: 2000, tpot_p99_ms: 50}\n"
CONFIGS = """configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, engine: {args: [--fast]}}
"""


def spec(tmp_path: Path, *parts: str) -> Spec:
    path = tmp_path / "lab.yaml"
    path.write_text("".join(parts), encoding="utf-8")
    return load_spec(path, {})


def ids(gates: tuple[GateSpec, ...]) -> list[str]:
    return [f"{gate.config}::{gate.gate}" for gate in gates]


def found(gates: tuple[GateSpec, ...], identity: str) -> GateSpec:
    return next(gate for gate in gates if f"{gate.config}::{gate.gate}" == identity)


def test_a_baseline_promises_absolutes_and_a_candidate_ratios_too(tmp_path: Path) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS))
    assert ids(gates) == [
        "baseline::contract",
        "baseline::slo",
        "tuned::contract",
        "tuned::slo",
        "tuned::goodput",
    ]
    assert [gate.needs for gate in gates] == ["contract", "goodput", "contract", "goodput", "goodput"]


def test_a_spec_without_configurations_is_a_baseline(tmp_path: Path) -> None:
    assert ids(list_gates(spec(tmp_path, ENGINE, SLO))) == ["baseline::contract", "baseline::slo"]


def test_without_an_slo_there_is_nothing_to_search(tmp_path: Path) -> None:
    assert ids(list_gates(spec(tmp_path, ENGINE, CONFIGS))) == ["baseline::contract", "tuned::contract"]


def test_an_absolute_minimum_gives_the_baseline_a_goodput_gate(tmp_path: Path) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, "gates: {goodput: {min_tok_s: 100}}\n"))
    base, tuned = found(gates, "baseline::goodput"), found(gates, "tuned::goodput")
    assert (base.limits["min"], base.limits["min_tok_s"]) == (None, 100)
    assert (tuned.limits["min"], tuned.limits["min_tok_s"]) == (0.95, 100)


def test_scenarios_stand_in_brackets(tmp_path: Path) -> None:
    text = "scenarios:\n  - {name: chat}\n  - {name: rag, slo: {ttft_p99_ms: 9000}}\n"
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text))
    assert ids(gates)[-5:] == ["tuned::contract", "tuned::slo[chat]", "tuned::slo[rag]", *ids(gates)[-2:]]
    assert ids(gates)[-2:] == ["tuned::goodput[chat]", "tuned::goodput[rag]"]
    rag = found(gates, "tuned::slo[rag]")
    assert (rag.kind, rag.param, rag.scenario) == ("slo", "rag", "rag")
    assert rag.limits["ttft_p99_ms"] == 9000
    assert "tpot_p99_ms" not in rag.limits


RULES = """gates:
  rules:
    - {name: ttft-p50, metric: ttft_p50_ms, max_ratio: 1.10}
    - {name: preemptions, metric: "server:vllm:num_preemptions_total", max: 0, mode: info}
    - {name: only, metric: ttft_p50_ms, max: 900, configs: [tuned], on_inconclusive: skip}
    - {name: hidden, metric: ttft_p50_ms, max: 900, mode: "off"}
"""


def test_a_rule_is_one_item_a_configuration(tmp_path: Path) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, RULES))
    rules = tuple(gate for gate in gates if gate.kind == "rule")
    assert ids(rules) == [
        "baseline::rule[preemptions]",
        "tuned::rule[ttft-p50]",
        "tuned::rule[preemptions]",
        "tuned::rule[only]",
    ]
    assert [gate.mode for gate in rules] == ["info", "enforce", "info", "enforce"]
    assert rules[-1].on_inconclusive == "skip"
    assert rules[1].limits["max_ratio"] == 1.10
    assert rules[1].line == 8


def test_modes_and_inconclusive_are_taken_over(tmp_path: Path) -> None:
    modes = "slo: {mode: 'off'}, goodput: {mode: info}"
    text = f"gates: {{{modes}, contract: {{on_inconclusive: xfail}}, on_inconclusive: skip}}\n"
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text))
    assert ids(gates) == ["baseline::contract", "tuned::contract", "tuned::goodput"]
    assert [gate.mode for gate in gates] == ["enforce", "enforce", "info"]
    assert [gate.on_inconclusive for gate in gates] == ["xfail", "xfail", "skip"]


def test_a_configuration_has_its_own_gates(tmp_path: Path) -> None:
    configs = """configs:
  - {key: baseline, role: baseline}
  - key: tuned
    role: tuned
    engine: {args: [--fast]}
    gates:
      goodput: {min: 1.05}
      slo: {at_rps: 4}
"""
    gates = list_gates(spec(tmp_path, ENGINE, SLO, configs))
    assert found(gates, "tuned::goodput").limits["min"] == 1.05
    assert found(gates, "tuned::slo").limits["at_rps"] == 4
    assert found(gates, "baseline::slo").limits["at_rps"] is None
    assert found(gates, "tuned::goodput").line == 9
    assert found(gates, "baseline::slo").line == 2


BLOCKS = """accuracy:
  - {name: gsm8k, suite: suites/gsm8k.jsonl, min_score: 80}
  - {name: mmlu, suite: suites/mmlu.jsonl}
drift:
  perplexity: [{name: wiki, file: wiki.txt}]
profiles: {serve: {concurrency: 4, input_tokens: 100, output_tokens: 10, requests: 8}}
audit: {}
budget: {}
score: {}
power: {source: simulated}
"""
EVERYTHING = [
    "contract",
    "slo",
    "goodput",
    "accuracy[gsm8k]",
    "accuracy[mmlu]",
    "accuracy[mean]",
    "kl",
    "perplexity[wiki]",
]
EVERYTHING += ["length", "speed", "memory", "energy", "audit", "budget", "precision", "score"]
NEEDS = {
    "contract": "contract",
    "slo": "goodput",
    "goodput": "goodput",
    "accuracy": "accuracy",
    "kl": "drift",
    "perplexity": "drift",
    "length": "accuracy",
    "speed": "profiles",
    "memory": "profiles",
    "energy": "goodput",
    "audit": "audit",
    "budget": "budget",
    "precision": "contract",
    "score": "score",
}


def test_every_block_makes_its_gates_in_the_order_of_the_design(tmp_path: Path) -> None:
    configs = CONFIGS.replace("--fast]}}", "--fast]}, precision: W8A8KV8}")
    gates = list_gates(spec(tmp_path, ENGINE, SLO, configs, BLOCKS))
    assert [gate.gate for gate in gates if gate.config == "tuned"] == EVERYTHING
    assert [gate.gate for gate in gates if gate.config == "baseline"] == ["contract", "slo", "accuracy[gsm8k]"]
    assert {gate.kind: gate.needs for gate in gates if gate.config == "tuned"} == NEEDS
    assert [gate.gate for gate in gates if gate.mode == "info"] == ["energy"]
    assert all(gate.line is not None for gate in gates)
    assert all(json.loads(json.dumps(gate.limits)) == gate.limits for gate in gates)


def test_profiles_make_speed_and_memory_gates_that_name_them(tmp_path: Path) -> None:
    text = "profiles: {serve: {}, interactive: {}, memory_capped: {kv_gib: 4}, online_slo: {}}\nbudget: {}\naudit: {}\n"
    limits = "gates: {speed: {min: 1.1, max_error: 0.02}, memory: {min: 1.5}}\n"
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text, limits))
    names, missing = ["serve", "interactive", "memory_capped"], {"on_missing_baseline": "fail"}
    speed = {"min": 1.1, "max_error": 0.02, "profiles": names, "online_slo": "default"}
    assert found(gates, "tuned::speed").limits == speed | missing
    assert found(gates, "tuned::memory").limits == {"min": 1.5, "profiles": names} | missing
    assert found(gates, "tuned::audit").limits["profiles"] == names
    assert found(gates, "tuned::budget").limits["profiles"] == ["serve", "interactive"]
    assert not [gate for gate in gates if gate.config == "baseline" and gate.needs == "profiles"]


def test_the_goodput_search_alone_is_a_speed_without_memory(tmp_path: Path) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, "profiles: {online_slo: {}}\n"))
    assert [gate.gate for gate in gates if gate.config == "tuned"] == ["contract", "slo", "goodput", "speed"]
    assert found(gates, "tuned::speed").limits["profiles"] == []
    plain = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, "profiles: {serve: {}}\n"))
    assert found(plain, "tuned::speed").limits["online_slo"] is None


def test_the_score_rests_on_the_gates_that_there_are(tmp_path: Path) -> None:
    text = "gates: {length: {mode: 'off'}, speed: {mode: info}}\n"
    limits = found(list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, BLOCKS, text)), "tuned::score").limits
    assert limits["gates"] == ["accuracy[gsm8k]", "accuracy[mmlu]", "accuracy[mean]", "speed", "memory"]


def test_a_declared_precision_is_a_promise_of_whatever_role(tmp_path: Path) -> None:
    configs = CONFIGS.replace("role: baseline}", "role: baseline, precision: W16A16KV16}")
    gates = list_gates(spec(tmp_path, ENGINE, SLO, configs))
    assert [(gate.config, gate.limits["declared"]) for gate in gates if gate.kind == "precision"] == [
        ("baseline", "W16A16KV16")
    ]


def test_energy_with_a_limit_is_enforced(tmp_path: Path) -> None:
    text = "power: {source: simulated}\ngates: {energy: {min_tok_j: 5}}\n"
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text))
    assert [(gate.config, gate.mode) for gate in gates if gate.kind == "energy"] == [
        ("baseline", "enforce"),
        ("tuned", "enforce"),
    ]


def test_energy_is_one_gate_a_scenario_that_promises_something(tmp_path: Path) -> None:
    power = "power: {source: simulated}\n"
    scenarios = "scenarios:\n  - {name: chat}\n  - {name: rag, slo: {ttft_p99_ms: 9000}}\n"
    gates = [
        gate for gate in list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, scenarios, power)) if gate.kind == "energy"
    ]
    assert [(gate.config, gate.gate, gate.scenario) for gate in gates] == [
        ("tuned", "energy[chat]", "chat"),
        ("tuned", "energy[rag]", "rag"),
    ]
    assert {(gate.needs, gate.mode, gate.limits["min"], gate.limits["min_tok_j"]) for gate in gates} == {
        ("goodput", "info", None, None)
    }
    assert not [gate for gate in list_gates(spec(tmp_path, ENGINE, CONFIGS, power)) if gate.kind == "energy"]


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("power: {source: none}\n", []),
        ("power: {source: none}\ngates: {energy: {min: 1.0}}\n", ["enforce"]),
        ("power: [{source: none}, {source: board}]\n", ["info"]),
        ("power: {source: board}\ngates: {energy: {mode: 'off'}}\n", []),
        ("", []),
    ],
)
def test_no_sensor_is_no_energy_gate_unless_energy_is_promised(tmp_path: Path, text: str, modes: list[str]) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text))
    assert [gate.mode for gate in gates if gate.kind == "energy" and gate.config == "tuned"] == modes


def test_one_suite_has_no_mean(tmp_path: Path) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, "accuracy: {name: gsm8k, suite: g.jsonl}\n"))
    assert [gate.gate for gate in gates if gate.config == "tuned"][-2:] == ["accuracy[gsm8k]", "length"]
    assert not [gate for gate in gates if gate.config == "baseline" and gate.kind == "accuracy"]


@pytest.mark.parametrize(
    ("text", "needs", "suites", "drift"),
    [
        ("accuracy: {name: gsm8k, suite: g.jsonl, limit: 50}\n", "accuracy", {"gsm8k": 50}, False),
        ("drift: {prompts: p.jsonl}\n", "drift", {}, True),
        ("accuracy: {name: gsm8k, suite: g.jsonl}\ndrift: {}\n", "accuracy", {"gsm8k": 200}, False),
        ("accuracy: {name: gsm8k, suite: g.jsonl}\ndrift: {prompts: p.jsonl}\n", "accuracy", {"gsm8k": 200}, True),
    ],
)
def test_lengths_are_those_of_suites_and_of_prompts_that_are_not_theirs(
    tmp_path: Path, text: str, needs: str, suites: dict[str, int], drift: bool
) -> None:
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text, "gates: {length: {max_shift: 0.2}}\n"))
    length = found(gates, "tuned::length")
    assert (length.needs, length.line is not None) == (needs, True)
    assert length.limits == {"max_shift": 0.2, "suites": suites, "drift": drift, "on_missing_baseline": "fail"}


def test_drift_gates_carry_what_judging_needs(tmp_path: Path) -> None:
    corpus = "{name: wiki, file: wiki.txt, max_dnll: 0.1}"
    text = f"drift: {{prompts: p.jsonl, max_nats_per_token: 0.05, control: false, perplexity: [{corpus}]}}\n"
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, text))
    kl, wiki = found(gates, "tuned::kl"), found(gates, "tuned::perplexity[wiki]")
    assert kl.limits == {"max_nats_per_token": 0.05, "control": False, "on_missing_baseline": "fail"}
    assert wiki.limits == {"max_dnll": 0.1, "on_missing_baseline": "fail"}
    assert not [gate for gate in gates if gate.config == "baseline" and gate.needs == "drift"]


def test_accuracy_gates_carry_what_judging_needs(tmp_path: Path) -> None:
    text = "gates: {accuracy: {rule: noninferiority, max_mean_drop_pts: 0.5}}\n"
    gates = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS, BLOCKS, text))
    limits = found(gates, "tuned::accuracy[gsm8k]").limits
    assert {name: limits[name] for name in ("rule", "max_drop_pts", "min_score", "limit", "seeds", "control")} == {
        "rule": "noninferiority",
        "max_drop_pts": 1.0,
        "min_score": 80,
        "limit": 200,
        "seeds": 1,
        "control": False,
    }
    absolute = found(gates, "baseline::accuracy[gsm8k]").limits
    assert (absolute["max_drop_pts"], absolute["min_score"]) == (None, 80)
    mean = found(gates, "tuned::accuracy[mean]").limits
    assert (mean["max_mean_drop_pts"], mean["suites"]) == (0.5, {"gsm8k": 200, "mmlu": 200})
    assert mean["tiers"] == {"A": 1.0, "B": 2.0, "C": 5.0}


def test_what_relative_gates_do_without_a_baseline_comes_along(tmp_path: Path) -> None:
    alone = list_gates(spec(tmp_path, ENGINE, SLO).with_role("tuned", "alone"))
    assert found(alone, "tuned::goodput").limits["on_missing_baseline"] == "record"
    pair = list_gates(spec(tmp_path, ENGINE, SLO, CONFIGS))
    assert found(pair, "tuned::goodput").limits["on_missing_baseline"] == "fail"


@pytest.mark.parametrize("parts", [(SLO,), (SLO, CONFIGS), (SLO, CONFIGS, BLOCKS)])
def test_ids_are_unique_and_their_order_is_stable(tmp_path: Path, parts: tuple[str, ...]) -> None:
    loaded = spec(tmp_path, ENGINE, *parts)
    gates = list_gates(loaded)
    assert len(set(ids(gates))) == len(gates)
    assert gates == list_gates(loaded)
