"""The rule of the contract gate: the engine answered what it was asked."""

from __future__ import annotations

from pytest_tokenwatt.gates.finding import Finding
from pytest_tokenwatt.gates.stated import states
from pytest_tokenwatt.records import ConfigRecord, Contract, Reason, Verdict


def judge_contract(candidate: ConfigRecord) -> Finding:
    """Passes when every required probe was answered; optional ones only cost what they cost.

    Of another tool's record there is only its own verdict.
    """
    if candidate.contract is not None:
        return _judge_probes(candidate.contract)
    if states(candidate).verdicts.get("contract") == Verdict.PASS:
        return Finding(Verdict.PASS, "passed, as stored", "all answered")
    reason = Reason("contract_failed", f"the record of {candidate.key} says that its contract was not met")
    return Finding(Verdict.FAIL, "failed, as stored", "all answered", reasons=(reason,))


def _judge_probes(contract: Contract) -> Finding:
    required = [probe for probe in contract.probes if probe.required]
    broken = [probe for probe in required if probe.state != "pass"]
    lacking = [probe.name for probe in contract.probes if not probe.required and probe.state != "pass"]
    text = f"{len(required) - len(broken)} of {len(required)} required probes"
    if lacking:
        text += f", lacks {', '.join(lacking)}"
    reasons = tuple(Reason(f"contract_{probe.state}", f"{probe.name}: {probe.detail}") for probe in broken)
    if not required:
        reasons = (Reason("not_measured", "the engine was asked nothing"),)
    verdict = Verdict.FAIL if broken else Verdict.PASS if required else Verdict.INVALID
    return Finding(verdict, text, "all answered", float(len(required) - len(broken)), "probes", reasons=reasons)
