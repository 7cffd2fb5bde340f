"""Preflight: what can be known before an engine starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.problems import preflight

PATH = {"PATH": str(Path(sys.executable).parent)}
PROGRAM = Path(sys.executable).name
ATTACH = "engine: {endpoint: 'http://h/v1'}\n"


def found(folder: Path, text: str, environ: Mapping[str, str] = PATH, *only: str) -> list[str]:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    spec = load_spec(path, {})
    selected = [spec.configuration(key) for key in only] or None
    lines = [f"{problem.severity} {problem}" for problem in preflight(spec, selected, environ)]
    return [line.replace(f"{folder}/", "") for line in lines]


def test_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "text.txt").write_text("x", encoding="utf-8")
    text = f"engine: {{command: ['{PROGRAM}', '{{model}}', '{{port}}'], up: null}}\nmodel: {{path: ./model}}\n"
    assert found(tmp_path, text + "workload: {content: text.txt}\nslo: {ttft_p99_ms: 1}\n") == []
    assert found(tmp_path, "engine: {command: ['{python}', '{port}']}\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "title: x\n",
            "error spec.yaml: engine: baseline does not say how the engine is started or reached; add engine.command",
        ),
        (
            "engine: {command: ['{python}', '{model}', '{port}']}\n",
            "error spec.yaml:1: engine.command: {model} has no value; set model.path or engine.model",
        ),
        (
            "engine: {command: [no-such-program, '{port}']}\n",
            "error spec.yaml:1: engine.command: no-such-program is not on PATH; install no-such-program",
        ),
        (
            "engine: {command: [./serve.sh, '{port}']}\n",
            "error spec.yaml:1: engine.command: serve.sh is not a program; check the path",
        ),
        (
            ATTACH + "workload: {trace: chat-mix-v2}\n",
            "error spec.yaml:2: workload.trace: there is no trace and no file chat-mix-v2",
        ),
        (
            ATTACH + "workload: {content: text.txt}\n",
            "error spec.yaml:2: workload.content: there is no file text.txt; check the path",
        ),
        (ATTACH + "accuracy: {suite: a.jsonl}\n", "error spec.yaml:2: accuracy.suite: there is no file a.jsonl"),
        (ATTACH + "accuracy: [{suite: a.jsonl}]\n", "error spec.yaml:2: accuracy[0].suite: there is no file a.jsonl"),
        (ATTACH + "drift: {prompts: p.jsonl}\n", "error spec.yaml:2: drift.prompts: there is no file p.jsonl"),
        (ATTACH + "drift: {}\n", "error spec.yaml:2: drift: there are no prompts; name a file in drift.prompts"),
        (
            "engine: {endpoint: 'https://h/v1', ca_file: ca.pem}\n",
            "error spec.yaml:1: engine.ca_file: there is no file ca.pem",
        ),
        (
            "engine: {endpoint: 'https://h/v1', api_key_env: MY_KEY}\n",
            "error spec.yaml:1: engine.api_key_env: the variable MY_KEY is not set; export MY_KEY",
        ),
        (
            "engine: {endpoint: 'https://h/v1', headers_env: {X-Tenant: TENANT}}\n",
            "error spec.yaml:1: engine.headers_env.X-Tenant: the variable TENANT is not set",
        ),
        (
            ATTACH + "power: {source: redfish, url: 'https://h', username: u, password_env: BMC}\n",
            "error spec.yaml:2: power.password_env: the variable BMC is not set",
        ),
        (
            "engine: {command: ['{python}', '{model}', '{port}']}\nmodel: {path: ./gone}\n",
            "error spec.yaml:2: model.path: there is no file gone",
        ),
        (
            ATTACH + "model: {config: gone.json}\n",
            "warning spec.yaml:2: model.config: there is no file gone.json; without it figures that need",
        ),
        (
            ATTACH + "slo: {ttft_p99.9_ms: 1}\nmeasurement: {search_window_s: 30}\n",
            "warning spec.yaml:2: slo: p99.9 needs 1000 requests, and 2 req/s gives 300 in 5 × 30 s; lengthen",
        ),
        (
            ATTACH + "slo: {ttft_p99_ms: 1}\nmeasurement: {window_s: 10}\nsweep: {rates: [4, 1]}\n",
            "warning spec.yaml:2: slo: p99 needs 100 requests, and 1 req/s gives 50 in 5 × 10 s",
        ),
        (
            ATTACH + "configs: [{key: a}, {key: b}, {key: c, like: a}]\n",
            "warning spec.yaml:1: engine.endpoint: a and b attach to the same endpoint, so they measure the same",
        ),
    ],
)
def test_each_is_one_problem_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    (line,) = found(tmp_path, text)
    assert line.startswith(expected)


def test_a_hub_id_is_not_taken_for_a_path(tmp_path: Path) -> None:
    text = "engine: {command: ['{python}', '{model}', '{port}']}\nmodel: {path: Qwen/Qwen3-8B}\n"
    assert found(tmp_path, text) == []
    (tmp_path / "Qwen").mkdir()
    assert len(found(tmp_path, text)) == 1


def test_only_the_selected_configurations_are_looked_at(tmp_path: Path) -> None:
    text = ATTACH + "configs:\n  - {key: a}\n  - {key: b, engine: {command: [gone, '{port}']}}\n"
    assert found(tmp_path, text, PATH, "a") == []
    (line,) = found(tmp_path, text)
    assert line.startswith("error spec.yaml:4: configs[1].engine.command: gone is not on PATH")


def test_what_all_configurations_share_is_said_once(tmp_path: Path) -> None:
    text = "engine: {command: [gone, '{port}']}\nworkload: {content: x}\nconfigs: [{key: a}, {key: b}]\n"
    assert len(found(tmp_path, text)) == 2


def test_a_problem_of_a_scenario_stands_in_the_scenario(tmp_path: Path) -> None:
    text = ATTACH + "scenarios:\n  - {name: a}\n  - {name: b, slo: {e2e_p99.99_ms: 3}, workload: {content: gone}}\n"
    lines = found(tmp_path, text)
    assert [line.split(": ")[0:2] for line in lines] == [
        ["error spec.yaml:4", "scenarios[1].workload.content"],
        ["warning spec.yaml:4", "scenarios[1].slo"],
    ]
