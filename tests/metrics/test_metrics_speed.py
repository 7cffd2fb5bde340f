"""Speed against the baseline: the published figures, errors by hand, and how often the interval holds the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_builders import profile, repeat

from pytest_tokenwatt.metrics.speed import drift, error_source, geometric_mean, smallest_change, speed_ratio
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import ProfileRecord, Ratio

T1, T2 = 12.7062047362, 4.3026527297  # Student's t, 97.5 %, 1 and 2 degrees of freedom
SPEEDS = {
    "interactive": (302.5793654997613, 246.32308683114326, 1.2284),
    "long_context": (1020.5239679733002, 730.9919209844271, 1.3961),
    "serve": (2783.0896029523274, 1937.1458343328025, 1.4367),
}
BROKEN = (Reason("client_cpu", "too busy"),)


def known(value: float | None) -> float:
    assert value is not None
    return value


# --- the published record


def test_the_published_speeds() -> None:
    ratios = {name: speed_ratio(profile([ours]), profile([base]), None) for name, (ours, base, _) in SPEEDS.items()}
    # Rates of the builders are whole tokens over 100 s.
    for name, (_, _, speed) in SPEEDS.items():
        assert ratios[name].value == pytest.approx(speed, abs=0.0001)
    assert geometric_mean(ratios).value == pytest.approx(1.3506, abs=0.0001)


def test_the_mean_of_the_published_ratios() -> None:
    mean = geometric_mean({name: Ratio(speed, 0.0) for name, (_, _, speed) in SPEEDS.items()})
    assert mean.value == pytest.approx(1.3506, abs=0.00005)


# --- one profile


def test_the_error_of_two_repeats_by_hand() -> None:
    found = speed_ratio(profile([120.0, 121.0]), profile([100.0, 100.0]), None)
    half = T1 * math.log(121 / 120) / math.sqrt(2) / math.sqrt(2)
    assert (found.value, found.drift) == pytest.approx((1.205, 0.0))
    assert found.error == pytest.approx(1.205 * math.expm1(half))


def test_repeats_are_paired_in_their_order() -> None:
    moving = speed_ratio(profile([110.0, 121.0, 132.0]), profile([100.0, 110.0, 120.0]), None)
    assert (moving.value, moving.error) == pytest.approx((1.1, 0.0))
    crossed = speed_ratio(profile([110.0, 121.0, 132.0]), profile([120.0, 110.0, 100.0]), None)
    logs = [math.log(110 / 120), math.log(121 / 110), math.log(132 / 100)]
    half = T2 * float(np.std(logs, ddof=1)) / math.sqrt(3)
    assert (crossed.value, crossed.error) == pytest.approx((1.1, 1.1 * math.expm1(half)))


def test_drift_widens_the_error() -> None:
    candidate, base, again = profile([120.0, 121.0]), profile([100.0, 100.0]), profile([98.0, 98.0])
    alone, widened = speed_ratio(candidate, base, None), speed_ratio(candidate, base, again)
    assert drift(base, again) == pytest.approx(0.02)
    assert widened.drift == pytest.approx(1.205 * 0.02)
    assert (widened.value, widened.error) == pytest.approx((alone.value, known(alone.error) + 1.205 * 0.02))


def test_one_repeat_has_the_drift_alone() -> None:
    found = speed_ratio(profile([120.0]), profile([100.0]), profile([103.0]))
    assert (found.value, found.error, found.drift) == pytest.approx((1.2, 0.036, 0.036))


def test_one_repeat_and_no_second_start_leave_the_error_unknown() -> None:
    found = speed_ratio(profile([120.0]), profile([100.0]), None)
    assert (found.value, found.error) == (1.2, None)
    assert found.missing == "there is one repeat, and the baseline was not measured again"


def test_a_second_start_that_is_invalid_leaves_the_error_unknown() -> None:
    again = profile([repeat(invalid=BROKEN)], invalid=BROKEN)
    found = speed_ratio(profile([120.0, 121.0]), profile([100.0, 100.0]), again)
    assert found.value == pytest.approx(1.205)
    assert found.error is None
    assert found.missing == "the baseline's repeat gave no rate: client_cpu: too busy"


def test_runs_taken_in_turn_replace_baseline_and_second_start() -> None:
    candidate = profile([110.0, 121.0], paired=[100.0, 110.0])
    found = speed_ratio(candidate, profile([50.0, 50.0]), profile([10.0, 10.0]))
    assert (found.value, found.error, found.drift) == pytest.approx((1.1, 0.0, 0.0))


@pytest.mark.parametrize(
    ("candidate", "base", "why"),
    [
        (profile([repeat(invalid=BROKEN)], invalid=BROKEN), profile([100.0]), "candidate: client_cpu: too busy"),
        (profile([100.0]), profile([repeat(invalid=BROKEN)], invalid=BROKEN), "baseline: client_cpu: too busy"),
        (profile([100.0]), profile([]), "baseline: serve gave no output rate"),
        (profile([100.0]), profile([0.0]), "baseline: serve gave no output rate"),
    ],
)
def test_without_a_rate_there_is_no_ratio(candidate: ProfileRecord, base: ProfileRecord, why: str) -> None:
    assert speed_ratio(candidate, base, None) == Ratio(None, None, why)


@pytest.mark.parametrize(
    ("ours", "paired", "again", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0], True, "2 repeats in turn with the baseline's"),
        ([1.0, 2.0], [], True, "2 repeats, and the baseline's change from its first to its second start"),
        ([1.0, 2.0], [], False, "2 repeats, without a bound on drift between starts"),
        ([1.0], [], True, "the baseline's change from its first to its second start, from one repeat"),
        ([1.0], [], False, "not known from one repeat"),
    ],
)
def test_where_the_error_comes_from_is_told(ours: list[float], paired: list[float], again: bool, words: str) -> None:
    base = profile([1.0] * len(ours))
    assert error_source(profile(ours, paired), base, base if again else None) == words


rates = st.lists(st.tuples(st.floats(10.0, 1e4), st.floats(10.0, 1e4)), min_size=2, max_size=6)


@given(rates)
def test_swapped_sides_give_the_inverse(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = profile([a for a, _ in pairs]), profile([b for _, b in pairs])
    there, back = speed_ratio(ours, theirs, None), speed_ratio(theirs, ours, None)
    assert known(there.value) * known(back.value) == pytest.approx(1.0)
    assert smallest_change(there) == pytest.approx(known(smallest_change(back)), rel=1e-6, abs=1e-9)


@given(rates, st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_the_unit_does_not_matter(pairs: list[tuple[float, float]], ours: float, both: float) -> None:
    def of(first: float, second: float) -> Ratio:
        mine = profile([repeat(a * first) for a, _ in pairs])
        base = profile([repeat(b * second) for _, b in pairs])
        return speed_ratio(mine, base, None)

    plain, same, faster = of(1.0, 1.0), of(both, both), of(ours, 1.0)
    assert same.value == pytest.approx(known(plain.value), rel=0.01)  # whole tokens
    assert same.error == pytest.approx(known(plain.error), rel=0.01, abs=1e-9)
    assert faster.value == pytest.approx(ours * known(plain.value), rel=0.01)
    assert smallest_change(faster) == pytest.approx(known(smallest_change(plain)), rel=1e-6, abs=1e-9)


# --- the mean over profiles

# profile, ratio, the repeats' part of the relative error, the drift's
PARTS = [("serve", 1.0, 0.03, 0.01), ("interactive", 4.0, 0.04, 0.03)]


def test_what_repeats_show_is_independent_and_drift_is_common() -> None:
    ratios = {name: Ratio(value, value * (own + moved), drift=value * moved) for name, value, own, moved in PARTS}
    mean = geometric_mean(ratios)
    assert mean.value == pytest.approx(2.0)
    assert mean.drift == pytest.approx(2.0 * (0.01 + 0.03) / 2)
    assert mean.error == pytest.approx(2.0 * (math.hypot(0.03, 0.04) / 2 + 0.02))
    assert smallest_change(mean) == pytest.approx(0.045)


def test_one_profile_is_its_own_mean() -> None:
    one = Ratio(1.3, 0.04, drift=0.01)
    mean = geometric_mean({"serve": one})
    assert (mean.value, mean.error, mean.drift) == pytest.approx((one.value, one.error, one.drift))


@pytest.mark.parametrize(
    ("ratios", "value", "why"),
    [
        ({}, None, "no profile was compared"),
        ({"a": Ratio(2.0, 0.1), "b": Ratio(None, None, "broken")}, None, "b: broken"),
        ({"a": Ratio(2.0, 0.1), "b": Ratio(2.0, None, "one repeat")}, 2.0, "b: one repeat"),
    ],
)
def test_what_is_not_known_of_one_is_not_known_of_the_mean(
    ratios: dict[str, Ratio], value: float | None, why: str
) -> None:
    mean = geometric_mean(ratios)
    assert mean.value == (None if value is None else pytest.approx(value))
    assert (mean.error, mean.missing) == (None, why)
    assert smallest_change(mean) is None


@given(st.dictionaries(st.text(max_size=3), st.floats(0.1, 10.0), min_size=1, max_size=5))
def test_inverted_ratios_have_the_inverted_mean(values: dict[str, float]) -> None:
    there = geometric_mean({name: Ratio(value, 0.01 * value) for name, value in values.items()})
    back = geometric_mean({name: Ratio(1 / value, 0.01 / value) for name, value in values.items()})
    assert known(there.value) * known(back.value) == pytest.approx(1.0)
    assert smallest_change(there) == pytest.approx(known(smallest_change(back)))


# --- how often the interval holds the truth

SEEDS = 500
TRUE_SPEED = 1.25


def noisy(seed: int, repeats: int) -> Ratio:
    """Repeats with 3 % of noise that both sides share and 1 % of each side's own."""
    draw = np.random.default_rng(seed)
    shared = draw.normal(0.0, 0.03, repeats)
    ours, theirs = (1000.0 * np.exp(shared + draw.normal(0.0, 0.01, repeats)) for _ in range(2))
    return speed_ratio(profile(list(TRUE_SPEED * ours)), profile(list(theirs)), None)


def covered(ratios: Sequence[Ratio]) -> float:
    hits = [abs(known(ratio.value) - TRUE_SPEED) <= known(ratio.error) for ratio in ratios]
    return sum(hits) / len(hits)


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_the_interval_holds_the_true_speed(repeats: int) -> None:
    found = [noisy(seed, repeats) for seed in range(SEEDS)]
    assert 0.92 <= covered(found) <= 0.985


def test_the_interval_of_the_mean_holds_the_true_speed() -> None:
    means = [geometric_mean({str(k): noisy(3 * seed + k, 3) for k in range(3)}) for seed in range(SEEDS)]
    assert covered(means) >= 0.93


def test_the_noise_that_both_sides_share_is_no_error() -> None:
    widths = [known(smallest_change(noisy(seed, 5))) for seed in range(50)]
    unpaired = 2.776 * 0.03 * math.sqrt(2 / 5)
    assert float(np.median(widths)) < unpaired / 2
