"""``python -m pytest_tokenwatt suite`` as typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_tokenwatt.arithmetic import generate
from pytest_tokenwatt.quality.suites import open_suite
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Suite


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_tokenwatt", "suite", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def items_of(path: Path) -> tuple[SuiteItem, ...]:
    return open_suite(path, Suite(suite=path.name), lambda item: None).items


def test_gsm8k_with_shots_writes_a_suite_and_says_so_in_one_line(tmp_path: Path) -> None:
    rows = [{"question": f"{k} + 1?", "answer": f"Count.\n#### {k + 1}"} for k in range(6)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = typed(tmp_path, "gsm8k", "test.jsonl", "gsm8k.jsonl", "--shots", "2")
    assert (done.returncode, done.stderr) == (0, "")
    meta = json.loads((tmp_path / "gsm8k.meta.json").read_text(encoding="utf-8"))
    assert done.stdout == (
        f"gsm8k.jsonl: 4 items, sha256 {meta['sha256'][:12]}, gsm8k.meta.json beside it; GSM8K: MIT (OpenAI,"
        " github.com/openai/grade-school-math); keep its notice with copies\n"
    )
    assert (meta["shots"], meta["scorer"], meta["format"]) == (2, "numeric", "gsm8k")
    assert [item.answer for item in items_of(tmp_path / "gsm8k.jsonl")] == ["3", "4", "5", "6"]


def test_csv_and_lm_eval_logs_write_suites(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,answer\nCapital of France?,Paris\n", encoding="utf-8")
    row = {"doc_id": 3, "target": "#### 4", "arguments": {"gen_args_0": {"arg_0": "2 + 2?", "arg_1": {}}}}
    (tmp_path / "samples.jsonl").write_text(json.dumps(row), encoding="utf-8")
    first = typed(tmp_path, "csv", "a.csv", "csv.jsonl", "--scorer", "exact")
    second = typed(tmp_path, "lm-eval", "samples.jsonl", "lm.jsonl")
    for done in (first, second):
        assert (done.returncode, done.stderr) == (0, "")
        assert "licence of the source: not known; check before you publish" in done.stdout
    assert items_of(tmp_path / "csv.jsonl") == (SuiteItem("1", "Paris", "Capital of France?"),)
    assert items_of(tmp_path / "lm.jsonl") == (SuiteItem("3", "4", "2 + 2?"),)


def test_the_sums_are_those_of_the_generator(tmp_path: Path) -> None:
    done = typed(tmp_path, "arithmetic", "sums.jsonl", "--count", "20", "--seed", "4", "--operation", "addition")
    assert (done.returncode, done.stderr) == (0, "")
    assert items_of(tmp_path / "sums.jsonl") == tuple(generate(20, 4, ["addition"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("csv", "absent.csv", "out.jsonl"), "absent.csv: there is no such file; check the path"),
        (("csv", "bad.csv", "out.jsonl"), "bad.csv:2: the answer 'Paris' is no number"),
        (("csv", "bad.csv", "out.jsonl", "--scorer", "numerc"), "there is no scorer 'numerc'; did you mean numeric?"),
        (("csv", "bad.csv"), "pytest_tokenwatt suite csv: the following arguments are required: SUITE.jsonl; see"),
        (("parquet", "a", "b"), "pytest_tokenwatt suite: argument FORM: invalid choice: 'parquet'"),
        (("gsm8k", "bad.csv", "out.jsonl", "--shots", "-1"), "pytest_tokenwatt suite gsm8k: argument --shots: "),
        (
            ("gsm8k", "bad.csv", "out.jsonl", "--examples", "bad.csv"),
            "--examples: needs --shots; say how many, such as",
        ),
        (("arithmetic", "out.jsonl", "--count", "x"), "argument --count: x is no whole number from 0; see"),
        (("arithmetic", "out.jsonl", "--count", "0"), "out.jsonl: gives no items; "),
        (("arithmetic", "/dev/null/out.jsonl"), "/dev/null/out.jsonl: cannot be written (File exists); "),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_4(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "bad.csv").write_text("prompt,answer\nCapital of France?,Paris\n", encoding="utf-8")
    done = typed(tmp_path, *words)
    assert (done.returncode, done.stdout) == (4, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv"]


def test_help_lists_the_forms(tmp_path: Path) -> None:
    done = typed(tmp_path, "--help")
    assert done.returncode == 0
    for form in ("gsm8k", "lm-eval", "csv", "arithmetic"):
        assert form in done.stdout
