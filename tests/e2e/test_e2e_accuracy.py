"""Accuracy through the whole plugin: precision that shows, servers that misbehave, runs that are continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_specs import SIMULATE, report_of

from pytest_tokenwatt.arithmetic import generate

RUN = ("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")


def write(root: Path, *arguments: str, items: int = 60, tuned: tuple[str, ...] = (), **accuracy: Any) -> None:
    """A spec that asks sums, and its suite; ``arguments`` go to all embedded engines, ``tuned`` to the candidate's."""
    lines = [json.dumps({"id": item.id, "prompt": item.prompt, "answer": item.answer}) for item in generate(items)]
    (root / "sums.jsonl").write_text("\n".join(lines), encoding="utf-8")
    suite = {"name": "sums", "suite": "sums.jsonl", "limit": items, "max_tokens": 16, "concurrency": 16, **accuracy}
    spec = {
        "engine": {"command": [*SIMULATE, *arguments], "ready_timeout_s": 60, "stop_timeout_s": 5},
        "configs": [
            {"key": "baseline", "role": "baseline"},
            {"key": "tuned", "role": "tuned", "engine": {"args": list(tuned) or ["--kv-cache-dtype", "fp8"]}},
        ],
        "accuracy": suite,
    }
    (root / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def accuracy_of(root: Path, key: str) -> dict[str, Any]:
    entry = next(each for each in report_of(root)["configs"] if each["key"] == key)
    accuracy: dict[str, Any] = entry["accuracy"]
    return accuracy


def test_a_coarser_cache_fails_by_its_flips(pytester: pytest.Pytester) -> None:
    write(pytester.path, items=200, tuned=("--kv-cache-dtype", "int4"), control=True)
    pytester.makepyfile(
        test_own="""
        def test_answers(accuracy, baseline, length_shift, tokenwatt):
            lost, won = accuracy.flips
            assert accuracy.delta_pts == accuracy.score - baseline.accuracy.score
            assert lost > 3 * won
            assert accuracy.interval_pts[1] < 0
            assert (length_shift.answers, length_shift.truncated) == (200, 0)
            assert length_shift.interval[0] <= length_shift.share <= length_shift.interval[1]
            tokenwatt.gate("score", accuracy.score, ">=", 60, unit="%")
        """
    )
    result = pytester.runpytest(*RUN, "test_own.py", "-k", "accuracy or answers")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*tuned accuracy[[]sums]: fail: -*pt (200 items)*right to wrong*"])
    tuned, baseline = accuracy_of(pytester.path, "tuned"), accuracy_of(pytester.path, "baseline")
    assert tuned["delta_pts"] == pytest.approx(tuned["score"] - baseline["score"])
    assert tuned["delta_pts"] < -5
    assert report_of(pytester.path)["configs"][1]["intervals"]["length_shift"]["n"] == 200
    assert baseline["control"]["flips"] == 0


@pytest.mark.slow
def test_the_same_precision_passes(pytester: pytest.Pytester) -> None:
    write(pytester.path, tuned=("--seed", "0", "--max-num-seqs", "8"))
    result = pytester.runpytest(*RUN, "-k", "accuracy")
    result.assert_outcomes(passed=1)
    assert accuracy_of(pytester.path, "tuned")["delta_pts"] == 0.0


@pytest.mark.parametrize(
    ("fault", "api", "said"),
    [
        ("null-content", "chat", "60 of 60 answers hold nothing that the scorer can read*"),
        pytest.param("reasoning-only", "chat", "60 answers had reasoning alone*", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_misbehaves_is_named(pytester: pytest.Pytester, fault: str, api: str, said: str) -> None:
    write(pytester.path, "--fault", fault, api=api)
    result = pytester.runpytest(*RUN, "-k", "accuracy")
    assert result.ret == 11
    result.stdout.fnmatch_lines([f"*tuned sums: {said}", "*none of the baseline's answers to sums can be read*"])
    (run,) = pytester.path.glob("tokenwatt-runs/*")
    stored = json.loads((run / "record-tuned.json").read_text(encoding="utf-8"))["suites"]["sums"]
    assert (stored["score"], stored["counts"]["unparseable"]) == (0.0, 60)
    assert any(fnmatch(note, said) for note in stored["notes"])


@pytest.mark.slow
def test_requests_that_are_turned_away_for_a_while_lose_nothing(pytester: pytest.Pytester) -> None:
    write(pytester.path, "--fault", "http-429=0.2", "--fault", "retry-after=0", items=30)
    result = pytester.runpytest(*RUN, "-k", "accuracy")
    result.assert_outcomes(passed=1)
    assert accuracy_of(pytester.path, "tuned")["counts"]["failed"] == 0


def answers_in(path: Path) -> int:
    return max(0, len(path.read_bytes().splitlines()) - 1) if path.exists() else 0


@pytest.mark.slow
def test_an_interrupted_run_is_continued_without_asking_again(pytester: pytest.Pytester) -> None:
    write(pytester.path, "--slowdown", "6", items=150, concurrency=1)
    command = [sys.executable, "-m", "pytest", *RUN, "--tokenwatt-resume=run", "-k", "accuracy"]
    answers = pytester.path / "run" / "answers-baseline-sums.jsonl"
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 200
        while answers_in(answers) < 40 and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    kept = answers_in(answers)
    assert 40 <= kept < 150
    write(pytester.path, "--slowdown", "6", items=150, concurrency=1)
    done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{kept} answers of the interrupted run are kept" in done.stdout
    ids = [json.loads(line)["id"] for line in answers.read_text(encoding="utf-8").splitlines()[1:] if line]
    assert len(ids) == len(set(ids)) == 150
    again = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, timeout=400, check=False)
    assert again.returncode == 0, again.stdout
    assert "sums is kept from the interrupted run" in again.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "prompt": "1 + 1 =", "answer": "two"}', "*sums.jsonl:61*"),
        ('{"id": "a", "prompt": "", "answer": "2"}', "*sums.jsonl:61*prompt*"),
        ('{"id": "a"', "*sums.jsonl:61*JSON*"),
    ],
)
def test_a_bad_suite_is_found_before_anything_starts(pytester: pytest.Pytester, line: str, message: str) -> None:
    write(pytester.path, limit=100)
    with (pytester.path / "sums.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = pytester.runpytest(*RUN)
    assert result.ret == 4
    result.stderr.fnmatch_lines([message])
    assert not list(pytester.path.glob("tokenwatt-runs/*"))
