from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_tokenwatt.metrics.perplexity import perplexity, ppl_of
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.drift import PerplexityRecord


def record(*nll: float) -> PerplexityRecord:
    return PerplexityRecord("wiki", "ab", len(nll), 2048 * len(nll), nll, ppl_of(nll))


def test_perplexity_is_of_the_mean_over_windows() -> None:
    assert ppl_of((math.log(2), math.log(4), math.log(8))) == pytest.approx(4.0)
    assert ppl_of(()) is None
    assert ppl_of((float("inf"), 1.0)) is None
    assert ppl_of((1e9,)) is None


def test_the_difference_is_paired_by_window() -> None:
    found = perplexity(record(1, 2, 3, 4), record(1.1, 1.9, 3.3, 4.1))
    assert found.dnll == pytest.approx(0.1)
    assert found.dnll_se == pytest.approx(0.0816497, abs=1e-7)
    assert found.ppl == pytest.approx(math.exp(2.6))
    assert found.ppl_bf16 == pytest.approx(math.exp(2.5))
    assert (found.name, found.windows, found.tokens, found.invalid) == ("wiki", 4, 8192, ())


def test_beginnings_are_compared_with_the_baselines_of_the_same() -> None:
    other = replace(record(2.0, 3.0), base_nll=(1.5, 2.75))
    found = perplexity(record(1.0, 2.0), other)
    assert found.dnll == pytest.approx((0.5 + 0.25) / 2)
    assert found.ppl_bf16 == pytest.approx(math.exp((1.5 + 2.75) / 2))
    broken = replace(record(), invalid=(Reason("wrong_echo", "x"),))
    assert perplexity(broken, other).invalid[:1] == broken.invalid


def test_one_window_has_no_error() -> None:
    found = perplexity(record(1.0), record(1.5))
    assert (found.dnll, found.dnll_se) == (0.5, None)


@pytest.mark.parametrize(
    ("base", "other", "code"),
    [
        (record(1, 2), record(1, 2, 3), "unequal_windows"),
        (record(1, 2), replace(record(1, 2), sha256="cd"), "unequal_windows"),
        (record(), record(), "nothing_scored"),
        (record(1, 2), record(1, float("nan")), "nll_not_finite"),
        (record(1, float("inf")), record(1, 2), "nll_not_finite"),
        (replace(record(1, 2), invalid=(Reason("wrong_echo", "x"),)), record(1, 2), "wrong_echo"),
    ],
)
def test_what_cannot_be_compared_has_a_reason_and_no_figure(
    base: PerplexityRecord, other: PerplexityRecord, code: str
) -> None:
    found = perplexity(base, other)
    assert [reason.code for reason in found.invalid] == [code]
    assert (found.dnll, found.dnll_se, found.ppl, found.ppl_bf16) == (None, None, None, None)
