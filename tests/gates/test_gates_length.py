"""Whether answers come out about as long as the baseline's, and when nothing can be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import config, gate, scored, suite, with_suites
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, ItemResult, Outcome, Reason, Verdict
from pytest_tokenwatt.records.drift import AnswerLength, DriftRecord
from pytest_tokenwatt.spec.load import load_spec

GATE = gate("length", {"max_shift": 0.10, "suites": {"gsm8k": 200}}, scenario=None, needs="accuracy")
BOTH = replace(GATE, limits={**GATE.limits, "suites": {"math": 200, "code": 200}})


def answered(lengths: Sequence[int | None], *, seed: int = 0) -> tuple[ItemResult, ...]:
    """Right answers of so many tokens; ``None`` failed."""
    return tuple(
        ItemResult(f"q{place}", seed, Outcome.FAILED if each is None else Outcome.CORRECT, output_tokens=each)
        for place, each in enumerate(lengths)
    )


def of(key: str, lengths: Sequence[int | None], name: str = "gsm8k") -> ConfigRecord:
    return with_suites(key, suite(answered(lengths), name))


def judged(base: Sequence[int | None], ours: Sequence[int | None], spec: GateSpec = GATE) -> GateResult:
    return judge(spec, of("tuned", ours), of("baseline", base))


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


# --- the rule


def test_equal_lengths_pass() -> None:
    result = judged([20] * 200, [20] * 200)
    assert (result.verdict, result.value, result.unit, result.limit, result.error) == (
        Verdict.PASS,
        0.0,
        "share",
        0.10,
        0.0,
    )
    assert (result.text, result.rule) == ("0.0 % [0.0, 0.0] (200 answers)", "within ± 10 %")


@pytest.mark.parametrize(
    ("ours", "verdict", "code"),
    [
        ([22] * 50, Verdict.PASS, []),
        ([18] * 50, Verdict.PASS, []),
        ([23] * 50, Verdict.FAIL, ["length_shift"]),
        ([17] * 50, Verdict.FAIL, ["length_shift"]),
        ([20, 22] * 25, Verdict.PASS, []),
        ([22, 24] * 25, Verdict.FAIL, ["length_shift"]),
        ([21, 23] * 25, Verdict.INCONCLUSIVE, ["within_error"]),
        ([1, 39] * 25, Verdict.INCONCLUSIVE, ["within_error"]),
        ([19] * 29, Verdict.INCONCLUSIVE, ["interval_unknown"]),
        ([20, 22] * 4, Verdict.INCONCLUSIVE, ["interval_unknown"]),
    ],
)
def test_the_interval_decides(ours: list[int], verdict: Verdict, code: list[str]) -> None:
    result = judged([20] * len(ours), ours)
    assert (result.verdict, codes(result)) == (verdict, code)
    assert result.value == pytest.approx(sum(ours) / len(ours) / 20 - 1)


def test_a_shift_says_by_how_much_and_from_what() -> None:
    result = judged([20] * 50, [24, 26] * 25)
    assert result.text == "+25.0 % [+23.6, +26.4] (50 answers)"
    assert result.reasons[0].text == (
        "all of the interval is outside ± 10 %: +25.0 % [+23.6, +26.4], a mean of 25 tokens against 20"
    )


def test_numbers_next_to_the_limit_are_told_from_it() -> None:
    base, ours = (suite(answered([each] * 40), max_tokens=20_000) for each in (10_000, 11_003))
    result = judge(GATE, with_suites("tuned", ours), with_suites("baseline", base))
    assert (result.verdict, result.text) == (Verdict.FAIL, "+10.03 % [+10.03, +10.03] (40 answers)")


def test_too_few_answers_say_how_many_it_takes() -> None:
    few = judged([20] * 8, [20, 22] * 4)
    assert few.text == "+5.0 % (8 answers)"
    assert few.error is None
    assert few.reasons[0].text == "8 answers are too few for an interval; it takes 10 independent items"
    equal = judged([20] * 12, [20] * 12)
    assert equal.reasons[0].text == "12 answers that all changed by one factor do not show how others vary; it takes 30"
    seeds = [answered([20] * 5, seed=seed) for seed in range(3)]
    often = with_suites("tuned", suite(tuple(item for each in seeds for item in each)))
    result = judge(GATE, often, replace(often, key="baseline", role="baseline"))
    assert result.reasons[0].text.startswith("15 answers to 5 items are too few")


def test_the_suites_are_judged_together() -> None:
    """By answers, not by suites: 100 of 10 tokens and 100 of 30 become 100 of 12 and 100 of 30."""
    base = with_suites("baseline", suite(answered([10] * 100), "math"), suite(answered([30] * 100), "code"))
    ours = with_suites("tuned", suite(answered([12] * 100), "math"), suite(answered([30] * 100), "code"))
    result = judge(BOTH, ours, base)
    assert result.verdict is Verdict.PASS
    assert result.value == pytest.approx(0.05)
    assert result.text.endswith("(200 answers)")


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=60), st.floats(0.01, 2.0))
def test_nothing_passes_that_is_not_inside(lengths: list[tuple[int, int]], limit: float) -> None:
    spec = replace(GATE, limits={**GATE.limits, "max_shift": limit})
    result = judged([base for base, _ in lengths], [ours for _, ours in lengths], spec)
    if result.verdict is Verdict.PASS:
        assert result.value is not None
        assert result.error is not None
        assert abs(result.value) + result.error <= limit + 1e-8
    assert (result.verdict is Verdict.PASS) == (not result.reasons)


# --- answers that were cut or left out


def test_cut_answers_are_kept_and_said() -> None:
    result = judged([20] * 197 + [384] * 3, [20] * 195 + [384] * 5)
    assert result.text.endswith("(200 answers, 5 cut at max_tokens)")
    assert result.value == pytest.approx((195 * 20 + 5 * 384) / (197 * 20 + 3 * 384) - 1)


@pytest.mark.parametrize(("cut", "verdict"), [(100, Verdict.PASS), (101, Verdict.INCONCLUSIVE)])
def test_most_answers_cut_on_both_sides_decide_nothing(cut: int, verdict: Verdict) -> None:
    lengths = [384] * cut + [20] * (200 - cut)
    result = judged(lengths, lengths)
    assert result.verdict is verdict
    assert f"{cut} cut at max_tokens" in result.text
    if verdict is Verdict.INCONCLUSIVE:
        assert codes(result) == ["mostly_truncated"]
        assert result.reasons[0].text.startswith("101 of 200 answers are cut at max_tokens on both sides")


def test_answers_that_no_longer_end_are_a_shift() -> None:
    result = judged([20] * 200, [384] * 200)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["length_shift"])


def test_few_failed_answers_are_left_out_of_both() -> None:
    result = judged([20] * 200, [None, None, *[20] * 198])
    assert (result.verdict, result.text) == (Verdict.PASS, "0.0 % [0.0, 0.0] (198 answers, 2 left out)")


# --- what cannot be judged


GOOD = suite(answered([20] * 50))
UNCOUNTED = suite("+" * 50)


@pytest.mark.parametrize(
    ("base", "ours", "code"),
    [
        (GOOD, suite(answered([20] * 40 + [None] * 10)), "items_failed"),
        (suite(answered([20] * 40 + [None] * 10)), GOOD, "baseline_invalid"),
        (GOOD, suite(""), "no_items"),
        (GOOD, replace(GOOD, sha256="cd"), "suite_differs"),
        (GOOD, suite(answered([20] * 49)), "unequal_items"),
        (GOOD, suite(answered([20] * 50, seed=1)), "unequal_items"),
        (GOOD, UNCOUNTED, "no_token_counts"),
        (UNCOUNTED, GOOD, "no_token_counts"),
        (scored(96.0), scored(96.0), "no_token_counts"),
        (suite(answered([0] * 50)), GOOD, "baseline_invalid"),
    ],
)
def test_what_cannot_be_compared_is_invalid(base: object, ours: object, code: str) -> None:
    result = judge(GATE, config("tuned", suites={"gsm8k": ours}), config("baseline", suites={"gsm8k": base}))
    assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, [code], None)


def test_a_suite_that_was_not_asked_is_invalid_and_named_among_several() -> None:
    assert codes(judge(GATE, config("tuned"), with_suites("baseline", GOOD))) == ["not_measured"]
    assert codes(judge(GATE, with_suites("tuned", GOOD), config("baseline"))) == ["baseline_invalid"]
    math = replace(GOOD, name="math")
    result = judge(BOTH, with_suites("tuned", math), with_suites("baseline", math))
    assert result.reasons[0].text == "code: tuned has no record of code"


def test_what_the_time_budget_cut_off_is_inconclusive() -> None:
    cut_off = suite("", invalid=(Reason("time_budget", "the time budget of 45 minutes is used up"),))
    result = judge(GATE, with_suites("tuned", cut_off), with_suites("baseline", GOOD))
    assert result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("on_missing", "verdict"), [("fail", Verdict.FAIL), ("record", Verdict.INCONCLUSIVE)])
def test_without_a_baseline_there_is_only_the_mean(on_missing: str, verdict: Verdict) -> None:
    spec = replace(GATE, limits={**GATE.limits, "on_missing_baseline": on_missing})
    result = judge(spec, of("tuned", [20, 25] * 25), None)
    assert (result.verdict, codes(result), result.text) == (verdict, ["no_baseline"], "22.5 tokens (50 answers)")
    assert codes(judge(spec, with_suites("tuned", UNCOUNTED), None)) == ["no_token_counts"]
    assert codes(judge(spec, config("tuned"), None)) == ["not_measured"]


def test_the_same_engine_twice_compares_nothing() -> None:
    base = with_suites("baseline", GOOD, fingerprint="ab")
    assert codes(judge(GATE, with_suites("tuned", GOOD, fingerprint="ab"), base)) == ["identical_configs"]


# --- answers to drift prompts

DRIFT = replace(GATE, limits={**GATE.limits, "suites": {}, "drift": True}, needs="drift")
TOGETHER = replace(GATE, limits={**GATE.limits, "drift": True})


def prompted(lengths: Sequence[int | None], *, cut: int = 0, sha256: str = "ab", **changes: Any) -> DriftRecord:
    """Answers of so many tokens to drift prompts, the first ``cut`` of them cut; ``None`` failed."""
    found = tuple(AnswerLength(f"p{place}", each, place < cut) for place, each in enumerate(lengths))
    record = DriftRecord("cd", "prompt_logprobs", 20, 0, 0, None, None, answers=found, answers_sha256=sha256)
    return replace(record, **changes)


def with_drift(ours: DriftRecord | None, base: DriftRecord | None, spec: GateSpec = DRIFT) -> GateResult:
    return judge(spec, config("tuned", drift=ours), config("baseline", drift=base))


def test_a_drift_block_alone_has_its_own_answers() -> None:
    result = with_drift(prompted([21] * 50), prompted([20] * 50))
    assert (result.verdict, result.value, result.text) == (Verdict.PASS, 0.05, "+5.0 % [+5.0, +5.0] (50 answers)")
    assert codes(with_drift(prompted([25] * 50), prompted([20] * 50))) == ["length_shift"]


def test_answers_to_suites_and_to_drift_prompts_are_judged_together() -> None:
    records = {
        key: replace(of(key, [suite_tokens] * 50), drift=prompted([drift_tokens] * 50))
        for key, suite_tokens, drift_tokens in (("tuned", 12, 30), ("baseline", 10, 30))
    }
    result = judge(TOGETHER, records["tuned"], records["baseline"])
    assert (result.value, result.text[-13:]) == (0.05, "(100 answers)")
    alone = judge(TOGETHER, records["tuned"], replace(records["baseline"], drift=None))
    assert (alone.verdict, codes(alone)) == (Verdict.INVALID, ["baseline_invalid"])
    assert alone.reasons[0].text.startswith("drift prompts: ")


def test_what_failed_is_left_out_and_what_was_cut_decides_nothing() -> None:
    result = with_drift(prompted([20] * 49 + [None]), prompted([20] * 50, cut=3))
    assert result.text == "0.0 % [0.0, 0.0] (49 answers, 3 cut at max_tokens, 1 left out)"
    cut = with_drift(prompted([20] * 50, cut=30), prompted([20] * 50, cut=30))
    assert (cut.verdict, codes(cut)) == (Verdict.INCONCLUSIVE, ["mostly_truncated"])
    assert cut.reasons[0].text.endswith("raise max_tokens and drift.tokens")


@pytest.mark.parametrize(
    ("ours", "base", "code"),
    [
        (None, prompted([20] * 50), "not_measured"),
        (prompted([20] * 50), None, "baseline_invalid"),
        (prompted([]), prompted([20] * 50), "not_measured"),
        (prompted([20] * 50), prompted([]), "baseline_invalid"),
        (prompted([20] * 50, sha256="ef"), prompted([20] * 50), "incomparable"),
        (prompted([20] * 49), prompted([20] * 50), "unequal_items"),
        (prompted([None] * 50), prompted([20] * 50), "no_token_counts"),
        (prompted([20] * 50, invalid=(Reason("engine_died", "exit code -9"),)), prompted([20] * 50), "engine_died"),
    ],
)
def test_drift_answers_that_cannot_be_compared_are_invalid(
    ours: DriftRecord | None, base: DriftRecord | None, code: str
) -> None:
    result = with_drift(ours, base)
    assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, [code], None)


def test_without_a_baseline_there_is_the_mean_of_drift_answers_too() -> None:
    alone = judge(DRIFT, config("tuned", drift=prompted([20, 30, None])), None)
    assert (codes(alone), alone.text) == (["no_baseline"], "25 tokens (2 answers)")
    assert codes(judge(DRIFT, config("tuned"), None)) == ["not_measured"]


# --- all configurations


def test_every_candidate_has_its_shift(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    engine = "engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}\n"
    configs = "configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]\n"
    path.write_text(engine + configs + "accuracy: {name: gsm8k, suite: g.jsonl}\n", encoding="utf-8")
    base, ours = of("baseline", [20] * 40), of("tuned", [21] * 40)
    found = length_deltas(load_spec(path), (base, ours, config("other")))
    assert list(found) == ["tuned", "other"]
    assert (found["tuned"].shift, found["tuned"].tokens, found["tuned"].baseline_tokens) == (0.05, 21.0, 20.0)
    assert found["other"].faults[0].code == "not_measured"
    assert length_deltas(load_spec(path), (ours,)) == {}
    assert length_deltas(load_spec(path), (ours,), base)["tuned"].shift == 0.05
    path.write_text(engine + configs, encoding="utf-8")
    assert length_deltas(load_spec(path), (base, ours)) == {}
    path.write_text(engine + configs + "drift: {prompts: p.jsonl}\n", encoding="utf-8")
    answered_prompts = [replace(each, drift=prompted([20] * 40)) for each in (base, ours)]
    assert length_deltas(load_spec(path), answered_prompts)["tuned"].n == 40
