"""Turns records into verdicts. Pure, so that a replay judges stored records with the same functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.gates.accuracy import judge_accuracy
from pytest_tokenwatt.gates.audit import judge_audit
from pytest_tokenwatt.gates.budget import judge_budget
from pytest_tokenwatt.gates.comparable import Comparing, allowed_remark, levelled, other_machine
from pytest_tokenwatt.gates.contract import judge_contract
from pytest_tokenwatt.gates.drift import judge_kl, judge_perplexity
from pytest_tokenwatt.gates.energy import judge_energy
from pytest_tokenwatt.gates.finding import Finding, unusable
from pytest_tokenwatt.gates.identity import identical_twin
from pytest_tokenwatt.gates.length import judge_length
from pytest_tokenwatt.gates.memory import judge_memory
from pytest_tokenwatt.gates.precision import judge_precision
from pytest_tokenwatt.gates.qualify import judge_score
from pytest_tokenwatt.gates.rules import judge_rule
from pytest_tokenwatt.gates.serving import judge_goodput, judge_slo
from pytest_tokenwatt.gates.speed import judge_speed
from pytest_tokenwatt.gates.stated import states
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, GoodputRecord, Reason, Verdict

_BY_CONFIGURATION: Mapping[str, Callable[[GateSpec, ConfigRecord, ConfigRecord | None], Finding]] = {
    "rule": judge_rule,
    "accuracy": judge_accuracy,
    "length": judge_length,
    "kl": judge_kl,
    "perplexity": judge_perplexity,
    "audit": judge_audit,
}
"""Rules that need no scenario."""
_ALONE: Mapping[str, Callable[[GateSpec, ConfigRecord], Finding]] = {
    "budget": judge_budget,
    "precision": judge_precision,
}
"""Rules that compare with no baseline."""
_STRICTLY = Comparing()
EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_INCONCLUSIVE = 10
EXIT_INVALID = 11


def judge(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord] = (),
    results: Sequence[GateResult] = (),
    *,
    comparing: Comparing = _STRICTLY,
) -> GateResult:
    """Judge one gate of ``candidate``.

    ``baseline`` is ``None`` when there is none at all. ``records`` are all configurations of the session or replay, for
    the variance bands and for spotting identical ones; without them candidate and baseline are all there is.
    ``results`` are those of the gates that were judged before, which the score rests on. ``comparing`` says in what
    records may differ and still be compared, and has further runs of the baseline.
    """
    known = tuple(records) or tuple(record for record in (baseline, candidate) if record is not None)
    if baseline is None:
        return _result(gate, _find(gate, candidate, None, known, results, ()))
    like, allow = levelled(candidate, baseline, comparing.allow), comparing.allow
    runs = tuple(run for run in comparing.baselines if not other_machine(candidate, levelled(candidate, run, allow)))
    finding = _find(gate, candidate, like, known, results, runs)
    remark = allowed_remark(gate.kind, candidate, baseline, allow)
    return _result(gate, replace(finding, text=f"{finding.text}{remark}") if remark else finding)


def not_stored(gate: GateSpec, reason: Reason) -> GateResult:
    """The result of a gate whose figures a replay does not have."""
    return _result(gate, Finding(Verdict.INCONCLUSIVE, "not stored", reasons=(reason,)))


def _find(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord],
    results: Sequence[GateResult],
    runs: Sequence[ConfigRecord],
) -> Finding:
    if gate.kind == "contract" and (candidate.contract is not None or "contract" in states(candidate).verdicts):
        return judge_contract(candidate)
    if candidate.invalid:
        return unusable(candidate.invalid)
    twin = identical_twin(candidate, records)
    if twin is not None:
        return unusable((twin,))
    if gate.kind in _BY_CONFIGURATION:
        return _BY_CONFIGURATION[gate.kind](gate, candidate, baseline)
    if gate.kind in _ALONE:
        return _ALONE[gate.kind](gate, candidate)
    if gate.kind == "speed":
        return judge_speed(gate, candidate, baseline, records, runs)
    if gate.kind == "memory":
        return judge_memory(gate, candidate, baseline, runs)
    if gate.kind == "score":
        return judge_score(gate, candidate, baseline, records, results, runs)
    return _of_scenario(gate, candidate, baseline, records, runs)


def _of_scenario(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord],
    runs: Sequence[ConfigRecord],
) -> Finding:
    record = _scenario(gate, candidate)
    if gate.kind == "slo" and record is not None:
        return judge_slo(gate, candidate, record)
    if gate.kind == "goodput" and record is not None:
        return judge_goodput(gate, candidate, record, baseline, records, runs)
    if gate.kind == "energy" and record is not None:
        return judge_energy(gate, candidate, record, baseline, records, runs)
    return unusable((Reason("not_measured", f"{candidate.key} has no record of {gate.scenario or gate.kind}"),))


def _scenario(gate: GateSpec, candidate: ConfigRecord) -> GoodputRecord | None:
    return None if gate.scenario is None else candidate.scenarios.get(gate.scenario)


def _result(gate: GateSpec, finding: Finding) -> GateResult:
    return GateResult(
        id=f"{gate.config}::{gate.gate}",
        config=gate.config,
        gate=gate.gate,
        value=finding.value,
        unit=finding.unit,
        limit=finding.limit,
        error=finding.error,
        verdict=Verdict.INFO if gate.mode == "info" else finding.verdict,
        mode=gate.mode,
        reasons=finding.reasons,
        text=finding.text,
        rule="informational" if gate.mode == "info" else finding.rule,
        on_inconclusive="skip" if finding.skips else gate.on_inconclusive,
        line=gate.line,
        found=finding.verdict,
    )


def exit_code(results: Iterable[GateResult]) -> int:
    """0 all enforced gates passed, 1 one failed or nothing was judged, 11 invalid, 10 inconclusive where that fails."""
    judged = list(results)
    verdicts = {result.verdict for result in judged}
    if not judged or Verdict.FAIL in verdicts:
        return EXIT_FAIL
    if Verdict.INVALID in verdicts:
        return EXIT_INVALID
    undecided = any(r.verdict is Verdict.INCONCLUSIVE and r.on_inconclusive == "fail" for r in judged)
    return EXIT_INCONCLUSIVE if undecided else EXIT_PASS
