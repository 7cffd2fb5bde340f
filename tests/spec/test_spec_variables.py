"""``${VAR}`` in the text of a spec."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_texts import complaints, load

from pytest_tokenwatt.spec.variables import expand

BASE = "engine: {endpoint: 'http://127.0.0.1:8000/v1'}\n"


def expanded(text: str, environ: Mapping[str, str]) -> str:
    expansion = expand({"title": text}, environ)
    assert expansion.failures == ()
    return str(expansion.data["title"])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "a"),
        ("x${A}y${B}z", "xayz"),
        ("${A:-d}", "a"),
        ("${B:-d}", "d"),
        ("${C:-d e:f}", "d e:f"),
        ("${C:-}", ""),
        ("${C:-:-}", ":-"),
        ("$A $HOME $$ 5$", "$A $HOME $$ 5$"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("{port} {A}", "{port} {A}"),
        ("${D}", "${A}"),
    ],
)
def test_expansion(text: str, result: str) -> None:
    assert expanded(text, {"A": "a", "B": "", "D": "${A}"}) == result


@pytest.mark.parametrize("text", ["${}", "${A-b}", "${A:?x}", "${1}", "${A", "${ A }", "${A:-${B}}", "${A b}"])
def test_what_looks_like_a_variable_and_is_none(text: str) -> None:
    (line,) = complaints(BASE + f"title: '{text}'\n", {"A": "a"})
    assert line == (
        "spec.yaml:2: title: holds a ${ that is not a variable; "
        "write ${NAME} or ${NAME:-default}, or $${ for a plain ${"
    )


def test_an_unset_variable_is_one_problem() -> None:
    lines = complaints(
        BASE + "title: a\nmeasurement: {window_s: '${WINDOW}'}\nnot_covered: ['${WINDOW} ${OTHER}']\n", {"WINDOW_": "1"}
    )
    unset = "the variable WINDOW is not set; set it, or write ${WINDOW:-default} (did you mean WINDOW_?)"
    assert lines == [
        f"spec.yaml:3: measurement.window_s: {unset}",
        f"spec.yaml:4: not_covered[0]: {unset}",
    ]


def test_raw_keeps_the_reference() -> None:
    text = "engine: {command: [s, --port, '{port}', '${A}'], env: {X: '${A}'}}\n"
    spec = load(text + "configs: [{key: k, engine: {args: ['${A}']}}]\n", {"A": "value"})
    (config,) = spec.configurations
    assert config.engine.command == ("s", "--port", "{port}", "value")
    assert config.engine.args == ("value",)
    assert config.raw["engine"] == {
        "command": ["s", "--port", "{port}", "${A}"],
        "env": {"X": "${A}"},
        "args": ["${A}"],
    }
    assert spec.raw["engine"]["env"] == {"X": "${A}"}
    assert "value" not in repr(spec.raw) + repr(config.raw)


def test_a_variable_may_stand_for_a_number_or_a_boolean() -> None:
    spec = load(
        "engine: {endpoint: 'http://h/v1', verify_tls: '${TLS}'}\nsweep:\n  start_rps: ${RPS:-2.5}\n"
        "measurement: {repeats: '${N}'}\ngates: {kl: {mode: '${MODE}'}}\n",
        {"TLS": "false", "N": "3", "MODE": "info"},
    )
    assert spec.configurations[0].engine.verify_tls is False
    assert spec.sweep.start_rps == 2.5
    assert spec.measurement.repeats == 3
    assert spec.gates.kl.mode == "info"


def test_keys_are_not_expanded() -> None:
    (line,) = complaints(BASE + "'${A}': 1\n", {"A": "title"})
    assert "${A}: unknown key" in line


@given(st.text(alphabet="${}A:-ab ", max_size=12))
def test_any_text_expands_or_is_a_failure(text: str) -> None:
    expansion = expand({"title": text}, {"A": "x"})
    if not expansion.failures and "${" not in text:
        assert expansion.data["title"] == text
    assert all(path == ("title",) for path, _, _ in expansion.failures)
