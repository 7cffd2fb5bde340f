"""Audit, budget and precision: rules about one configuration alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gates_builders import INVALID, config, gate, goodput, profile, with_profiles

from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.geometry.checkpoint import read_checkpoint
from pytest_tokenwatt.geometry.precision import on_boards, read_precision
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.profiles import BudgetRun, Precision, Startup


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


# --- audit

BASELINE = config("baseline")
AUDIT = gate("audit", {"profiles": ["serve", "interactive"]}, scenario=None, needs="audit")


def audit(run: str = "serve", gap: float | None = 0.0218, **changes: Any) -> AuditRecord:
    record = AuditRecord(run, "audited", 24, 24, 0, 0, 0, gap_median=gap, length_ratio=1.0, length_ratio_min=0.5)
    return replace(record, **changes)


def audited(*audits: AuditRecord, **changes: Any) -> ConfigRecord:
    """A configuration with these audits, of which nothing but the profiles was timed."""
    timed = (profile(1.0, name="serve"), profile(1.0, name="interactive"))
    record = with_profiles("tuned", *timed, audits={each.run: each for each in audits})
    return replace(record, **{"scenarios": {}, **changes})


def test_an_audit_passes_within_its_limits_and_names_the_worst_run() -> None:
    result = judge(AUDIT, audited(audit(), audit("interactive", 0.1219)), BASELINE)
    assert (result.verdict, result.text) == (Verdict.PASS, "gap 0.1219 nats (interactive, worst of 2 runs)")
    assert (result.value, result.unit, result.limit) == (0.1219, "nats", 0.5)
    assert result.rule == "<= 0.5 nats, <= 1 empty, length >= 0.8"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gap_median": 0.51}, "audit_gap"),
        ({"empty_alone": 2}, "audit_empty"),
        ({"length_ratio": 0.79}, "audit_length"),
        ({"gap_median": None, "empty_alone": 24, "samples": 0, "length_ratio": 0.0}, "audit_empty"),
    ],
)
def test_one_run_beyond_a_limit_fails_and_is_named(changes: dict[str, Any], code: str) -> None:
    result = judge(AUDIT, audited(audit(gap=0.3), audit("interactive", **changes)), BASELINE)
    assert (result.verdict, codes(result)[0]) == (Verdict.FAIL, code)
    assert result.reasons[0].text.startswith("interactive: ")
    assert "(interactive, worst of 2 runs)" in result.text


@pytest.mark.parametrize(
    "edge", [{"gap_median": 0.5}, {"empty_alone": 1}, {"length_ratio": 0.8}, {"gap_median": -0.09, "empty": 1}]
)
def test_the_limits_themselves_pass(edge: dict[str, Any]) -> None:
    assert judge(AUDIT, audited(audit(), audit("interactive", **edge)), BASELINE).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([audit()], "not_measured"),
        ([audit(), audit("interactive", None, status="invalid", invalid=(INVALID,))], "client_cpu"),
        ([audit(), audit("interactive", None)], "not_measured"),
        ([audit(), audit("interactive", float("nan"))], "not_measured"),
        ([], "not_measured"),
    ],
)
def test_a_run_without_a_valid_audit_is_invalid(found: list[AuditRecord], code: str) -> None:
    result = judge(AUDIT, audited(*found), BASELINE)
    assert (result.verdict, codes(result)[-1]) == (Verdict.INVALID, code)
    assert "interactive: " in result.reasons[-1].text or "interactive was" in result.reasons[-1].text
    broken = judge(AUDIT, audited(*(replace(each, gap_median=9.0) for each in found[:1]), *found[1:]), BASELINE)
    assert broken.verdict is (Verdict.FAIL if found else Verdict.INVALID)


def test_a_profile_that_could_not_be_measured_says_why_it_has_no_audit() -> None:
    failed = profile(None, name="interactive", invalid=(INVALID,))
    record = audited(audit(), profiles={"serve": profile(1.0), "interactive": failed})
    assert judge(AUDIT, record, BASELINE).reasons == (Reason("client_cpu", f"interactive: {INVALID.text}"),)


def test_nothing_timed_is_invalid() -> None:
    nothing = gate("audit", {"profiles": []}, scenario=None)
    result = judge(nothing, config("tuned", scenarios={}), BASELINE)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])


def test_confirmed_windows_of_goodput_are_audited_too() -> None:
    alone = gate("audit", {"profiles": []}, scenario=None)
    record = config("tuned", goodput(), goodput(scenario="rag"), goodput(None, scenario="code"))
    result = judge(alone, replace(record, audits={"goodput": audit("goodput")}), BASELINE)
    assert (result.verdict, result.reasons[0].text) == (Verdict.INVALID, "goodput[rag] was not audited")
    both = {name: audit(name) for name in ("goodput", "goodput[rag]")}
    assert judge(alone, replace(record, audits=both), BASELINE).verdict is Verdict.PASS


@pytest.mark.parametrize(("on_missing", "verdict"), [("fail", Verdict.FAIL), ("record", Verdict.INCONCLUSIVE)])
def test_without_a_baseline_nobody_scores_the_outputs(on_missing: str, verdict: Verdict) -> None:
    spec = replace(AUDIT, limits={**AUDIT.limits, "on_missing_baseline": on_missing})
    result = judge(spec, audited(), None)
    assert (result.verdict, codes(result)) == (verdict, ["no_baseline"])
    assert judge(spec, audited(audit(), audit("interactive")), None).verdict is Verdict.PASS


# --- budget

BUDGET = gate("budget", {"profiles": ["serve", "interactive"]}, scenario=None, needs="budget")


def cut(name: str = "serve", healthy: bool | None = True, **changes: Any) -> BudgetRun:
    return replace(BudgetRun(name, 1.02, 30.7, 19.5, 32.0, 32.0, healthy, 2774.9), **changes)


def budgeted(*runs: BudgetRun) -> ConfigRecord:
    return config("tuned", budgets={run.profile: run for run in runs})


def test_a_budget_passes_when_every_profile_is_healthy() -> None:
    result = judge(BUDGET, budgeted(cut(), cut("interactive")), None)
    assert (result.verdict, result.text) == (Verdict.PASS, "2 of 2 profiles healthy at 1.02 x peak")
    assert (result.value, result.unit) == (2.0, "profiles")


def test_a_profile_that_does_not_fit_fails_and_says_how_it_ran() -> None:
    sick = cut("interactive", False, running=20.0, value=1900.0)
    result = judge(BUDGET, budgeted(cut(), sick), None)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["budget_unhealthy"])
    assert result.reasons[0].text == ("interactive@1.02, 20 of 32 requests ran at once, 1900 tok/s, in 30.7 GiB")
    unknown = cut(invalid=(INVALID,))
    assert codes(judge(BUDGET, budgeted(unknown, sick), None)) == ["budget_unhealthy", "client_cpu"]


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([cut()], "not_measured"),
        ([cut(), cut("interactive", None)], "not_measured"),
        ([cut(), cut("interactive", None, invalid=(INVALID,))], "client_cpu"),
        ([cut(), cut("interactive", True, invalid=(INVALID,))], "client_cpu"),
    ],
)
def test_what_could_not_be_run_again_is_invalid_with_the_reason(runs: list[BudgetRun], code: str) -> None:
    result = judge(BUDGET, budgeted(*runs), None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, [code])
    assert "interactive" in result.reasons[0].text


def test_a_budget_without_profiles_is_invalid() -> None:
    assert codes(judge(gate("budget", {"profiles": []}, scenario=None), config(), None)) == ["not_measured"]


# --- precision


def declares(label: str) -> GateSpec:
    return gate("precision", {"declared": label}, scenario=None, needs="contract")


def read(weights: float | None = 8, activations: float | None = 8, kv: float | None = 8) -> ConfigRecord:
    figures = {"weights": weights, "activations": activations, "kv": kv}
    missing = {name: f"{name} are told nowhere" for name, value in figures.items() if value is None}
    label = None if missing else f"W{weights:g}A{activations:g}KV{kv:g}"
    return config(precision=Precision(weights, activations, kv, label, missing=missing, sources={"kv": "the log"}))


@pytest.mark.parametrize("label", ["W8A8KV8", "w8a8kv8", "W8A8", "KV8"])
def test_the_declared_precision_passes(label: str) -> None:
    result = judge(declares(label), read(), None)
    assert (result.verdict, result.text, result.rule) == (Verdict.PASS, "W8A8KV8", f"= {label}")


def test_another_precision_fails_and_both_are_named() -> None:
    result = judge(declares("W8A8KV8"), read(kv=16), None)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["precision_differs"])
    assert "declared W8A8KV8, read W8A8KV16" in result.reasons[0].text
    assert "the log" in result.reasons[0].text


def test_a_fall_back_to_weights_only_fails_what_declares_fewer_bits_of_activations() -> None:
    log = Startup(quantization="fp8", dtype="torch.bfloat16", kernels=("weight-only FP8",))
    found = read_precision(read_checkpoint([]), cache_config={"cache_dtype": "fp8"}, startup=log)
    result = judge(declares("W8A8KV8"), config(precision=found), None)
    assert (result.verdict, codes(result), result.text) == (Verdict.FAIL, ["precision_differs"], "W8A16KV8")
    assert "activations: 8 bits declared, 16 read from start-up log (weight-only FP8)" in result.reasons[0].text
    assert judge(declares("W8A16KV8"), config(precision=found), None).verdict is Verdict.PASS


def test_a_board_that_may_have_fallen_back_is_inconclusive() -> None:
    log = Startup(quantization="fp8", dtype="torch.bfloat16")
    found = read_precision(read_checkpoint([]), cache_config={"cache_dtype": "fp8"}, startup=log)
    result = judge(declares("W8A8KV8"), config(precision=on_boards(found, ["NVIDIA A100-SXM4-80GB"])), None)
    assert (result.verdict, codes(result), result.text) == (Verdict.INCONCLUSIVE, ["not_readable"], "W8A?KV8")
    assert "NVIDIA A100-SXM4-80GB (compute capability 8.0) does not compute in FP8" in result.reasons[0].text


def test_what_cannot_be_read_is_inconclusive_unless_something_differs() -> None:
    result = judge(declares("W8A8KV8"), read(activations=None), None)
    assert (result.verdict, codes(result), result.text) == (Verdict.INCONCLUSIVE, ["not_readable"], "W8A?KV8")
    assert result.reasons[0].text == "activations: activations are told nowhere"
    assert judge(declares("W8KV8"), read(activations=None), None).verdict is Verdict.PASS
    assert judge(declares("W4A8KV8"), read(activations=None), None).verdict is Verdict.FAIL
    assert codes(judge(declares("W8A8KV8"), config(), None)) == ["not_readable"]


@pytest.mark.parametrize("label", ["FP8", "", "W8A8KV8 and more"])
def test_what_is_no_label_is_invalid(label: str) -> None:
    result = judge(declares(label), read(), None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["label_unknown"])


@pytest.mark.parametrize("spec", [AUDIT, BUDGET, declares("W8A8KV8")])
def test_an_engine_that_did_not_start_makes_them_invalid(spec: GateSpec) -> None:
    dead = config(invalid=(Reason("engine_start_failed", "exit code 1"),))
    assert codes(judge(spec, dead, None)) == ["engine_start_failed"]
