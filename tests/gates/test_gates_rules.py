from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gates_builders import INVALID, config, goodput, rule

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.user import judge_user_rule
from pytest_tokenwatt.records import ConfigRecord, Figure, GateResult, GoodputRecord, Verdict


def with_figure(value: float | None, scenario: str = "default", metric: str = "ttft_p50_ms") -> GoodputRecord:
    record = goodput(scenario=scenario)
    return replace(record, figures={**record.figures, metric: Figure(value, "ms", reason="not this time")})


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({"max": 50.0}, Verdict.PASS),
        ({"max": 49.9}, Verdict.FAIL),
        ({"min": 50.0}, Verdict.PASS),
        ({"min": 50.1}, Verdict.FAIL),
        ({"min": 10.0, "max": 60.0}, Verdict.PASS),
        ({"min": 10.0, "max": 40.0}, Verdict.FAIL),
        ({"max_ratio": 1.0}, Verdict.PASS),
        ({"max_ratio": 0.99}, Verdict.FAIL),
        ({"min_ratio": 1.0}, Verdict.PASS),
        ({"min_ratio": 1.01}, Verdict.FAIL),
        ({"max": 40.0, "max_ratio": 2.0}, Verdict.FAIL),
    ],
)
def test_a_rule_is_its_stated_bound(limits: dict[str, float], verdict: Verdict) -> None:
    result = judge(rule("ttft_p50_ms", **limits), config(), config("baseline"))
    assert result.verdict is verdict
    assert codes(result) == ([] if verdict is Verdict.PASS else ["rule_broken"])


def test_a_rule_shows_value_ratio_and_bound() -> None:
    result = judge(rule("ttft_p50_ms", max_ratio=1.1), config("tuned", with_figure(52.0)), config("baseline"))
    assert (result.text, result.rule) == ("52 ms, 1.04x", "<= 1.1x baseline")
    assert (result.value, result.unit) == (52.0, "ms")
    assert result.limit == pytest.approx(55.0)
    assert result.gate == "rule[mine]"


def test_two_numbers_that_look_alike_are_told_apart() -> None:
    result = judge(rule("ttft_p50_ms", max=50.0), config("tuned", with_figure(50.0004)), None)
    assert result.reasons[0].text == "50.0004 > 50"


def test_zero_is_a_value() -> None:
    metric = "server:vllm:num_preemptions_total"
    assert judge(rule(metric, max=0.0), config(), None).verdict is Verdict.PASS
    assert judge(rule(metric, max_ratio=1.5), config(), config("baseline")).verdict is Verdict.PASS
    some = config("tuned", with_figure(3.0, metric=metric))
    result = judge(rule(metric, max_ratio=1.5), some, config("baseline"))
    assert result.verdict is Verdict.FAIL
    assert "baseline 0" in result.text


def test_an_unknown_metric_is_invalid_and_names_the_nearest() -> None:
    result = judge(rule("ttft_p50", max=100.0), config(), None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])
    assert result.reasons[0].text.endswith("nearest: ttft_p50_ms")


def test_a_figure_without_a_value_is_invalid_with_its_reason() -> None:
    result = judge(rule("ttft_p50_ms", max=100.0), config("tuned", with_figure(None)), None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])
    assert "not this time" in result.reasons[0].text


@pytest.mark.parametrize(
    ("baseline", "code"),
    [
        (config("baseline", with_figure(None)), "baseline_invalid"),
        (config("baseline", goodput(invalid=(INVALID,))), "baseline_invalid"),
        (config("baseline", invalid=(INVALID,)), "baseline_invalid"),
        (config("baseline", goodput(figures={})), "baseline_invalid"),
    ],
)
def test_a_ratio_to_a_figure_that_is_not_there_is_invalid(baseline: ConfigRecord, code: str) -> None:
    result = judge(rule("ttft_p50_ms", max_ratio=1.1), config(), baseline)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, [code])


@pytest.mark.parametrize(("on_missing", "verdict"), [("fail", Verdict.FAIL), ("record", Verdict.INCONCLUSIVE)])
def test_a_ratio_without_any_baseline(on_missing: str, verdict: Verdict) -> None:
    asked = rule("ttft_p50_ms", max_ratio=1.1)
    asked = replace(asked, limits={**asked.limits, "on_missing_baseline": on_missing})
    result = judge(asked, config(), None)
    assert (result.verdict, codes(result)) == (verdict, ["no_baseline"])


def test_an_absolute_bound_that_is_broken_needs_no_baseline() -> None:
    result = judge(rule("ttft_p50_ms", max=40.0, max_ratio=1.1), config(), None)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["rule_broken"])


def test_a_rule_is_as_good_as_its_worst_scenario() -> None:
    record = config("tuned", with_figure(40.0, "chat"), with_figure(90.0, "rag"), with_figure(60.0, "code"))
    passing = judge(rule("ttft_p50_ms", max=100.0), record, None)
    assert (passing.verdict, passing.text) == (Verdict.PASS, "90 ms (rag)")
    failing = judge(rule("ttft_p50_ms", max=80.0), record, None)
    assert (failing.verdict, failing.text) == (Verdict.FAIL, "90 ms (rag)")
    missing = config("tuned", with_figure(40.0, "chat"), with_figure(None, "rag"))
    assert judge(rule("ttft_p50_ms", max=80.0), missing, None).verdict is Verdict.INVALID


def test_a_rule_of_one_scenario_looks_at_no_other() -> None:
    record = config("tuned", with_figure(40.0, "chat"), with_figure(90.0, "rag"))
    chat = replace(rule("ttft_p50_ms", max=80.0), scenario="chat")
    assert judge(chat, record, None).text == "40 ms"
    assert judge(replace(chat, scenario="code"), record, None).verdict is Verdict.INVALID


def test_a_rule_of_nothing_measured_is_invalid() -> None:
    assert judge(rule("ttft_p50_ms", max=80.0), config(scenarios={}), None).verdict is Verdict.INVALID
    broken = config("tuned", goodput(None, invalid=(INVALID,)))
    assert judge(rule("ttft_p50_ms", max=80.0), broken, None).reasons == (INVALID,)


# --- rules of the user's own tests


@pytest.mark.parametrize(
    ("value", "relation", "limit", "verdict"),
    [
        (8.2, ">=", 7.9, Verdict.PASS),
        (7.8, ">=", 7.9, Verdict.FAIL),
        (7.9, ">", 7.9, Verdict.FAIL),
        (3.0, "<=", 3.0, Verdict.PASS),
        (3.0, "<", 3.0, Verdict.FAIL),
        (0.0, "==", 0.0, Verdict.PASS),
        (1.0, "!=", 1.0, Verdict.FAIL),
    ],
)
def test_a_users_relation_holds_or_not(value: float, relation: str, limit: float, verdict: Verdict) -> None:
    result = judge_user_rule("tuned", "tokens per joule", value, relation, limit, "tok/J")
    assert result.verdict is verdict
    assert result.gate == "tokens per joule"
    assert result.rule == f"{relation} {limit:g} tok/J"
    assert bool(result.reasons) == (verdict is Verdict.FAIL)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_a_users_value_that_was_not_measured_is_invalid(unknown: float | None) -> None:
    result = judge_user_rule("tuned", "mine", unknown, ">=", 1.0, None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])
    assert (result.value, result.text) == (None, "not measured")


@pytest.mark.parametrize(("comparison", "limit"), [("=>", 1.0), (">=", math.nan), (">=", math.inf)])
def test_a_rule_that_makes_no_sense_is_a_usage_error(comparison: str, limit: float) -> None:
    with pytest.raises(UsageError, match=r"tokenwatt\.gate"):
        judge_user_rule("tuned", "mine", 1.0, comparison, limit, None)


def test_a_ratio_is_between_equal_workloads() -> None:
    base, tuned = goodput(load_sha256="a"), goodput(load_sha256="b")
    result = judge(rule("ttft_p50_ms", max_ratio=1.1), config("tuned", tuned), config("baseline", base))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["workload_differs"])
    assert (
        judge(rule("ttft_p50_ms", max=60.0), config("tuned", tuned), config("baseline", base)).verdict is Verdict.PASS
    )


@pytest.mark.parametrize(
    ("metric", "rate_rps", "said"),
    [
        ("ttft_p50_ms", None, "ttft_p50_ms: no rate passed: TTFT p99 > 50 ms"),
        ("server:vllm:num_preemptions_total", None, "server:vllm:num_preemptions_total: no rate passed"),
        ("idle_power_w", 4.0, "idle_power_w: nothing in this run could read it"),
        ("output_tokens_s", 4.0, "output_tokens_s is not among the measured figures; nearest: output_tok_s"),
    ],
)
def test_a_missing_figure_says_why_it_is_missing(metric: str, rate_rps: float | None, said: str) -> None:
    record = replace(goodput(), rate_rps=rate_rps, misses=() if rate_rps else ("TTFT p99 > 50 ms",))
    record = replace(record, figures={"output_tok_s": Figure(10.0, "tok/s")})
    result = judge(rule(metric=metric, max=1.0), config("tuned", record), None)
    assert result.verdict is Verdict.INVALID
    assert said in result.reasons[0].text
