"""Any run fits any terminal: its width, its letters, with colour or without, brief or verbose."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_tokenwatt.records import GateResult, Reason, Verdict
from pytest_tokenwatt.report.screen import LEAST_WIDTH, Screen
from pytest_tokenwatt.report.table import render_table
from pytest_tokenwatt.report.wrap import shortened, wrapped

WIDTHS = (40, 60, 80, 120, 200)
ANSI = re.compile(r"\x1b\[[0-9;]*m")
PATH = "tokenwatt-runs/2026-11-30T12-00-00-quickstart/report.html"
NOTES = ("Simulated engine: the figures are those of a step-time model", "Quick mode: validation only")
GOODPUT = GateResult(
    id="h100.yaml::tuned::goodput",
    config="tuned",
    gate="goodput",
    value=1.10603,
    unit="ratio",
    limit=0.95,
    error=0.025,
    verdict=Verdict.PASS,
    mode="enforce",
    reasons=(),
    text="5057 tok/s, 1.106 [1.08, 1.13]",
    rule=">= 0.95",
)
LOW = replace(
    GOODPUT,
    gate="accuracy[gsm8k]",
    value=-8.0,
    unit="pt",
    limit=-1.0,
    error=None,
    verdict=Verdict.FAIL,
    reasons=(Reason("accuracy_drop", "-8.0 pt < -1.0 pt"),),
    text="-8.0 pt (50 items)",
    rule=">= -1.0 pt",
)
ENERGY = replace(GOODPUT, gate="energy", limit=None, verdict=Verdict.INFO, text="8.21 tok/J", rule="informational")
ABSENT = replace(LOW, gate="kl", value=None, verdict=Verdict.INVALID, text="not measured", rule="<= 0.02 nats/token")
RUN = (GOODPUT, LOW, ENERGY, ABSENT)

words = st.text(st.sampled_from("ab 17,.()[]%±≤·×日本é𝔘\x1b\n\t\u202e\u0301\ud800"), max_size=60)
names = st.text(st.sampled_from("abc-_[]日"), min_size=1, max_size=50)
gates = st.lists(
    st.builds(
        replace,
        st.just(GOODPUT),
        config=names,
        gate=names,
        text=words,
        rule=words,
        verdict=st.sampled_from(list(Verdict)),
        value=st.none() | st.floats(),
        error=st.none() | st.floats(),
        reasons=st.lists(st.builds(Reason, names, words), max_size=2).map(tuple),
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    gates,
    st.integers(40, 200),
    st.booleans(),
    st.integers(-1, 1),
    st.sampled_from(["utf-8", "ascii", "cp1252", "latin-1", "no-such-encoding"]),
    words,
)
def test_any_run_fits_any_terminal(
    run: list[GateResult], width: int, color: bool, verbosity: int, encoding: str, title: str
) -> None:
    screen = Screen(width, color, encoding)
    text = render_table(title, run, screen, notes=[title], verbosity=verbosity)
    plain = ANSI.sub("", text)
    assert "\x1b" not in plain
    assert color or plain == text
    assert all(cell_len(line) <= width for line in plain.splitlines())
    plain.encode("ascii" if encoding == "no-such-encoding" else encoding)
    together = "".join(plain.split())
    shown = [gate for gate in run if verbosity >= 0 or gate.verdict not in (Verdict.PASS, Verdict.INFO)]
    for gate in shown:
        assert gate.verdict.value in plain
    if width >= 120 and encoding == "utf-8":
        assert all(gate.config in together and gate.gate in together for gate in shown)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verbosity", [0, 1])
def test_figures_and_names_stay_whole_at_usual_widths(width: int, verbosity: int) -> None:
    text = render_table("FP8 KV cache vs BF16", RUN, Screen(width), notes=NOTES, report=PATH, verbosity=verbosity)
    for whole in ("goodput", "accuracy[gsm8k]", "5057 tok/s", "1.106 [1.08, 1.13]", "-8.0 pt", "0.02 nats/token", PATH):
        assert whole in text


def test_a_verbose_table_shows_each_figure_with_its_error_and_limit() -> None:
    lines = render_table("FP8", RUN, Screen(120), verbosity=1).splitlines()
    assert lines[2].split()[-1] == "pass"
    assert lines[3].strip() == "= 1.10603 ratio, error 0.025, limit 0.95"
    assert lines[5].strip() == "= -8 pt, error not known, limit -1"
    assert lines[7].strip() == "= 1.10603 ratio, error 0.025, no limit"
    assert lines[8].startswith("tuned  kl")
    assert lines[9] == ""


def test_a_quiet_table_shows_what_did_not_pass_and_one_line() -> None:
    text = render_table("FP8", RUN, Screen(120), notes=NOTES, report="r.html", verbosity=-1)
    assert text == (
        "gate                    value               rule                verdict\n"
        "tuned  accuracy[gsm8k]  -8.0 pt (50 items)  >= -1.0 pt          fail\n"
        "tuned  kl               not measured        <= 0.02 nats/token  invalid\n"
        "\n"
        "tuned accuracy[gsm8k] fail: -8.0 pt < -1.0 pt (accuracy_drop)\n"
        "tuned kl invalid: -8.0 pt < -1.0 pt (accuracy_drop)\n"
        "tokenwatt: 1 fail, 1 invalid, 1 pass, 1 informational (FP8; Simulated engine; Quick mode); report: r.html\n"
    )


def test_a_quiet_table_of_passes_is_one_line() -> None:
    assert render_table("FP8", [GOODPUT, ENERGY], Screen(80), report="r.html", verbosity=-1) == (
        "tokenwatt: 1 pass, 1 informational (FP8); report: r.html\n"
    )


def test_a_quiet_run_is_green_only_when_something_passed() -> None:
    screen = Screen(80, color=True)
    assert render_table("FP8", [GOODPUT], screen, verbosity=-1).startswith("\x1b[32mtokenwatt:")
    for nothing in ([], [ENERGY]):
        assert render_table("FP8", nothing, screen, verbosity=-1).startswith("\x1b[1mtokenwatt:")


def test_a_path_without_room_stays_whole_on_a_line_of_its_own() -> None:
    lines = render_table("FP8", [GOODPUT], Screen(60), report=PATH, verbosity=-1).splitlines()
    assert lines == ["tokenwatt: 1 pass (FP8)", f"report: {PATH}"]


@pytest.mark.parametrize("variables", [{"FORCE_COLOR": "1"}, {"NO_COLOR": "1", "TERM": "dumb"}, {"COLUMNS": "20"}])
@pytest.mark.parametrize("color", [False, True])
def test_the_environment_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], color: bool
) -> None:
    before = render_table("FP8", RUN, Screen(100, color), notes=NOTES)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert render_table("FP8", RUN, Screen(100, color), notes=NOTES) == before
    assert ("\x1b[" in before) == color


def test_only_the_head_of_a_paragraph_is_coloured() -> None:
    text = render_table("FP8", [LOW], Screen(100, color=True))
    assert "\x1b[1;31mtuned accuracy[gsm8k] fail:\x1b[0m -8.0 pt < -1.0 pt (accuracy_drop)\n" in text


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "no-such-encoding"])
def test_signs_are_spelt_out_where_they_are_missing(encoding: str) -> None:
    text = render_table("FP8", [replace(GOODPUT, text="0.94 ± 0.03", rule="≥ −1.0 pt")], Screen(80, False, encoding))
    assert ">= -1.0 pt" in text
    assert ("0.94 ± 0.03" if encoding == "cp1252" else "0.94 +/- 0.03") in text


def test_a_terminal_that_claims_no_width_gets_the_least() -> None:
    lines = render_table("FP8", RUN, Screen(0)).splitlines()
    assert max(map(len, lines)) == LEAST_WIDTH


def test_wide_letters_take_two_columns() -> None:
    assert wrapped("日本日本日本", 8) == ["日本日本", "日本"]
    assert shortened("日本 日本 日本", 11) == "日本..."


def test_numbers_stay_with_their_units_and_break_there_last() -> None:
    assert wrapped("median 340 ms of 2000 ms", 13) == ["median 340 ms", "of 2000 ms"]
    assert wrapped("0.0123 ± 0.0041 nats/token", 20) == ["0.0123", "± 0.0041 nats/token"]
    assert wrapped("1.645 × 0.0061 nats/token", 24) == ["1.645", "× 0.0061 nats/token"]
