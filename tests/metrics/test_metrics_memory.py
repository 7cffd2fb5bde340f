"""Memory at the peak of a profile: the reference record recomputed, what is not known, and the gain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_builders import repeat

from pytest_tokenwatt.metrics.memory import kv_bytes_per_token, memory_gain, memory_saved, peak_memory
from pytest_tokenwatt.metrics.speed import geometric_mean
from pytest_tokenwatt.records.profiles import EnginePeaks, PeakMemory, Ratio, Startup

SIZES = {"interactive": (1, 1024 + 256), "long_context": (64, 16_000 + 256), "serve": (32, 8192 + 512)}
"""Concurrency and tokens a request, with which ``kv_bytes_per_token`` of the published record comes out."""
ROUNDING_GIB = 0.0005

# side, profile: weights, kv, other, peak, bytes per token, usage
PUBLISHED = [
    ("bf16", "interactive", 15.27, 0.176, 2.145, 17.591, 147464, 0.0012),
    ("bf16", "long_context", 15.27, 142.32, 2.145, 159.736, 146884, 0.9901),
    ("bf16", "serve", 15.27, 38.186, 2.145, 55.602, 147210, 0.2657),
    ("fp8", "interactive", 8.84, 0.088, 2.175, 11.103, 73728, 0.0006),
    ("fp8", "long_context", 8.84, 71.325, 2.175, 82.34, 73612, 0.4751),
    ("fp8", "serve", 8.84, 19.082, 2.175, 30.098, 73563, 0.1271),
]
MEMORIES = {"interactive": 1.5843, "long_context": 1.94, "serve": 1.8474}
CANDIDATE_POOL_GIB = 150.14


def startup(pool_gib: float | None = 100.0, other_gib: float | None = 2.0) -> Startup:
    return Startup(
        kv_cache_gib=pool_gib, activation_gib=other_gib, non_torch_gib=0.0, cuda_graph_gib=0.0, missing={"x": "y"}
    )


def measured(
    usages: Sequence[float | None],
    start: Startup | None = None,
    weights: tuple[float, str] | None = (10.0, "log"),
    device_gib: float | None = 120.0,
) -> PeakMemory:
    runs = [repeat(peaks=EnginePeaks(kv_usage=usage, device_gib=device_gib)) for usage in usages]
    return peak_memory(runs, start or startup(), weights, concurrency=4, tokens_per_request=1000)


# --- the published record


@pytest.mark.parametrize(("side", "name", "weights", "kv", "other", "peak", "per_token", "usage"), PUBLISHED)
def test_the_published_peaks(
    side: str, name: str, weights: float, kv: float, other: float, peak: float, per_token: int, usage: float
) -> None:
    concurrency, tokens = SIZES[name]
    # The pool at which this usage is this KV cache: that of the record is rounded to 10 MiB.
    runs = [repeat(peaks=EnginePeaks(kv_usage=usage))]
    found = peak_memory(
        runs,
        startup(kv / usage, other),
        (weights, "log"),
        concurrency=concurrency,
        tokens_per_request=tokens,
    )
    assert found.peak_gib == pytest.approx(peak, abs=0.0015)
    assert found.kv_bytes_per_token is not None
    assert abs(found.kv_bytes_per_token - per_token) <= ROUNDING_GIB * 2**30 / (concurrency * tokens) + 0.5
    assert (found.weights_source, found.kv_usage) == ("log", usage)


@pytest.mark.parametrize(("name", "usage", "kv"), [(row[1], row[7], row[3]) for row in PUBLISHED if row[0] == "fp8"])
def test_used_cache_is_usage_of_the_pool(name: str, usage: float, kv: float) -> None:
    found = measured([usage], startup(CANDIDATE_POOL_GIB))
    # The usage is rounded to 0.0001, the pool to 0.01 GiB.
    assert found.kv_gib == pytest.approx(kv, abs=0.00005 * CANDIDATE_POOL_GIB + 0.005 * usage + ROUNDING_GIB)


def test_the_sum_of_the_published_parts() -> None:
    found = measured([38.186 / 100.0], startup(100.0, 2.145), (15.27, "log"))
    assert found.peak_gib == pytest.approx(55.601)


def test_bytes_per_token_of_the_pool() -> None:
    assert kv_bytes_per_token(CANDIDATE_POOL_GIB, 2_186_576) == pytest.approx(73727.87291882833)


def test_the_published_gains() -> None:
    peaks = {(side, name): PeakMemory(peak_gib=peak) for side, name, _, _, _, peak, _, _ in PUBLISHED}
    gains = {name: memory_gain(peaks["fp8", name], peaks["bf16", name]) for name in SIZES}
    for name, gain in gains.items():
        assert gain.value == pytest.approx(MEMORIES[name], abs=0.00006)
    assert geometric_mean(gains).value == pytest.approx(1.784, abs=0.0005)
    assert memory_saved(gains) == pytest.approx(0.4587, abs=0.00006)


# --- peaks of repeats


def test_peaks_are_the_largest_of_the_repeats() -> None:
    runs = [
        repeat(peaks=EnginePeaks(kv_usage=0.2, device_gib=90.0)),
        repeat(peaks=EnginePeaks(kv_usage=0.3, device_gib=80.0)),
        repeat(peaks=EnginePeaks(kv_usage=0.25, device_gib=85.0)),
    ]
    found = peak_memory(runs, startup(), (8.0, "checkpoint"), concurrency=4, tokens_per_request=1000)
    assert (found.kv_usage, found.kv_gib, found.peak_gib, found.device_peak_gib) == (0.3, 30.0, 40.0, 90.0)
    assert found.kv_bytes_per_token == 30.0 * 2**30 / 4000
    assert found.error == pytest.approx((40.0 - 30.0) / 2 / 40.0)
    assert (found.weights_source, dict(found.missing)) == ("checkpoint", {})


def polled(readings: int, seconds: float | None, gap_s: float | None = 0.3) -> EnginePeaks:
    return EnginePeaks(kv_usage=0.3, readings=readings, seconds=seconds, longest_gap_s=gap_s)


@pytest.mark.parametrize(
    ("peaks", "why"),
    [
        (polled(12, 10.0), "metrics came 12 times in 10.0 s (1.2 a second, 2 are needed): a short peak may be missed"),
        (polled(2, 0.5), "metrics came 2 times in 0.5 s (4 a second): too few to see a peak"),
        (
            polled(39, 10.0, 1.3),
            "metrics came 39 times in 10.0 s (3.9 a second), once none for 1.3 s: a short peak may be missed",
        ),
    ],
)
def test_metrics_that_came_too_seldom_are_no_peak(peaks: EnginePeaks, why: str) -> None:
    runs = [repeat(peaks=polled(40, 10.0)), repeat(peaks=peaks)]
    found = peak_memory(runs, startup(), (8.0, "log"), concurrency=4, tokens_per_request=1000)
    assert (found.kv_usage, found.kv_gib, found.peak_gib, found.error) == (None, None, None, None)
    assert found.missing["peak_gib"] == f"kv_gib: serve-r0: {why}"
    assert (found.weights_gib, found.other_gib) == (8.0, 2.0)


@pytest.mark.parametrize(
    "peaks",
    [
        # One reading less than twice a second, as the ends of a run leave it; a late one; a gap that is short
        # in a long run; a record that does not tell how long it was watched.
        polled(19, 10.0),
        polled(39, 10.0, 0.99),
        polled(3, 0.6),
        polled(150, 60.0, 2.5),
        polled(2, None, None),
    ],
)
def test_a_busy_machine_leaves_the_peak_measured(peaks: EnginePeaks) -> None:
    found = peak_memory([repeat(peaks=peaks)], startup(), (8.0, "log"), concurrency=4, tokens_per_request=1000)
    assert found.kv_usage == 0.3


def test_one_repeat_has_no_error() -> None:
    found = measured([0.3])
    assert (found.error, dict(found.missing)) == (None, {"error": "one repeat"})


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=5), st.floats(0.01, 100.0))
def test_the_unit_does_not_matter(usages: list[float], factor: float) -> None:
    plain = measured(usages, startup(100.0, 2.0), (10.0, "log"))
    scaled = measured(usages, startup(100.0 * factor, 2.0 * factor), (10.0 * factor, "log"))
    assert scaled.peak_gib == pytest.approx(factor * (plain.peak_gib or 0.0))
    assert scaled.error == pytest.approx(plain.error or 0.0)
    gain = memory_gain(plain, scaled)
    assert gain.value == pytest.approx(factor)
    assert gain.error == pytest.approx(factor * math.sqrt(2) * (plain.error or 0.0))


# --- what is not known


def test_without_weights_there_is_no_peak() -> None:
    found = measured([0.3, 0.3], weights=None)
    assert found.kv_gib == 30.0
    assert (found.weights_gib, found.weights_source, found.peak_gib, found.error) == (None, None, None, None)
    assert "no checkpoint tells what was loaded" in found.missing["peak_gib"]
    assert set(found.missing) == {"weights_gib", "peak_gib", "error"}


def test_without_the_rest_there_is_no_peak_and_each_part_is_named() -> None:
    start = Startup(kv_cache_gib=100.0, cuda_graph_gib=0.4, missing={"activation_gib": "no such line on a CPU"})
    found = measured([0.3], start)
    assert (found.other_gib, found.peak_gib, found.kv_gib) == (None, None, 30.0)
    assert found.missing["other_gib"] == "activation_gib, non_torch_gib are not known (no such line on a CPU)"


@pytest.mark.parametrize(
    ("usages", "pool_gib", "why"),
    [
        ([0.3, None], 100.0, "not read"),
        ([0.3, 0.4], None, "size of the pool: the start-up log does not tell it"),
        ([], 100.0, "no repeat was run"),
    ],
)
def test_an_unread_peak_may_have_been_the_largest(usages: list[float | None], pool_gib: float | None, why: str) -> None:
    found = measured(usages, startup(pool_gib))
    assert (found.kv_gib, found.kv_bytes_per_token, found.peak_gib, found.error) == (None, None, None, None)
    assert found.missing["kv_gib"] == why
    assert set(found.missing) >= {"kv_gib", "kv_bytes_per_token", "peak_gib", "error"}


def test_the_reason_of_the_reading_is_kept() -> None:
    peaks = EnginePeaks(missing={"kv_usage": "no such gauge", "device_gib": "the engine is simulated"})
    found = peak_memory([repeat(peaks=peaks)], startup(), None, concurrency=1, tokens_per_request=1)
    assert found.missing["kv_usage"] == found.missing["kv_gib"] == "no such gauge"
    assert found.missing["device_peak_gib"] == "the engine is simulated"


# --- gain


def test_errors_of_both_sides_add_in_quadrature() -> None:
    gain = memory_gain(PeakMemory(peak_gib=20.0, error=0.03), PeakMemory(peak_gib=50.0, error=0.04))
    assert (gain.value, gain.error) == pytest.approx((2.5, 2.5 * 0.05))
    assert gain.missing is None


def test_an_unknown_error_is_not_zero() -> None:
    gain = memory_gain(PeakMemory(peak_gib=20.0, error=0.03), PeakMemory(peak_gib=50.0))
    assert (gain.value, gain.error) == (2.5, None)
    assert gain.missing == "the spread of the peak over repeats is not known (baseline)"


def test_a_gain_without_a_peak_says_whose_is_missing() -> None:
    gain = memory_gain(PeakMemory(missing={"peak_gib": "no log"}), PeakMemory())
    assert gain == Ratio(None, None, "candidate: no log; baseline: the peak is not known")


@pytest.mark.parametrize("gains", [{}, {"serve": Ratio(None, None)}, {"interactive": Ratio(2.0, None)}])
def test_only_serve_saves(gains: dict[str, Ratio]) -> None:
    assert memory_saved(gains) is None
