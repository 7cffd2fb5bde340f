"""A plan shows what would be run, for how long, and that nothing was."""

from __future__ import annotations

from pytest_tokenwatt.report.plan_text import PhaseView, PlanView, render_plan
from pytest_tokenwatt.report.screen import Screen

BASELINE = PhaseView("A", "baseline", "started by command", ("vllm serve Qwen3 --port {port}",), ("2 windows",), 16.5)
TUNED = PhaseView("B", "tuned", "attached", (), ("search from 2 req/s", "2 windows of 120 s"), 61)


def test_a_plan_shows_phases_commands_and_estimates() -> None:
    plan = PlanView("FP8", (BASELINE, TUNED), ("tuned goodput: to ± 6 %",), ("x.yaml:3: no such file",), 45)
    assert plan.minutes == 77.5
    assert render_plan(plan, Screen(width=60)).splitlines()[1:] == [
        "phase A  baseline, started by command, about 16 min",
        "  $ vllm serve Qwen3 --port {port}",
        "  - 2 windows",
        "phase B  tuned, attached, about 1 h 01 min",
        "  - search from 2 req/s",
        "  - 2 windows of 120 s",
        "2 engine starts, about 1 h 18 min of 45 min allowed",
        "what the gates can tell",
        "  - tuned goodput: to ± 6 %",
        "problems",
        "  - x.yaml:3: no such file",
        "nothing was started",
    ]


def test_sections_without_lines_are_left_out() -> None:
    text = render_plan(PlanView("FP8", (BASELINE,)), Screen())
    assert "1 engine start, about 16 min\nnothing was started\n" in text


def test_long_commands_wrap_below_their_start() -> None:
    phase = PhaseView("A", "baseline", "started by command", ("vllm serve " + "--flag value " * 8,), (), 1)
    lines = render_plan(PlanView("FP8", (phase,)), Screen(width=40)).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[3].startswith("  $ vllm")
    assert all(line.startswith("    ") for line in lines[4:-2])
