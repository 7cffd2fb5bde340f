"""The shipped examples of user tests run as their comments say, on the embedded engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "conftest_examples"

SPEC = """
engine:
  command: ["{python}", -m, pytest_tokenwatt, simulate, --port, "{port}"]
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, engine: {args: [--kv-cache-dtype, fp8]}}
slo: {ttft_p90_ms: 5000, tpot_p90_ms: 500}
workload: {input_tokens: 32, output_tokens: 8}
measurement: {warmup_s: 0.3, warmup_max_s: 1, window_s: 1.5, repeats: 2, request_timeout_s: 5}
sweep: {rates: [15]}
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
