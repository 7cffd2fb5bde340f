"""Reruns with a cut KV cache through the whole plugin: what was not cut, or was not seen, is never healthy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from e2e_specs import SIMULATE, quick_spec

RUN = ("--tokenwatt-spec=spec.yaml", "--tokenwatt-out=run", "-p", "no:cacheprovider", "-p", "no:asyncio", "-k")
PROFILE = {"concurrency": 4, "input_tokens": 16, "output_tokens": 8, "requests": 12, "repeats": 2}
DEAF = """\
import os, sys

arguments = sys.argv[1:]
if "--kv-cache-memory-bytes" in arguments:
    place = arguments.index("--kv-cache-memory-bytes")
    del arguments[place : place + 2]
os.execv(arguments[0], arguments)
"""
"""A start script that keeps an argument to itself."""


def write(root: Path, *prefix: str, tuned: tuple[str, ...] = ("--kv-cache-dtype", "fp8")) -> None:
    configs: list[dict[str, Any]] = [
        {"key": "baseline", "role": "baseline"},
        {"key": "tuned", "role": "tuned", "engine": {"args": list(tuned)}},
    ]
    command = [*(["{python}", *prefix] if prefix else []), *SIMULATE]
    text = quick_spec(configs=configs, engine={"command": command}, profiles={"serve": PROFILE}, budget={}, slo=None)
    (root / "spec.yaml").write_text(text, encoding="utf-8")


def record_of(root: Path, key: str = "tuned") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / f"run/record-{key}.json").read_text(encoding="utf-8"))
    return found


def test_a_profile_shorter_than_the_contract_is_run_again_too(pytester: pytest.Pytester) -> None:
    write(pytester.path)
    result = pytester.runpytest(*RUN, "budget")
    result.stdout.fnmatch_lines(["*tuned is started with a KV cache of * GiB for serve*"])
    budget = record_of(pytester.path)["budgets"]["serve"]
    assert budget["invalid"] == []
    assert budget["value"] > 0
    assert budget["running"] == budget["full_running"]


@pytest.mark.slow
def test_an_engine_whose_cache_was_not_cut_is_not_healthy(pytester: pytest.Pytester) -> None:
    (pytester.path / "deaf.py").write_text(DEAF, encoding="utf-8")
    write(pytester.path, str(pytester.path / "deaf.py"))
    result = pytester.runpytest(*RUN, "budget")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*tuned budget: invalid:*pool_not_cut: *has a KV cache of 2 GiB, and 0.0* asked for*"])
    budget = record_of(pytester.path)["budgets"]["serve"]
    assert [reason["code"] for reason in budget["invalid"]] == ["pool_not_cut"]
    assert (budget["healthy"], budget["value"]) == (None, None)


@pytest.mark.slow
def test_an_engine_that_dies_under_a_profile_is_said_to_have_died(pytester: pytest.Pytester) -> None:
    write(pytester.path, tuned=("--slowdown", "5", "--fault", "crash-after=3"))
    result = pytester.runpytest(*RUN, "memory")
    assert result.ret == 11
    profile = record_of(pytester.path)["profiles"]["serve"]
    assert profile["invalid"][0]["code"] == "engine_died"
    assert "fault crash-after" in profile["invalid"][0]["text"]


@pytest.mark.slow
def test_a_score_alone_measures_what_admits_it(pytester: pytest.Pytester) -> None:
    write(pytester.path)
    text = (pytester.path / "spec.yaml").read_text(encoding="utf-8")
    (pytester.path / "spec.yaml").write_text(text + "score: {}\naudit: {picked: 4}\n", encoding="utf-8")
    pytester.runpytest(*RUN, "score")
    record = record_of(pytester.path)
    assert set(record["budgets"]) == {"serve"}
    assert record["audits"]["serve"]["status"] == "audited"
