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


@pytest.mark.slow
def test_a_profile_shorter_than_the_contract_is_run_again_too(pytester: pytest.Pytester) -> None:
    write(pytester.path)
    result = pytester.runpytest(*RUN, "budget")
    result.stdout.fnmatch_lines(["*tuned is started with a KV cache of * GiB for serve*"])
    budget = record_of(pytester.path)["budgets"]["serve"]
    assert budget["invalid"] == []
    assert budget["value"] > 0


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


@pytest.mark.slow
def test_what_a_run_had_finished_behind_its_phases_is_kept(pytester: pytest.Pytester) -> None:
    write(pytester.path)
    text = (pytester.path / "spec.yaml").read_text(encoding="utf-8")
    (pytester.path / "spec.yaml").write_text(text + "audit: {picked: 4}\n", encoding="utf-8")
    pytester.runpytest(*RUN, "budget or speed or audit")
    before = [record_of(pytester.path, key) for key in ("baseline", "tuned")]
    resumed = ("--tokenwatt-spec=spec.yaml", "--tokenwatt-resume=run", *RUN[2:], "budget or speed or audit")
    result = pytester.runpytest(*resumed)
    result.stdout.fnmatch_lines(["*baseline again (phase A'): kept from*", "*tuned budget of serve: kept from*"])
    result.stdout.no_fnmatch_line("*is started*")
    after = [record_of(pytester.path, key) for key in ("baseline", "tuned")]
    for name in ("again", "audits", "budgets"):
        assert [record[name] for record in after] == [record[name] for record in before]
    # A candidate that is measured anew needs its own of everything, and the baseline beside it.
    (pytester.path / "run/record-tuned.json").unlink()
    result = pytester.runpytest(*resumed)
    result.stdout.fnmatch_lines(
        ["*baseline is started again (phase A')*", "*audit of serve: median gap*", "*is started with*"]
    )


@pytest.mark.slow
def test_a_capped_profile_has_its_peak(pytester: pytest.Pytester) -> None:
    write(pytester.path)
    text = (pytester.path / "spec.yaml").read_text(encoding="utf-8")
    (pytester.path / "spec.yaml").write_text(
        text.replace("  serve:\n", "  memory_capped:\n    kv_gib: 0.01\n").replace("budget: {}\n", ""), encoding="utf-8"
    )
    result = pytester.runpytest(*RUN, "memory")
    result.stdout.fnmatch_lines(["tuned*memory*memory_capped*"])
    profile = record_of(pytester.path)["profiles"]["memory_capped"]
    memory = profile["memory"]
    assert memory["peak_gib"] == pytest.approx(memory["weights_gib"] + memory["kv_gib"] + memory["other_gib"])
    assert profile["notes"][-1] == "activation_gib, non_torch_gib: as in the start without a given KV cache"
