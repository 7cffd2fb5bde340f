"""The leaderboard figures, who qualifies, and why not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import INVALID, answers, config, contract, gate, goodput, peak, profile, suite
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.qualify import score_deltas
from pytest_tokenwatt.gates.score import ScoreParts, Standing, Term, drift_points, score_of
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.drift import Divergence, DriftRecord
from pytest_tokenwatt.records.profiles import Precision, ScoreDelta
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

TIERS = {"A": 1.0, "B": 2.0, "C": 5.0}
REFERENCE = ScoreParts(
    speed=Term(1.3506, 0.02),
    memory=Term(1.784, 0.001),
    length_shift=Term(0.01762, 0.005),
    drift=Term(0.5509, 0.042),
    mean_drop_pts=0.587,
    valid_domains=5,
    tiers=TIERS,
)


# --- figures


def test_the_reference_record_is_scored_from_its_parts() -> None:
    found = score_of(REFERENCE)
    assert found.efficiency_gain == pytest.approx(1.5388, abs=0.0003)
    assert found.score == pytest.approx(1.4563, abs=0.0003)
    assert (found.drift, found.tier, found.valid_domains, found.mean_drop_pts) == (0.5509, "A", 5, 0.587)
    assert (found.admitted, found.qualified, found.reason, found.missing) == (True, True, None, {})


def test_drift_is_points_per_nat_times_kl() -> None:
    points = drift_points(0.009696001195112797, 0.0007364314878597962, 56.8)
    assert points.value == pytest.approx(0.5509, abs=0.0003)
    assert points.se == pytest.approx(0.04183, abs=0.00001)
    assert drift_points(-1e-7, None, 56.8) == Term(0.0, None)


def test_shorter_answers_do_not_count() -> None:
    shorter, equal = (score_of(replace(REFERENCE, length_shift=Term(shift, 0.005))) for shift in (-0.3, 0.0))
    assert shorter.efficiency_gain == equal.efficiency_gain == pytest.approx(math.sqrt(1.3506 * 1.784))
    assert shorter.score_se == equal.score_se


@given(
    st.tuples(st.floats(0.3, 3), st.floats(0.3, 3), st.floats(0.01, 0.5), st.floats(0, 20)),
    st.tuples(*[st.floats(0.0001, 0.01)] * 4),
)
def test_the_error_is_that_of_small_changes(values: tuple[float, ...], errors: tuple[float, ...]) -> None:
    def parts_of(terms: Sequence[Term]) -> ScoreParts:
        return ScoreParts(speed=terms[0], memory=terms[1], length_shift=terms[2], drift=terms[3])

    def score(*terms: float) -> float:
        found = score_of(parts_of([Term(value) for value in terms])).score
        assert found is not None
        return found

    moved = []
    for place, error in enumerate(errors):
        up, down = list(values), list(values)
        up[place] += error / 1000
        down[place] -= error / 1000 if place < 3 else 0.0
        moved.append((score(*up) - score(*down)) * (500 if place < 3 else 1000))
    parts = parts_of([Term(value, error) for value, error in zip(values, errors, strict=True)])
    assert score_of(parts).score_se == pytest.approx(math.hypot(*moved), rel=0.001)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"speed": Term(missing="no profile")}, {"efficiency_gain", "score", "score_se"}),
        ({"memory": Term()}, {"efficiency_gain", "score", "score_se"}),
        ({"length_shift": Term()}, {"efficiency_gain", "score", "score_se"}),
        ({"drift": Term()}, {"drift", "score", "score_se"}),
        ({"speed": Term(1.3)}, {"score_se"}),
        ({"length_shift": Term(0.1)}, {"score_se"}),
        ({"length_shift": Term(-0.1)}, set()),
        ({"mean_drop_pts": None}, {"mean_drop_pts", "tier"}),
        ({"mean_drop_pts": 5.1}, {"tier"}),
    ],
)
def test_a_figure_without_its_parts_is_missing_with_the_reason(changes: dict[str, Any], missing: set[str]) -> None:
    found = score_of(replace(REFERENCE, **changes))
    assert set(found.missing) == missing
    assert all(getattr(found, name) is None and found.missing[name] for name in missing)


def test_tiers_are_by_mean_drop() -> None:
    tiers = [score_of(replace(REFERENCE, mean_drop_pts=drop)).tier for drop in (-0.5, 1.0, 1.5, 5.0, 5.1)]
    assert tiers == ["A", "A", "B", "C", None]


# --- who qualifies


def with_gates(**verdicts: Verdict) -> ScoreDelta:
    return score_of(replace(REFERENCE, gates={name: Standing(found, f"{name}!") for name, found in verdicts.items()}))


def test_the_first_gate_that_failed_is_named() -> None:
    found = with_gates(accuracy=Verdict.PASS, speed=Verdict.INCONCLUSIVE, memory=Verdict.FAIL, length=Verdict.FAIL)
    assert (found.admitted, found.qualified, found.reason) == (True, False, "memory failed: memory!")
    assert found.undecided == ("speed",)


def test_an_undecided_gate_leaves_it_open() -> None:
    found = with_gates(accuracy=Verdict.PASS, speed=Verdict.INCONCLUSIVE)
    assert (found.qualified, found.reason) == (None, "speed is undecided: speed!")


def test_faults_disqualify_and_a_score_that_is_not_known_leaves_it_open() -> None:
    found = score_of(replace(REFERENCE, faults=(INVALID,)))
    assert (found.admitted, found.qualified, found.reason) == (False, False, str(INVALID))
    unknown = score_of(replace(REFERENCE, drift=Term(missing="no drift block")))
    assert (unknown.qualified, unknown.reason) == (None, "there is no score: drift: no drift block")


# --- from records

SPEC = """engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, precision: W8A8KV8}
accuracy: {name: gsm8k, suite: g.jsonl}
drift: {}
profiles: {serve: {}}
audit: {}
score: {}
"""


def spec_of(tmp_path: Path, more: str = "") -> Spec:
    path = tmp_path / "lab.yaml"
    path.write_text(SPEC + more, encoding="utf-8")
    return load_spec(path, {})


def divergence(kl: float | None = 0.0097, **changes: Any) -> Divergence:
    found = Divergence(
        kl, 0.0007, 0.009, 0.0007, 0.0097, 0.0008, 0.008, 0.0097, 0.01, 0.97, 20, sequences=256, tokens=62_000,
        invalid_positions=0,
    )  # fmt: skip
    return replace(found, **changes)


def lengths(tokens: int, wrong: int = 0) -> tuple[Any, ...]:
    pattern = "-" * wrong + "+" * (100 - wrong)
    return tuple(replace(each, output_tokens=tokens + place % 3) for place, each in enumerate(answers(pattern)))


def measured(key: str, **changes: Any) -> ConfigRecord:
    """A candidate that is faster, smaller and as right as the baseline."""
    tuned = key == "tuned"
    drift = DriftRecord("ab", "prompt_logprobs", 20, 256, 62_000, divergence() if tuned else None, None)
    control = None if tuned else divergence(0.0, kl_lower=0.0, kl_sampled=0.0)
    rate, gib = (1400.0, 30.0) if tuned else (1000.0, 55.0)
    return config(
        key,
        **{
            "suites": {"gsm8k": suite(lengths(20))},
            "drift": replace(drift, control=control),
            "profiles": {"serve": profile(rate, rate, memory=peak(gib))},
            "audits": {name: AuditRecord(name, "audited", 24, 24, 0, 0, 0, gap_median=0.02, length_ratio=1.0)
                       for name in ("serve", "goodput")} if tuned else {},
            "precision": Precision(8, 8, 8, "W8A8KV8"),
            **changes,
        },
    )  # fmt: skip


def judge_all(spec: Spec, tuned: ConfigRecord, base: ConfigRecord) -> dict[str, GateResult]:
    found: dict[str, GateResult] = {}
    for each in list_gates(spec):
        if each.config == "tuned":
            found[each.gate] = judge(each, tuned, base, (base, tuned), tuple(found.values()))
    return found


def scored(spec: Spec, base: ConfigRecord | None = None, **changes: Any) -> tuple[GateResult, ScoreDelta]:
    baseline, tuned = base or measured("baseline"), measured("tuned", **changes)
    results = judge_all(spec, tuned, baseline)
    deltas = score_deltas(spec, (baseline, tuned), tuple(results.values()))
    assert list(deltas) == ["tuned"]
    return results["score"], deltas["tuned"]


def test_a_better_record_qualifies_and_its_gate_passes(tmp_path: Path) -> None:
    result, delta = scored(spec_of(tmp_path))
    assert (result.verdict, result.reasons, result.rule) == (Verdict.PASS, (), "qualified")
    assert result.text == "1.516 (E 1.602, D 0.551, tier A)"
    assert result.error == pytest.approx(1.96 * (delta.score_se or 0))
    assert (delta.admitted, delta.qualified, delta.tier, delta.valid_domains) == (True, True, "A", 1)
    assert delta.efficiency_gain == pytest.approx(math.sqrt(1.4 * 55 / 30))
    assert delta.score == result.value


FAILING: Mapping[str, dict[str, Any]] = {
    "accuracy[gsm8k]": {"suites": {"gsm8k": suite(lengths(20, wrong=9))}},
    "speed": {"profiles": {"serve": profile(800.0, 800.0, memory=peak(30.0))}},
    "memory": {"profiles": {"serve": profile(1400.0, 1400.0, memory=peak(60.0))}},
    "length": {"suites": {"gsm8k": suite(lengths(30))}},
    "precision": {"precision": Precision(16, 8, 8, "W16A8KV8")},
}


@pytest.mark.parametrize("name", FAILING)
def test_a_candidate_that_fails_one_of_them_is_not_qualified(tmp_path: Path, name: str) -> None:
    result, delta = scored(spec_of(tmp_path), **FAILING[name])
    assert (result.verdict, delta.admitted, delta.qualified) == (Verdict.FAIL, True, False)
    assert (delta.reason or "").startswith(f"{name} failed: ")
    assert result.reasons == (Reason("not_qualified", delta.reason or ""),)
    assert result.value is not None


@pytest.mark.parametrize("name", FAILING)
def test_a_gate_that_is_only_informational_still_decides(tmp_path: Path, name: str) -> None:
    kind = name.partition("[")[0]
    result, delta = scored(spec_of(tmp_path, f"gates: {{{kind}: {{mode: info}}}}\n"), **FAILING[name])
    assert (result.verdict, delta.qualified) == (Verdict.FAIL, False)


@pytest.mark.parametrize("name", FAILING)
def test_a_gate_that_is_off_does_not(tmp_path: Path, name: str) -> None:
    kind = name.partition("[")[0]
    result, delta = scored(spec_of(tmp_path, f"gates: {{{kind}: {{mode: 'off'}}}}\n"), **FAILING[name])
    assert (result.verdict, delta.qualified) == (Verdict.PASS, True)


def test_an_undecided_gate_makes_the_score_inconclusive(tmp_path: Path) -> None:
    once = {"serve": profile(1400.0, memory=peak(30.0))}
    result, delta = scored(spec_of(tmp_path), measured("baseline", profiles={"serve": profile(1000.0)}), profiles=once)
    assert (result.verdict, delta.qualified, delta.undecided) == (Verdict.INCONCLUSIVE, None, ("speed",))
    assert delta.admitted


def test_a_gate_that_was_not_judged_is_undecided(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    wanted = next(each for each in list_gates(spec) if each.gate == "score")
    result = judge(wanted, measured("tuned"), measured("baseline"))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "was not judged" in result.reasons[0].text


INVALIDATING: Mapping[str, dict[str, Any]] = {
    "goodput": {"scenarios": {"default": goodput(None, invalid=(INVALID,))}},
    "accuracy": {"suites": {"gsm8k": suite(lengths(20), invalid=(INVALID,), score=None)}},
    "drift": {
        "drift": replace(measured("tuned").drift or DriftRecord("", "", 0, 0, 0, None, None), invalid=(INVALID,))
    },
    "profile": {"profiles": {"serve": profile(None, invalid=(INVALID,))}},
    "audit": {"audits": {"serve": AuditRecord("serve", "invalid", 0, 0, 0, 0, 0, invalid=(INVALID,))}},
}


@pytest.mark.parametrize("name", INVALIDATING)
def test_a_measurement_that_is_not_to_be_believed_is_not_admitted(tmp_path: Path, name: str) -> None:
    result, delta = scored(spec_of(tmp_path), **INVALIDATING[name])
    assert (result.verdict, delta.admitted, delta.qualified) == (Verdict.INVALID, False, False)
    assert "client_cpu" in [reason.code for reason in result.reasons]
    assert INVALID.text in (delta.reason or "")


def test_a_missed_slo_is_no_fault_of_a_measurement(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "slo: {ttft_p99_ms: 2000}\npower: {source: simulated}\n")
    result, delta = scored(spec, scenarios={"default": goodput(None)})
    assert (result.verdict, delta.admitted, delta.qualified) == (Verdict.PASS, True, True)


def test_an_invalid_baseline_is_no_measure(tmp_path: Path) -> None:
    result, delta = scored(spec_of(tmp_path), measured("baseline", profiles={}))
    assert (result.verdict, delta.admitted) == (Verdict.INVALID, False)
    assert (delta.reason or "").startswith("baseline_invalid: speed, memory: ")


def test_outputs_that_are_not_the_models_are_not_admitted(tmp_path: Path) -> None:
    canned = {name: replace(each, gap_median=9.0) for name, each in measured("tuned").audits.items()}
    result, delta = scored(spec_of(tmp_path), audits=canned)
    assert (result.verdict, delta.admitted, delta.qualified) == (Verdict.FAIL, False, False)
    assert (delta.reason or "").startswith("audit_failed: serve: ")


def test_a_contract_that_was_not_met_is_not_admitted(tmp_path: Path) -> None:
    _, delta = scored(spec_of(tmp_path), contract=contract(stream="wrong"))
    assert (delta.admitted, delta.qualified) == (False, False)
    assert (delta.reason or "").startswith("contract_failed")


def test_without_a_drift_block_there_is_no_score_to_pass(tmp_path: Path) -> None:
    result, delta = scored(spec_of(tmp_path, "x-none: 1\n"), drift=None)
    assert result.verdict is Verdict.INVALID
    path = tmp_path / "plain.yaml"
    path.write_text(SPEC.replace("drift: {}\n", ""), encoding="utf-8")
    result, delta = scored(load_spec(path, {}), drift=None)
    assert (result.verdict, [reason.code for reason in result.reasons]) == (Verdict.INVALID, ["not_measured"])
    assert "drift: tuned was not scored" in (delta.reason or "")


def test_without_a_baseline_nothing_is_scored(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    wanted = next(each for each in list_gates(spec) if each.gate == "score")
    result = judge(wanted, measured("tuned"), None)
    assert [reason.code for reason in result.reasons] == ["no_baseline"]
    assert score_deltas(spec, (measured("tuned"),), ()) == {}
    path = tmp_path / "plain.yaml"
    path.write_text(SPEC.replace("score: {}\n", ""), encoding="utf-8")
    assert score_deltas(load_spec(path, {}), (measured("baseline"), measured("tuned")), ()) == {}


def test_rules_and_other_configurations_say_nothing_of_the_measurement(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    base, tuned = measured("baseline"), measured("tuned")
    results = judge_all(spec, tuned, base)
    mine = replace(results["speed"], gate="rule[mine]", verdict=Verdict.INVALID, found=Verdict.INVALID)
    other = replace(results["speed"], config="other", verdict=Verdict.FAIL, found=Verdict.FAIL)
    delta = score_deltas(spec, (base, tuned), (*results.values(), mine, other))["tuned"]
    assert (delta.admitted, delta.qualified) == (True, True)


def test_a_score_gate_knows_what_it_rests_on(tmp_path: Path) -> None:
    found: GateSpec = next(each for each in list_gates(spec_of(tmp_path)) if each.gate == "score")
    assert found.needs == "score"
    assert found.limits["gates"] == ["accuracy[gsm8k]", "speed", "memory", "length", "precision"]
    assert (found.limits["points_per_nat"], found.limits["tiers"]) == (56.8, TIERS)
    assert gate("score").kind == "score"
