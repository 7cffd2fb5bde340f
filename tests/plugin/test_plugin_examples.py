"""The shipped examples of user tests run as their comments say, on the embedded engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_tokenwatt.arithmetic import generate

EXAMPLES = Path(__file__).resolve().parents[2] / "conftest_examples"

SPEC = """
engine:
  command: ["{python}", -m, pytest_tokenwatt, simulate, --port, "{port}"]
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, engine: {args: [--kv-cache-dtype, fp8]}}
slo: {ttft_p90_ms: 20000, tpot_p90_ms: 2000}
workload: {input_tokens: 32, output_tokens: 8}
measurement: {warmup_s: 0.3, warmup_max_s: 1, window_s: 4, repeats: 2, request_timeout_s: 20}
sweep: {rates: [15]}
gates: {goodput: {min: 0.5}}
"""


@pytest.mark.slow
def test_the_examples_run_beside_the_gates(pytester: pytest.Pytester) -> None:
    shutil.copytree(EXAMPLES, pytester.path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    pytester.makefile(".yaml", spec=SPEC)
    result = pytester.runpytest(
        "--tokenwatt-spec=spec.yaml", "examples", "-p", "no:cacheprovider", "-p", "no:asyncio", "-v"
    )
    gates, own_assertions, own_names = 5, 2 + 1 + 2, 2
    result.assert_outcomes(passed=gates + own_assertions + own_names)
    result.stdout.fnmatch_lines(["*tuned*tokens per second*>= *pass*"])


ACCURACY = """
engine:
  command: ["{python}", -m, pytest_tokenwatt, simulate, --port, "{port}"]
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, engine: {args: [--kv-cache-dtype, fp8]}}
accuracy: {name: sums, suite: sums.jsonl, scorer: members, limit: 40, max_tokens: 16, max_drop_pts: 5}
"""


def test_the_scorer_of_an_example_reads_the_answers(pytester: pytest.Pytester) -> None:
    shutil.copy(EXAMPLES / "own_scorer" / "conftest.py", pytester.path)
    items = [{"id": item.id, "prompt": item.prompt, "answer": item.answer} for item in generate(40)]
    (pytester.path / "sums.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    pytester.makefile(".yaml", spec=ACCURACY)
    result = pytester.runpytest("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")
    result.stdout.fnmatch_lines(["*tuned*accuracy[[]sums]*(40 items)*pass*"])
