"""Whether answers became worse, whether they are good enough, and what so many of them can tell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import accuracy_gate, answers, config, pairs, scored, suite, with_suites
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import GateResult, GateSpec, Reason, SuiteRecord, Verdict
from pytest_tokenwatt.records.accuracy import AccuracyDelta, FlipRate
from pytest_tokenwatt.spec.load import load_spec


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


def judged(gate: GateSpec, base: SuiteRecord, ours: SuiteRecord) -> GateResult:
    return judge(gate, with_suites("tuned", ours), with_suites("baseline", base))


def compared(gate: GateSpec, both: int, lost: int, gained: int, neither: int) -> GateResult:
    base, ours = pairs(both, lost, gained, neither)
    return judged(gate, suite(base), suite(ours))


# --- known answers


def test_the_published_drop_of_fifty_items_fails_with_what_they_can_resolve() -> None:
    result = judged(accuracy_gate(limit=50), scored(96.0), scored(88.0))
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["accuracy_drop"])
    assert (result.value, result.unit, result.limit, result.error) == (-8.0, "pt", -1.0, None)
    assert result.text == "-8.0 pt (50 items), can resolve 7.9 pt"
    assert result.rule == ">= -1.0 pt"
    assert result.reasons[0].text == "-8.0 pt < -1.0 pt; 50 items can resolve 7.9 pt (assuming that 5 % flip)"


def test_the_published_scores_that_are_equal_pass() -> None:
    result = judged(accuracy_gate(limit=50), scored(96.0), scored(96.0))
    assert (result.verdict, result.value, result.text) == (
        Verdict.PASS,
        0.0,
        "0.0 pt (50 items), can resolve 7.9 pt",
    )


def test_the_same_drop_with_its_items_names_flips_and_interval() -> None:
    result = compared(accuracy_gate(), 43, 5, 1, 1)
    assert result.verdict is Verdict.FAIL
    assert result.text == "-8.0 pt (50 items), 95 % [-19.8, +2.1], can resolve 12.2 pt"
    assert result.reasons[0].text == (
        "-8.0 pt < -1.0 pt (5 right to wrong, 1 wrong to right, 95 % interval -19.8 to +2.1 pt); "
        "50 items can resolve 12.2 pt (12 % flipped); the sample cannot tell it from a drop within the limit"
    )
    assert result.error == pytest.approx(10.97, abs=0.01)


# --- the rule point


@pytest.mark.parametrize(
    ("lost", "gained", "max_drop_pts", "verdict"),
    [
        (0, 0, 1.0, Verdict.PASS),
        (0, 3, 0.0, Verdict.PASS),
        (2, 0, 1.0, Verdict.PASS),
        (5, 3, 1.0, Verdict.PASS),
        (3, 0, 1.0, Verdict.FAIL),
        (1, 0, 0.0, Verdict.FAIL),
        (1, 0, 0.5, Verdict.PASS),
        (1, 0, 0.49, Verdict.FAIL),
    ],
)
def test_a_difference_passes_from_the_limit_on(lost: int, gained: int, max_drop_pts: float, verdict: Verdict) -> None:
    result = compared(accuracy_gate(max_drop_pts=max_drop_pts), 150, lost, gained, 50 - lost - gained)
    assert result.verdict is verdict
    assert "can resolve" in result.text
    assert "95 % [" in result.text


def test_a_large_sample_does_not_resolve_everything() -> None:
    assert compared(accuracy_gate(), 14_000, 0, 0, 0).text.endswith("can resolve 0.02 pt")


@pytest.mark.parametrize(("base", "ours"), [(95.3, 94.3), (95.1, 94.1), (0.3, -0.7)])
def test_decimals_that_meet_the_limit_pass(base: float, ours: float) -> None:
    assert judged(accuracy_gate(), scored(base), scored(ours)).verdict is Verdict.PASS


def test_a_drop_hardly_beyond_its_limit_has_the_decimals_that_show_it() -> None:
    result = compared(accuracy_gate(), 900, 11, 0, 150)
    assert result.text.startswith("-1.04 pt (1061 items)")
    assert "-1.04 pt < -1.0 pt" in result.reasons[0].text


# --- the rule noninferiority


@pytest.mark.parametrize(
    ("lost", "gained", "n", "max_drop_pts", "verdict", "code"),
    [
        (0, 0, 200, 1.0, Verdict.INCONCLUSIVE, ["within_error"]),
        (0, 0, 300, 1.0, Verdict.PASS, []),
        (10, 10, 2000, 1.0, Verdict.PASS, []),
        (10, 10, 200, 1.0, Verdict.INCONCLUSIVE, ["within_error"]),
        (6, 1, 200, 1.0, Verdict.INCONCLUSIVE, ["within_error"]),
        (60, 5, 1000, 1.0, Verdict.FAIL, ["accuracy_drop"]),
        (0, 40, 1000, 0.0, Verdict.PASS, []),
        (0, 0, 1000, 0.0, Verdict.INCONCLUSIVE, ["within_error"]),
    ],
)
def test_noninferiority_is_by_the_interval(
    lost: int, gained: int, n: int, max_drop_pts: float, verdict: Verdict, code: list[str]
) -> None:
    gate = accuracy_gate(rule="noninferiority", max_drop_pts=max_drop_pts)
    result = compared(gate, n - lost - gained - 20, lost, gained, 20)
    assert (result.verdict, codes(result)) == (verdict, code)
    assert result.rule == f"90 % interval > {0.0 - max_drop_pts:.1f} pt"
    assert "90 % [" in result.text
    assert "can resolve" in result.text
    assert all("90 % interval" in reason.text and "can resolve" in reason.text for reason in result.reasons)


def test_what_is_inconclusive_says_how_many_items_would_not_be() -> None:
    result = compared(accuracy_gate(rule="noninferiority"), 160, 5, 5, 30)
    assert result.reasons[0].text == (
        "the interval is on both sides of -1.0 pt: 0.0 pt (5 right to wrong, 5 wrong to right, 90 % interval -2.9 to "
        "+2.9 pt); 200 items can resolve 3.9 pt (5 % flipped), 3,092 would resolve 1.0 pt"
    )


@given(st.integers(1, 3000), st.floats(0.1, 5.0))
def test_equal_answers_are_noninferior_only_when_there_are_enough(n: int, margin: float) -> None:
    """Without flips the interval is ± z² / (n + z²)."""
    result = compared(accuracy_gate(rule="noninferiority", max_drop_pts=margin), n, 0, 0, 0)
    width_pts = 100 * 2.705543 / (n + 2.705543)
    if abs(width_pts - margin) > 1e-6:
        assert result.verdict is (Verdict.PASS if width_pts < margin else Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("ours", [96.0, 20.0])
def test_an_interval_needs_items(ours: float) -> None:
    result = judged(accuracy_gate(rule="noninferiority"), scored(96.0), scored(ours))
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["interval_unknown"])


@given(st.integers(0, 60), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.floats(0, 20))
def test_whatever_is_noninferior_also_passes_by_the_point(
    both: int, lost: int, gained: int, neither: int, margin: float
) -> None:
    strict = compared(accuracy_gate(rule="noninferiority", max_drop_pts=margin), both, lost, gained, neither)
    point = compared(accuracy_gate(max_drop_pts=margin), both, lost, gained, neither)
    if both + lost + gained + neither == 0:
        assert (strict.verdict, point.verdict) == (Verdict.INVALID, Verdict.INVALID)
    if strict.verdict is Verdict.PASS:
        assert point.verdict is Verdict.PASS
    if strict.verdict is Verdict.FAIL:
        assert point.verdict is Verdict.FAIL


ANSWERS = st.text("+-utf", max_size=12)


@given(ANSWERS, ANSWERS, st.sampled_from(["point", "noninferiority"]), st.floats(0, 100))
def test_nothing_passes_without_answers_of_both_to_the_same_items(
    base: str, ours: str, rule: str, margin: float
) -> None:
    result = judged(accuracy_gate(rule=rule, max_drop_pts=margin), suite(base), suite(ours))
    if result.verdict is Verdict.PASS:
        assert len(base) == len(ours) > 0
        assert "f" not in base + ours
        assert result.value is not None
    if result.verdict is not Verdict.INVALID:
        assert result.value == pytest.approx(100 * (ours.count("+") - base.count("+")) / len(base))


# --- the least score


@pytest.mark.parametrize("rule", ["point", "noninferiority"])
def test_two_broken_engines_do_not_pass(rule: str) -> None:
    result = compared(accuracy_gate(rule=rule, min_score=50.0), 10, 0, 0, 290)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["score_below_minimum"])
    assert (result.unit, result.limit) == ("%", 50.0)
    assert result.text.startswith("3.3 % (300 answers), 0.0 pt (300 items)")
    assert result.rule.endswith("> -1.0 pt, >= 50 %" if rule == "noninferiority" else ">= -1.0 pt, >= 50 %")


def test_a_score_that_is_too_low_and_fell_says_both() -> None:
    result = compared(accuracy_gate(min_score=90.0), 80, 15, 0, 5)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["score_below_minimum", "accuracy_drop"])


@pytest.mark.parametrize(("score", "verdict"), [(80.0, Verdict.PASS), (79.0, Verdict.FAIL)])
def test_a_baseline_has_a_least_score_only(score: float, verdict: Verdict) -> None:
    items = "+" * round(score) + "-" * (100 - round(score))
    gate = replace(accuracy_gate(max_drop_pts=None, min_score=80.0), config="baseline")
    result = judge(gate, with_suites("baseline", suite(items)), None)
    assert (result.verdict, result.value, result.unit, result.limit) == (verdict, score, "%", 80.0)
    assert (result.text, result.rule) == (f"{score:.1f} % (100 answers)", ">= 80 %")


# --- what cannot be judged


GOOD = suite("+" * 40 + "-" * 10)


@pytest.mark.parametrize("rule", ["point", "noninferiority"])
@pytest.mark.parametrize(
    ("base", "ours", "code"),
    [
        (GOOD, suite("+" * 40 + "f" * 10), "items_failed"),
        (suite("+" * 40 + "f" * 10), GOOD, "baseline_invalid"),
        (GOOD, suite(""), "no_items"),
        (suite(""), GOOD, "baseline_invalid"),
        (GOOD, suite("", score=99.0, invalid=()), "no_items"),
        (GOOD, scored(None), "no_items"),
        (GOOD, scored(float("nan")), "no_items"),
        (scored(None), GOOD, "baseline_invalid"),
        (GOOD, suite("+" * 40 + "-" * 10, sha256="cd"), "suite_differs"),
        (GOOD, suite("+" * 40 + "-" * 9), "unequal_items"),
        (GOOD, suite(answers("+" * 50, seed=1)), "unequal_items"),
        (scored(90.0, n=50), scored(90.0, n=60), "unequal_items"),
    ],
)
def test_what_is_not_to_be_believed_or_compared_is_invalid(
    rule: str, base: SuiteRecord, ours: SuiteRecord, code: str
) -> None:
    result = judged(accuracy_gate(rule=rule), base, ours)
    assert (result.verdict, codes(result)[0]) == (Verdict.INVALID, code)
    assert result.value is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scorer": "exact"}, "scorer exact against numeric"),
        ({"max_tokens": 64, "shots": 5}, "shots 5 against None, max_tokens 64 against 384"),
        ({"items": GOOD.items[:10]}, "items 10 against 50"),
        ({}, "prompts, golds, stops or sampling"),
    ],
)
def test_another_suite_says_what_differs(changes: dict[str, Any], words: str) -> None:
    result = judged(accuracy_gate(), GOOD, replace(GOOD, sha256="cd", **changes))
    assert result.reasons[0].text.endswith(f"{words}; --tokenwatt-allow-diff=suite compares them all the same")


@pytest.mark.parametrize("rule", ["point", "noninferiority"])
@pytest.mark.parametrize(
    ("base", "ours"), [("u" * 50, "u" * 50), ("t" * 50, "+" * 50), ("u" * 20 + "t" * 30, "t" * 50)]
)
def test_a_baseline_of_which_nothing_can_be_read_shows_no_drop(rule: str, base: str, ours: str) -> None:
    result = judged(accuracy_gate(rule=rule), suite(base), suite(ours))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["baseline_invalid"])
    assert "none of the baseline's answers to gsm8k can be read (" in result.reasons[0].text
    assert result.value == (100.0 if "+" in ours else 0.0)


def test_a_candidate_of_which_nothing_can_be_read_fails_and_wrong_answers_are_answers() -> None:
    assert codes(judged(accuracy_gate(), GOOD, suite("u" * 50))) == ["accuracy_drop"]
    assert judged(accuracy_gate(), suite("-" * 50), suite("-" * 50)).verdict is Verdict.PASS
    assert codes(judged(accuracy_gate(min_score=50.0), suite("u" * 50), suite("u" * 50))) == [
        "score_below_minimum",
        "baseline_invalid",
    ]


def test_a_suite_that_was_not_asked_is_invalid() -> None:
    assert codes(judge(accuracy_gate(), config("tuned"), with_suites("baseline", GOOD))) == ["not_measured"]
    result = judge(accuracy_gate(), with_suites("tuned", GOOD), config("baseline"))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["baseline_invalid"])


def test_what_the_time_budget_cut_off_is_inconclusive() -> None:
    cut_off = suite("", invalid=(Reason("time_budget", "the time budget of 45 minutes is used up"),))
    assert judged(accuracy_gate(), GOOD, cut_off).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("on_missing", "verdict", "outcome"),
    [("fail", Verdict.FAIL, "fail"), ("record", Verdict.INCONCLUSIVE, "skip")],
)
def test_without_a_baseline_there_is_only_the_score(on_missing: str, verdict: Verdict, outcome: str) -> None:
    candidate = with_suites("tuned", GOOD)
    result = judge(accuracy_gate(on_missing_baseline=on_missing), candidate, None)
    assert (result.verdict, codes(result), result.on_inconclusive) == (verdict, ["no_baseline"], outcome)
    assert result.text == "80.0 % (50 answers)"
    low = judge(accuracy_gate(on_missing_baseline=on_missing, min_score=90.0), candidate, None)
    assert (low.verdict, codes(low)) == (Verdict.FAIL, ["score_below_minimum"])


def test_the_same_engine_twice_compares_nothing() -> None:
    base = with_suites("baseline", GOOD, fingerprint="ab")
    assert codes(judge(accuracy_gate(), with_suites("tuned", GOOD, fingerprint="ab"), base)) == ["identical_configs"]
    again = with_suites("tuned", GOOD, fingerprint="ab", like="baseline")
    assert judge(accuracy_gate(), again, base).verdict is Verdict.PASS


def test_few_failed_items_are_left_out_of_both() -> None:
    base, ours = "+" * 150 + "-" * 50, "f" + "+" * 149 + "-" * 50
    result = judged(accuracy_gate(), suite(base), suite(ours))
    assert (result.verdict, result.value) == (Verdict.PASS, 0.0)
    assert result.text.startswith("0.0 pt (199 answers to 200 items)")


# --- what the sample can tell


def test_the_flips_of_the_control_are_the_noise_floor() -> None:
    base, ours = pairs(40, 4, 2, 4)
    control = answers("-" + base[1:])
    result = judged(accuracy_gate(), suite(base, control=control), suite(ours))
    assert "50 items can resolve 5.0 pt (2 % flipped in the baseline's control)" in result.reasons[0].text


def test_seeds_of_one_item_are_not_more_items() -> None:
    base, ours = pairs(40, 4, 2, 4)
    three = [suite(tuple(item for seed in range(3) for item in answers(each, seed=seed))) for each in (base, ours)]
    result = judged(accuracy_gate(), three[0], three[1])
    assert result.text.startswith("-4.0 pt (150 answers to 50 items)")
    assert "150 answers to 50 items, worth 49 independent ones, can resolve 12.3 pt" in result.reasons[0].text


def test_one_template_tells_nothing() -> None:
    base, ours = (suite(answers(each, template="sum")) for each in pairs(300, 0, 0, 100))
    assert judged(accuracy_gate(rule="noninferiority"), base, ours).verdict is Verdict.INCONCLUSIVE


# --- the mean


MEAN = accuracy_gate("mean", max_mean_drop_pts=1.0, suites={"math": 100, "code": 100}, tiers={"A": 1.0, "B": 2.0})


def judged_mean(math: tuple[int, int], code: tuple[int, int], gate: GateSpec = MEAN) -> GateResult:
    """Of two suites of 100 items with (lost, gained)."""
    made = [
        (name, pairs(60, lost, gained, 40 - lost - gained)) for name, (lost, gained) in (("math", math), ("code", code))
    ]
    base = with_suites("baseline", *(suite(first, name) for name, (first, _) in made))
    return judge(gate, with_suites("tuned", *(suite(second, name) for name, (_, second) in made)), base)


@pytest.mark.parametrize(
    ("math", "code", "value", "verdict", "text"),
    [
        ((2, 0), (0, 0), -1.0, Verdict.PASS, "-1.0 pt (2 suites), worst math -2.0 pt, tier A"),
        ((1, 0), (0, 5), 2.0, Verdict.PASS, "+2.0 pt (2 suites), worst math -1.0 pt, tier A"),
        ((2, 1), (2, 0), -1.5, Verdict.FAIL, "-1.5 pt (2 suites), worst code -2.0 pt, tier B"),
        ((9, 0), (0, 0), -4.5, Verdict.FAIL, "-4.5 pt (2 suites), worst math -9.0 pt"),
    ],
)
def test_every_suite_counts_the_same_in_the_mean(
    math: tuple[int, int], code: tuple[int, int], value: float, verdict: Verdict, text: str
) -> None:
    result = judged_mean(math, code)
    assert (result.verdict, result.limit) == (verdict, -1.0)
    assert result.value == pytest.approx(value)
    assert result.text.startswith(text)
    assert "can resolve" in result.text
    assert codes(result) == ([] if verdict is Verdict.PASS else ["accuracy_mean_drop"])


def test_the_mean_of_two_suites_resolves_less_than_one_of_them() -> None:
    assert judged_mean((2, 0), (2, 0)).text.endswith("can resolve 2.5 pt")
    assert compared(accuracy_gate(), 60, 2, 0, 38).text.endswith("can resolve 3.5 pt")


def test_a_suite_without_a_figure_leaves_no_mean() -> None:
    math, broken = suite("+" * 100, "math"), suite("+" * 50 + "f" * 50, "code")
    whole = (math, suite("+" * 100, "code"))
    for base, ours, code in (
        (whole, (math, broken), "items_failed"),
        ((math, broken), whole, "baseline_invalid"),
        (whole, (math,), "not_measured"),
        (whole, (math, suite("+" * 99, "code")), "unequal_items"),
    ):
        result = judge(MEAN, with_suites("tuned", *ours), with_suites("baseline", *base))
        assert (result.verdict, codes(result)) == (Verdict.INVALID, [code])
        assert result.reasons[0].text.startswith("code: ")


def test_a_baseline_of_which_nothing_can_be_read_leaves_no_mean() -> None:
    base, ours = ((suite("+" * 50, "math"), suite("u" * 50, "code")) for _ in range(2))
    result = judge(MEAN, with_suites("tuned", *ours), with_suites("baseline", *base))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["baseline_invalid"])


def test_no_baseline_leaves_no_mean() -> None:
    candidate = with_suites("tuned", suite("++", "math"), suite("++", "code"))
    result = judge(MEAN, candidate, None)
    assert (result.verdict, codes(result)) == (Verdict.FAIL, ["no_baseline"])


def test_no_suite_at_all_never_passes() -> None:
    gate = accuracy_gate("mean", max_mean_drop_pts=1.0, suites={})
    assert judge(gate, config("tuned"), config("baseline")).verdict is Verdict.INVALID


# --- all of a session, for the report


SPEC = """engine: {command: [serve, --port, '{port}'], model: tiny}
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, engine: {args: [--fast]}}
accuracy:
  - {name: math, suite: math.jsonl}
  - {name: code, suite: code.jsonl, limit: 50}
score: {}
"""


def session(tmp_path: Path, base: Sequence[SuiteRecord], ours: Sequence[SuiteRecord]) -> dict[str, AccuracyDelta]:
    path = tmp_path / "lab.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return accuracy_deltas(load_spec(path, {}), (with_suites("baseline", *base), with_suites("tuned", *ours)))


def test_a_table_from_the_literature(tmp_path: Path) -> None:
    """59 both right, 6 and 16 only one, 80 neither: the baseline's lead is -0.1240 to -0.0054."""
    base, ours = (suite(items, "math") for items in pairs(59, 6, 16, 80))
    found = session(tmp_path, [base], [ours])["tuned"].suites["math"]
    assert found.interval_pts == pytest.approx((0.54, 12.40), abs=0.005)
    assert (found.right_to_wrong, found.wrong_to_right, found.n) == (6, 16, 161)
    assert found.mid_p == pytest.approx(0.034690, abs=1e-6)


def test_a_session_has_means_controls_and_what_was_left_out(tmp_path: Path) -> None:
    base, ours = pairs(80, 5, 1, 14)
    control = answers("--" + base[2:])
    found = session(tmp_path, [suite(base, "math", control=control)], [suite(ours, "math")])
    assert (found["baseline"].suites, found["baseline"].controls) == ({}, {"math": FlipRate(2, 100)})
    tuned = found["tuned"]
    assert (tuned.mean_drop_pts, tuned.worst, tuned.tier, tuned.valid_domains) == (4.0, "math", "C", 1)
    assert (tuned.left_out, tuned.suites["code"].fault) == (
        ("code",),
        Reason("not_measured", "tuned has no record of code"),
    )
    math = tuned.suites["math"]
    assert (math.flip_rate, math.flip_source, math.fault) == (0.02, "control", None)


def test_scores_alone_have_neither_flips_nor_an_interval(tmp_path: Path) -> None:
    found = session(tmp_path, [scored(96.0, "code")], [scored(88.0, "code")])["tuned"].suites["code"]
    assert (found.delta_pts, found.n, found.flip_source) == (-8.0, 50, "assumed")
    assert found.resolvable_pts == pytest.approx(7.86, abs=0.005)
    assert (found.interval_pts, found.right_to_wrong, found.mid_p) == (None, None, None)


def test_domains_within_a_suite_have_their_own_differences(tmp_path: Path) -> None:
    domains = {f"q{number}": "sums" if number < 30 else "products" for number in range(40)}
    base, ours = (suite(items, "math", domains=domains) for items in pairs(20, 10, 0, 10))
    found = session(tmp_path, [base], [ours])["tuned"].suites["math"].domains
    assert {name: (round(each.delta_pts, 1), each.n) for name, each in found.items()} == {
        "sums": (-33.3, 30),
        "products": (0.0, 10),
    }
    assert found["sums"].p_value == pytest.approx(2 * 0.5**10, rel=1e-6)
    assert found["products"].p_value == 1.0


def test_a_control_of_other_items_is_no_control(tmp_path: Path) -> None:
    base = suite("+" * 10, "math", control=answers("+" * 11))
    assert session(tmp_path, [base], [])["baseline"].controls == {}


def test_14_000_items_are_compared_at_once(tmp_path: Path) -> None:
    base, ours = (suite(items, "math") for items in pairs(12_000, 200, 100, 1_700))
    began = time.process_time()
    assert session(tmp_path, [base], [ours])["tuned"].suites["math"].n == 14_000
    assert time.process_time() - began < 5.0
