from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from metrics_builders import ToyLoader, plan, poisson, toy_plan

from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.metrics.client import PrefixTokens, WindowRules
from pytest_tokenwatt.metrics.measure import fit_plan, measure_goodput
from pytest_tokenwatt.metrics.search import ProbePlan
from pytest_tokenwatt.metrics.window import window_indices
from pytest_tokenwatt.records import (
    GoodputRecord,
    InFlight,
    LoadPlan,
    LoadRun,
    LoadWatch,
    Reason,
    SloBound,
    WindowResult,
)

RULES = WindowRules((SloBound("ttft", 90, 2000), SloBound("tpot", 90, 50)))


@dataclass(frozen=True)
class Sweep:
    start_rps: float = 1.0
    growth: float = 2.0
    bisect_steps: int = 2
    resolution: float | None = None
    max_rps: float = 100.0
    backoff: float = 0.9
    max_backoffs: int = 2
    rates: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Measurement:
    warmup_s: float = 0.0
    window_s: float = 30.0
    search_window_s: float = 20.0
    repeats: int = 2


def measure(loader: ToyLoader, sweep: Sweep | None = None, **options: object) -> GoodputRecord:
    return measure_goodput(
        loader,
        toy_plan,
        scenario="default",
        sweep=sweep or Sweep(),
        measurement=Measurement(),
        rules=RULES,
        **options,  # type: ignore[arg-type]
    )


def test_it_finds_the_capacity_of_an_engine() -> None:
    record = measure(ToyLoader(capacity_rps=5.3))
    assert record.rate_rps == 5.0
    assert (record.highest_passing_rps, record.lowest_failing_rps, record.bracket) == (5.0, 6.0, "closed")
    assert record.error_pct == pytest.approx(20.0)
    assert record.slo_pass_count == record.repeats == 2
    assert (record.invalid, record.misses, record.mode) == ((), (), "search")


def test_goodput_sums_over_the_confirming_windows() -> None:
    record = measure(ToyLoader(capacity_rps=5.3))
    confirming = [window for window in record.windows if window.kind == "confirm"]
    assert len(confirming) == 2
    tokens = sum(window.good_tokens for window in confirming)
    assert record.goodput_tok_s == pytest.approx(tokens / 60.0)
    assert record.goodput_tok_s == record.output_tok_s
    assert record.goodput_tok_s == pytest.approx(5.0 * 40, rel=0.3)


def test_every_judged_window_is_kept_in_order() -> None:
    seen: list[WindowResult] = []
    record = measure(ToyLoader(capacity_rps=5.3), observe=seen.append)
    assert list(record.windows) == seen
    assert [window.rate_rps for window in seen] == [1, 2, 4, 8, 6, 5, 5, 5]
    assert len({window.label for window in seen}) == len(seen)


def test_percentiles_are_pooled_and_their_intervals_know_of_replays() -> None:
    record = measure(ToyLoader(capacity_rps=5.3))
    pooled = record.figures["tpot_p90_ms"]
    windows = [window for window in record.windows if window.kind == "confirm"]
    assert pooled.n == sum(window.planned for window in windows)
    assert pooled.value == pytest.approx(0.05 * 5 / 5.3 * 1e3)
    assert record.figures["rate_rps"].value == 5.0
    assert record.figures["failed_requests"].value == 0
    assert record.figures["ttft_p50_ms"].unit == "ms"


def test_without_a_passing_rate_there_is_no_figure_but_a_reason() -> None:
    record = measure(ToyLoader(capacity_rps=0.001))
    assert (record.rate_rps, record.goodput_tok_s, record.error_pct) == (None, None, None)
    assert record.misses
    assert record.invalid == ()
    assert record.figures["goodput_tok_s"].value is None
    assert record.figures["goodput_tok_s"].reason
    assert record.percentiles


def test_a_client_that_lags_makes_the_measurement_invalid() -> None:
    record = measure(ToyLoader(capacity_rps=1e9, lag_above_rps=10.0))
    assert (record.rate_rps, record.goodput_tok_s) == (None, None)
    assert [reason.code for reason in record.invalid] == ["schedule_lag"]
    assert record.highest_passing_rps == 8.0


def test_an_engine_that_dies_makes_the_measurement_invalid_once() -> None:
    loader = ToyLoader(capacity_rps=5.0, dies=True)
    record = measure(loader)
    assert [reason.code for reason in record.invalid] == ["engine_died"]
    assert len(loader.plans) == 1


def test_a_generator_that_fails_keeps_what_is_known() -> None:
    @dataclass
    class Breaking(ToyLoader):
        def run(self, load: LoadPlan, watch: LoadWatch) -> LoadRun:
            if load.rate_rps > 3:
                raise LoadError("worker_died", "load worker 1 exited with code -9")
            return ToyLoader.run(self, load, watch)

    record = measure(Breaking(capacity_rps=50.0))
    assert [reason.code for reason in record.invalid] == ["worker_died"]
    assert "exited with code -9" in record.invalid[0].text
    assert len(record.windows) == 2
    assert record.goodput_tok_s is None


def test_fixed_rates_have_no_bracket_error() -> None:
    record = measure(ToyLoader(capacity_rps=5.3), Sweep(rates=(2.0, 5.0, 8.0)))
    assert (record.rate_rps, record.mode, record.bracket, record.error_pct) == (5.0, "fixed", "fixed", None)
    assert record.variance_band_pct is not None


def test_what_is_known_besides_is_kept_in_the_windows() -> None:
    def keep(probe: ProbePlan, run: LoadRun, windows: Sequence[WindowResult]) -> list[WindowResult]:
        return [replace(window, requests_file=f"{probe.kind}-{window.label}.npz") for window in windows]

    record = measure(ToyLoader(capacity_rps=5.3), Sweep(rates=(2.0,)), on_run=keep)
    assert [window.requests_file for window in record.windows] == ["fixed-fixed-0-1.npz", "fixed-fixed-0-2.npz"]


def test_the_servers_prefix_counters_are_asked_behind_each_run() -> None:
    record = measure(ToyLoader(capacity_rps=5.3), prefix_tokens=lambda: PrefixTokens(50.0, 1000.0))
    assert [reason.code for reason in record.invalid] == ["prefix_cache_hits"]


def test_a_warm_up_that_was_not_level_is_noted() -> None:
    @dataclass
    class Rising(ToyLoader):
        def run(self, load: LoadPlan, watch: LoadWatch) -> LoadRun:
            return replace(ToyLoader.run(self, load, watch), warm_level=False)

    record = measure(Rising(capacity_rps=5.3), Sweep(rates=(2.0,)))
    assert record.notes == ("fixed-0: requests in flight still rose at the end of the warm-up",)


def test_a_level_load_is_not_noted_although_its_warm_up_was_too_short_to_be_asked() -> None:
    @dataclass
    class Level(ToyLoader):
        def run(self, load: LoadPlan, watch: LoadWatch) -> LoadRun:
            readings = tuple(InFlight(float(second) - 15.0, 20, 0) for second in range(60))
            return replace(ToyLoader.run(self, load, watch), warm_level=False, in_flight=readings)

    assert measure(Level(capacity_rps=5.3), Sweep(rates=(2.0,))).notes == ()


# --- windows that hold their requests


def probe_of(rate_rps: float, window_s: float) -> ProbePlan:
    return ProbePlan("search", rate_rps, 2, window_s, 5 * window_s)


def test_a_window_is_lengthened_until_it_holds_its_requests() -> None:
    fitted = fit_plan(toy_plan, probe_of(2.0, 20.0), 0, needed=100)
    assert isinstance(fitted, LoadPlan)
    assert 30.0 < fitted.window_s <= 100.0
    assert min(len(window_indices(fitted, window)) for window in (0, 1)) >= 100


def test_a_window_that_is_long_enough_stays_as_it_is() -> None:
    fitted = fit_plan(toy_plan, probe_of(20.0, 20.0), 0, needed=100)
    assert isinstance(fitted, LoadPlan)
    assert fitted.window_s == 20.0


@pytest.mark.parametrize("rate_rps", [0.5, 0.0001])
def test_a_fivefold_window_that_is_still_too_small_is_not_run(rate_rps: float) -> None:
    reason = fit_plan(toy_plan, probe_of(rate_rps, 20.0), 0, needed=100)
    assert isinstance(reason, Reason)
    assert reason.code == "too_few_requests"


def test_nothing_is_run_that_would_be_invalid_for_sure() -> None:
    loader = ToyLoader(capacity_rps=5.0)
    rules = WindowRules((SloBound("ttft", 99.9, 2000),))
    record = measure_goodput(
        loader, toy_plan, scenario="x", sweep=Sweep(), measurement=Measurement(), rules=rules, at_rps=2.0
    )
    assert loader.plans == []
    assert [reason.code for reason in record.invalid] == ["too_few_requests"]


def test_a_plan_without_any_arrival_is_too_small() -> None:
    def empty(probe: ProbePlan, number: int) -> LoadPlan:
        return plan(poisson(1e-9, 1.0, 1), window_s=probe.window_s, windows=probe.windows)

    assert isinstance(fit_plan(empty, probe_of(1.0, 20.0), 0, needed=10), Reason)


def test_token_counts_that_only_usage_tells_are_noted_once() -> None:
    class Estimating(ToyLoader):
        def run(self, load: LoadPlan, watch: LoadWatch) -> LoadRun:
            run = ToyLoader.run(self, load, watch)
            return replace(run, requests=tuple(replace(record, tokens_estimated=True) for record in run.requests))

    assert sum("equal shares" in note for note in measure(Estimating(20.0)).notes) == 1
    assert not any("equal shares" in note for note in measure(ToyLoader(20.0)).notes)
