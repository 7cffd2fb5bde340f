"""What a sample can tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.resolution import items_to_resolve, resolution, resolvable_drop_pts
from pytest_tokenwatt.metrics.tango import tango_interval


def test_one_point_needs_61826_items_for_each_flip() -> None:
    assert items_to_resolve(1.0, 1.0) == 61_826
    assert items_to_resolve(1.0, 0.05) == 3_092
    assert items_to_resolve(2.0, 0.05) == 773
    assert items_to_resolve(1.0, 0.0) == 1


def test_fifty_items_at_five_per_cent() -> None:
    assert resolvable_drop_pts(50, 0.05) == pytest.approx(7.86, abs=0.005)


def test_the_control_comes_before_what_was_observed() -> None:
    assert (resolution(100, control=0.02, observed=0.1).flip_rate, resolution(100, control=0.02).source) == (
        0.02,
        "control",
    )
    assert (resolution(100, observed=0.1).flip_rate, resolution(100, observed=0.1).source) == (0.1, "observed")
    assert (resolution(100).flip_rate, resolution(100).source) == (0.05, "assumed")
    assert resolution(100).items_for(1.0) == 3_092


def test_a_control_without_flips_does_not_resolve_everything() -> None:
    found = resolution(20, control=0.0)
    assert found.flip_rate == 0.0
    assert found.drop_pts == pytest.approx(12.4, abs=0.05)


@given(st.integers(1, 10**6), st.floats(0.001, 1.0))
def test_a_drop_that_is_resolved_needs_that_many_items(n: int, rate: float) -> None:
    if rate * n >= 1:
        assert abs(items_to_resolve(resolvable_drop_pts(n, rate), rate) - n) <= 1


def test_the_power_is_what_it_says() -> None:
    n, rate = 3_092, 0.05
    drop = resolvable_drop_pts(n, rate) / 100
    rng = np.random.default_rng(7)
    lost, gained = rng.multinomial(n, [(rate + drop) / 2, (rate - drop) / 2, 1 - rate], size=400)[:, :2].T
    seen = [tango_interval(int(b), int(c), n, 0.90)[0] > 0 for b, c in zip(lost, gained, strict=True)]
    assert np.mean(seen) == pytest.approx(0.80, abs=0.06)


@pytest.mark.parametrize(("n", "rate"), [(0, 0.1), (10, 1.1), (10, -0.1)])
def test_what_is_no_sample_is_refused(n: int, rate: float) -> None:
    with pytest.raises(ValueError):
        resolvable_drop_pts(n, rate)
    with pytest.raises(ValueError):
        items_to_resolve(0.0, 0.5)


@pytest.mark.parametrize("margin", [-1.0, 1e-170, 1e-200, 5e-324, float("nan")])
def test_a_margin_beyond_all_numbers_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="no number of items resolves"):
        items_to_resolve(margin, 0.05)
