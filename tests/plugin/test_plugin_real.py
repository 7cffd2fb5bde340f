"""The plugin on the real lab and the embedded engine: one short run that uses everything."""

from __future__ import annotations

import json

import pytest
from scripted_lab import REAL, run_real

USER_TESTS = """
import asyncio

def test_figures(goodput, tokenwatt):
    assert goodput.tok_s > 0
    assert goodput.ttft_p90_ms > 0
    tokenwatt.gate("own rate", goodput.rate_rps, ">=", 1.0, unit="req/s")

def test_beside_the_baseline(goodput, baseline):
    assert goodput.tok_s > 0.5 * baseline.goodput.tok_s

def test_engine(engine):
    async def ask():
        return await engine.client.complete("1, 2, 3,", max_tokens=4)
    assert engine.call(ask()).output_tokens == 4
"""


def test_a_run_on_the_embedded_engine(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makefile(".yaml", lab=REAL)
    pytester.makepyfile(test_user=USER_TESTS)
    result = run_real(pytester, monkeypatch, "lab.yaml", "test_user.py", "--tokenwatt-out=run", "--junitxml=junit.xml")
    assert result.ret == 0
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines(
        ["  baseline: *", "  tuned: *", "*= tokenwatt: *", "baseline *slo*pass*", "report: *run/report.html"]
    )
    report = json.loads((pytester.path / "run/report.json").read_text(encoding="utf-8"))
    verdicts = {f"{gate['config']} {gate['gate']}": gate["verdict"] for gate in report["gates"]}
    assert verdicts["tuned goodput"] == "pass"
    assert verdicts["baseline own rate"] == verdicts["tuned own rate"] == "pass"
    events = [
        json.loads(line) for line in (pytester.path / "run/journal.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [each["config"] for each in events if each["event"] == "phase_started"] == ["baseline", "tuned"]
    assert 'name="tokenwatt_verdict" value="pass"' in (pytester.path / "junit.xml").read_text(encoding="utf-8")


def test_the_plan_of_the_real_lab_starts_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makefile(".yaml", lab=REAL)
    result = run_real(pytester, monkeypatch, "lab.yaml", "--tokenwatt-plan")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*tokenwatt plan*", "*nothing was started*"])
    assert [path.name for path in pytester.path.iterdir()] == ["lab.yaml"]


def test_an_estimate_above_the_budget_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makefile(".yaml", lab=REAL)
    result = run_real(pytester, monkeypatch, "lab.yaml", "--tokenwatt-max-minutes=0.01")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *--tokenwatt-max-minutes*"])
