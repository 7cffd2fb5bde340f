"""The audit's figures: blocks of a published submission, known answers, and what makes them invalid."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.audit import AuditSample, Scored, audit_record

# An FP8 engine's audit of three timed runs, as published (October 2026).
PUBLISHED = {
    "interactive": {
        "bf16_mean": -0.13170158582772096,
        "bf16_top1": 0.9895301533100402,
        "empty": 1,
        "empty_alone": 0,
        "empty_reference": 1,
        "engine_mean": -0.33488874823383913,
        "engine_top1": 0.8934413514207463,
        "gap": 0.20318716240611817,
        "gap_median": 0.12190573442048194,
        "gap_max": 2.259063767962636,
        "length_ratio": 1.0,
        "length_ratio_min": 0.0,
        "picked": 24,
        "samples": 23,
        "top1_gap": 0.09608880188929392,
    },
    "long_context": {
        "bf16_mean": -0.3193891973994322,
        "bf16_top1": 0.9852744424349366,
        "empty": 0,
        "empty_alone": 0,
        "empty_reference": 0,
        "engine_mean": -0.22300654186599272,
        "engine_top1": 0.9493727651074984,
        "gap": -0.09638265553343953,
        "gap_median": 0.04173304980499706,
        "gap_max": 0.35711406119412015,
        "length_ratio": 1.0,
        "length_ratio_min": 0.5078125,
        "picked": 24,
        "samples": 24,
        "top1_gap": 0.03590167732743821,
    },
    "serve": {
        "bf16_mean": -0.06854064463553336,
        "bf16_top1": 0.9947859789301092,
        "empty": 0,
        "empty_alone": 0,
        "empty_reference": 0,
        "engine_mean": -0.09481864496485903,
        "engine_top1": 0.9783919085971547,
        "gap": 0.02627800032932568,
        "gap_median": 0.021810810235200748,
        "gap_max": 0.3413345401085057,
        "length_ratio": 1.0,
        "length_ratio_min": 0.501953125,
        "picked": 24,
        "samples": 24,
        "top1_gap": 0.01639407033295448,
    },
}


def scored(mean: float, length: int) -> Scored:
    return Scored([mean] * length, [False] * length)


def sample(engine: Sequence[float], bf16: Sequence[float], top1: Sequence[bool] | None = None) -> AuditSample:
    return AuditSample(
        len(engine),
        len(bf16),
        Scored(engine, top1 or [True] * len(engine)) if engine else None,
        Scored(bf16, [True] * len(bf16)) if bf16 else None,
    )


def like(block: dict[str, float]) -> list[AuditSample]:
    """Prompts of such gaps and lengths as the published block must have had, as far as it says."""
    count = int(block["samples"])
    middle = [block["gap_median"]] * (count - 2)
    gaps = [*middle, block["gap_max"], count * block["gap"] - sum(middle) - block["gap_max"]]
    lengths = [256] * (count - 1) + [round(256 * (block["length_ratio_min"] or 1.0))]
    base = block["bf16_mean"] - sum(min(gap, 0.0) for gap in gaps) / count
    pairs = [
        AuditSample(length, 256, scored(base - max(gap, 0.0), length), scored(base + min(gap, 0.0), 256))
        for gap, length in zip(gaps, lengths, strict=True)
    ]
    return [*pairs, *[AuditSample(0, 0, None, None)] * int(block["empty"])]


@pytest.mark.parametrize("run", PUBLISHED)
def test_published_figures_are_tied_as_ours_are(run: str) -> None:
    block = PUBLISHED[run]
    assert block["gap"] == pytest.approx(block["bf16_mean"] - block["engine_mean"], abs=1e-15)
    assert block["top1_gap"] == pytest.approx(block["bf16_top1"] - block["engine_top1"], abs=1e-15)
    assert block["samples"] == block["picked"] - block["empty"]


@pytest.mark.parametrize("run", PUBLISHED)
def test_prompts_that_give_a_published_block(run: str) -> None:
    block = PUBLISHED[run]
    record = audit_record(f"{run}-r0", like(block))
    told = ("engine_mean", "bf16_mean", "gap", "gap_median", "gap_max", "length_ratio")
    assert {name: getattr(record, name) for name in told} == pytest.approx({name: block[name] for name in told})
    for name in ("picked", "samples", "empty", "empty_alone", "empty_reference"):
        assert getattr(record, name) == block[name]
    assert record.length_ratio_min == pytest.approx(block["length_ratio_min"], abs=1 / 256)
    assert (record.run, record.status, record.invalid) == (f"{run}-r0", "audited", ())


def test_an_output_empty_on_both_sides_is_a_ratio_of_nought_and_no_sample() -> None:
    record = audit_record("r", [AuditSample(0, 0, None, None), sample([-1.0], [-0.5])])
    assert (record.empty, record.empty_alone, record.empty_reference, record.samples) == (1, 0, 1, 1)
    assert record.length_ratio_min == 0.0
    assert record.gap == 0.5


def test_known_answer_by_hand() -> None:
    record = audit_record(
        "r",
        [
            sample([-1.0, -3.0], [-1.0, -1.0, -1.0, -1.0], [True, False]),  # 2 nats, half of them likeliest
            sample([-0.5], [-0.25, -0.25], [True]),
            sample([-4.0, -4.0, -4.0], [-1.0], [False, False, True]),
        ],
    )
    assert record.engine_mean == pytest.approx((-2.0 - 0.5 - 4.0) / 3)
    assert record.bf16_mean == pytest.approx((-1.0 - 0.25 - 1.0) / 3)
    assert (record.gap_median, record.gap_max) == (1.0, 3.0)
    assert record.engine_top1 == pytest.approx((0.5 + 1.0 + 1 / 3) / 3)  # of samples, not of tokens
    assert (record.length_ratio, record.length_ratio_min) == (0.5, 0.5)


def test_outputs_that_are_all_empty_are_counted_not_excused() -> None:
    record = audit_record("r", [AuditSample(0, 4, None, scored(-1.0, 4))] * 3)
    assert (record.status, record.samples, record.empty_alone, record.length_ratio) == ("audited", 0, 3, 0.0)
    assert (record.gap, record.gap_median, record.engine_mean, record.bf16_top1) == (None,) * 4


def test_a_served_token_of_no_probability_counts_as_what_the_server_says_of_it() -> None:
    record = audit_record("r", [sample([-1.0, -math.inf], [-1.0, -1.0]), sample([-1.0], [-1.0])])
    assert record.gap_max == pytest.approx((9999 - 1) / 2)
    assert record.gap_median == pytest.approx(9998 / 4)
    assert "1 served tokens have probability 0 under the baseline" in record.notes[0]
    assert record.status == "audited"


def test_samples_without_a_baseline_answer_are_told() -> None:
    record = audit_record("r", [sample([-1.0], [-0.5]), sample([-1.0], [])], ["two were cut"])
    assert (record.samples, record.empty_reference, record.gap) == (2, 1, 0.5)
    assert record.notes == ("two were cut", "1 of 2 outputs have no gap: the baseline's own is empty")


@pytest.mark.parametrize(
    ("code", "samples"),
    [
        ("no_outputs", []),
        ("nothing_scored", [AuditSample(0, 0, None, None)]),
        ("nothing_scored", [sample([-1.0], [])]),
        ("nothing_scored", [sample([-1.0], []), sample([-1.0], []), sample([-1.0], [-1.0])]),
        ("positions_invalid", [sample([-1.0, math.nan], [-1.0])]),
        ("positions_invalid", [sample([-1.0], [math.nan])]),
        ("not_probabilities", [sample([3.5], [-1.0])]),
        ("zero_probability", [sample([-1.0], [-1.0, -math.inf])]),
    ],
)
def test_what_is_not_to_be_believed_has_no_figures(code: str, samples: list[AuditSample]) -> None:
    record = audit_record("r", samples)
    assert record.status == "invalid"
    assert [reason.code for reason in record.invalid] == [code]
    assert (record.gap, record.gap_median, record.gap_max, record.engine_mean, record.bf16_mean) == (None,) * 5
    assert record.picked == len(samples)


LOGPROBS = st.lists(st.floats(-50.0, 0.0), min_size=1, max_size=8)


@given(st.lists(st.tuples(LOGPROBS, LOGPROBS), min_size=1, max_size=12))
def test_exchanged_roles_turn_the_gap_round(pairs: list[tuple[list[float], list[float]]]) -> None:
    record = audit_record("r", [sample(engine, bf16) for engine, bf16 in pairs])
    turned = audit_record("r", [sample(bf16, engine) for engine, bf16 in pairs])
    gaps = [statistics.fmean(bf16) - statistics.fmean(engine) for engine, bf16 in pairs]
    assert record.gap is not None
    assert record.gap_median is not None
    assert turned.gap == pytest.approx(-record.gap, abs=1e-9)
    assert turned.gap_median == pytest.approx(-record.gap_median, abs=1e-9)
    assert record.gap == pytest.approx(statistics.fmean(gaps), abs=1e-9)
    assert record.gap_max == pytest.approx(max(gaps), abs=1e-9)


@given(st.lists(LOGPROBS, min_size=1, max_size=12))
def test_what_says_the_same_has_no_gap_at_all(outputs: list[list[float]]) -> None:
    record = audit_record("r", [sample(output, output) for output in outputs])
    assert (record.gap, record.gap_median, record.gap_max, record.top1_gap) == (0.0,) * 4
    assert (record.length_ratio, record.length_ratio_min) == (1.0, 1.0)
