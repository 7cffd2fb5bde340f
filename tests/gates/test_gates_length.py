"""Whether answers come out about as long as the baseline's, and when nothing can be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from gates_builders import config, gate, scored, suite, with_suites
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, ItemResult, Outcome, Reason, Verdict
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
