from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gates_builders import INVALID, config, contract, gate, goodput, percentiles, window
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.judge import exit_code, judge
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, GoodputRecord, Reason, Verdict

BASELINE = config("baseline", goodput(4572.3))


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


# --- contract


def test_a_contract_passes_when_its_required_probes_were_answered() -> None:
    result = judge(gate("contract"), config(contract=contract(ids="missing")), None)
    assert result.verdict is Verdict.PASS
    assert result.text == "2 of 2 required probes, lacks ids"


@pytest.mark.parametrize("state", ["missing", "wrong"])
def test_a_contract_fails_on_a_required_probe(state: str) -> None:
    record = config(contract=contract(stream=state), invalid=(Reason("contract_failed", "stream"),))
    result = judge(gate("contract"), record, None)
    assert result.verdict is Verdict.FAIL
    assert codes(result) == [f"contract_{state}"]
    assert "stream says" in result.reasons[0].text


def test_an_engine_that_was_never_asked_has_no_contract() -> None:
    failed = config(contract=None, invalid=(Reason("engine_start_failed", "exit code 1"),))
    assert judge(gate("contract"), failed, None).verdict is Verdict.INVALID
    assert judge(gate("contract"), config(contract=replace(contract(), probes=())), None).verdict is Verdict.INVALID


# --- slo


def test_an_slo_passes_when_all_repeats_do_and_shows_its_tightest_percentile() -> None:
    result = judge(gate("slo"), config(), None)
    assert result.verdict is Verdict.PASS
    assert (result.text, result.rule) == ("11.2 req/s, TPOT p99 44.6 ms", "<= 50 ms")
    assert (result.value, result.unit, result.limit) == (44.6, "ms", 50.0)
    loose = judge(gate("slo"), config("tuned", goodput(percentiles=percentiles(340.0, 3.0))), None)
    assert (loose.text, loose.rule) == ("11.2 req/s, TTFT p99 340 ms", "<= 2000 ms")


def test_an_slo_that_no_rate_meets_fails_and_says_why() -> None:
    result = judge(gate("slo"), config("tuned", goodput(None)), None)
    assert result.verdict is Verdict.FAIL
    assert result.text == "no rate passes, TPOT p99 61.2 ms"
    assert result.reasons == (Reason("slo_missed", "TPOT p99 61.2 ms > 50 ms"),)


def test_an_infinite_percentile_is_shown_as_such() -> None:
    record = goodput(None, percentiles=percentiles(None, 44.0))
    result = judge(gate("slo"), config("tuned", record), None)
    assert result.text == "no rate passes, TTFT p99 infinite"
    assert result.value is None


def test_an_slo_of_an_invalid_measurement_is_invalid() -> None:
    result = judge(gate("slo"), config("tuned", goodput(None, invalid=(INVALID,), misses=())), None)
    assert result.verdict is Verdict.INVALID
    assert result.reasons == (INVALID,)


def test_an_slo_with_fewer_passes_than_repeats_fails() -> None:
    assert judge(gate("slo"), config("tuned", goodput(slo_pass_count=1)), None).verdict is Verdict.FAIL
    assert judge(gate("slo"), config("tuned", goodput(slo_pass_count=0, repeats=0)), None).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("windows", "verdict"),
    [
        ([window(3.0), window(3.0)], Verdict.PASS),
        ([window(3.0), window(3.0, passes=False)], Verdict.FAIL),
        ([window(3.0)], Verdict.INVALID),
        ([window(3.0), window(3.0, invalid=(INVALID,))], Verdict.INVALID),
        ([window(3.0, invalid=(INVALID,)), window(3.0), window(3.0)], Verdict.PASS),
        ([window(3.0), window(3.0, invalid=(INVALID,)), window(3.0), window(3.0, invalid=(INVALID,))], Verdict.INVALID),
        ([window(4.0), window(4.0)], Verdict.INVALID),
        ([], Verdict.INVALID),
    ],
)
def test_an_slo_at_a_rate_is_about_that_rates_windows(windows: list[object], verdict: Verdict) -> None:
    record = goodput(mode="fixed", bracket="fixed", windows=tuple(windows), rate_rps=2.0)
    result = judge(gate("slo", {"at_rps": 3.0}), config("tuned", record), None)
    assert result.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "at 3 req/s TPOT p99 61.2 ms" in result.reasons[0].text
        assert result.text == "3 req/s, TPOT p99 61.2 ms"


def test_an_slo_at_a_rate_does_not_depend_on_other_rates() -> None:
    passed = goodput(None, misses=(), invalid=(INVALID,), windows=(window(3.0), window(3.0)))
    assert judge(gate("slo", {"at_rps": 3.0}), config("tuned", passed), None).verdict is Verdict.PASS
    unmeasured = replace(passed, windows=(), invalid=(Reason("time_budget", "5 minutes are used up"),))
    result = judge(gate("slo", {"at_rps": 3.0}), config("tuned", unmeasured), None)
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["time_budget"])


def test_an_slo_at_the_rate_that_was_found_needs_no_windows() -> None:
    result = judge(gate("slo", {"at_rps": 11.2}), config(), None)
    assert result.verdict is Verdict.PASS


# --- goodput


def ratio(tok_s: float, error_pct: float | None = 2.0, **changes: object) -> GateResult:
    base = config("baseline", goodput(1000.0, error_pct=error_pct, variance_band_pct=None))
    record = goodput(tok_s, error_pct=error_pct, variance_band_pct=None, **changes)
    return judge(gate("goodput"), config("tuned", record), base)


@pytest.mark.parametrize(
    ("tok_s", "error_pct", "verdict"),
    [
        (1106.0, 2.0, Verdict.PASS),
        (950.0, 2.0, Verdict.PASS),
        (949.0, 2.0, Verdict.INCONCLUSIVE),
        (931.0, 2.0, Verdict.INCONCLUSIVE),
        (929.0, 2.0, Verdict.FAIL),
        (1106.0, None, Verdict.PASS),
        (500.0, None, Verdict.INCONCLUSIVE),
    ],
)
def test_the_goodput_ratio(tok_s: float, error_pct: float | None, verdict: Verdict) -> None:
    assert ratio(tok_s, error_pct).verdict is verdict


def test_goodput_shows_its_ratio_with_the_interval() -> None:
    record = config("tuned", goodput(5056.9, error_pct=2.4))
    result = judge(gate("goodput"), record, BASELINE)
    assert (result.text, result.rule) == ("5057 tok/s, 1.106 [1.08, 1.13]", ">= 0.95")
    assert (result.unit, result.limit) == ("ratio", 0.95)
    assert result.value == pytest.approx(1.106, abs=5e-4)
    assert result.error == pytest.approx(0.024)


def test_the_reference_difference_is_not_measurable() -> None:
    same = [goodput(tok_s, error_pct=None, variance_band_pct=0.7) for tok_s in (4515.0, 4522.8)]
    result = judge(gate("goodput"), config("tuned", same[1]), config("baseline", same[0]))
    assert result.verdict is Verdict.PASS
    assert result.text.endswith("no measurable difference")


def test_the_error_of_the_ratio_knows_all_configurations() -> None:
    base, tuned = config("baseline", goodput(1000.0)), config("tuned", goodput(925.0))
    assert judge(gate("goodput"), tuned, base).verdict is Verdict.FAIL
    noisy = config("other", goodput(1000.0, variance_band_pct=6.0))
    assert judge(gate("goodput"), tuned, base, [base, tuned, noisy]).verdict is Verdict.INCONCLUSIVE


def test_a_repeated_baseline_widens_the_error() -> None:
    base, tuned = config("baseline", goodput(1000.0)), config("tuned", goodput(925.0))
    again = config("again", goodput(940.0), like="baseline")
    result = judge(gate("goodput"), tuned, base, [base, tuned, again])
    assert result.error == pytest.approx(0.06)
    assert result.verdict is Verdict.INCONCLUSIVE


def test_a_candidate_without_goodput_fails() -> None:
    result = judge(gate("goodput"), config("tuned", goodput(None)), BASELINE)
    assert (result.verdict, result.text) == (Verdict.FAIL, "no rate passes")
    assert codes(result) == ["slo_missed"]


@pytest.mark.parametrize(
    "baseline",
    [
        config("baseline", goodput(None)),
        config("baseline", goodput(None, invalid=(INVALID,))),
        config("baseline", invalid=(Reason("engine_start_failed", "exit code 1"),)),
        config("baseline", goodput(scenario="rag")),
        config("baseline", goodput(0.0)),
    ],
)
def test_a_baseline_without_goodput_makes_the_ratio_invalid(baseline: ConfigRecord) -> None:
    result = judge(gate("goodput"), config(), baseline)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["baseline_invalid"])


def test_a_baseline_under_another_slo_cannot_be_compared_with() -> None:
    other = config("baseline", goodput(slo=()))
    assert codes(judge(gate("goodput"), config(), other)) == ["slo_differs"]


@pytest.mark.parametrize(
    ("on_missing", "verdict", "on_inconclusive"),
    [("fail", Verdict.FAIL, "fail"), ("record", Verdict.INCONCLUSIVE, "skip")],
)
def test_without_any_baseline(on_missing: str, verdict: Verdict, on_inconclusive: str) -> None:
    result = judge(gate("goodput", {"on_missing_baseline": on_missing}), config(), None)
    assert (result.verdict, result.on_inconclusive, codes(result)) == (verdict, on_inconclusive, ["no_baseline"])
    assert result.value == 4572.3


@pytest.mark.parametrize(
    ("limits", "verdict", "code"),
    [
        ({"min_tok_s": 4000.0}, Verdict.PASS, None),
        ({"min_tok_s": 4573.0}, Verdict.FAIL, "goodput_below_minimum"),
        ({"min_rps": 11.0}, Verdict.PASS, None),
        ({"min_tok_s": 4000.0, "min_rps": 12.0}, Verdict.FAIL, "rate_below_minimum"),
    ],
)
def test_absolute_minima_need_no_baseline(limits: dict[str, float], verdict: Verdict, code: str | None) -> None:
    result = judge(gate("goodput", {"min": None, **limits}), config("baseline"), None)
    assert result.verdict is verdict
    assert codes(result) == ([] if code is None else [code])


def test_an_absolute_minimum_fails_a_good_ratio() -> None:
    result = judge(gate("goodput", {"min_tok_s": 9000.0}), config(), BASELINE)
    assert result.verdict is Verdict.FAIL
    assert result.rule == ">= 0.95, >= 9000 tok/s"


def test_a_baseline_that_was_not_driven_to_its_limit_cannot_be_matched() -> None:
    base = config("baseline", goodput(4572.3, bracket="open", lowest_failing_rps=None))
    result = judge(gate("goodput"), config(), base)
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["bracket_open"])
    both = judge(gate("goodput"), config("tuned", goodput(bracket="open")), base)
    assert both.verdict is Verdict.PASS


def test_goodput_without_token_counts_is_invalid() -> None:
    record = replace(goodput(), goodput_tok_s=None)
    assert codes(judge(gate("goodput"), config("tuned", record), BASELINE)) == ["not_measured"]


# --- whatever the gate


@pytest.mark.parametrize("kind", ["slo", "goodput", "rule"])
def test_an_engine_that_did_not_start_makes_every_gate_invalid(kind: str) -> None:
    reason = Reason("engine_start_failed", "exit code 1: CUDA out of memory")
    result = judge(gate(kind, {"metric": "x"}), config(invalid=(reason,), scenarios={}, contract=None), BASELINE)
    assert (result.verdict, result.reasons) == (Verdict.INVALID, (reason,))


@pytest.mark.parametrize("kind", ["slo", "goodput"])
def test_what_the_time_budget_cut_off_is_inconclusive(kind: str) -> None:
    reason = Reason("time_budget", "the time budget of 45 minutes is used up")
    cut_off = config("tuned", goodput(None, invalid=(reason,)))
    assert judge(gate(kind), cut_off, BASELINE).verdict is Verdict.INCONCLUSIVE
    assert judge(gate(kind), config(invalid=(reason,)), BASELINE).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("kind", ["length", "kl", "speed", "memory", "audit", "budget"])
def test_what_was_not_measured_is_never_passed_over(kind: str) -> None:
    limits = {"max_shift": 0.1, "suites": {"gsm8k": 200}, "max_nats_per_token": 0.02}
    unmeasured = replace(gate(kind, limits if kind in ("length", "kl") else {}), scenario=None)
    result = judge(unmeasured, config(), BASELINE)
    assert (result.verdict, codes(result), result.found) == (Verdict.INVALID, ["not_measured"], Verdict.INVALID)
    info = judge(replace(unmeasured, mode="info"), config(), BASELINE)
    assert (info.verdict, info.found) == (Verdict.INFO, Verdict.INVALID)


@pytest.mark.parametrize(
    "record", [config(), config("tuned", goodput(None)), config("tuned", goodput(None, invalid=(INVALID,)))]
)
def test_an_informational_gate_is_always_a_dash(record: ConfigRecord) -> None:
    result = judge(gate("goodput", mode="info"), record, BASELINE)
    assert (result.verdict, result.rule) == (Verdict.INFO, "informational")
    assert result.text


def test_a_scenario_that_was_not_measured_is_invalid() -> None:
    result = judge(gate("slo", scenario="rag"), config(), None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])


def test_a_result_carries_what_the_report_needs() -> None:
    result = judge(gate("slo"), config(), None)
    assert (result.id, result.config, result.gate, result.mode) == ("tuned::slo", "tuned", "slo", "enforce")
    assert (result.line, result.on_inconclusive) == (7, "fail")


# --- exit codes


def result_of(verdict: Verdict, on_inconclusive: str = "fail") -> GateResult:
    return replace(judge(gate("slo"), config(), None), verdict=verdict, on_inconclusive=on_inconclusive)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([Verdict.PASS, Verdict.INFO], 0),
        ([Verdict.INFO], 0),
        ([Verdict.PASS, Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE], 1),
        ([Verdict.PASS, Verdict.INVALID, Verdict.INCONCLUSIVE], 11),
        ([Verdict.PASS, Verdict.INCONCLUSIVE], 10),
        ([], 1),
    ],
)
def test_exit_codes(results: list[Verdict], code: int) -> None:
    assert exit_code([result_of(verdict) for verdict in results]) == code


@pytest.mark.parametrize("on_inconclusive", ["xfail", "skip"])
def test_an_inconclusive_gate_that_does_not_fail_exits_with_0(on_inconclusive: str) -> None:
    assert exit_code([result_of(Verdict.PASS), result_of(Verdict.INCONCLUSIVE, on_inconclusive)]) == 0


# --- properties

RECORDS = st.builds(
    goodput,
    st.one_of(st.none(), st.floats(0.0, 1e5)),
    invalid=st.sampled_from([(), (INVALID,), (Reason("engine_died", "exit code -9"),)]),
    error_pct=st.one_of(st.none(), st.floats(0.0, 30.0)),
    variance_band_pct=st.one_of(st.none(), st.floats(0.0, 30.0)),
    slo_pass_count=st.integers(0, 3),
    bracket=st.sampled_from(["open", "closed", "none", "fixed"]),
    percentiles=st.sampled_from([(), percentiles(), percentiles(None, None)]),
)
GATES = st.sampled_from([gate("slo"), gate("goodput"), gate("slo", {"at_rps": 3.0}), gate("goodput", {"min_rps": 5.0})])


@given(GATES, RECORDS, st.one_of(st.none(), RECORDS))
def test_only_a_measured_valid_record_passes(gate: GateSpec, record: GoodputRecord, base: GoodputRecord | None) -> None:
    baseline = None if base is None else config("baseline", base)
    result = judge(gate, config("tuned", record), baseline)
    if result.verdict is Verdict.PASS:
        assert not record.invalid
        assert result.reasons == ()
        if gate.kind == "goodput":
            assert record.goodput_tok_s is not None
            assert base is not None
            assert base.goodput_tok_s
            assert not base.invalid
    else:
        assert result.reasons
        assert all(reason.text for reason in result.reasons)


@given(GATES, RECORDS, RECORDS, st.sampled_from(["misses", "invalid", "passes", "goodput"]))
def test_a_worse_record_never_turns_a_verdict_into_a_pass(
    gate: GateSpec, record: GoodputRecord, base: GoodputRecord, harm: str
) -> None:
    harmed = {
        "misses": replace(record, rate_rps=None, goodput_tok_s=None, misses=("TTFT p99 9 s > 2 s",)),
        "invalid": replace(record, invalid=(INVALID,)),
        "passes": replace(record, slo_pass_count=max(0, (record.slo_pass_count or 0) - 1)),
        "goodput": replace(record, goodput_tok_s=None if not record.goodput_tok_s else record.goodput_tok_s * 0.9),
    }[harm]
    baseline = config("baseline", base)
    before = judge(gate, config("tuned", record), baseline).verdict
    after = judge(gate, config("tuned", harmed), baseline).verdict
    assert before is Verdict.PASS or after is not Verdict.PASS


def launched(
    key: str, role: str, *, like: str | None = None, fingerprint: str | None = "f", **launch: Any
) -> ConfigRecord:
    return replace(config(key), role=role, like=like, fingerprint=fingerprint, launch=launch)


def slo_verdict(candidate: ConfigRecord, *others: ConfigRecord) -> Verdict:
    return judge(gate("slo"), candidate, None, (*others, candidate)).verdict


def test_a_configuration_that_is_the_baseline_again_is_invalid() -> None:
    first = launched("baseline", "baseline", command=["serve"])
    assert slo_verdict(launched("tuned", "tuned", command=["serve"]), first) is Verdict.INVALID
    assert slo_verdict(first) is Verdict.PASS


def test_declared_repeats_and_what_differs_or_is_unknown_are_no_twins() -> None:
    first = launched("baseline", "baseline", command=["serve"])
    assert slo_verdict(launched("again", "other", like="baseline", command=["serve"]), first) is Verdict.PASS
    assert slo_verdict(launched("tuned", "tuned", command=["serve"], args=["--fp8"]), first) is Verdict.PASS
    assert slo_verdict(launched("tuned", "tuned", fingerprint="g", command=["serve"]), first) is Verdict.PASS
    assert slo_verdict(launched("tuned", "tuned", fingerprint=None, command=["serve"]), first) is Verdict.PASS


def test_the_baseline_is_the_first_wherever_the_spec_lists_it() -> None:
    first = launched("baseline", "baseline", command=["serve"])
    twin = launched("tuned", "tuned", command=["serve"])
    assert judge(gate("slo"), twin, None, (twin, first)).verdict is Verdict.INVALID
    assert judge(gate("slo", config="baseline"), first, None, (twin, first)).verdict is Verdict.PASS


def test_other_workloads_are_not_compared() -> None:
    base, tuned = goodput(1000.0, load_sha256="a"), goodput(1000.0, load_sha256="b")
    result = judge(gate("goodput"), config("tuned", tuned), config("baseline", base))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["workload_differs"])
    for same in (replace(tuned, load_sha256="a"), replace(tuned, load_sha256=None)):
        assert judge(gate("goodput"), config("tuned", same), config("baseline", base)).verdict is Verdict.PASS


def test_rates_that_were_all_met_say_that_the_load_was_the_limit() -> None:
    met = [goodput(tok_s, mode="fixed", windows=(window(4.0), window(4.0))) for tok_s in (1000.0, 990.0)]
    result = judge(gate("goodput", {"min": 0.95}), config("tuned", met[1]), config("baseline", met[0]))
    assert result.text.endswith("every rate offered passed: lower bounds")
    missed = goodput(990.0, mode="fixed", windows=(window(4.0), window(8.0, passes=False)))
    again = judge(gate("goodput", {"min": 0.95}), config("tuned", missed), config("baseline", met[0]))
    assert "lower bounds" not in again.text
