"""Configurations and scenarios are laid over the blocks above them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from spec_texts import complaints, load

from pytest_tokenwatt.records import SloBound
from pytest_tokenwatt.spec.merge import merged, merged_engine

ENGINE = """
engine:
  command: [serve, --port, "{port}"]
  args: [--a]
  env: {A: "1", B: "2"}
  extra_body: {nested: {x: 1, y: 2}, list: [1, 2]}
"""

LEAVES = st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
TREES: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner)),
    max_size=4,
)


def test_mappings_merge_deeply_args_append_other_lists_replace() -> None:
    spec = load(
        ENGINE
        + """
workload: {input_tokens: {median: 100, p90: 200}, seed: 4}
configs:
  - {key: base, role: baseline}
  - key: new
    engine:
      args: [--b, 2]
      env: {B: null, C: x}
      extra_body: {nested: {y: 3}, list: [9]}
    workload: {input_tokens: {median: 150}}
    gates: {goodput: {min_rps: 1}}
"""
    )
    base, new = spec.configurations
    assert new.engine.command == ("serve", "--port", "{port}")
    assert new.engine.args == ("--a", "--b", "2")
    assert new.engine.env == {"A": "1", "B": None, "C": "x"}
    assert new.engine.extra_body == {"nested": {"x": 1, "y": 3}, "list": [9]}
    assert new.workload.model_dump()["input_tokens"] == {"median": 150, "p90": 200}
    assert new.workload.seed == 4
    assert (new.gates.goodput.min, new.gates.goodput.min_rps) == (0.95, 1)
    assert base.engine.args == ("--a",)
    assert base.gates.goodput.min_rps is None
    assert (base.line, new.line) == (10, 11)


def test_roles_and_labels_that_are_not_said() -> None:
    spec = load(ENGINE + "configs: [{key: baseline}, {key: fp8}, {key: other}, {key: again, like: fp8}]\n")
    assert [config.role for config in spec.configurations] == ["baseline", "tuned", "other", "other"]
    assert [config.label for config in spec.configurations] == ["baseline", "fp8", "other", "again"]
    assert spec.baseline is spec.configurations[0]


def test_like_takes_the_merged_blocks() -> None:
    spec = load(
        ENGINE
        + "configs:\n  - {key: again, like: new, gates: {goodput: {min: 0.5}}}\n"
        + "  - {key: new, role: baseline, precision: W8A8, engine: {args: [--b]}, model: {kv_dtype: fp8}}\n"
        + "  - {key: third, like: again}\n"
    )
    again, new, third = spec.configurations
    assert again.engine == new.engine == third.engine
    assert again.model.kv_dtype == "fp8"
    assert again.precision == "W8A8"
    assert (again.gates.goodput.min, new.gates.goodput.min) == (0.5, 0.95)
    assert (again.like, third.like) == ("new", "again")
    assert again.raw["engine"] == new.raw["engine"]


def test_another_way_to_start_replaces_the_one_above() -> None:
    spec = load(
        ENGINE
        + "configs:\n  - {key: a, engine: {endpoint: 'http://h:1/v1'}}\n"
        + "  - {key: b, engine: {endpoint: 'http://h:1/v1', up: [u], down: [d], logs: [l]}}\n"
    )
    attach, up = (config.engine for config in spec.configurations)
    assert (attach.method, attach.command, attach.args) == ("attach", None, ())
    assert attach.env == {"A": "1", "B": "2"}
    assert (up.method, up.command) == ("up", None)
    back = load(
        "engine: {endpoint: 'http://h:1/v1', up: [u], down: [d], logs: [l], ca_file: c}\n"
        "configs: [{key: a, engine: {command: [serve, '{port}']}}, {key: b, engine: {up: [v]}}]\n"
    )
    command, other_up = (config.engine for config in back.configurations)
    assert (command.method, command.endpoint, command.up, command.logs) == ("command", None, None, None)
    assert command.ca_file == "c"
    assert (other_up.up, other_up.down, other_up.endpoint) == (("v",), ("d",), "http://h:1/v1")


def test_power_is_a_mapping_that_merges_or_a_list_that_replaces() -> None:
    spec = load(
        ENGINE + "power: {source: ipmi, host: bmc}\n"
        "configs:\n  - {key: a, power: {sampling_hz: 2}}\n  - {key: b, power: [{source: rapl}, {source: none}]}\n"
    )
    a, b = (config.power for config in spec.configurations)
    assert [(source.source, source.host, source.sampling_hz) for source in a] == [("ipmi", "bmc", 2)]
    assert [source.source for source in b] == ["rapl", "none"]


def test_scenarios_override_all_but_slo_which_they_replace() -> None:
    spec = load(
        ENGINE
        + """
slo: {ttft_p99_ms: 2000, tpot_p99_ms: 50}
workload: {seed: 1, max_output_tokens: 10}
sweep: {start_rps: 4, growth: 1.5}
configs: [{key: a, workload: {seed: 2}}]
scenarios:
  - {name: chat}
  - name: rag
    slo: {itl_p95_ms: 80, ttft_p99.9_ms: 9000, ttft_p50_ms: 1000}
    workload: {max_output_tokens: 20}
    sweep: {growth: 3}
"""
    )
    (config,) = spec.configurations
    chat, rag = config.scenarios
    assert chat.bounds == (SloBound("ttft", 99, 2000), SloBound("tpot", 99, 50))
    assert [bound.name for bound in rag.bounds] == ["ttft_p50_ms", "ttft_p99.9_ms", "itl_p95_ms"]
    assert (chat.workload.seed, chat.workload.max_output_tokens) == (2, 10)
    assert (rag.workload.seed, rag.workload.max_output_tokens) == (2, 20)
    assert (rag.sweep.start_rps, rag.sweep.growth) == (4, 3)
    assert (chat.max_percentile, rag.max_percentile) == (99, 99.9)
    assert (chat.requests_needed, rag.requests_needed) == (100, 1000)
    assert config.scenario("rag") is rag


def test_no_slo_needs_no_requests() -> None:
    (scenario,) = load(ENGINE).configurations[0].scenarios
    assert (scenario.bounds, scenario.max_percentile, scenario.requests_needed) == ((), None, 1)


def test_errors_of_merged_blocks_stand_where_the_value_was_written() -> None:
    lines = complaints(
        ENGINE
        + "sweep: {start_rps: -1}\nconfigs:\n  - key: a\n    engine:\n      comand: [x]\n      env: {A: [1]}\n"
        + "scenarios:\n  - name: s\n    sweep: {growth: 0.5}\n"
    )
    assert lines == [
        "spec.yaml:7: sweep.start_rps: must be above 0, not -1",
        "spec.yaml:11: configs[0].engine.comand: unknown key; did you mean command?",
        "spec.yaml:12: configs[0].engine.env.A: must be text, not a list",
        "spec.yaml:15: scenarios[0].sweep.growth: must be above 1, not 0.5",
    ]


def test_a_flaw_of_the_base_is_reported_once_for_all_configurations() -> None:
    lines = complaints(
        "engine: {command: [s, '{port}'], args: [[1]]}\nconfigs: [{key: a, engine: {args: [x]}}, {key: b}]\n"
    )
    assert lines == ["spec.yaml:1: engine.args: word 1 is a list; write every word of the command as its own item"]


@given(base=TREES, over=TREES)
def test_merge_keeps_what_is_not_overridden(base: dict[str, Any], over: dict[str, Any]) -> None:
    result = merged(base, over)
    assert set(result) == set(base) | set(over)
    for key in result:
        if key not in over:
            assert result[key] == base[key]
        elif not (isinstance(over[key], dict) and isinstance(base.get(key), dict)):
            assert result[key] == over[key]


@given(base=TREES, middle=TREES)
def test_merging_the_same_block_twice_changes_nothing(base: dict[str, Any], middle: dict[str, Any]) -> None:
    once = merged(base, middle)
    assert merged(once, middle) == once
    assert merged(base, {}) == base
    assert merged({}, middle) == middle
    assert merged(base, None) == base


def test_merge_leaves_its_inputs_alone() -> None:
    base, over = {"args": ["a"], "env": {"A": "1"}}, {"args": ["b"], "env": {"B": "2"}}
    assert merged_engine(base, over) == {"args": ["a", "b"], "env": {"A": "1", "B": "2"}}
    assert (base, over) == ({"args": ["a"], "env": {"A": "1"}}, {"args": ["b"], "env": {"B": "2"}})
