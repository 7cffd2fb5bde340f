"""Several domains together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.domains import compare_by_domain, holm, summarise, tier_of
from pytest_tokenwatt.metrics.paired import UnequalItems
from pytest_tokenwatt.records.accuracy import ItemResult, Outcome

TIERS = {"A": 1.0, "B": 2.0, "C": 5.0}


def test_every_valid_domain_counts_the_same() -> None:
    found = summarise({"math": -2.0, "code": 0.5, "law": None, "chat": 0.0}, TIERS)
    assert found.mean_drop_pts == pytest.approx(0.5)
    assert (found.worst, found.worst_drop_pts, found.tier) == ("math", 2.0, "A")
    assert (found.valid_domains, found.left_out) == (3, ("law",))


def test_without_a_valid_domain_there_is_no_figure() -> None:
    found = summarise({"math": None}, TIERS)
    assert (found.mean_drop_pts, found.worst, found.worst_drop_pts, found.tier, found.valid_domains) == (
        None,
        None,
        None,
        None,
        0,
    )


@pytest.mark.parametrize(
    ("drop", "tier"), [(-3.0, "A"), (0.587, "A"), (1.0, "A"), (1.001, "B"), (2.0, "B"), (5.0, "C"), (5.1, None)]
)
def test_tiers(drop: float, tier: str | None) -> None:
    assert tier_of(drop, TIERS) == tier
    assert tier_of(drop, dict(reversed(TIERS.items()))) == tier


def test_a_sum_of_tenths_stays_in_its_tier() -> None:
    assert summarise({str(drop): -drop for drop in (0.7, 1.2, 1.1)}, TIERS).tier == "A"
    assert tier_of(0.1, {}) is None


def test_holm_as_in_its_textbook_example() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": None})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(found) == ["a", "b", "c", "d"]


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_lies_between_none_and_bonferroni(values: dict[str, float]) -> None:
    found = holm(dict(values))
    for name, value in values.items():
        assert value <= found[name] <= min(1.0, value * len(values))
        assert all(found[other] <= found[name] for other in values if values[other] <= value)


def result(name: str, right: bool) -> ItemResult:
    return ItemResult(name, 0, Outcome.CORRECT if right else Outcome.WRONG)


def test_items_are_compared_within_their_domain() -> None:
    domains = {"m1": "math", "m2": "math", "c1": "code"}
    base = [result("m1", True), result("m2", True), result("c1", False), result("none", True)]
    other = [result("c1", True), result("m2", True), result("m1", False), result("none", False)]
    found = compare_by_domain(base, other, domains)
    assert {name: comparison.delta_pts for name, comparison in found.items()} == {"math": -50.0, "code": 100.0}
    with pytest.raises(UnequalItems, match="m2 seed 0"):
        compare_by_domain(base, [result("m1", True), result("c1", True)], domains)
