"""Reasons are said once, and errors so that they can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from gates_builders import gate, peak, profile, with_profiles
from test_gates_score import SPEC, judge_all, measured

from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.telling import gates_once, said_once
from pytest_tokenwatt.gates.wording import percent, ratio
from pytest_tokenwatt.records import Reason, Verdict
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.profiles import BudgetRun
from pytest_tokenwatt.spec.load import load_spec

NAMES = ("serve", "interactive", "long_context")
WHY = "other_gib: activation_gib, non_torch_gib are not known (the log does not tell)"


def test_one_cause_of_several_profiles_is_one_reason() -> None:
    reasons = [Reason("not_measured", f"{name}: {WHY}") for name in NAMES]
    other = Reason("not_measured", "offline: the engine died")
    whole = Reason("hardware_differs", "the candidate ran on A100: not H100")
    assert said_once([*reasons, other, whole, whole]) == (
        Reason("not_measured", f"serve, interactive, long_context: {WHY}"),
        other,
        whole,
    )
    assert said_once([]) == ()


def test_gates_with_one_cause_share_a_reason_and_others_keep_their_own() -> None:
    first = {
        "memory": Reason("not_measured", f"serve, interactive: candidate and baseline: {WHY}"),
        "budget": Reason("not_measured", f"serve: {WHY}"),
        "speed": Reason("not_measured", "serve: no output was counted"),
    }
    assert [reason.text for reason in gates_once(first)] == [
        f"memory, budget: {WHY}",
        "speed: serve: no output was counted",
    ]


def test_memory_that_no_log_tells_is_said_once_by_every_gate(tmp_path: Path) -> None:
    unknown = peak(None, missing={"peak_gib": WHY})
    path = tmp_path / "lab.yaml"
    listed = "profiles: {serve: {}, interactive: {}, long_context: {}}\nbudget: {factor: 1.02}"
    path.write_text(SPEC.replace("profiles: {serve: {}}", listed), encoding="utf-8")
    reruns = {
        name: BudgetRun(name, 1.02, None, None, None, None, None, None, (Reason("not_measured", WHY),))
        for name in NAMES
    }
    timed = {
        name: AuditRecord(name, "audited", 24, 24, 0, 0, 0, gap_median=0.02, length_ratio=1.0)
        for name in (*NAMES, "goodput")
    }
    sides = {
        key: measured(
            key,
            profiles={name: profile(rate, rate, name=name, memory=unknown) for name in NAMES},
            budgets=reruns,
            audits=timed if key == "tuned" else {},
        )
        for key, rate in (("tuned", 1400.0), ("baseline", 1000.0))
    }
    results = judge_all(load_spec(path, {}), sides["tuned"], sides["baseline"])
    for name, about in (("memory", "candidate and baseline: "), ("budget", "")):
        assert results[name].verdict is Verdict.INVALID
        assert [reason.text for reason in results[name].reasons] == [f"{', '.join(NAMES)}: {about}{WHY}"]
    assert [str(reason) for reason in results["score"].reasons] == [f"not_measured: memory, budget: {WHY}"]


def test_sides_that_lack_different_things_are_both_named() -> None:
    tuned = with_profiles("tuned", profile(1000.0, memory=peak(None, missing={"peak_gib": "no log"})))
    base = with_profiles("baseline", profile(1000.0, memory=peak(None, missing={"peak_gib": "no checkpoint"})))
    result = judge(gate("memory"), tuned, base)
    assert [reason.text for reason in result.reasons] == ["serve: candidate: no log; baseline: no checkpoint"]


def test_an_error_beyond_the_ratio_itself_is_said_as_a_share_of_it() -> None:
    result = judge(
        gate("speed"),
        with_profiles("tuned", profile(400.0, 3000.0, 1000.0)),
        with_profiles("baseline", profile(1000.0, 900.0, 250.0)),
    )
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.text == "2.047 (error 2,304 %)"
    assert "[-" not in result.reasons[0].text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (2.038, 18.24, "2.038 (error 895 %)"),
        (1.106, 0.024, "1.106 [1.08, 1.13]"),
        (1.5, 1.4, "1.500 [0.1, 2.9]"),
        (1.5, 0.0, "1.500"),
        (1.5, None, "1.500 (error not known)"),
    ],
)
def test_ratios_are_written_with_what_is_known_of_them(value: float, error: float | None, text: str) -> None:
    assert ratio(value, error) == text


@pytest.mark.parametrize(
    ("share", "text"), [(8.9, "890"), (23.04, "2,304"), (0.029, "2.9"), (0.996, "100"), (1e-9, "0.01")]
)
def test_shares_are_no_powers_of_ten(share: float, text: str) -> None:
    assert percent(share) == text
