from __future__ import annotations

from typing import Any

import pytest
from gates_builders import INVALID, config, energy, gate, goodput
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.band import session_band_pct, session_energy_band_pct
from pytest_tokenwatt.gates.comparable import Comparing
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import (
    ConfigRecord,
    EnergyRecord,
    Figure,
    GateResult,
    PowerRecord,
    Reason,
    SensorInfo,
    Verdict,
)

LOST = Reason("gpu_lost", "GPU-1 fell off the bus at 61 s")


def of(key: str, record: EnergyRecord | None, **changes: Any) -> ConfigRecord:
    return config(key, goodput(energy=record), **changes)


BASELINE = of("baseline", energy(7.178))
TUNED = of("tuned", energy(8.209))


def verdict(tok_j: float, band_pct: float | None = 1.0, **limits: float) -> GateResult:
    """Judged against a baseline of 10 tok/J."""
    base = of("baseline", energy(10.0, variance_band_pct=band_pct))
    return judge(gate("energy", limits), of("tuned", energy(tok_j, variance_band_pct=band_pct)), base)


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


def test_the_reference_pair_is_worth_a_seventh() -> None:
    result = judge(gate("energy", {"min": 1.0}), TUNED, BASELINE)
    assert (result.verdict, result.text, result.rule) == (Verdict.PASS, "8.21 tok/J (+14.4 %)", ">= 1")
    assert (result.unit, result.limit) == ("ratio", 1.0)
    assert result.value == pytest.approx(8.209 / 7.178)
    assert result.error == pytest.approx(0.01)


def test_an_informational_gate_shows_the_same_with_a_dash() -> None:
    result = judge(gate("energy", mode="info"), TUNED, BASELINE)
    assert (result.verdict, result.text, result.rule) == (Verdict.INFO, "8.21 tok/J (+14.4 %)", "informational")
    assert (result.unit, result.limit, result.reasons) == ("ratio", None, ())
    alone = judge(gate("energy", mode="info"), TUNED, None)
    assert (alone.verdict, alone.text, alone.value, alone.unit) == (Verdict.INFO, "8.21 tok/J", 8.209, "tok/J")


@pytest.mark.parametrize(
    ("tok_j", "band_pct", "limits", "expected"),
    [
        (10.0, 1.0, {"min": 1.0}, Verdict.PASS),
        (9.91, 1.0, {"min": 1.0}, Verdict.PASS),
        (9.89, 1.0, {"min": 1.0}, Verdict.FAIL),
        (10.0, None, {"min": 1.0}, Verdict.PASS),
        (9.99, None, {"min": 1.0}, Verdict.FAIL),
        (12.0, 1.0, {"min": 1.1, "min_tok_j": 11.0}, Verdict.PASS),
        (12.0, 1.0, {"min": 1.1, "min_tok_j": 12.5}, Verdict.FAIL),
        (10.0, 1.0, {"min": 1.1, "min_tok_j": 9.0}, Verdict.FAIL),
        (3.0, 1.0, {"min_tok_j": 3.0}, Verdict.PASS),
        (2.99, 1.0, {"min_tok_j": 3.0}, Verdict.FAIL),
    ],
)
def test_the_rule(tok_j: float, band_pct: float | None, limits: dict[str, float], expected: Verdict) -> None:
    result = verdict(tok_j, band_pct, **limits)
    assert result.verdict is expected
    assert bool(result.reasons) is (expected is Verdict.FAIL)


def test_failing_says_by_how_much() -> None:
    below = verdict(9.0, min=1.0)
    assert (codes(below), below.reasons[0].text) == (["energy_regression"], "0.9 < 1 by more than 0.010")
    unknown = verdict(9.0, None, min=1.0)
    assert unknown.reasons[0].text == "0.9 < 1; the error of the ratio is not known"
    minimum = verdict(2.9996, min_tok_j=3.0)
    assert (codes(minimum), minimum.reasons[0].text) == (["energy_below_minimum"], "2.9996 < 3 tok/J")
    assert (minimum.value, minimum.unit, minimum.limit) == (2.9996, "tok/J", 3.0)


def test_the_text_says_what_can_be_told_from_the_ratio() -> None:
    assert verdict(10.05, min=0.9).text == "10.1 tok/J (+0.5 %), no measurable difference"
    assert verdict(10.5, None, min=0.9).text == "10.5 tok/J (+5.0 %, error not known)"
    absolute = verdict(12.0, min_tok_j=5.0)
    assert (absolute.text, absolute.value, absolute.unit) == ("12 tok/J (+20.0 %)", 12.0, "tok/J")


def test_a_baseline_promises_only_an_absolute_minimum() -> None:
    result = judge(gate("energy", {"min_tok_j": 7.0}, config="baseline"), BASELINE, None)
    assert (result.verdict, result.text, result.rule) == (Verdict.PASS, "7.18 tok/J", ">= 7 tok/J")


@pytest.mark.parametrize(
    ("candidate", "code"),
    [
        (config("tuned", goodput(energy=energy(None, invalid=(LOST,)))), "gpu_lost"),
        (config("tuned", goodput(energy=energy(None))), "not_measured"),
        (config("tuned", goodput(energy=None)), "no_power_source"),
        (config("tuned", goodput(None, energy=None)), "not_measured"),
        (config("tuned", goodput(None, invalid=(INVALID,), misses=())), "client_cpu"),
        (config("tuned", invalid=(Reason("engine_start_failed", "exit code 1"),)), "engine_start_failed"),
    ],
)
@pytest.mark.parametrize("limits", [{}, {"min": 1.0}, {"min_tok_j": 1.0}])
def test_without_a_valid_energy_the_gate_is_invalid(
    candidate: ConfigRecord, code: str, limits: dict[str, float]
) -> None:
    result = judge(gate("energy", limits), candidate, BASELINE)
    assert (result.verdict, codes(result), result.value) == (Verdict.INVALID, [code], None)


def test_why_no_source_was_read_is_told() -> None:
    missing = Reason("no_power_source", "NVML: libnvidia-ml.so.1 was not found; install the NVIDIA driver")
    source = PowerRecord("board", "board", "x", 1.0, (), "", Figure(None, "W"), 0, 0, 0, None, (missing,))
    result = judge(gate("energy", {"min": 1.0}), of("tuned", None, power=(source,)), BASELINE)
    assert (result.verdict, result.reasons) == (Verdict.INVALID, (missing,))


def test_an_energy_that_the_time_budget_cut_off_is_inconclusive() -> None:
    cut = config("tuned", goodput(None, invalid=(Reason("time_budget", "45 minutes are used up"),)))
    assert judge(gate("energy", {"min": 1.0}), cut, BASELINE).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("baseline", "code"),
    [
        (of("baseline", None), "baseline_invalid"),
        (of("baseline", energy(None, invalid=(LOST,))), "baseline_invalid"),
        (of("baseline", energy(0.0)), "baseline_invalid"),
        (config("baseline", goodput(None)), "baseline_invalid"),
        (config("baseline", goodput(energy=energy(), invalid=(INVALID,))), "baseline_invalid"),
        (of("baseline", energy(), invalid=(INVALID,)), "baseline_invalid"),
        (config("baseline", goodput(energy=energy(), slo=())), "slo_differs"),
        (of("baseline", energy(7.0, source="redfish", kind="node")), "power_source_differs"),
        (of("baseline", energy(7.0, source="simulated")), "power_source_differs"),
    ],
)
def test_a_baseline_that_cannot_be_compared_with(baseline: ConfigRecord, code: str) -> None:
    result = judge(gate("energy", {"min": 1.0}), TUNED, baseline)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, [code])
    info = judge(gate("energy", mode="info"), TUNED, baseline)
    assert (info.verdict, info.text, codes(info)) == (Verdict.INFO, f"8.21 tok/J (not compared: {code})", [code])
    absolute = judge(gate("energy", {"min_tok_j": 8.0}), TUNED, baseline)
    assert (absolute.verdict, absolute.value, absolute.reasons) == (Verdict.PASS, 8.209, ())


def test_two_ways_to_read_the_same_boards_are_compared() -> None:
    base = of("baseline", energy(7.178, source="dcgm"))
    assert judge(gate("energy", {"min": 1.0}), TUNED, base).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("on_missing", "expected", "on_inconclusive"),
    [("fail", Verdict.FAIL, "fail"), ("record", Verdict.INCONCLUSIVE, "skip")],
)
def test_without_any_baseline(on_missing: str, expected: Verdict, on_inconclusive: str) -> None:
    result = judge(gate("energy", {"min": 1.0, "on_missing_baseline": on_missing}), TUNED, None)
    assert (result.verdict, result.on_inconclusive, codes(result)) == (expected, on_inconclusive, ["no_baseline"])
    assert (result.value, result.unit, result.text) == (8.209, "tok/J", "8.21 tok/J")


def test_a_scenario_that_was_not_measured_is_invalid() -> None:
    result = judge(gate("energy", {"min": 1.0}, scenario="rag"), TUNED, BASELINE)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])


# --- the band


def test_the_band_is_that_of_tokens_per_joule_over_all_configurations() -> None:
    noisy = of("other", energy(7.2, variance_band_pct=6.0))
    records = (BASELINE, TUNED, noisy)
    assert session_energy_band_pct(records, "default") == 6.0
    assert session_band_pct(records, "default") == 1.0
    result = judge(gate("energy", {"min": 1.0}), of("tuned", energy(6.9)), BASELINE, records)
    assert result.verdict is Verdict.PASS
    assert result.error == pytest.approx(0.06)


def test_the_repeats_of_a_stored_baseline_count_as_those_of_the_session_do() -> None:
    noisy = of("baseline", energy(7.178, variance_band_pct=6.0))
    assert session_energy_band_pct((TUNED,), "default", (noisy,)) == 6.0
    assert session_energy_band_pct((TUNED, noisy), "default") == 6.0


def test_a_repeated_baseline_widens_the_band() -> None:
    again = of("again", energy(7.178 * 0.96, variance_band_pct=None), like="baseline")
    assert session_energy_band_pct((BASELINE, again), "default") == pytest.approx(4.0)
    broken = of("again", energy(None, invalid=(LOST,), variance_band_pct=None), like="baseline")
    assert session_energy_band_pct((BASELINE, broken), "default") == 1.0


@pytest.mark.parametrize(
    "records",
    [
        (),
        (of("baseline", None),),
        (of("baseline", energy(variance_band_pct=None)),),
        (of("b", energy(), invalid=(LOST,)),),
    ],
)
def test_what_was_measured_once_has_no_band(records: tuple[ConfigRecord, ...]) -> None:
    assert session_energy_band_pct(records, "default") is None
    assert session_energy_band_pct(records, "rag") is None


# --- properties

ENERGIES = st.one_of(
    st.none(),
    st.builds(
        energy,
        st.one_of(st.none(), st.floats(0.0, 100.0)),
        kind=st.sampled_from(["board", "node"]),
        variance_band_pct=st.one_of(st.none(), st.floats(0.0, 30.0)),
    ),
)
LIMITS = st.fixed_dictionaries(
    {"min": st.one_of(st.none(), st.floats(0.5, 2.0)), "min_tok_j": st.one_of(st.none(), st.floats(0.1, 50.0))}
)


@given(LIMITS, ENERGIES, st.one_of(st.none(), ENERGIES))
def test_only_a_measured_energy_passes(
    limits: dict[str, float | None], record: EnergyRecord | None, base: EnergyRecord | None
) -> None:
    result = judge(gate("energy", limits), of("tuned", record), of("baseline", base))
    if result.verdict is Verdict.PASS:
        assert record is not None
        assert record.tokens_per_joule is not None
        assert result.value is not None
        assert record.tokens_per_joule >= (limits["min_tok_j"] or 0.0)
        if limits["min"] is not None:
            assert base is not None
            assert base.tokens_per_joule
            assert base.kind == record.kind
    else:
        assert result.reasons


def boards(name: str, limit_w: float | None = 700.0) -> tuple[SensorInfo, ...]:
    return (SensorInfo("GPU-0", name, limit_w=limit_w),)


@pytest.mark.parametrize(("kind", "limits"), [("energy", {"min": 0.5}), ("goodput", {"min": 0.5})])
def test_other_accelerators_are_not_compared(kind: str, limits: dict[str, float]) -> None:
    base, tuned = of("baseline", energy(7.0), gpus=boards("H100")), of("tuned", energy(8.0), gpus=boards("H200"))
    result = judge(gate(kind, limits), tuned, base)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["hardware_differs"])
    assert "the candidate ran on H200, the baseline on H100" in result.reasons[0].text


@pytest.mark.parametrize(("kind", "limits"), [("energy", {"min": 0.5}), ("goodput", {"min": 0.5})])
def test_other_power_limits_are_not_compared_unless_allowed(kind: str, limits: dict[str, float]) -> None:
    base, tuned = of("baseline", energy(7.0), gpus=boards("H100")), of("tuned", energy(8.0), gpus=boards("H100", 500.0))
    result = judge(gate(kind, limits), tuned, base)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["power_limit_differs"])
    assert "a power limit of 500 W, the baseline at 700 W; --tokenwatt-allow-diff=power_limit" in result.reasons[0].text
    allowed = judge(gate(kind, limits), tuned, base, comparing=Comparing(frozenset({"power_limit"})))
    assert allowed.verdict is Verdict.PASS
    assert allowed.text.endswith(", although power limit differs")
    unknown = judge(gate(kind, limits), of("tuned", energy(8.0), gpus=boards("H100", None)), base)
    assert unknown.verdict is Verdict.PASS
    assert "power limit" not in unknown.text
