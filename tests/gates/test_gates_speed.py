"""Speed and memory against the baseline: what is compared, how sure it is, and what the gates make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import INVALID, config, gate, goodput, peak, profile, profile_run, with_profiles
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.speeds import Online, memory_delta, memory_deltas, speed_delta, speed_deltas
from pytest_tokenwatt.metrics.memory import peak_memory
from pytest_tokenwatt.records import ConfigRecord, GateResult, Reason, Verdict
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.records.profiles import EnginePeaks, ProfileRecord, Startup
from pytest_tokenwatt.report.profiles import profile_entries
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.profiles import profiles as stored_profiles

SPEEDS = {"interactive": 1.2284, "long_context": 1.3961, "serve": 1.4367}
MEMORIES = {"interactive": 1.5843, "long_context": 1.94, "serve": 1.8474}
NAMES = list(SPEEDS)


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


def pair(
    ours: Sequence[float | None], base: Sequence[float | None], **changes: Any
) -> tuple[ConfigRecord, ConfigRecord]:
    return with_profiles("tuned", profile(*ours, **changes)), with_profiles("baseline", profile(*base))


def judged(ours: Sequence[float | None], base: Sequence[float | None], **limits: Any) -> GateResult:
    return judge(gate("speed", limits), *pair(ours, base))


# --- speed


def test_the_reference_speeds_make_the_reference_mean() -> None:
    ours = with_profiles("tuned", *(profile(1000 * gain, name=name) for name, gain in SPEEDS.items()))
    base = with_profiles("baseline", *(profile(1000.0, name=name) for name in SPEEDS))
    delta = speed_delta(ours, base, {})
    assert {name: round(ratio.value or 0, 4) for name, ratio in delta.profiles.items()} == SPEEDS
    assert delta.overall is not None
    assert delta.overall.value == pytest.approx(1.3506, abs=0.00005)
    assert (delta.overall.error, delta.smallest) == (None, None)


@pytest.mark.parametrize(
    ("ours", "verdict", "code"),
    [
        ([1000.0, 1001.0, 999.0], Verdict.PASS, []),
        ([949.5, 950.5, 950.0], Verdict.PASS, []),
        ([949.0, 948.0, 947.0], Verdict.PASS, []),
        ([900.0, 901.0, 899.0], Verdict.FAIL, ["speed_regression"]),
        ([900.0, 1100.0, 1000.0], Verdict.INCONCLUSIVE, ["error_too_large"]),
        ([600.0, 1100.0, 900.0], Verdict.INCONCLUSIVE, ["error_too_large"]),
        ([1900.0, 2100.0, 2000.0], Verdict.PASS, []),
        ([1000.0], Verdict.INCONCLUSIVE, ["error_unknown"]),
        ([500.0], Verdict.INCONCLUSIVE, ["error_unknown"]),
    ],
)
def test_the_ratio_and_its_error_decide(ours: list[float], verdict: Verdict, code: list[str]) -> None:
    result = judged(ours, [1000.0] * len(ours))
    assert (result.verdict, codes(result)) == (verdict, code)
    assert result.value == pytest.approx(sum(ours) / len(ours) / 1000)


@given(st.lists(st.floats(500, 1500), min_size=2, max_size=4), st.floats(0.5, 1.2), st.floats(0.001, 0.2))
def test_the_rule_is_the_one_that_is_written_down(ours: list[float], minimum: float, max_error: float) -> None:
    result = judged(ours, [1000.0] * len(ours), min=minimum, max_error=max_error)
    value, error = result.value, result.error
    assert value is not None
    assert error is not None
    passes = value >= minimum - error and (error <= max_error or value - error >= minimum)
    fails = value < minimum - error
    assert result.verdict is (Verdict.PASS if passes else Verdict.FAIL if fails else Verdict.INCONCLUSIVE)


def test_the_text_has_the_ratio_its_error_and_the_smallest_change() -> None:
    result = judged([1100.0, 1101.0, 1099.0], [1000.0] * 3)
    assert result.text == "1.100 [1.1, 1.1], sees changes from 0.23 %"
    assert (result.rule, result.unit, result.limit) == (">= 0.95", "ratio", 0.95)
    failed = judged([900.0, 901.0, 899.0], [1000.0] * 3)
    assert failed.reasons[0].text.startswith("0.9 < 0.95 by more than 0.00")
    assert failed.reasons[0].text.endswith("(serve 0.900)")


@pytest.mark.parametrize("where", ["again", "like"])
def test_the_baselines_second_measurement_widens_the_error(where: str) -> None:
    tuned, base = pair([900.0, 901.0, 899.0], [1000.0] * 3)
    slower = {"serve": profile(940.0, 940.0, 940.0)}
    repeated = replace(config("again", profiles=slower), like="baseline", role="other")
    base = replace(base, again=slower) if where == "again" else base
    known = (base, tuned, repeated) if where == "like" else (base, tuned)
    result = judge(gate("speed"), tuned, base, known)
    assert result.error == pytest.approx(0.9 * (0.06 + 0.0028), abs=0.001)
    assert result.verdict is Verdict.INCONCLUSIVE
    failed_repeat = replace(base, again={"serve": profile(None, invalid=(INVALID,))})
    assert codes(judge(gate("speed"), tuned, failed_repeat)) == ["error_unknown"]
    other_load = replace(base, again={"serve": replace(slower["serve"], load_sha256="cd")})
    assert judge(gate("speed"), tuned, other_load).verdict is Verdict.FAIL


def test_with_one_repeat_the_second_measurement_is_the_error() -> None:
    tuned, base = pair([1000.0], [1000.0])
    result = judge(gate("speed"), tuned, replace(base, again={"serve": profile(980.0)}))
    assert result.verdict is Verdict.PASS
    assert result.error == pytest.approx(0.02)


def test_runs_in_turn_are_compared_with_each_other() -> None:
    tuned, base = pair([1000.0, 1100.0], [1000.0, 1000.0])
    in_turn = replace(tuned.profiles["serve"], paired=(profile_run(1000.0), profile_run(1100.0)))
    delta = speed_delta(replace(tuned, profiles={"serve": in_turn}), base, {})
    assert delta.overall is not None
    assert (delta.overall.value, delta.overall.error) == (1.0, 0.0)
    assert delta.how == "2 repeats in turn with the baseline's"
    broken = replace(in_turn, paired=(profile_run(1000.0), profile_run(None, invalid=(INVALID,))))
    found = speed_delta(replace(tuned, profiles={"serve": broken}), base, {})
    assert [reason.code for reason in found.faults] == ["baseline_invalid"]


@pytest.mark.parametrize(
    ("ours", "base", "code"),
    [
        (None, profile(1000.0), "not_measured"),
        (profile(1000.0), None, "baseline_invalid"),
        (profile(1000.0, invalid=(INVALID,)), profile(1000.0), "client_cpu"),
        (profile(1000.0), profile(1000.0, invalid=(INVALID,)), "baseline_invalid"),
        (profile(None), profile(1000.0), "not_measured"),
        (profile(1000.0), profile(None), "baseline_invalid"),
        (profile(), profile(1000.0), "not_measured"),
        (profile(1000.0, load_sha256="cd"), profile(1000.0), "workload_differs"),
    ],
)
def test_what_cannot_be_compared_is_invalid(ours: ProfileRecord | None, base: ProfileRecord | None, code: str) -> None:
    tuned = with_profiles("tuned", *([ours] if ours else []))
    baseline = with_profiles("baseline", *([base] if base else []))
    for kind in ("speed", "memory"):
        result = judge(gate(kind), tuned, baseline)
        assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, [code], None)
        assert "serve" in result.reasons[0].text


def test_an_invalid_repeat_is_no_repeat() -> None:
    record = profile(1000.0, 1000.0)
    broken = replace(record, runs=(record.runs[0], profile_run(1000.0, invalid=(INVALID,))))
    result = judge(gate("speed"), with_profiles("tuned", broken), with_profiles("baseline", record))
    assert codes(result) == ["client_cpu"]


def test_one_missing_profile_leaves_no_mean() -> None:
    limits = {"profiles": ["serve", "interactive"]}
    tuned, base = pair([1000.0, 1000.0], [1000.0, 1000.0])
    result = judge(gate("speed", limits), tuned, base)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])
    delta = speed_delta(tuned, base, {}, names=limits["profiles"])
    assert (list(delta.profiles), delta.overall) == (["serve"], None)


def test_unlike_accelerators_and_baselines_that_failed_are_not_compared() -> None:
    tuned, base = pair([1000.0], [1000.0])
    h100, a100 = (SensorInfo(f"GPU-{name}", name) for name in ("NVIDIA H100", "NVIDIA A100"))
    dead = replace(base, invalid=(Reason("engine_start_failed", "exit code 1"),))
    for kind in ("speed", "memory"):
        result = judge(gate(kind), replace(tuned, gpus=(h100,)), replace(base, gpus=(a100,)))
        assert codes(result) == ["hardware_differs"]
        assert codes(judge(gate(kind), tuned, dead)) == ["baseline_invalid"]


@pytest.mark.parametrize(("on_missing", "verdict"), [("fail", Verdict.FAIL), ("record", Verdict.INCONCLUSIVE)])
def test_without_a_baseline_there_are_only_own_figures(on_missing: str, verdict: Verdict) -> None:
    tuned = with_profiles("tuned", profile(2783.1))
    texts = {"speed": "serve 2783 tok/s", "memory": "serve 55.6 GiB"}
    for kind, text in texts.items():
        result = judge(gate(kind, {"on_missing_baseline": on_missing}), tuned, None)
        assert (result.verdict, codes(result), result.text) == (verdict, ["no_baseline"], text)
        assert codes(judge(gate(kind), config("tuned"), None)) == ["not_measured"]


def test_what_the_time_budget_cut_off_is_inconclusive() -> None:
    cut_off = profile(None, invalid=(Reason("time_budget", "45 minutes are used up"),))
    for kind in ("speed", "memory"):
        result = judge(gate(kind), with_profiles("tuned", cut_off), with_profiles("baseline", profile(1.0)))
        assert result.verdict is Verdict.INCONCLUSIVE


# --- the goodput search as a profile


ONLINE = {"profiles": [], "online_slo": "default"}


def test_the_goodput_search_is_a_profile_with_the_error_of_goodput() -> None:
    base, tuned = config("baseline", goodput(1000.0)), config("tuned", goodput(1100.0))
    result = judge(gate("speed", ONLINE), tuned, base)
    assert result.verdict is Verdict.PASS
    assert (result.value, result.error) == pytest.approx((1.1, 0.018))
    noisy = config("other", goodput(1000.0, variance_band_pct=4.0))
    assert judge(gate("speed", ONLINE), tuned, base, (base, tuned, noisy)).error == pytest.approx(0.04)
    delta = speed_delta(tuned, base, {}, names=[], online=Online("default", None))
    assert list(delta.profiles) == ["online_slo"]


@pytest.mark.parametrize(
    ("ours", "base", "code"),
    [
        (goodput(None), goodput(1000.0), "not_measured"),
        (goodput(1000.0), goodput(None), "baseline_invalid"),
        (goodput(1000.0, invalid=(INVALID,)), goodput(1000.0), "client_cpu"),
        (goodput(1000.0), goodput(1000.0, invalid=(INVALID,)), "baseline_invalid"),
        (goodput(1000.0, load_sha256="a"), goodput(1000.0, load_sha256="b"), "workload_differs"),
        (goodput(1000.0, scenario="rag"), goodput(1000.0), "not_measured"),
    ],
)
def test_a_search_that_cannot_be_compared_is_invalid(ours: Any, base: Any, code: str) -> None:
    result = judge(gate("speed", ONLINE), config("tuned", ours), config("baseline", base))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, [code])
    assert result.reasons[0].text.startswith("online_slo: ")


def test_a_baseline_that_was_not_driven_to_its_limit_may_be_faster() -> None:
    base = config("baseline", goodput(1000.0, bracket="open"))
    result = judge(gate("speed", ONLINE), config("tuned", goodput(2000.0)), base)
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["error_unknown"])
    assert "max_rps" in result.reasons[0].text


# --- memory


def memory_pair(ours: float | None, base: float | None, error: float | None = 0.0) -> tuple[ConfigRecord, ConfigRecord]:
    records = [profile(1000.0, memory=peak(gib, error)) for gib in (ours, base)]
    return with_profiles("tuned", records[0]), with_profiles("baseline", records[1])


def test_the_reference_memories_make_the_reference_gain_and_saving() -> None:
    ours = with_profiles(
        "tuned", *(profile(1.0, name=name, memory=peak(100 / gain)) for name, gain in MEMORIES.items())
    )
    base = with_profiles("baseline", *(profile(1.0, name=name, memory=peak(100.0)) for name in MEMORIES))
    delta = memory_delta(ours, base)
    assert delta.overall is not None
    assert delta.overall.value == pytest.approx(1.784, abs=0.0005)
    assert delta.saved == pytest.approx(0.4587, abs=0.0001)


@pytest.mark.parametrize(
    ("ours", "error", "verdict"),
    [
        (50.0, 0.0, Verdict.PASS),
        (100.0, None, Verdict.PASS),
        (101.0, 0.0, Verdict.PASS),
        (101.0, None, Verdict.PASS),
        (101.1, 0.0, Verdict.FAIL),
        (101.1, None, Verdict.FAIL),
        (104.0, 0.04, Verdict.PASS),
        (104.0, 0.02, Verdict.FAIL),
    ],
)
def test_a_gain_may_fall_short_by_its_error(ours: float, error: float | None, verdict: Verdict) -> None:
    result = judge(gate("memory"), *memory_pair(ours, 100.0, error))
    assert result.verdict is verdict
    assert codes(result) == ([] if verdict is Verdict.PASS else ["memory_regression"])


def test_memory_shows_the_gain_and_both_peaks() -> None:
    result = judge(gate("memory"), *memory_pair(30.098, 55.602))
    assert result.text == "1.847 (serve 30.1 GiB against 55.6)"
    assert (result.rule, result.unit, result.limit) == (">= 1", "gain", 1.0)
    failed = judge(gate("memory", {"min": 2.0}), *memory_pair(30.098, 55.602))
    assert failed.reasons[0].text == "1.85 < 2 by more than 0.01 (serve 30.1 GiB against 55.6)"


@pytest.mark.parametrize(("ours", "base"), [(None, 100.0), (100.0, None)])
def test_a_peak_that_is_not_known_is_invalid_with_the_reason(ours: float | None, base: float | None) -> None:
    result = judge(gate("memory"), *memory_pair(ours, base))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])
    assert "the log does not tell" in result.reasons[0].text


def seldom_read(*, other_gib: float | None = 2.0) -> ProfileRecord:
    """A profile whose metrics came 1.2 times a second."""
    peaks = EnginePeaks(kv_usage=0.3, readings=12, seconds=10.0, longest_gap_s=1.0)
    runs = (profile_run(1000.0, peaks=peaks),)
    start = Startup(kv_cache_gib=100.0, activation_gib=other_gib, non_torch_gib=0.0, cuda_graph_gib=0.0)
    memory = peak_memory(runs, start, (8.0, "log"), concurrency=32, tokens_per_request=8704)
    return profile(1000.0, runs=runs, memory=memory)


@pytest.mark.parametrize("swap", [False, True])
def test_metrics_that_came_too_seldom_leave_memory_undecided(swap: bool) -> None:
    sides = [seldom_read(), profile(1000.0)]
    ours, base = reversed(sides) if swap else sides
    result = judge(gate("memory"), with_profiles("tuned", ours), with_profiles("baseline", base))
    side = "baseline" if swap else "tuned"
    assert (result.verdict, result.text) == (Verdict.INCONCLUSIVE, "not measured")
    assert [str(reason) for reason in result.reasons] == [
        f"metrics_too_slow: serve of {side}: metrics came 12 times in 10.0 s (1.2 a second, 2 are needed): a short "
        "peak may be missed"
    ]


def test_a_report_that_is_judged_again_leaves_it_as_undecided() -> None:
    slow = seldom_read()
    told = profile_entries(with_profiles("tuned", slow))
    memory = {
        name: getattr(slow.memory, name) for name in ("weights_gib", "kv_gib", "other_gib", "peak_gib", "missing")
    }
    rate, peaks, entries, asked = (
        Fields("report.json", each) for each in ({"serve": 1000.0}, {"serve": memory}, told, {})
    )
    stored = stored_profiles(rate, peaks, entries, asked)["serve"]
    assert replace(stored.runs[0].peaks, missing={}) == slow.runs[0].peaks
    result = judge(gate("memory"), with_profiles("tuned", stored), with_profiles("baseline", profile(1000.0)))
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["metrics_too_slow"])


def test_what_else_is_not_known_stays_invalid() -> None:
    ours = with_profiles("tuned", seldom_read(other_gib=None))
    assert judge(gate("memory"), ours, with_profiles("baseline", profile(1000.0))).verdict is Verdict.INVALID
    both = with_profiles("tuned", seldom_read(), profile(1000.0, name="interactive", memory=peak(None)))
    base = with_profiles("baseline", profile(1000.0), profile(1000.0, name="interactive"))
    assert judge(gate("memory", {"profiles": None}), both, base).verdict is Verdict.INVALID


# --- all configurations

SPEC = """engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
"""


def test_every_candidate_has_its_deltas(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(f"{SPEC}slo: {{ttft_p99_ms: 10}}\nprofiles: {{serve: {{}}, online_slo: {{}}}}\n", encoding="utf-8")
    tuned, base = pair([1100.0, 1100.0], [1000.0, 1000.0])
    spec = load_spec(path)
    speeds, memories = speed_deltas(spec, (base, tuned)), memory_deltas(spec, (base, tuned))
    assert (list(speeds), list(memories)) == (["tuned"], ["tuned"])
    assert list(speeds["tuned"].profiles) == ["serve", "online_slo"]
    assert list(memories["tuned"].profiles) == ["serve"]
    assert not speed_deltas(spec, (tuned,))
    assert not memory_deltas(spec, (tuned,))
    assert list(speed_deltas(spec, (tuned,), base)) == ["tuned"]
    path.write_text(SPEC, encoding="utf-8")
    assert not speed_deltas(load_spec(path), (base, tuned))
    assert not memory_deltas(load_spec(path), (base, tuned))
