"""The rule of the precision gate: the engine computes with the bits that its configuration declares."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_tokenwatt.gates.finding import Finding, unusable
from pytest_tokenwatt.geometry.labels import bits_apart, declared_bits
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.profiles import Precision


def judge_precision(gate: GateSpec, candidate: ConfigRecord) -> Finding:
    """Pass when every width of the declared label (such as W8A8KV8) was read and is the same, fail when one differs.

    Inconclusive where one could not be read and none differs; a label may leave out what it does not declare.
    """
    declared = str(gate.limits["declared"])
    rule = f"= {declared}"
    wanted = declared_bits(declared)
    if not wanted:
        text = f"{declared!r} is no label such as W8A8KV8; correct the configuration's precision"
        return unusable((Reason("label_unknown", text),), rule)
    found = candidate.precision
    if found is None:
        reason = Reason("not_readable", f"the precision of {candidate.key} was not read")
        return Finding(Verdict.INCONCLUSIVE, "not read", rule, reasons=(reason,))
    shown, apart, unread = _shown(found), bits_apart(declared, found), _unread(found, wanted)
    if apart is not None:
        reason = Reason("precision_differs", f"declared {declared}, read {shown} ({apart})")
        return Finding(Verdict.FAIL, shown, rule, reasons=(reason,))
    if unread:
        return Finding(Verdict.INCONCLUSIVE, shown, rule, reasons=(Reason("not_readable", "; ".join(unread)),))
    return Finding(Verdict.PASS, shown, rule)


def _unread(found: Precision, wanted: Iterable[str]) -> list[str]:
    """What of a declared label could not be read, with what is missing."""
    read = {"weights": found.weights, "activations": found.activations, "kv": found.kv}
    return [f"{part}: {found.missing.get(part, 'nothing tells')}" for part in wanted if read[part] is None]


def _shown(found: Precision) -> str:
    """The label as it was read, with a question mark for what was not."""
    if found.label is not None:
        return found.label
    bits = {"W": found.weights, "A": found.activations, "KV": found.kv}
    return "".join(f"{sign}{'?' if value is None else f'{value:g}'}" for sign, value in bits.items())
