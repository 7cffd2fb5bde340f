"""Arrivals, lengths, plans and prompts against their definitions."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.load.arrivals import poisson_arrivals
from pytest_tokenwatt.load.crew import auto_workers
from pytest_tokenwatt.load.lengths import Fixed, Lognormal
from pytest_tokenwatt.load.plan import build_plan, split
from pytest_tokenwatt.load.prompts import Passages, RandomIds, RandomWords
from pytest_tokenwatt.load.traces import CHAT_MIX, Traffic, open_trace
from pytest_tokenwatt.records import LoadPlan, Schedule


@dataclass(frozen=True)
class Workload:
    trace: str = CHAT_MIX
    input_tokens: Any = None
    output_tokens: Any = None
    max_output_tokens: int | None = None


SMALL = Traffic("small", Fixed(8), Fixed(4))


def plan_at(rate_rps: float, traffic: Traffic = SMALL, **changes: Any) -> LoadPlan:
    settings: dict[str, Any] = {
        "label": "probe 1", "windows": 2, "window_s": 30.0, "warmup_s": 5.0, "warmup_max_s": 20.0,
        "request_timeout_s": 40.0, "max_concurrency": 100, "seed": 7, "purpose": "search", "salt": "s",
    }  # fmt: skip
    return build_plan(rate_rps=rate_rps, traffic=traffic, **{**settings, **changes})


# --- arrivals -------------------------------------------------------------------------------------------------------


def dispersion(
    instants: np.ndarray[Any, np.dtype[np.float64]], span_s: float, rate_rps: float
) -> tuple[float, float, float]:
    """Gap CV, Fano factor of counts in bins of ten expected arrivals, lag-1 autocorrelation of the gaps."""
    gaps = np.diff(instants)
    bins = int(span_s * rate_rps / 10)
    counts = np.histogram(instants, bins=bins, range=(0.0, span_s))[0]
    centred = gaps - gaps.mean()
    lag1 = float((centred[1:] * centred[:-1]).mean() / centred.var())
    return float(gaps.std() / gaps.mean()), float(counts.var() / counts.mean()), lag1


@pytest.fixture(scope="module")
def long_schedule() -> Schedule:
    return plan_at(100.0, windows=1, window_s=1000.0, purpose="dispersion").measured


@pytest.mark.parametrize("workers", range(1, 9))
def test_the_merged_stream_of_any_number_of_workers_is_poisson(long_schedule: Schedule, workers: int) -> None:
    shares = [split(long_schedule, workers, worker) for worker in range(workers)]
    merged = np.sort(np.concatenate([np.array(share.offset_s) for share in shares]))
    window = merged[merged < 1000.0]
    cv, fano, lag1 = dispersion(window, 1000.0, 100.0)
    assert cv == pytest.approx(1.0, abs=0.02)
    assert fano == pytest.approx(1.0, abs=0.1)
    assert lag1 == pytest.approx(0.0, abs=0.02)
    assert len(window) == pytest.approx(100_000, rel=0.02)


@given(st.integers(0, 60), st.integers(1, 8))
def test_shares_are_the_split_by_index(count: int, workers: int) -> None:
    whole = Schedule(
        array("d", range(count)), array("q", range(count)), array("q", (2 * k for k in range(count))), prompt_key=9
    )
    shares = [split(whole, workers, worker) for worker in range(workers)]
    assert sum(len(share) for share in shares) == count
    for worker, share in enumerate(shares):
        assert share.prompt_key == 9
        for local, offset_s in enumerate(share.offset_s):
            index = local * workers + worker
            assert offset_s == index
            assert (share.input_tokens[local], share.output_tokens[local]) == (index, 2 * index)


def test_a_long_quiet_stretch_is_filled_to_its_end() -> None:
    generator = np.random.default_rng(3)
    instants = poisson_arrivals(0.5, 2000.0, generator)
    assert instants[-1] > 1950.0
    assert (np.diff(instants) > 0).all()
    assert (instants < 2000.0).all()


def test_rates_share_one_draw() -> None:
    slow, fast = plan_at(5.0, windows=1), plan_at(20.0, windows=1)
    shared = len([offset for offset in slow.measured.offset_s if offset < 30.0])
    assert list(fast.measured.offset_s[:shared]) == pytest.approx([o / 4 for o in slow.measured.offset_s[:shared]])


def test_lengths_are_drawn_by_index() -> None:
    traffic = Traffic("mix", Lognormal(100, 400), Lognormal(30, 90))
    slow, fast = (plan_at(rate, traffic, windows=1).measured for rate in (5.0, 20.0))
    shared = len([offset for offset in slow.offset_s if offset < 30.0])
    assert fast.input_tokens[:shared] == slow.input_tokens[:shared]
    assert fast.output_tokens[:shared] == slow.output_tokens[:shared]
    assert np.corrcoef(fast.input_tokens, fast.output_tokens)[0, 1] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        plan_at(rate)


# --- plans ----------------------------------------------------------------------------------------------------------


def test_every_window_replays_the_same_draw_and_the_tail_another() -> None:
    traffic = Traffic("mix", Lognormal(100, 400), Lognormal(30, 90))
    plan = plan_at(10.0, traffic, windows=3)
    offsets = np.array(plan.measured.offset_s)
    inputs = np.array(plan.measured.input_tokens)
    windows = [(offsets >= k * 30.0) & (offsets < (k + 1) * 30.0) for k in range(3)]
    for window in windows[1:]:
        assert window.sum() == windows[0].sum()
        assert (inputs[window] == inputs[windows[0]]).all()
    assert offsets[windows[2]] - 60.0 == pytest.approx(offsets[windows[0]])
    tail = offsets[offsets >= 90.0] - 90.0
    assert tail[-1] > 40.0
    assert list(tail[:50]) != pytest.approx(list(offsets[:50]))
    assert (np.diff(offsets) > 0).all()


def test_the_warm_up_is_another_draw_over_its_whole_length() -> None:
    plan = plan_at(10.0)
    assert plan.warmup.offset_s[-1] > 19.0
    assert list(plan.warmup.offset_s[:50]) != pytest.approx(list(plan.measured.offset_s[:50]))
    assert plan.warmup.prompt_key != plan.measured.prompt_key


def test_what_seeds_the_draw_and_what_only_the_prompts() -> None:
    plan = plan_at(10.0)
    for other in (plan_at(10.0, salt="t"), plan_at(10.0, label="probe 2")):
        assert other.measured.offset_s == plan.measured.offset_s
        assert other.measured.prompt_key != plan.measured.prompt_key
    for other in (plan_at(10.0, purpose="confirm"), plan_at(10.0, seed=8)):
        assert other.measured.offset_s[:20] != plan.measured.offset_s[:20]
        assert other.measured.prompt_key != plan.measured.prompt_key
    assert plan_at(10.0) == plan


# --- lengths --------------------------------------------------------------------------------------------------------


def drawn(traffic: Traffic, count: int = 200_000) -> tuple[Any, Any]:
    return traffic.draw(count, np.random.default_rng(1), np.random.default_rng(2))


def test_chat_mix_has_its_medians_and_p90s() -> None:
    inputs, outputs = drawn(open_trace(Workload(), None, Path()))
    assert np.percentile(inputs, [50, 90]) == pytest.approx([1024, 4096], rel=0.02)
    assert np.percentile(outputs, [50, 90]) == pytest.approx([256, 1024], rel=0.02)
    assert np.log(inputs).std() == pytest.approx(np.log(4) / 1.28155, rel=0.01)
    assert min(inputs.min(), outputs.min()) >= 1
    assert np.corrcoef(np.log(inputs), np.log(outputs))[0, 1] == pytest.approx(0.0, abs=0.01)


def test_chat_mix_is_clipped_to_the_model_output_first() -> None:
    inputs, outputs = drawn(open_trace(Workload(), 4096, Path()))
    assert outputs.max() == 2048
    assert (inputs + outputs).max() == 4096
    assert (inputs + outputs == 4096).mean() > 0.05
    capped = drawn(open_trace(Workload(max_output_tokens=500), 4096, Path()))
    assert capped[1].max() == 500
    assert (capped[0] + capped[1]).max() == 4096


def test_overrides_replace_one_side() -> None:
    inputs, outputs = drawn(
        open_trace(Workload(input_tokens=512, output_tokens={"median": 10, "p90": 20}), None, Path())
    )
    assert set(inputs) == {512}
    assert np.percentile(outputs, [50, 90]) == pytest.approx([10, 20], rel=0.1)


def test_fixed_lengths_are_kept_or_refused() -> None:
    inputs, outputs = drawn(open_trace(Workload(input_tokens=100, output_tokens=3000), 4096, Path()), 10)
    assert (set(inputs), set(outputs)) == ({100}, {3000})
    inputs, outputs = drawn(open_trace(Workload(input_tokens=3000), 4096, Path()))
    assert set(inputs) == {3000}
    assert outputs.max() == 1096
    with pytest.raises(UsageError, match=r"2000 \+ 3000 tokens exceeds max_model_len 4096"):
        open_trace(Workload(input_tokens=2000, output_tokens=3000), 4096, Path())
    with pytest.raises(UsageError, match="exceeds max_model_len"):
        open_trace(Workload(input_tokens=4096), 4096, Path())


@pytest.mark.parametrize("value", [0, -5, 1.5, {"median": 10, "p90": 10}, {"median": 0.5, "p90": 10}])
def test_lengths_that_mean_nothing_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"workload\.input_tokens"):
        open_trace(Workload(input_tokens=value), None, Path())


# --- trace files ----------------------------------------------------------------------------------------------------

TRACES = {
    "own.jsonl": '{"input_tokens": 10, "output_tokens": 1}\n\n{"input_tokens": 20, "output_tokens": 2, "x": "y"}\n',
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]}\n'
    '{"timestamp": 5, "input_length": 20, "output_length": 2, "hash_ids": [1, 2]}\n',
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,10,1\n2023-11-16,20,2\n2023,9,0\n",
    "burst.csv": "\ufeffTimestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,10,1,11,API log\n"
    "6,GPT-4,20,2,22,API log\n7,GPT-4,0,0,0,API log\n",
}


@pytest.mark.parametrize("name", TRACES)
def test_trace_files_are_drawn_as_pairs(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TRACES[name])
    traffic = open_trace(Workload(trace=name), None, tmp_path)
    inputs, outputs = drawn(traffic, 1000)
    assert set(zip(inputs.tolist(), outputs.tolist(), strict=True)) == {(10, 1), (20, 2)}
    assert inputs.mean() == pytest.approx(15, abs=1)
    again, _ = drawn(traffic, 500)
    assert (again == inputs[:500]).all()
    overridden = drawn(replace(traffic, output=Fixed(7)), 1000)
    assert (overridden[0] == inputs).all()
    assert set(overridden[1]) == {7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{oops\n", r"t\.jsonl:1: is not JSON"),
        ("[1]\n", r"t\.jsonl:1: is not an object"),
        ('{"input_tokens": 3}\n', r"t\.jsonl:1: has none of output_tokens"),
        ('\n{"input_tokens": "x", "output_tokens": 1}\n', r"t\.jsonl:2: input_tokens is 'x'"),
        ('{"input_tokens": 0, "output_tokens": 1}\n', r"t\.jsonl: holds no requests"),
        ("", r"t\.jsonl: holds no requests"),
    ],
)
def test_bad_trace_lines_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(UsageError, match=message):
        open_trace(Workload(trace="t.jsonl"), None, tmp_path)


def test_unknown_and_unreadable_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace named 'chatmix'"):
        open_trace(Workload(trace="chatmix"), None, tmp_path)
    (tmp_path / "t.csv").write_bytes(b"input_tokens\n\xff\xfe\n")
    with pytest.raises(UsageError, match="cannot be read"):
        open_trace(Workload(trace="t.csv"), None, tmp_path)


# --- prompts --------------------------------------------------------------------------------------------------------


def test_prompts_depend_on_key_and_index_alone() -> None:
    text = Passages("It is a truth universally acknowledged. " * 20)
    for source in (RandomIds(np.arange(1000)), RandomWords(), text):
        assert list(source.make(5, 3, 40)) == list(source.make(5, 3, 40))
        assert list(source.make(5, 3, 40)) != list(source.make(5, 4, 40))
        assert list(source.make(5, 3, 40)) != list(source.make(6, 3, 40))


def test_passages_share_no_prefix_and_wrap_around() -> None:
    source = Passages("abc def. ")
    prompts = [source.make(1, index, 100) for index in range(200)]
    assert len({prompt[:14] for prompt in prompts}) == 200
    assert {len(prompt) for prompt in prompts} == {400}


def test_prompts_of_a_short_length_exist() -> None:
    assert len(RandomIds(np.arange(10)).make(1, 1, 1)) == 1
    assert RandomWords().make(1, 1, 1)
    assert Passages("x").make(1, 1, 1)
    json.dumps(RandomIds(np.arange(10)).make(1, 1, 3).tolist())


@pytest.mark.parametrize(("cpus", "workers"), [(1, 1), (2, 1), (4, 1), (8, 2), (32, 8), (256, 8)])
def test_workers_by_cpus(cpus: int, workers: int) -> None:
    assert auto_workers(cpus) == workers
