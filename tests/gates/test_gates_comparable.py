"""Which records may be compared: what must be equal, what may be allowed to differ, and what never matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from gates_builders import (
    BOUNDS,
    accuracy_gate,
    answers,
    config,
    energy,
    gate,
    goodput,
    peak,
    profile,
    rule,
    scored,
    suite,
    with_profiles,
)
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.band import session_band_pct, session_energy_band_pct
from pytest_tokenwatt.gates.comparable import ALLOWABLE, Comparing, allowed_names, differences, levelled
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.speeds import memory_delta, speed_delta
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, ServedIdentity, SloBound, Verdict
from pytest_tokenwatt.records.drift import Divergence, DriftRecord
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.records.profiles import Precision
from pytest_tokenwatt.records.stored import Provenance

H100 = SensorInfo("GPU-0", "NVIDIA H100 80GB HBM3", limit_w=700.0, driver="580.105.08")
LENGTHS = tuple(replace(each, output_tokens=20 + place % 3) for place, each in enumerate(answers("+" * 50)))
RIGHT = suite(LENGTHS)
KL = gate("kl", {"max_nats_per_token": 0.02, "control": False}, scenario=None)
LENGTH = gate("length", {"max_shift": 0.1, "suites": {"gsm8k": 50}}, scenario=None)
RATIO = gate("goodput"), gate("energy", {"min": 0.9}), gate("speed"), rule("ttft_p99_ms", max_ratio=1.1)
QUALITY = accuracy_gate(), LENGTH, KL
SERVE = gate("memory"), rule("serve.peak_gib", max_ratio=1.1)


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


def divergence() -> Divergence:
    return Divergence(
        0.005, 0.0005, 0.005, 0.0005, 0.005, 0.0005, None, None, None, None, 20, 256, 60_000, invalid_positions=0
    )  # fmt: skip


def whole(key: str, **changes: Any) -> ConfigRecord:
    """A record with something of everything."""
    drift = DriftRecord("ab", "prompt_logprobs", 20, 256, 60_000, divergence() if key == "tuned" else None, None)
    parts: dict[str, Any] = {
        "gpus": (H100,),
        "suites": {"gsm8k": RIGHT},
        "drift": drift,
        "profiles": {"serve": profile(1000.0, 1001.0, 999.0)},
    }
    return config(key, goodput(1000.0, energy=energy(7.0), load_sha256="a"), **{**parts, **changes})


def board(**changes: Any) -> dict[str, Any]:
    return {"gpus": (replace(H100, **changes),)}


def served(**changes: Any) -> dict[str, Any]:
    return {"scenarios": {"default": replace(whole("baseline").scenarios["default"], **changes)}}


OTHER: Mapping[str, tuple[str, dict[str, Any], tuple[GateSpec, ...]]] = {
    "hardware": ("hardware", board(name="NVIDIA A100-SXM4-80GB"), (*RATIO, *QUALITY, *SERVE)),
    "power_limit": ("power_limit", board(limit_w=500.0), RATIO),
    "driver": ("driver", board(driver="590.1"), RATIO),
    "driver of a report": (
        "driver",
        {**board(driver=None), "provenance": Provenance(driver="590.1")},
        RATIO,
    ),
    "slo": ("slo", served(slo=(SloBound("ttft", 99, 300),)), (RATIO[0], RATIO[1], RATIO[3])),
    "workload": ("workload", served(load_sha256="b"), (RATIO[0], RATIO[1], RATIO[3])),
    "profile": (
        "workload",
        {"profiles": {"serve": profile(1000.0, 1001.0, 999.0, load_sha256="cd")}},
        (RATIO[2], *SERVE),
    ),
    "suite": ("suite", {"suites": {"gsm8k": replace(RIGHT, sha256="cd")}}, (QUALITY[0], QUALITY[1])),
    "items": (
        "suite",
        {"suites": {"gsm8k": replace(RIGHT, sha256="cd", items=tuple(replace(i, id=f"x{i.id}") for i in LENGTHS))}},
        (QUALITY[0],),
    ),
}
ALL = (*RATIO, *QUALITY, *SERVE)


@pytest.mark.parametrize("case", OTHER)
def test_what_differs_is_named_with_the_flag_that_allows_it(case: str) -> None:
    name, changes, broken = OTHER[case]
    for each in ALL:
        result = judge(each, whole("tuned"), whole("baseline", **changes))
        if each not in broken:
            if not (case == "items" and each is LENGTH):
                assert result.verdict is Verdict.PASS, each.gate
            continue
        assert result.verdict is Verdict.INVALID, each.gate
        assert codes(result) == [f"{name}_differs"] or (case == "profile" and codes(result) == ["workload_differs"])
        assert f"; --tokenwatt-allow-diff={name} compares them all the same" in result.reasons[0].text


@pytest.mark.parametrize("case", OTHER)
def test_what_is_allowed_to_differ_is_compared_and_said(case: str) -> None:
    name, changes, broken = OTHER[case]
    comparing = Comparing(frozenset({name}))
    base = whole("baseline", **changes)
    assert list(differences(whole("tuned"), base)) == [name]
    assert not differences(whole("tuned"), levelled(whole("tuned"), base, comparing.allow))
    for each in broken:
        result = judge(each, whole("tuned"), base, comparing=comparing)
        assert result.verdict is Verdict.PASS, each.gate
        assert result.text.endswith(f", although {name.replace('_', ' ')} differs"), each.gate
        other = Comparing(frozenset(ALLOWABLE) - {name})
        assert judge(each, whole("tuned"), base, comparing=other).verdict is Verdict.INVALID, each.gate


def test_several_differences_are_listed_and_only_those_that_matter() -> None:
    base = whole("baseline", **board(name="NVIDIA A100", limit_w=400.0, driver="590.1"))
    every = Comparing(frozenset(ALLOWABLE))
    goodput_text = judge(gate("goodput"), whole("tuned"), base, comparing=every).text
    assert goodput_text.endswith(", although driver, hardware and power limit differ")
    assert judge(KL, whole("tuned"), base, comparing=every).text.endswith(", although hardware differs")
    assert "although" not in judge(gate("goodput"), whole("tuned"), whole("baseline"), comparing=every).text


def test_a_message_says_both_sides() -> None:
    told = differences(whole("tuned"), whole("baseline", **board(name="A100", limit_w=400.0, driver="590.1")))
    assert told == {
        "driver": "the candidate ran under driver 580.105.08, the baseline 590.1",
        "hardware": "the candidate ran on NVIDIA H100 80GB HBM3, the baseline on A100",
        "power_limit": "the candidate ran at a power limit of 700 W, the baseline at 400 W",
    }
    bounds = differences(whole("tuned"), whole("baseline", **served(slo=(BOUNDS[0],))))["slo"]
    assert bounds.endswith("ttft_p99_ms <= 2000, tpot_p99_ms <= 50, the baseline under ttft_p99_ms <= 2000")


def test_engine_checkpoint_and_precision_are_what_is_compared_and_boards_are_only_noted() -> None:
    upgraded = whole(
        "baseline",
        identity=ServedIdentity(("m",), version="0.31.0", root="other", start_args={"max_num_seqs": "8"}),
        precision=Precision(16, 16, 16, "W16A16KV16"),
        launch={"command": ["vllm", "serve"], "kernels": "0.31"},
        fingerprint="old",
        label="yesterday",
        gpus=(replace(H100, sensor="GPU-another", bus_id="0000:1b"),),
    )
    for each in ALL:
        result = judge(each, whole("tuned", fingerprint="new"), upgraded)
        assert result.verdict is Verdict.PASS, each.gate
    assert not differences(whole("tuned"), upgraded)


def test_what_is_not_known_is_not_judged() -> None:
    bare = whole("baseline", gpus=(), **served(load_sha256=None), suites={"gsm8k": scored(100.0)})
    for each in (*RATIO, accuracy_gate(), KL):
        assert judge(each, whole("tuned"), bare).verdict is Verdict.PASS, each.gate


def test_servers_that_are_declared_different_and_are_not_stay_invalid_whatever_is_allowed() -> None:
    base, tuned = whole("baseline", fingerprint="f"), whole("tuned", fingerprint="f")
    result = judge(gate("goodput"), tuned, base, (base, tuned), comparing=Comparing(frozenset(ALLOWABLE)))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["identical_configs"])


def test_workloads_without_a_hash_are_those_of_the_stored_specs() -> None:
    stored = {"workload": {"trace": "chat-mix-v1", "input_tokens": None, "output_tokens": None, "seed": 0}}
    usual = whole("baseline", **served(load_sha256=None), spec=stored)
    assert judge(gate("goodput"), whole("tuned", spec={"workload": {}}), usual).verdict is Verdict.PASS
    tuned = whole("tuned", spec={"workload": {"trace": "chat-mix-v1", "input_tokens": 512}})
    result = judge(gate("goodput"), tuned, usual)
    assert (codes(result), "input_tokens: 512 against None" in result.reasons[0].text) == (["workload_differs"], True)
    allowed = judge(gate("goodput"), tuned, usual, comparing=Comparing(frozenset({"workload"})))
    assert allowed.verdict is Verdict.PASS
    broken = whole("tuned", spec={"workload": {"input_tokens": "many"}})
    assert judge(gate("goodput"), broken, usual).verdict is Verdict.PASS


def test_a_suite_of_which_nothing_was_read_is_no_baseline_even_where_it_may_differ() -> None:
    unread = suite(tuple(replace(each, id=f"x{each.id}") for each in answers("u" * 50)), sha256="cd")
    base = whole("baseline", suites={"gsm8k": unread})
    result = judge(accuracy_gate(), whole("tuned"), base, comparing=Comparing(frozenset({"suite"})))
    assert result.verdict is Verdict.INVALID


def test_names_are_checked() -> None:
    assert allowed_names(["driver", "engine"]) == {"driver", "engine"}
    with pytest.raises(UsageError, match=r"'power-limit'.*did you mean power_limit") as caught:
        allowed_names(["power-limit"])
    assert "--tokenwatt-allow-diff" in str(caught.value)


# --- several runs of the baseline


def run(tok_s: float, **changes: Any) -> ConfigRecord:
    return whole(
        "baseline",
        scenarios={
            "default": goodput(
                tok_s, energy=energy(tok_s / 100, variance_band_pct=0.1), variance_band_pct=0.1, error_pct=0.2
            )
        },
        profiles={"serve": profile(tok_s, tok_s, tok_s, memory=peak(tok_s / 20))},
        **changes,
    )


def tuned_run() -> ConfigRecord:
    return replace(run(925.0), key="tuned", role="tuned")


@pytest.mark.parametrize(
    ("each", "alone", "among"),
    [
        (gate("goodput"), Verdict.FAIL, Verdict.INCONCLUSIVE),
        (gate("energy", {"min": 0.95}), Verdict.FAIL, Verdict.PASS),
        (gate("speed", {"max_error": 0.01}), Verdict.FAIL, Verdict.INCONCLUSIVE),
    ],
)
def test_the_spread_between_runs_of_the_baseline_widens_the_error(
    each: GateSpec, alone: Verdict, among: Verdict
) -> None:
    runs = (run(1000.0), run(1030.0), run(980.0))
    once = judge(each, tuned_run(), runs[0], comparing=Comparing(baselines=runs[:1]))
    assert once.verdict is alone
    result = judge(each, tuned_run(), runs[0], comparing=Comparing(baselines=runs))
    assert result.verdict is among
    assert result.error == pytest.approx(0.05 * 3000 / 3010 * (0.925 if each.kind == "speed" else 1), rel=1e-3)


def test_peaks_of_memory_are_known_by_half_their_spread() -> None:
    runs = (run(1000.0), run(1100.0))
    tuned = whole("tuned", profiles={"serve": profile(1000.0, memory=peak(52.0))})
    once = memory_delta(tuned, runs[0]).overall
    widened = memory_delta(tuned, runs[0], baselines=runs).overall
    assert once is not None
    assert widened is not None
    assert (once.error, widened.error) < (0.01, 0.05)
    assert widened.error == pytest.approx((once.error or 0) + 50 / 52 * 100 / 1050 / 2)
    assert judge(gate("memory"), tuned, runs[0]).verdict is Verdict.FAIL
    assert judge(gate("memory"), tuned, runs[0], comparing=Comparing(baselines=runs)).verdict is Verdict.PASS


def test_one_repeat_has_the_error_of_the_runs() -> None:
    runs = tuple(with_profiles("baseline", profile(rate)) for rate in (1000.0, 1010.0))
    delta = speed_delta(with_profiles("tuned", profile(1000.0)), runs[0], {}, baselines=runs)
    assert delta.overall is not None
    assert delta.overall.error == pytest.approx(10 / 1005)


def test_runs_that_cannot_be_compared_say_nothing_of_the_error() -> None:
    far = run(500.0, **board(name="NVIDIA A100"))
    invalid = replace(run(500.0), invalid=(goodput(None).invalid or (judge(KL, whole("tuned"), None).reasons[0],)))
    result = judge(
        gate("goodput"), tuned_run(), run(1000.0), comparing=Comparing(baselines=(run(1000.0), far, invalid))
    )
    assert result.error == pytest.approx(0.002)


@given(st.lists(st.floats(500.0, 1500.0), min_size=2, max_size=5))
def test_the_band_is_never_narrower_with_more_runs(rates: list[float]) -> None:
    records = [run(rate) for rate in rates]
    for band in (session_band_pct, session_energy_band_pct):
        widths = [band(records[:1], "default", records[:count]) or 0.0 for count in range(1, len(records) + 1)]
        assert widths[-1] >= widths[0]
        spread = 100 * (max(rates) - min(rates)) / (sum(rates) / len(rates))
        assert widths[-1] == pytest.approx(max(0.1, spread))
