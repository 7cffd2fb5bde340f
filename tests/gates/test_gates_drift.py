"""How far a configuration may drift: the gates kl and perplexity, and when nothing can be said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import config, gate
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.divergence import drift_deltas, kl_delta
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, Reason, ServedIdentity, Verdict
from pytest_tokenwatt.records.drift import Divergence, DriftRecord, PerplexityRecord
from pytest_tokenwatt.spec.load import load_spec

KL = gate("kl", {"max_nats_per_token": 0.02, "control": True}, scenario=None, needs="drift")
PPL = gate("perplexity", {"max_dnll": 0.02}, gate="perplexity[wiki]", param="wiki", scenario=None, needs="drift")
BROKEN = Reason("positions_invalid", "300 of 9000 positions have no valid log-probabilities")
CUT_OFF = Reason("time_budget", "the time budget of 45 minutes is used up")


def diverged(kl: float | None = 0.0097, se: float | None = 0.0007, **changes: Any) -> Divergence:
    """A divergence whose three estimates agree; the bound is 0.9 of it."""
    lower = None if kl is None else 0.9 * kl
    found = Divergence(
        kl=kl,
        kl_se=se,
        kl_lower=lower,
        kl_lower_se=se,
        kl_sampled=kl,
        kl_sampled_se=se,
        kl_median=kl,
        kl_per_token=kl,
        tail_mass=0.01,
        top1_agreement=0.97,
        k=20,
        sequences=256,
        tokens=62_197,
        invalid_positions=0,
    )
    return replace(found, **changes)


CONTROL = diverged(0.0, 0.0)


def scored(**changes: Any) -> DriftRecord:
    record = DriftRecord("ab" * 32, "prompt_logprobs", 20, 256, 62_197, against=None, control=None)
    return replace(record, **changes)


def tuned(found: Divergence | None = None, **changes: Any) -> ConfigRecord:
    return config("tuned", drift=scored(against=found or diverged(), **changes))


def base(control: Divergence | None = CONTROL, **changes: Any) -> ConfigRecord:
    return config("baseline", drift=scored(control=control, **changes))


def judged(found: Divergence, control: Divergence | None = CONTROL, spec: GateSpec = KL) -> GateResult:
    return judge(spec, tuned(found), base(control))


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


# --- kl: the rule


def test_a_small_divergence_passes() -> None:
    result = judged(diverged(0.009696, 0.000736))
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert (result.text, result.rule) == ("0.0097 nats (control 0.0000)", "<= 0.02 nats")
    assert (result.value, result.unit, result.limit) == (0.009696, "nats", 0.02)
    assert result.error == pytest.approx(1.96 * 0.000736)


@pytest.mark.parametrize(
    ("kl", "lower", "se", "verdict", "code"),
    [
        (0.0100, 0.009, 0.0060, Verdict.PASS, []),
        (0.0100, 0.009, 0.0062, Verdict.INCONCLUSIVE, ["within_error"]),
        (0.0200, 0.019, 0.0, Verdict.PASS, []),
        (0.0201, 0.019, 0.0, Verdict.INCONCLUSIVE, ["within_error"]),
        (0.0300, 0.019, 0.001, Verdict.INCONCLUSIVE, ["within_error"]),
        (0.0300, 0.0215, 0.001, Verdict.INCONCLUSIVE, ["within_error"]),
        (0.0300, 0.0217, 0.001, Verdict.FAIL, ["kl_drift"]),
        (4.0000, 3.5, 0.2, Verdict.FAIL, ["kl_drift"]),
    ],
)
def test_the_estimate_passes_and_the_guaranteed_bound_fails(
    kl: float, lower: float, se: float, verdict: Verdict, code: list[str]
) -> None:
    result = judged(diverged(kl, se, kl_lower=lower))
    assert (result.verdict, codes(result)) == (verdict, code)


def test_the_control_is_taken_off_both_and_its_error_joins_in_quadrature() -> None:
    found, control = diverged(0.024, 0.003, kl_lower=0.023), diverged(0.012, 0.004)
    assert judged(found, CONTROL).verdict is Verdict.INCONCLUSIVE
    result = judged(found, control)
    assert (result.verdict, result.text) == (Verdict.INCONCLUSIVE, "0.0240 nats (control 0.0120)")
    assert result.value == pytest.approx(0.012)
    assert result.error == pytest.approx(1.96 * 0.005)
    assert judged(found, diverged(0.014, 0.0)).verdict is Verdict.PASS
    assert judged(diverged(0.05, 0.001, kl_lower=0.045), diverged(0.03, 0.0)).verdict is Verdict.INCONCLUSIVE


def test_the_bound_has_its_own_error() -> None:
    assert judged(diverged(0.04, 0.02, kl_lower=0.03, kl_lower_se=0.001)).verdict is Verdict.FAIL
    assert judged(diverged(0.04, 0.02, kl_lower=0.03, kl_lower_se=0.01)).verdict is Verdict.INCONCLUSIVE


def test_reasons_have_the_figures() -> None:
    failed = judged(diverged(0.0415, 0.0011, kl_lower=0.033))
    assert failed.reasons[0].text == (
        "at least 0.0312 nats > 0.02 (kl 0.0415, kl_lower 0.0330, control 0.0000, error 0.0011, 256 sequences)"
    )
    undecided = judged(diverged(0.018, 0.002))
    assert undecided.reasons[0].text == (
        "from 0.0129 up to 0.0213 nats > 0.02 "
        "(kl 0.0180, kl_lower 0.0162, control 0.0000, error 0.0020, 256 sequences), about 693 would show less"
    )
    assert "would show" not in judged(diverged(0.021, 0.002)).reasons[0].text


def test_a_bound_just_beyond_the_limit_is_told_from_it() -> None:
    assert "up to 0.02002 nats > 0.02" in judged(diverged(0.02002, 0.0, kl_lower=0.0)).reasons[0].text


@given(
    kl=st.floats(0.001, 0.1),
    share=st.floats(0, 1),
    se=st.floats(0, 0.02),
    control=st.floats(0, 0.01),
    limit=st.floats(0.001, 0.1),
)
def test_more_drift_never_turns_a_failure_into_a_pass(
    kl: float, share: float, se: float, control: float, limit: float
) -> None:
    spec = replace(KL, limits={**KL.limits, "max_nats_per_token": limit})
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL]
    verdicts = [
        judged(diverged(each, se, kl_lower=share * each), diverged(control, 0.0), spec).verdict
        for each in (kl, 1.5 * kl, 40 * kl)
    ]
    assert [order.index(each) for each in verdicts] == sorted(order.index(each) for each in verdicts)


# --- kl: what cannot be told


@pytest.mark.parametrize("control", [None, diverged(None, None)])
def test_without_its_control_nothing_is_decided(control: Divergence | None) -> None:
    for kl in (0.001, 4.0):
        result = judged(diverged(kl), control)
        assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["no_control"])
        assert result.text.endswith("(no control)")


def test_a_control_that_was_switched_off_counts_as_zero() -> None:
    off = replace(KL, limits={**KL.limits, "control": False})
    assert judged(diverged(), None, off).verdict is Verdict.PASS
    assert judged(diverged(4.0), None, off).verdict is Verdict.FAIL
    assert judged(diverged(), None, off).text == "0.0097 nats (no control)"


def test_estimators_that_contradict_each_other_pass_nothing() -> None:
    result = judged(diverged(0.0100, 0.0003, kl_sampled=0.0116, kl_sampled_se=0.0004))
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["estimators_disagree"])
    assert judged(diverged(0.0100, 0.0003, kl_sampled=0.0114, kl_sampled_se=0.0004)).verdict is Verdict.PASS
    assert judged(diverged(0.0100, 0.0003, kl_sampled=None)).verdict is Verdict.PASS


def test_the_guaranteed_bound_fails_whatever_the_estimators_say() -> None:
    result = judged(diverged(0.5, 0.001, kl_lower=0.4, kl_sampled=0.9))
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["kl_drift", "estimators_disagree"])


def test_doubts_of_the_measurement_are_said_once() -> None:
    doubt = Reason("estimators_disagree", "extrapolated 0.01000 and sampled 0.01160 nats differ")
    result = judged(diverged(0.0100, 0.0003, kl_sampled=0.0116, doubts=(doubt,)))
    assert (result.verdict, result.reasons) == (Verdict.INCONCLUSIVE, (doubt,))


def test_the_bound_alone_can_fail_but_not_pass() -> None:
    assert judged(diverged(None, None, kl_lower=0.4, kl_lower_se=0.01)).verdict is Verdict.FAIL
    result = judged(diverged(None, None, kl_lower=0.001, kl_lower_se=0.0))
    assert (result.verdict, codes(result), result.text) == (
        Verdict.INCONCLUSIVE,
        ["not_extrapolated"],
        ">= 0.0010 nats (control 0.0000)",
    )


def test_a_single_sequence_has_no_error() -> None:
    result = judged(diverged(0.001, None, sequences=1))
    assert (result.verdict, codes(result), result.error) == (Verdict.INCONCLUSIVE, ["error_unknown"], None)


def test_without_the_bound_nothing_fails() -> None:
    assert judged(diverged(0.001, 0.0001, kl_lower=None)).verdict is Verdict.PASS
    assert judged(diverged(4.0, 0.0001, kl_lower=None)).verdict is Verdict.INCONCLUSIVE


# --- kl: what is not to be believed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["kl", "kl_se", "kl_lower", "kl_sampled"])
def test_what_is_not_finite_is_invalid_on_either_side(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    broken = replace(diverged(), **changes)
    result = judged(broken)
    assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, ["not_finite"], None)
    assert codes(judged(diverged(), broken)) == ["baseline_invalid"]


def test_a_divergence_below_zero_is_none() -> None:
    assert codes(judged(diverged(-0.5, 0.001))) == ["negative_divergence"]
    assert judged(diverged(-0.001, 0.001)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        (config("tuned"), base(), "not_measured"),
        (config("tuned", drift=scored()), base(), "not_measured"),
        (tuned(diverged(None, None)), base(), "not_measured"),
        (tuned(diverged(None, None, invalid=(BROKEN,))), base(), "positions_invalid"),
        (tuned(invalid=(BROKEN,)), base(), "positions_invalid"),
        (config("tuned", drift=tuned().drift, invalid=(BROKEN,)), base(), "positions_invalid"),
        (tuned(), config("baseline"), "baseline_invalid"),
        (tuned(), base(invalid=(BROKEN,)), "baseline_invalid"),
        (tuned(), base(diverged(None, None, invalid=(BROKEN,))), "baseline_invalid"),
        (tuned(), config("baseline", drift=base().drift, invalid=(BROKEN,)), "baseline_invalid"),
        (tuned(sha256="cd" * 32), base(), "incomparable"),
    ],
)
def test_what_cannot_be_compared_is_invalid(ours: ConfigRecord, theirs: ConfigRecord, code: str) -> None:
    result = judge(KL, ours, theirs)
    assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, [code], None)


def test_records_without_a_hash_are_not_judged_on_it() -> None:
    assert judge(KL, tuned(sha256=""), base()).verdict is Verdict.PASS


def test_what_the_time_budget_cut_off_is_inconclusive() -> None:
    assert judge(KL, tuned(invalid=(CUT_OFF,)), base()).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("on_missing", "verdict"), [("fail", Verdict.FAIL), ("record", Verdict.INCONCLUSIVE)])
def test_without_a_baseline_there_is_nothing_to_drift_from(on_missing: str, verdict: Verdict) -> None:
    for spec, text in ((KL, "not measured"), (PPL, "ppl 4")):
        spec = replace(spec, limits={**spec.limits, "on_missing_baseline": on_missing})
        alone = config("tuned", drift=scored(perplexity={"wiki": windows(math.log(4))}))
        result = judge(spec, alone, None)
        assert (result.verdict, codes(result), result.text) == (verdict, ["no_baseline"], text)
        broken = config("tuned", drift=scored(invalid=(BROKEN,)))
        assert codes(judge(spec, broken, None)) == ["positions_invalid"]


# --- kl: exactly zero


def engine(root: str | None = "m", cache: str | None = "auto", **start_args: str) -> dict[str, Any]:
    labels: Mapping[str, str] = {} if cache is None else {"cache_dtype": cache}
    return {"identity": ServedIdentity(("m",), root=root, cache_config=labels, start_args=start_args)}


def zero(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> GateResult:
    candidate, baseline = replace(tuned(diverged(0.0, 0.0)), **ours), replace(base(), **theirs)
    return judge(KL, candidate, baseline)


def test_two_starts_of_the_same_numbers_may_be_bit_identical() -> None:
    result = zero(engine(), engine())
    assert (result.verdict, codes(result)) == (Verdict.PASS, ["bit_identical"])
    assert result.text == "0.0000 nats (control 0.0000, bit-identical)"
    limits = {**KL.limits, "max_nats_per_token": 0.0}
    again = judge(
        replace(KL, limits=limits), replace(tuned(diverged(0.0, 0.0)), **engine()), replace(base(), **engine())
    )
    assert again.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        (engine(root=None), engine(root=None)),
        (engine(cache=None), engine(cache=None)),
        (engine(root="m-fp8"), engine()),
        (engine(cache="fp8"), engine()),
        (engine(quantization="fp8"), engine()),
        (engine(**{"model_config.dtype": "float16"}), engine(**{"model_config.dtype": "bfloat16"})),
        ({**engine(), "launch": {"command": ["serve"], "args": ["--kv-cache-dtype", "fp8"]}}, engine()),
        ({**engine(), "launch": {"command": ["serve", "--quantization=fp8"]}}, engine()),
    ],
)
def test_no_difference_at_all_is_not_believed_of_two_precisions(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> None:
    result = zero(ours, theirs)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["zero_divergence"])


def test_one_engine_compared_with_itself_is_not_believed() -> None:
    launch = {"launch": {"method": "attach", "endpoint": "http://10.0.0.7:8000/v1"}}
    result = zero({**engine(), **launch}, {**engine(), **launch})
    assert codes(result) == ["zero_divergence"]
    assert "both were scored on one engine" in result.reasons[0].text
    other = {"launch": {"method": "attach", "endpoint": "http://10.0.0.8:8000/v1"}}
    assert zero({**engine(), **launch}, {**engine(), **other}).verdict is Verdict.PASS
    up = {"launch": {"method": "up", "up": ["docker", "run"], "endpoint": "http://10.0.0.7:8000/v1"}}
    assert zero({**engine(), **up}, {**engine(), **up}).verdict is Verdict.PASS


def test_other_settings_do_not_make_other_numbers() -> None:
    assert zero(engine(max_num_seqs="64"), engine()).verdict is Verdict.PASS


# --- perplexity


def windows(*nll: float, **changes: Any) -> PerplexityRecord:
    ppl = math.exp(math.fsum(nll) / len(nll)) if nll else None
    return replace(PerplexityRecord("wiki", "ef" * 32, len(nll), 2048 * len(nll), nll, ppl), **changes)


def read(ours: PerplexityRecord | None, theirs: PerplexityRecord | None, limit: float = 0.02) -> GateResult:
    candidate, baseline = (
        config(key, drift=scored(perplexity={"wiki": each} if each else {}))
        for key, each in (("tuned", ours), ("baseline", theirs))
    )
    return judge(replace(PPL, limits={**PPL.limits, "max_dnll": limit}), candidate, baseline)


def test_the_known_difference_of_four_windows() -> None:
    result = read(windows(1.1, 1.9, 3.3, 4.1), windows(1, 2, 3, 4), limit=0.3)
    assert (result.verdict, result.rule, result.unit) == (Verdict.PASS, "<= 0.3 nats", "nats")
    assert result.value == pytest.approx(0.1)
    assert result.error == pytest.approx(1.96 * 0.0816497, rel=1e-5)
    assert result.text == "+0.1000 nats (ppl 13.46, baseline 12.18)"


@pytest.mark.parametrize(
    ("limit", "verdict", "code"),
    [
        (0.2344, Verdict.PASS, []),
        (0.2343, Verdict.INCONCLUSIVE, ["within_error"]),
        (0.0, Verdict.INCONCLUSIVE, ["within_error"]),
    ],
)
def test_both_ends_of_the_difference_decide(limit: float, verdict: Verdict, code: list[str]) -> None:
    result = read(windows(1.1, 1.9, 3.3, 4.1), windows(1, 2, 3, 4), limit=limit)
    assert (result.verdict, codes(result)) == (verdict, code)


def test_a_rise_beyond_the_limit_fails_with_its_figures() -> None:
    result = read(windows(1.10, 2.12, 3.11), windows(1, 2, 3))
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["perplexity_rise"])
    assert result.reasons[0].text == "at least 0.1005 nats > 0.02 (dnll 0.1100, error 0.0058, 3 windows)"
    assert read(windows(0.5, 1.5, 2.4), windows(1, 2, 3)).verdict is Verdict.PASS


def test_one_window_tells_no_error() -> None:
    assert codes(read(windows(1.0), windows(1.0))) == ["error_unknown"]


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [
        (None, windows(1, 2), "not_measured"),
        (windows(), windows(1, 2), "not_measured"),
        (windows(1, math.nan), windows(1, 2), "not_finite"),
        (windows(1, 2, invalid=(BROKEN,)), windows(1, 2), "positions_invalid"),
        (windows(1, 2), None, "baseline_invalid"),
        (windows(1, 2), windows(1, math.inf), "baseline_invalid"),
        (windows(1, 2), windows(1, 2, invalid=(BROKEN,)), "baseline_invalid"),
        (windows(1, 2), windows(1, 2, sha256="aa"), "incomparable"),
        (windows(1, 2), windows(1, 2, 3), "incomparable"),
    ],
)
def test_windows_that_cannot_be_compared_are_invalid(
    ours: PerplexityRecord | None, theirs: PerplexityRecord | None, code: str
) -> None:
    result = read(ours, theirs)
    assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, [code], None)


def test_the_corpus_is_judged_without_a_divergence() -> None:
    unscored = scored(against=diverged(None, None, invalid=(BROKEN,)), perplexity={"wiki": windows(1, 2)})
    baseline = config("baseline", drift=scored(perplexity={"wiki": windows(1, 2)}))
    assert judge(PPL, config("tuned", drift=unscored), baseline).verdict is Verdict.PASS


# --- all configurations


def test_every_candidate_has_its_drift(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    engine_block = "engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}\n"
    configs = "configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]\n"
    corpora = "drift: {prompts: p.txt, control: false, perplexity: [{name: wiki, file: w.txt}]}\n"
    path.write_text(engine_block + configs + corpora, encoding="utf-8")
    found = drift_deltas(load_spec(path), (base(None), tuned(), config("other")))
    assert list(found) == ["tuned", "other"]
    assert (found["tuned"].kl.value, found["tuned"].kl.control, found["tuned"].control) == (0.0097, None, None)
    assert found["tuned"].perplexity["wiki"].invalid[0].code == "not_measured"
    assert found["other"].kl.faults[0].code == "not_measured"
    assert drift_deltas(load_spec(path), (tuned(),)) == {}
    assert drift_deltas(load_spec(path), (tuned(),), base())["tuned"].control == CONTROL
    path.write_text(engine_block + configs, encoding="utf-8")
    assert drift_deltas(load_spec(path), (base(), tuned())) == {}


def test_bounds_are_those_of_the_definitions() -> None:
    delta = kl_delta(tuned(diverged(0.03, 0.003, kl_lower=0.02, kl_lower_se=0.002)), base(diverged(0.01, 0.004)))
    assert delta.upper == pytest.approx(0.02 + 1.645 * 0.005)
    assert delta.lower == pytest.approx(0.01 - 1.645 * math.hypot(0.002, 0.004))
