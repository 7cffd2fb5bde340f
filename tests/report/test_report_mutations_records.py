"""Records whose figures cannot be, or are not what the parts beside them make of them: one line, and no verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_mutations import ODD_NUMBERS, Place, Step, as_bytes, at, changed, places
from test_report_mutations import FILE, LONG, QUICK, check_no_pass, document_of, judged

GOOD, SLOW = ("records", 0), ("records", 1)
"""The baseline's record, and the candidate's, of which no window passes."""
WINDOWS = ("scenarios", "default", "windows")


def setting(*path: Any) -> Step:
    """A step that sets the place to the last of its words."""
    return Step("set", path[:-1], path[-1])


def told(folder: Path, name: str, *steps: Step) -> str:
    """The line that a spoiled file gives in place of verdicts."""
    verdicts, message = judged(folder, as_bytes(changed(document_of(name), steps)), report=False)
    assert not verdicts
    assert "\n" not in message
    assert message.startswith(f"{folder / FILE}: ")
    assert ";" in message
    return message


OUT_OF_RANGE: list[tuple[Place, Any, str]] = [
    (("suites", "gsm8k-5shot", "score"), -1, "expected a number from 0 to 100, found -1"),
    (("suites", "gsm8k-5shot", "score"), 100.1, "expected a number from 0 to 100, found 100.1"),
    (("suites", "gsm8k-5shot", "api"), "mail", "expected one of completions, chat, found 'mail'"),
    (("power", 0, "kind"), "gpu", "expected one of board, node, cpu, other, found 'gpu'"),
    (("power", 0, "ticks"), -3, "expected a number >= 0, found -3"),
    (("power", 0, "idle_w", "value"), -1.5, "expected a number >= 0, found -1.5"),
    (("scenarios", "default", "energy", "energy_j"), -2.0, "expected a number >= 0, found -2"),
    (("scenarios", "default", "bracket"), "ajar", "expected one of closed, open, none, fixed, found 'ajar'"),
    ((*WINDOWS, 0, "ok"), -1, "expected a number >= 0, found -1"),
    ((*WINDOWS, 1, "client", "sent"), -7, "expected a number >= 0, found -7"),
    ((*WINDOWS, 0, "failures"), {"timeout": -9}, ".timeout: expected a number >= 0, found -9"),
    (("profiles", "serve", "runs", 2, "held_share"), 1.2, "expected a number from 0 to 1, found 1.2"),
    (("profiles", "serve", "memory", "error"), 100.0, "expected a number from 0 to 0.5, found 100"),
    (("profiles", "serve", "output_tok_s"), -1e-9, "expected a number >= 0, found -1e-09"),
    (("contract", "probes", 0, "state"), "passed", "expected one of pass, missing, wrong, found 'passed'"),
    (("minutes", "start"), 1e300, "is a number beyond all measure"),
]


@pytest.mark.parametrize(("place", "value", "expected"), OUT_OF_RANGE, ids=lambda value: str(value)[:60])
def test_a_value_out_of_its_range_is_one_line_with_its_place(
    tmp_path: Path, place: Place, value: Any, expected: str
) -> None:
    message = told(tmp_path, "failing own records", Step("set", (*GOOD, *place), value))
    assert f"{place[-1]}{'' if expected.startswith('.') else ': '}{expected}" in message


CONTRADICTIONS: dict[str, tuple[str, tuple[Step, ...], str]] = {
    "a window of nothing": (
        "failing own records",
        (setting(*GOOD, *WINDOWS, 1, "planned", 0), setting(*GOOD, *WINDOWS, 1, "ok", 0)),
        "scenarios.default.windows[1].passes: true, but none of 0 planned requests was answered",
    ),
    "more answers than requests": (
        "failing own records",
        (setting(*GOOD, *WINDOWS, 0, "planned", 0),),
        "windows[0].ok: 1300 and 0 failed, but 0 were planned",
    ),
    "a count that no window earned": (
        "failing own windows",
        (setting(*SLOW, "scenarios", "default", "slo_pass_count", 2),),
        "scenarios.default.slo_pass_count: 2, but 0 of the windows pass",
    ),
    "more passes than repeats": (
        "failing own records",
        (setting(*GOOD, "scenarios", "default", "slo_pass_count", 3),),
        "slo_pass_count: 3 of 2 repeats",
    ),
    "windows that failed": (
        "failing own records",
        tuple(setting(*SLOW, *WINDOWS, number, "passes", False) for number in (0, 1)),
        "scenarios.default.slo_pass_count: 2, but 0 of the windows pass",
    ),
    "a rate without windows": (
        "failing own records",
        (setting(*SLOW, *WINDOWS, []),),
        "scenarios.default.rate_rps: 11.2 is said to pass, but 0 of 2 repeats at this rate pass",
    ),
    "a pass beyond its bound": (
        "failing own records",
        (
            setting(*SLOW, *WINDOWS, 0, "percentiles", 0, "value_ms", 2500.0),
            setting(*SLOW, *WINDOWS, 0, "percentiles", 0, "high_ms", None),
        ),
        "windows[0].passes: true, but ttft_p99_ms is beyond its bound",
    ),
    "a percentile that no window had": (
        "failing own records",
        (setting(*SLOW, "scenarios", "default", "percentiles", 0, "value_ms", 330.0),),
        "percentiles[0].value_ms: 330 is outside of what the windows say",
    ),
    "goodput that no window had": (
        "failing own records",
        (setting(*SLOW, "scenarios", "default", "goodput_tok_s", 6000.0),),
        "scenarios.default.goodput_tok_s: 6000, but that of the confirming windows is 2000",
    ),
    "goodput where no rate passed": (
        "failing own windows",
        (setting(*SLOW, "scenarios", "default", "goodput_tok_s", 6000.0),),
        "scenarios.default.goodput_tok_s: expected null, as no rate passed",
    ),
    "energy that no window took": (
        "failing own records",
        (setting(*SLOW, "scenarios", "default", "energy", "tokens_per_joule", 90.0),),
        "energy.tokens_per_joule: 90, but that of the confirming windows is 3.13972",
    ),
    "a score of other answers": (
        "failing own records",
        (setting(*SLOW, "suites", "gsm8k-5shot", "score", 96.0),),
        "suites.gsm8k-5shot.score: 96, but that of counts is 60",
    ),
    "counts of other answers": (
        "failing own records",
        (setting(*SLOW, "suites", "gsm8k-5shot", "counts", {"correct": 48, "wrong": 2}),),
        "counts.correct: 48, but 30 of the items are so",
    ),
    "a rate that no run had": (
        "failing own records",
        (setting(*SLOW, "profiles", "serve", "output_tok_s", 1e5),),
        "profiles.serve.output_tok_s: 100000, but that of all runs is ",
    ),
    "a peak without its parts": (
        "failing own records",
        (setting(*SLOW, "profiles", "serve", "memory", "peak_gib", 1.0),),
        "profiles.serve.memory.peak_gib: 1, but the sum of its parts is ",
    ),
    "another profile's figures": (
        "failing own records",
        (Step("swap", (*SLOW, "profiles", "serve"), (*SLOW, "profiles", "interactive")),),
        "profiles.serve: this is 'interactive'",
    ),
    "a divergence below its bound": (
        "failing own records",
        (setting(*SLOW, "drift", "against", "kl", 0.0),),
        "drift.against.kl: 0, but kl_lower bounds it by 0.25",
    ),
    "a perplexity of other windows": (
        "failing own records",
        (setting(*SLOW, "drift", "perplexity", "wikitext2", "ppl", 9.7),),
        "perplexity.wikitext2.ppl: 9.7, but that of nll is 27.1126",
    ),
    "an audit that speaks against itself": (
        "failing own records",
        (setting(*SLOW, "audits", "serve", "status", "invalid"),),
        "audits.serve.status: invalid, but 0 reasons speak against it",
    ),
    "a gap that is none": (
        "failing own records",
        (setting(*SLOW, "audits", "serve", "gap", 0.0),),
        "audits.serve.gap: 0, but the difference of the two is 2",
    ),
    "health that was not seen": (
        "failing own records",
        (setting(*SLOW, "budgets", "serve", "healthy", True),),
        "budgets.serve.healthy: true, but 0.5 requests ran at once",
    ),
}


@pytest.mark.parametrize(("name", "steps", "expected"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_figure_that_its_parts_deny_is_one_line(
    tmp_path: Path, name: str, steps: tuple[Step, ...], expected: str
) -> None:
    assert expected in told(tmp_path, name, *steps)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((setting("configs", 1, "power", 0, "kind", "gpu"),), "power[0].kind: expected one of board, node, cpu, other"),
        ((setting("configs", 1, "power", 0, "ticks", -1),), "ticks: expected a number >= 0"),
        ((setting("configs", 1, "power", 0, "idle_power_w", -4.0),), "idle_w.value: expected a number >= 0, found -4"),
        (
            (setting("configs", 1, "timed_audit", "serve", "status", "fine"),),
            "audits.serve.status: expected one of audited, invalid, found 'fine'",
        ),
    ],
)
def test_so_are_odd_values_of_a_report(tmp_path: Path, steps: tuple[Step, ...], expected: str) -> None:
    assert expected in told(tmp_path, "failing own report", *steps)


# --- no other figure makes windows pass that failed


def other_values() -> st.SearchStrategy[Step]:
    document = document_of("failing own windows")
    inner = places(at(document, (*SLOW, "scenarios")), (*SLOW, "scenarios"))
    found = st.sampled_from(list(inner))
    return st.one_of(
        st.builds(Step, st.just("set"), found, st.sampled_from((*ODD_NUMBERS, True, None, []))),
        st.builds(Step, st.just("swap"), found, found),
        st.builds(Step, st.just("delete"), found),
    )


@settings(QUICK, max_examples=20)
@given(st.data())
def test_no_other_figure_makes_failed_windows_pass(tmp_path: Path, data: st.DataObject) -> None:
    document, steps = document_of("failing own windows"), data.draw(st.lists(other_values(), min_size=1, max_size=3))
    check_no_pass(tmp_path, "failing own windows", changed(document, steps))


@pytest.mark.slow
@LONG
@given(st.data())
def test_nor_do_five_hundred(tmp_path: Path, data: st.DataObject) -> None:
    document, steps = document_of("failing own windows"), data.draw(st.lists(other_values(), min_size=1, max_size=3))
    check_no_pass(tmp_path, "failing own windows", changed(document, steps))
