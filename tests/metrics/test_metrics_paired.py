"""Two configurations on the same items: counts, intervals, clusters, seeds."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.clusters import clustering
from pytest_tokenwatt.metrics.domains import compare_by_domain, holm
from pytest_tokenwatt.metrics.paired import Comparison, PairCounts, UnequalItems, compare
from pytest_tokenwatt.metrics.tally import failed_reasons, outcome_counts, score_pct, spread_pts
from pytest_tokenwatt.quality.scorers import find_scorer
from pytest_tokenwatt.quality.scoring import outcome_of
from pytest_tokenwatt.records.accuracy import Answer, ItemResult, Outcome, SuiteItem

RIGHT, WRONG, FAILED = Outcome.CORRECT, Outcome.WRONG, Outcome.FAILED


def results(outcomes: Iterable[Outcome], seed: int = 0, cluster_of: int | None = None) -> list[ItemResult]:
    """Items i0, i1 …; ``cluster_of`` items share a template."""
    return [
        ItemResult(f"i{place}", seed, outcome, cluster=f"t{place // cluster_of}" if cluster_of else None)
        for place, outcome in enumerate(outcomes)
    ]


def sides(both: int, base_only: int, candidate_only: int, neither: int) -> tuple[list[Outcome], list[Outcome]]:
    base = [RIGHT] * (both + base_only) + [WRONG] * (candidate_only + neither)
    candidate = [RIGHT] * both + [WRONG] * base_only + [RIGHT] * candidate_only + [WRONG] * neither
    return base, candidate


def test_the_published_table() -> None:
    base, candidate = sides(59, 6, 16, 80)
    found = compare(results(base), results(candidate))
    assert found.counts == PairCounts(59, 6, 16, 80)
    assert (found.counts.n, found.counts.flips, found.failed_pairs) == (161, 22, 0)
    assert found.counts.flip_rate == pytest.approx(22 / 161)
    assert found.delta_pts == pytest.approx(6.211, abs=0.001)
    assert found.interval_pts() == pytest.approx((0.543, 12.402), abs=0.001)
    assert found.exact_p == pytest.approx(0.052479, abs=1e-6)
    assert found.mid_p == found.p_value == pytest.approx(0.034690, abs=1e-6)


def test_the_reference_report_fails_its_point() -> None:
    base, candidate = sides(44, 4, 0, 2)
    found = compare(results(base), results(candidate))
    assert found.delta_pts == -8.0
    low, high = found.interval_pts(0.90) or (0.0, 0.0)
    assert low < -8 < high < -1


def test_pairs_are_made_by_item_and_seed_not_by_place() -> None:
    base, candidate = results([RIGHT, WRONG, RIGHT]), results([WRONG, WRONG, RIGHT])
    assert compare(base, candidate[::-1]) == compare(base, candidate)


def test_failed_items_are_in_no_pair() -> None:
    base = results([RIGHT, RIGHT, FAILED, WRONG])
    candidate = results([RIGHT, FAILED, RIGHT, RIGHT])
    found = compare(base, candidate)
    assert (found.counts, found.failed_pairs) == (PairCounts(1, 0, 1, 0), 2)


def test_unequal_items_are_named() -> None:
    base, candidate = results([RIGHT] * 6), results([RIGHT] * 6)
    with pytest.raises(UnequalItems, match=r"4 only of the baseline \(i2 seed 0, i3 seed 0, i4 seed 0, …\)") as caught:
        compare(base, candidate[:2])
    assert caught.value.reason == "unequal_items"
    with pytest.raises(UnequalItems, match=r"1 only of the candidate \(i5 seed 0\)"):
        compare(base[:5], candidate)
    with pytest.raises(UnequalItems, match=r"only of the baseline .*only of the candidate \(i0 seed 1"):
        compare(base, results([RIGHT] * 6, seed=1))
    with pytest.raises(UnequalItems, match=r"the candidate has 1 items twice \(i0 seed 0\)"):
        compare(base, [*candidate, candidate[0]])


def test_without_pairs_there_are_no_figures() -> None:
    for found in (compare([], []), compare(results([FAILED]), results([RIGHT]))):
        assert (found.delta_pts, found.interval_pts(), found.se_pts, found.counts.flip_rate) == (None,) * 4


def test_seeds_of_one_item_are_no_new_items() -> None:
    base, candidate = sides(59, 6, 16, 80)
    once = compare(results(base), results(candidate))
    seeds = range(4)
    often = compare(
        [item for seed in seeds for item in results(base, seed)],
        [item for seed in seeds for item in results(candidate, seed)],
    )
    assert often.counts.n == 4 * once.counts.n
    assert often.effective_n == pytest.approx(once.counts.n, rel=0.01)
    assert often.se_pts == pytest.approx(once.se_pts, rel=0.01)
    assert often.interval_pts() == pytest.approx(once.interval_pts(), abs=0.15)
    assert (often.exact_p, often.mid_p) == (None, None)
    assert often.p_value == pytest.approx(0.034, abs=0.005)


def test_seeds_without_flips_keep_the_width_of_the_items() -> None:
    base = [item for seed in range(3) for item in results([RIGHT] * 20, seed)]
    found = compare(base, base)
    low, high = found.interval_pts() or (0.0, 0.0)
    assert found.effective_n == 20
    assert (low, high) == pytest.approx((-17.97, 17.97), abs=0.01)  # t² / (20 + t²), 19 degrees of freedom
    assert found.p_value == 1.0


def test_items_of_one_template_count_for_less() -> None:
    rng = np.random.default_rng(3)
    templates = rng.random(40) < 0.3
    candidate = [WRONG if templates[place // 10] else RIGHT for place in range(400)]
    alone = compare(results([RIGHT] * 400), results(candidate))
    shared = compare(results([RIGHT] * 400, cluster_of=10), results(candidate, cluster_of=10))
    assert shared.delta_pts == alone.delta_pts
    assert shared.effective_n == pytest.approx(40, rel=0.05)
    narrow, wide = alone.interval_pts() or (0.0, 0.0), shared.interval_pts() or (0.0, 0.0)
    assert wide[1] - wide[0] > 2.5 * (narrow[1] - narrow[0])


def test_one_cluster_tells_nothing() -> None:
    found = compare(results([RIGHT] * 9, cluster_of=9), results([WRONG] * 9, cluster_of=9))
    assert found.delta_pts == -100.0
    assert (found.interval_pts(), found.se_pts, found.p_value) == ((-100.0, 100.0), None, 1.0)


def test_the_cluster_robust_error_by_hand() -> None:
    # mean 0.25; sums of residuals by cluster 2 and -2; n = 8, G = 2
    found = clustering(np.array([1, 0, 1, 1, 0, 0, 0, -1], dtype=np.int8), list("aaaabbbb"))
    assert found.clusters == 2
    assert found.se == pytest.approx((2 * (2.0**2 + 2.0**2) / 64) ** 0.5)
    with pytest.raises(ValueError):
        clustering(np.zeros(3, np.int8), list("aaa"))


flips = st.lists(
    st.sampled_from([(RIGHT, RIGHT), (RIGHT, WRONG), (WRONG, RIGHT), (WRONG, WRONG)]), min_size=4, max_size=60
)


@given(flips, st.integers(1, 5))
def test_clusters_never_make_a_sample_larger(pairs: list[tuple[Outcome, Outcome]], size: int) -> None:
    base, candidate = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    alone = compare(results(base), results(candidate))
    shared = compare(results(base, cluster_of=size), results(candidate, cluster_of=size))
    assert shared.effective_n <= alone.effective_n == len(pairs)
    inner, outer = alone.interval_pts() or (0.0, 0.0), shared.interval_pts() or (0.0, 0.0)
    assert outer[1] - outer[0] >= inner[1] - inner[0] - 1e-9
    assert outer[0] - 1e-9 <= (shared.delta_pts or 0.0) <= outer[1] + 1e-9


@given(flips)
def test_swapping_the_sides_mirrors_everything(pairs: list[tuple[Outcome, Outcome]]) -> None:
    base, candidate = results([pair[0] for pair in pairs]), results([pair[1] for pair in pairs])
    one, other = compare(base, candidate), compare(candidate, base)
    assert one.delta_pts == -(other.delta_pts or 0.0)
    low, high = one.interval_pts() or (0.0, 0.0)
    assert other.interval_pts() == pytest.approx((-high, -low), abs=1e-6)
    assert one.mid_p == other.mid_p


def test_the_interval_covers_as_it_says() -> None:
    rng = np.random.default_rng(11)
    tables = rng.multinomial(200, [0.7, 0.06, 0.04, 0.2], size=600)
    covered = [inside(Comparison(PairCounts(*map(int, table))), -2.0) for table in tables]
    assert np.mean(covered) == pytest.approx(0.90, abs=0.04)


def inside(found: Comparison, delta_pts: float) -> bool:
    low, high = found.interval_pts(0.90) or (0.0, 0.0)
    return low <= delta_pts <= high


def test_score_and_outcomes() -> None:
    items = results([RIGHT, WRONG, FAILED, RIGHT, Outcome.TRUNCATED, Outcome.UNPARSEABLE])
    assert outcome_counts(items) == {"correct": 2, "wrong": 1, "unparseable": 1, "truncated": 1, "failed": 1}
    assert score_pct(items) == pytest.approx(40.0)
    assert score_pct(results([FAILED])) is None


def test_spread_over_seeds() -> None:
    seeds = [results([RIGHT, RIGHT]), results([RIGHT, WRONG], 1), results([WRONG, RIGHT, FAILED], 2)]
    assert spread_pts(item for seed in seeds for item in seed) == 50.0
    assert spread_pts(seeds[0]) is None
    assert spread_pts([*seeds[0], *results([FAILED], 1)]) is None


def test_more_than_one_per_cent_failed_is_invalid() -> None:
    assert failed_reasons(results([RIGHT] * 99 + [FAILED])) == ()
    (reason,) = failed_reasons(results([RIGHT] * 98 + [FAILED] * 2))
    assert (reason.code, "2 of 100" in reason.text) == ("items_failed", True)
    assert [reason.code for reason in failed_reasons([])] == ["no_items"]


def test_14000_items_are_scored_and_compared_in_seconds() -> None:
    start = time.process_time()
    scorer = find_scorer("numeric")
    text = "There are 16 - 3 = <<16-3=13>>13 eggs, sold for 13 * $2 = $26 a day. " * 6
    base, candidate = (
        [
            ItemResult(
                item.id, 0, outcome_of(scorer, item, Answer(f"{text}\n{frame.format(item.answer)}", "stop")).outcome
            )
            for item in (SuiteItem(f"i{place}", str(place)) for place in range(14_000))
        ]
        for frame in ("So it is {}.", "#### {}")
    )
    found = compare(base, candidate)
    by_domain = compare_by_domain(base, candidate, {item.id: f"d{len(item.id)}" for item in base})
    holm({name: comparison.p_value for name, comparison in by_domain.items()})
    assert found.counts.both_right == 14_000
    assert found.interval_pts() == pytest.approx((-0.0274, 0.0274), abs=1e-3)
    assert time.process_time() - start < 30.0
