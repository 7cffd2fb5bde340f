"""The table reads well at any width, in any encoding, and says why anything did not pass."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.records import GateResult, Reason, Verdict
from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.report.table import render_table
from pytest_tokenwatt.report.wrap import parts_wrapped


def gate(
    config: str, name: str, text: str = "", rule: str = "", verdict: Verdict = Verdict.PASS, *reasons: Reason
) -> GateResult:
    return GateResult(
        f"h100.yaml::{config}::{name}", config, name, None, None, None, None, verdict, "enforce", reasons, text, rule
    )


TWO = (
    gate("baseline", "slo", "11.2 req/s, TTFT p99 340 ms", "<= 2000 ms"),
    gate("tuned", "goodput", "5057 tok/s, 1.106 [1.08, 1.13]", ">= 0.95"),
    gate("tuned", "energy", "8.21 tok/J (+14.4 %)", "informational", Verdict.INFO),
    gate("tuned", "accuracy[arithmetic]", "−0.5 pt (200 items)", "≥ −1.0 pt"),
)
START = Reason("engine_start_failed", "the engine exited with code 1 after 12 s")
BAD = (
    gate("tuned", "slo", "", "<= 2000 ms", Verdict.FAIL, Reason("slo_missed", "TTFT p99 2310 ms > 2000 ms")),
    gate("tuned", "kl", "", "", Verdict.INCONCLUSIVE, Reason("within_error", "cannot tell"), Reason("tail", "heavy")),
    gate("again", "slo", "", "<= 2000 ms", Verdict.INVALID, START),
    gate("again", "rule[ttft-p50]", "", "", Verdict.INVALID, START),
)


def test_the_wide_table_is_one_line_a_gate() -> None:
    text = render_table("FP8 KV cache vs BF16", TWO, Screen(width=100), report="runs/a/report.json")
    assert text == (
        "================================= tokenwatt: FP8 KV cache vs BF16 ==================================\n"
        "gate                            value                           rule           verdict\n"
        "baseline  slo                   11.2 req/s, TTFT p99 340 ms     <= 2000 ms     pass\n"
        "tuned     goodput               5057 tok/s, 1.106 [1.08, 1.13]  >= 0.95        pass\n"
        "tuned     energy                8.21 tok/J (+14.4 %)            informational  -\n"
        "tuned     accuracy[arithmetic]  −0.5 pt (200 items)             ≥ −1.0 pt      pass\n"
        "report: runs/a/report.json\n"
    )


def test_the_table_of_the_contract() -> None:
    gates = (
        gate("baseline", "slo", "11.2 req/s, TTFT p99 340 ms", "<= 2000 ms"),
        gate("tuned", "slo", "12.4 req/s, TPOT p99 43.7 ms", "<= 50 ms"),
        gate("tuned", "goodput", "5057 tok/s, 1.106 [1.08, 1.13]", ">= 0.95"),
        gate("tuned", "energy", "8.21 tok/J (+14.4 %)", "informational", Verdict.INFO),
        gate("tuned", "accuracy", "-0.5 pt (200 items)", ">= -1.0 pt"),
    )
    path = "tokenwatt-runs/2026-11-30T12-00-00-quickstart/report.html"
    assert render_table("FP8 KV cache vs BF16", gates, Screen(width=79), report=path) == (
        "======================= tokenwatt: FP8 KV cache vs BF16 =======================\n"
        "gate                value                           rule           verdict\n"
        "baseline  slo       11.2 req/s, TTFT p99 340 ms     <= 2000 ms     pass\n"
        "tuned     slo       12.4 req/s, TPOT p99 43.7 ms    <= 50 ms       pass\n"
        "tuned     goodput   5057 tok/s, 1.106 [1.08, 1.13]  >= 0.95        pass\n"
        "tuned     energy    8.21 tok/J (+14.4 %)            informational  -\n"
        "tuned     accuracy  -0.5 pt (200 items)             >= -1.0 pt     pass\n"
        f"report: {path}\n"
    )


def test_a_narrow_table_gives_value_and_rule_a_line_of_their_own() -> None:
    text = render_table("FP8", TWO, Screen(width=60))
    assert "\ntuned goodput               pass\n  5057 tok/s, 1.106 [1.08, 1.13] (>= 0.95)\n" in text


@pytest.mark.parametrize("width", [40, 60, 66, 72, 80, 100, 140])
@pytest.mark.parametrize("color", [False, True])
def test_every_figure_stays_whole_and_nothing_runs_over(width: int, color: bool) -> None:
    text = render_table("FP8 KV cache vs BF16", TWO + BAD, Screen(width=width, color=color))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(len(line) for line in plain.splitlines()) <= width
    for whole in ("11.2 req/s", "340 ms", "[1.08, 1.13]", "(+14.4 %)", "8.21 tok/J", "<= 2000 ms", "inconclusive"):
        assert whole in plain
    assert (text != plain) == color


def test_reasons_stand_below_and_shared_ones_once() -> None:
    text = render_table("FP8", BAD, Screen(width=120))
    table, reasons = text.split("\n\n")
    assert reasons == (
        "tuned slo fail: TTFT p99 2310 ms > 2000 ms (slo_missed)\n"
        "tuned kl inconclusive: cannot tell (within_error); heavy (tail)\n"
        "again slo, rule[ttft-p50] invalid: the engine exited with code 1 after 12 s (engine_start_failed)\n"
    )
    assert "engine_start_failed" not in table


def test_an_informational_gate_says_whether_it_was_measured() -> None:
    later = gate("a", "energy", "not measured", "", Verdict.INFO, Reason("not_measured_yet", "no sensor"))
    broken = gate("a", "rule[preemptions]", "112", "", Verdict.INFO, Reason("rule_broken", "112 > 0"))
    text = render_table("FP8", [later, replace(broken, value=112.0)], Screen())
    assert "a energy not measured: no sensor (not_measured_yet)" in text
    assert "a rule[preemptions] informational: 112 > 0 (rule_broken)" in text


def test_reasons_of_a_pass_are_not_shown() -> None:
    text = render_table("FP8", [gate("a", "slo", "x", "y", Verdict.PASS, START)], Screen())
    assert "exited" not in text


def test_notes_come_before_the_path_which_is_never_wrapped() -> None:
    path = "tokenwatt-runs/2026-11-30T12-00-00-quickstart/" + "x" * 60 + "/report.json"
    lines = render_table(
        "FP8", TWO, Screen(width=60), notes=["Simulated engine: no hardware"], report=path
    ).splitlines()
    assert lines[-2:] == ["note: Simulated engine: no hardware", f"report: {path}"]


def test_letters_that_a_terminal_lacks_are_spelt_out() -> None:
    text = render_table("1× H100 – 100 % ü", TWO, Screen(encoding="ascii"), notes=["0.94 ± 0.03 · fertig"])
    assert text.isascii()
    assert "1x H100 - 100 % ?" in text
    assert "≥ −1.0 pt".translate({ord("≥"): ">=", ord("−"): "-"}) in text
    assert "0.94 +/- 0.03 - fertig" in text


def test_text_from_an_engine_cannot_drive_the_terminal() -> None:
    reason = Reason("engine_died", "tail: \x1b[2J\x1b]0;owned\x07 [bold]not markup[/bold]\nsecond line")
    text = render_table("FP8", [gate("tuned", "slo", "[red]5[/red]", "", Verdict.FAIL, reason)], Screen(color=False))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]5[/red]" in text
    assert "[bold]not markup[/bold] second line" in text


def test_a_long_title_is_cut_and_the_line_stays_as_wide() -> None:
    first = render_table("word " * 40, TWO, Screen(width=80)).splitlines()[0]
    assert len(first) == 80
    assert re.fullmatch(r"=+ tokenwatt: [word ]+\.\.\. =+", first)


def test_a_run_without_verdicts_says_so() -> None:
    assert "no gate was judged" in render_table("FP8", [], Screen())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="abc 12,()[]%", max_size=80), st.integers(10, 60))
def test_wrapping_loses_nothing_and_keeps_to_its_width(text: str, width: int) -> None:
    lines = parts_wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(len(line) <= width for line in lines)


def test_wrapping_breaks_between_parts_first() -> None:
    assert parts_wrapped("5057 tok/s, 1.106 [1.08, 1.13]", 20) == ["5057 tok/s,", "1.106 [1.08, 1.13]"]
    assert parts_wrapped("8.21 tok/J (+14.4 %)", 12) == ["8.21 tok/J", "(+14.4 %)"]
    assert parts_wrapped("ttft_p99_ms <= 2000 ms", 14) == ["ttft_p99_ms", "<= 2000 ms"]
