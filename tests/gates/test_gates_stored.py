"""Verdicts on what published reports and submissions state, by the same rules as on what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import INVALID, config, gate
from gates_stored import (
    LAB,
    RATES,
    SUBMISSION,
    SUITE,
    audits,
    divergence,
    kv_cache,
    lab,
    moe_kernels,
    replay,
    scored_on,
    spec_of,
    stated,
    submission,
    submitted,
)

from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.decidable import undecidable
from pytest_tokenwatt.gates.judge import exit_code, judge
from pytest_tokenwatt.gates.qualify import score_deltas
from pytest_tokenwatt.records import GateResult, Reason, Verdict
from pytest_tokenwatt.records.profiles import BudgetRun, PeakMemory, Precision
from pytest_tokenwatt.records.stored import Provenance

ASSUMED = "error not stored, counted as 0"


def verdicts(found: Mapping[str, GateResult]) -> dict[str, str]:
    return {name: result.verdict.value for name, result in found.items()}


def profiles(**changes: Any) -> dict[str, Any]:
    """All profiles of the candidate with these changes."""
    return {"profiles": {name: replace(submitted(name, 1), **changes) for name in RATES}}


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


# --- the published records


def test_the_kv_cache_report_fails_exactly_the_accuracy_of_the_tuned_one(tmp_path: Path) -> None:
    found, listed = replay(spec_of(tmp_path, LAB), kv_cache())
    assert verdicts(found) == {
        "baseline::slo": "pass",
        "tuned::slo": "pass",
        "tuned::goodput": "pass",
        f"tuned::accuracy[{SUITE}]": "fail",
        "tuned::energy": "-",
    }
    assert set(listed) == {"baseline::contract", "tuned::contract", "tuned::length"}
    assert exit_code(found.values()) == 1
    goodput, energy = found["tuned::goodput"], found["tuned::energy"]
    assert (goodput.text, goodput.error) == ("5057 tok/s, 1.106 [1.1, 1.12]", 0.01)
    assert found[f"tuned::accuracy[{SUITE}]"].value == -8.0
    assert "-8.0 pt < -1.0 pt" in found[f"tuned::accuracy[{SUITE}]"].reasons[0].text
    assert energy.text == f"8.21 tok/J (+14.4 %, {ASSUMED})"
    assert found["tuned::slo"].text == "2 of 2 repeats, TPOT p99 43.7 ms"


def test_the_kernel_report_passes_and_shows_no_measurable_difference(tmp_path: Path) -> None:
    text = LAB.replace("slo:", "  - {key: other, role: other}\nslo:", 1)
    found, _ = replay(spec_of(tmp_path, text), moe_kernels())
    assert {result.verdict for result in found.values()} == {Verdict.PASS, Verdict.INFO}
    assert exit_code(found.values()) == 0
    for key, value in (("tuned", 1.00173), ("other", 1.00031)):
        goodput = found[f"{key}::goodput"]
        assert goodput.text.endswith("no measurable difference")
        assert goodput.value == pytest.approx(value, abs=1e-5)
        assert goodput.error == pytest.approx(0.007)


def test_the_submission_qualifies_in_tier_a(tmp_path: Path) -> None:
    spec, records = spec_of(tmp_path, SUBMISSION), submission()
    found, listed = replay(spec, records)
    assert set(verdicts(found).values()) == {"pass"}
    assert [name.removeprefix("tuned::") for name in found] == [
        *("contract", "accuracy[mean]", "kl", "perplexity[hidden]", "perplexity[wikitext2]", "length", "speed"),
        *("memory", "audit", "budget", "precision", "score"),
    ]
    assert list(listed) == ["baseline::contract"]
    delta = score_deltas(spec, records, tuple(found.values()))["tuned"]
    assert (delta.admitted, delta.qualified, delta.tier, delta.valid_domains) == (True, True, "A", 5)
    assert (delta.mean_drop_pts, delta.drift, delta.score_se, delta.missing) == (0.587, 0.5509, 0.0394, {})
    assert delta.efficiency_gain == pytest.approx(1.5388, abs=0.0003)
    assert delta.score == pytest.approx(1.4563, abs=0.0003)
    assert found["tuned::score"].text == "1.456 (E 1.539, D 0.551, tier A)"
    assert found["tuned::accuracy[mean]"].text == "-0.6 pt (5 suites), as stored, tier A"
    assert "worst of 3 runs); not timed: memory_capped, offline, online_slo" in found["tuned::audit"].text


# --- errors that are not stored


def test_an_error_without_a_field_counts_as_0_and_the_text_says_so(tmp_path: Path) -> None:
    found, _ = replay(spec_of(tmp_path, SUBMISSION), submission(drift=scored_on(divergence(0.0097, None), None)))
    for name in ("length", "speed", "memory", "kl"):
        result = found[f"tuned::{name}"]
        assert (result.verdict, result.error) == (Verdict.PASS, 0.0)
        assert ASSUMED in result.text
    bandless = (
        lab("baseline", 1000.0, 0.6, 340.0, 44.0, 96.0, band_pct=None),
        lab("tuned", 900.0, 0.6, 340.0, 44.0, 96.0, band_pct=None),
    )
    goodput = replay(spec_of(tmp_path, LAB), bandless)[0]["tuned::goodput"]
    assert (goodput.verdict, goodput.error, goodput.text) == (Verdict.FAIL, 0.0, f"900 tok/s, 0.900 ({ASSUMED})")


UNKNOWN: Mapping[str, dict[str, Any]] = {
    "length": {"stored": stated(unknown=("intervals.length_shift",))},
    "kl": {"drift": scored_on(divergence(0.0097, None), None), "stored": stated(unknown=("kl.kl_se",))},
    "perplexity[hidden]": {
        "stored": stated(
            unknown=("kl.ppl.hidden.dnll_se",),
            perplexity={name: replace(each, dnll_se=None) for name, each in stated().perplexity.items()},
        )
    },
    "speed": {"stored": stated(unknown=("intervals.speeds.serve",))},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_error_that_is_stored_as_null_stays_unknown(tmp_path: Path, name: str) -> None:
    found, _ = replay(spec_of(tmp_path, SUBMISSION), submission(**UNKNOWN[name]))
    result = found[f"tuned::{name}"]
    assert (result.verdict, result.error) == (Verdict.INCONCLUSIVE, None)
    assert ASSUMED not in result.text


def test_a_band_that_is_stored_as_null_leaves_the_ratio_without_an_error(tmp_path: Path) -> None:
    common: dict[str, Any] = {"band_pct": None, "unknown": ("variance_band_pct",)}
    records = (
        lab("baseline", 1000.0, 0.6, 340.0, 44.0, 96.0, **common),
        lab("tuned", 900.0, 0.6, 340.0, 44.0, 96.0, **common),
    )
    goodput = replay(spec_of(tmp_path, LAB), records)[0]["tuned::goodput"]
    assert (goodput.verdict, codes(goodput), goodput.error) == (Verdict.INCONCLUSIVE, ["error_unknown"], None)


def test_the_error_of_memory_may_be_stored_as_null_and_is_still_0_01_at_least(tmp_path: Path) -> None:
    null = stated(unknown=("peak_memory.serve.error",))
    memory = replay(spec_of(tmp_path, SUBMISSION), submission(stored=null))[0]["tuned::memory"]
    assert (memory.verdict, memory.error) == (Verdict.PASS, None)


def test_stored_intervals_are_the_errors(tmp_path: Path) -> None:
    ends = {"speed": (1.30, 1.40), "length_shift": (-0.02, 0.12), "speeds.serve": (1.4, 1.5)}
    found, _ = replay(spec_of(tmp_path, SUBMISSION), submission(stored=stated(intervals=ends)))
    assert found["tuned::speed"].error == pytest.approx(1.3506 * 0.05 / 1.35, rel=1e-3)
    assert ASSUMED not in found["tuned::speed"].text
    assert (found["tuned::length"].verdict, codes(found["tuned::length"])) == (Verdict.INCONCLUSIVE, ["within_error"])


# --- rules on stored figures

BROKEN: Mapping[str, dict[str, Any]] = {
    "contract": {"stored": stated(verdicts={"contract": "fail"})},
    "accuracy[mean]": {"stored": stated(mean_drop_pts=1.2)},
    "kl": {"drift": scored_on(divergence(0.03, 0.0007), None)},
    "perplexity[hidden]": {
        "stored": stated(perplexity={name: replace(each, dnll=0.05) for name, each in stated().perplexity.items()})
    },
    "length": {"stored": stated(length_shift=-0.11)},
    "speed": profiles(output_tok_s=200.0),
    "memory": profiles(memory=PeakMemory(peak_gib=170.0)),
    "audit": {"audits": {**audits(), "serve": replace(audits()["serve"], gap_median=0.51)}},
    "budget": {
        "budgets": {
            name: BudgetRun(name, 1.02, 30.0, None, 31.0, 32.0, healthy=name != "serve", value=100.0)
            for name in RATES
        }
    },
    "precision": {"precision": Precision(16, 8, 8, "W16A8KV8", 16.0)},
    "score": {"stored": stated(verdicts={"contract": "pass", "score": "fail"})},
}  # fmt: skip
RESTS = {"contract": "invalid", "kl": "pass", "perplexity[hidden]": "pass", "budget": "pass"}
"""What becomes of the score: a contract that was not met admits nothing, and others are no part of it."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_stored_figure_beyond_its_limit_fails(tmp_path: Path, name: str) -> None:
    found, _ = replay(spec_of(tmp_path, SUBMISSION), submission(**BROKEN[name]))
    failed = found[f"tuned::{name}"]
    assert failed.verdict is Verdict.FAIL
    assert failed.reasons
    assert found["tuned::score"].verdict.value == RESTS.get(name, "fail")


@pytest.mark.parametrize("percentile", ["ttft_p99_ms: 300", "tpot_p99_ms: 43"])
def test_the_limits_of_a_given_spec_win(tmp_path: Path, percentile: str) -> None:
    found, _ = replay(spec_of(tmp_path, LAB.replace("ttft_p99_ms: 2000, tpot_p99_ms: 50", percentile)), kv_cache())
    assert (found["tuned::slo"].verdict, codes(found["tuned::slo"])) == (Verdict.FAIL, ["slo_missed"])
    looser = LAB.replace("max_drop_pts: 1.0", "max_drop_pts: 9").replace("ttft_p99_ms: 2000", "ttft_p99_ms: 400")
    assert exit_code(replay(spec_of(tmp_path, looser), kv_cache())[0].values()) == 0


def test_a_percentile_beyond_its_bound_contradicts_repeats_that_passed(tmp_path: Path) -> None:
    base, _ = kv_cache()
    slow = lab("tuned", 5056.9, 0.616, 352.0, 61.2, 96.0)
    found, _ = replay(spec_of(tmp_path, LAB), (base, slow))
    assert (found["tuned::slo"].verdict, found["tuned::slo"].reasons[0].text) == (
        Verdict.FAIL,
        "TPOT p99 61.2 ms > 50 ms",
    )
    once = replay(
        spec_of(tmp_path, LAB), (base, lab("tuned", 5056.9, 0.616, 352.0, 43.7, 96.0, changes={"slo_pass_count": 1}))
    )
    assert once[0]["tuned::slo"].verdict is Verdict.FAIL


def test_a_goodput_that_is_stored_as_null_is_none(tmp_path: Path) -> None:
    missed = {"misses": ("no rate passed",), "slo_pass_count": 0}
    base, tuned = kv_cache()
    nothing = lab("tuned", None, 0.616, 352.0, 43.7, 96.0, unknown=("goodput_tok_s",), changes=missed)
    found, _ = replay(spec_of(tmp_path, LAB), (base, nothing))
    assert (found["tuned::slo"].verdict, found["tuned::goodput"].verdict) == (Verdict.FAIL, Verdict.FAIL)
    null_base = lab("baseline", None, 0.637, 340.0, 44.6, 96.0, unknown=("goodput_tok_s",), changes=missed)
    found, _ = replay(spec_of(tmp_path, LAB), (null_base, tuned))
    assert (found["tuned::goodput"].verdict, codes(found["tuned::goodput"])) == (Verdict.INVALID, ["baseline_invalid"])


def test_a_difference_without_scores_is_judged_as_it_is_stored(tmp_path: Path) -> None:
    base, _ = kv_cache()
    for delta_pts, verdict in ((-8.0, Verdict.FAIL), (-0.5, Verdict.PASS)):
        tuned = lab("tuned", 5056.9, 0.616, 352.0, 43.7, None, delta_pts=delta_pts)
        found, _ = replay(spec_of(tmp_path, LAB), (base, tuned))
        assert found[f"tuned::accuracy[{SUITE}]"].verdict is verdict
        assert found[f"tuned::accuracy[{SUITE}]"].value == delta_pts


def test_what_a_record_states_against_its_own_baseline_says_nothing_of_another(tmp_path: Path) -> None:
    base, tuned = submission()
    other = replace(base, provenance=Provenance(recorded="2026-11-30T00:00:00Z"))
    found, listed = replay(spec_of(tmp_path, SUBMISSION), (other, tuned))
    for name in ("perplexity[hidden]", "score"):
        assert (found[f"tuned::{name}"].verdict, codes(found[f"tuned::{name}"])) == (
            Verdict.INCONCLUSIVE,
            ["not_stored"],
        )
    assert {"tuned::accuracy[mean]", "tuned::length"} <= set(listed)
    assert found["tuned::speed"].verdict is Verdict.PASS
    report = replace(kv_cache()[0], provenance=Provenance(recorded="2026-01-01"))
    assert undecidable(gate("goodput"), kv_cache()[1], report) is None


def test_an_invalid_stored_record_is_invalid_and_never_passed(tmp_path: Path) -> None:
    for side in (0, 1):
        records = [*submission()]
        records[side] = replace(records[side], invalid=(INVALID,))
        found, listed = replay(spec_of(tmp_path, SUBMISSION), (records[0], records[1]))
        relative = {name: result.verdict for name, result in found.items() if name not in PASSING_ALONE}
        assert set(relative.values()) == {Verdict.INVALID}
        assert not [name for name in listed if name.startswith("tuned::")]


PASSING_ALONE = ("tuned::contract", "tuned::budget", "tuned::precision", "tuned::audit", "baseline::contract")
"""Gates that say nothing of the baseline, or of any measurement."""


# --- what is not stored

ABSENT: Mapping[str, tuple[str, dict[str, Any]]] = {
    "contract": ("the contract of tuned", {"stored": stated(verdicts={})}),
    "accuracy[mean]": ("the mean drop of tuned", {"stored": stated(mean_drop_pts=None)}),
    "kl": ("kl of tuned", {"drift": None}),
    "perplexity[hidden]": ("the perplexity on hidden of tuned", {"stored": stated(perplexity={})}),
    "length": ("the length of answers of tuned", {"stored": stated(length_shift=None)}),
    "speed": (
        "output tok/s in profile serve of tuned",
        profiles(output_tok_s=None),
    ),
    "memory": (
        "peak memory in profile serve of tuned",
        profiles(memory=PeakMemory()),
    ),
    "audit": ("the audit of tuned", {"audits": {}}),
    "budget": ("the budget of tuned", {"budgets": {}}),
    "precision": ("the precision of tuned", {"precision": None}),
}  # fmt: skip
WITHOUT_BLOCK = {"contract", "accuracy[mean]", "length"}
NEEDED = {"audit", "contract", "accuracy[mean]", "length", "speed", "memory", "precision"}


@pytest.mark.parametrize("name", ABSENT)
def test_a_gate_without_its_figures_is_not_decided(tmp_path: Path, name: str) -> None:
    text, changes = ABSENT[name]
    found, listed = replay(spec_of(tmp_path, SUBMISSION), submission(**changes))
    if name in WITHOUT_BLOCK:
        assert listed[f"tuned::{name}"] == f"{text} is not stored"
        assert f"tuned::{name}" not in found
    else:
        assert found[f"tuned::{name}"].reasons == (Reason("not_stored", f"{text} is not stored"),)
        assert found[f"tuned::{name}"].verdict is Verdict.INCONCLUSIVE
    score = found["tuned::score"].verdict
    assert score is (Verdict.INCONCLUSIVE if name in NEEDED else Verdict.PASS)


LAB_ABSENT: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "goodput": ("goodput", "goodput_tok_s of tuned", {"changes": {"goodput_tok_s": None, "energy": None}}),
    "energy": ("energy", "tokens_per_joule of tuned", {"changes": {"energy": None}}),
    "score": (f"accuracy[{SUITE}]", f"the score on {SUITE} of tuned", {"suites": {}, "delta_pts": None}),
    "repeats": ("slo", "slo_pass_count of tuned", {"changes": {"repeats": 0, "slo_pass_count": 0}}),
}


@pytest.mark.parametrize("name", LAB_ABSENT)
def test_a_report_without_a_figure_does_not_decide_its_gate(tmp_path: Path, name: str) -> None:
    kind, text, changes = LAB_ABSENT[name]
    base, _ = kv_cache()
    tuned = lab("tuned", 5056.9, 0.616, 352.0, 43.7, 96.0, **changes)
    found, _ = replay(spec_of(tmp_path, LAB), (base, tuned))
    assert codes(found[f"tuned::{kind}"]) == ["not_stored"]
    assert found[f"tuned::{kind}"].reasons[0].text == f"{text} is not stored"


def test_a_report_without_the_baselines_figure_does_not_decide_either(tmp_path: Path) -> None:
    bare = lab("baseline", None, 0.637, 340.0, 44.6, None, delta_pts=None, changes={"misses": ()})
    tuned = lab("tuned", 5056.9, 0.616, 352.0, 43.7, 88.0, delta_pts=None)
    found, _ = replay(spec_of(tmp_path, LAB), (bare, tuned))
    assert found["tuned::goodput"].reasons[0].text == "goodput_tok_s of baseline is not stored"
    assert found[f"tuned::accuracy[{SUITE}]"].reasons[0].text == f"the score on {SUITE} of baseline is not stored"


def test_rates_that_a_report_does_not_have_are_not_zero(tmp_path: Path) -> None:
    text = f"{LAB}gates: {{goodput: {{min_rps: 5}}, slo: {{at_rps: 11}}}}\n"
    found, _ = replay(spec_of(tmp_path, text), kv_cache())
    for name in ("slo", "goodput"):
        assert found[f"tuned::{name}"].reasons == (Reason("not_stored", "rate_rps of tuned is not stored"),)


def test_a_rule_needs_its_figure(tmp_path: Path) -> None:
    rule = "{name: pre, metric: 'server:vllm:num_preemptions_total', max: 0}"
    rules = f"{LAB}gates: {{rules: [{rule}, {{name: peak, metric: serve.peak_gib, max: 40}}]}}\n"
    found, _ = replay(spec_of(tmp_path, rules), kv_cache())
    assert codes(found["tuned::rule[pre]"]) == codes(found["tuned::rule[peak]"]) == ["not_stored"]


def test_our_own_records_are_only_undecided_where_nothing_was_measured(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, LAB + SUBMISSION.partition("profiles:")[1] + SUBMISSION.partition("profiles:")[2])
    base, tuned = config("baseline"), config("tuned")
    found, listed = replay(spec, (base, tuned))
    undecided = {name for name, result in found.items() if codes(result) == ["not_stored"]}
    assert undecided == {
        f"tuned::{name}"
        for name in (
            *(f"accuracy[{SUITE}]", "kl", "perplexity[hidden]", "perplexity[wikitext2]", "speed", "memory"),
            *("audit", "budget", "score"),
        )
    }  # fmt: skip
    assert set(listed) == {"tuned::length"}
    assert found["tuned::energy"].found is Verdict.INVALID


@pytest.mark.parametrize("gone", ["interactive", "serve"])
def test_a_run_that_breaks_a_limit_fails_its_gate_whatever_is_not_stored_of_others(tmp_path: Path, gone: str) -> None:
    far = {**audits(), "serve": replace(audits()["serve"], gap_median=0.9)}
    sick = BudgetRun("serve", 1.02, 30.7, None, 30.0, 32.0, healthy=False, value=1.0)
    less: dict[str, Any] = {
        "audits": {name: audit for name, audit in far.items() if name != gone},
        "budgets": {name: replace(sick, profile=name, healthy=name != "serve") for name in RATES if name != gone},
    }
    found, _ = replay(spec_of(tmp_path, SUBMISSION), submission(**less))
    for name in ("audit", "budget"):
        expected = Verdict.FAIL if gone == "interactive" else Verdict.INCONCLUSIVE
        assert found[f"tuned::{name}"].verdict is expected
    assert found["tuned::score"].verdict is (Verdict.FAIL if gone == "interactive" else Verdict.INCONCLUSIVE)


def test_a_submission_counts_as_having_a_score_block(tmp_path: Path) -> None:
    spec, records = spec_of(tmp_path, SUBMISSION.replace("score: {}\n", "")), submission()
    assert "score" not in {each.gate for each in list_gates(spec)}
    found, _ = replay(spec, records)
    assert found["tuned::score"].verdict is Verdict.PASS
    assert score_deltas(spec, records, tuple(found.values()))["tuned"].qualified


def test_a_given_spec_with_suites_is_decided_by_the_mean_that_is_stored(tmp_path: Path) -> None:
    found, _ = replay(spec_of(tmp_path, f"{SUBMISSION}accuracy: {{suite: gsm8k.jsonl}}\n"), submission())
    assert codes(found["tuned::accuracy[gsm8k]"]) == ["not_stored"]
    assert (found["tuned::accuracy[mean]"].verdict, found["tuned::score"].verdict) == (Verdict.PASS, Verdict.PASS)


def test_a_report_without_figures_decides_nothing(tmp_path: Path) -> None:
    bare = (
        lab("baseline", None, 0.6, 340.0, 44.0, None, delta_pts=None),
        lab("tuned", None, 0.6, 340.0, 44.0, None, delta_pts=None),
    )
    empty = tuple(replace(each, scenarios={}) for each in bare)
    found, _ = replay(spec_of(tmp_path, LAB), empty)
    assert {code for result in found.values() for code in codes(result)} == {"not_stored"}
    assert exit_code(found.values()) == 10
    assert exit_code([]) == 1


def test_a_stored_divergence_of_nothing_is_not_believed(tmp_path: Path) -> None:
    found, _ = replay(spec_of(tmp_path, SUBMISSION), submission(drift=scored_on(divergence(0.0, 0.0), None)))
    assert (found["tuned::kl"].verdict, codes(found["tuned::kl"])) == (Verdict.INVALID, ["zero_divergence"])


def test_live_records_know_nothing_of_assumed_errors() -> None:
    result = judge(gate("goodput"), config("tuned"), config("baseline"))
    assert ASSUMED not in result.text
