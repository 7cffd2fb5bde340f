"""The length of a configuration's answers against the baseline's in a lab report, and why it is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.accuracy import LengthDelta
from pytest_tokenwatt.report.told import NOT_STORED, OWN
from pytest_tokenwatt.spec.model import Spec

FIELD = "length_shift"
_NOTHING_ASKED = "the spec has neither an accuracy nor a drift block"


def lengths_asked(spec: Spec) -> bool:
    """Whether any answers are compared: those to the suites, or to drift prompts."""
    return bool(spec.accuracy) or spec.drift is not None


def length_interval(delta: LengthDelta | None) -> dict[str, Any]:
    """The 95 % interval of the shift (shares, not per cent) with its sample: cut answers hide a shift."""
    if delta is None or delta.shift is None:
        return {}
    low, high = delta.interval or (None, None)
    if not delta.n and low is not None and low == high:
        return {}  # an error that is not stored counts as 0, but was not measured to be that
    sample = {"n": delta.n, "truncated": delta.truncated, "left_out": delta.left_out}
    return {FIELD: {"low": low, "high": high, **sample}}


def missing_length(record: ConfigRecord, asked: bool, delta: LengthDelta | None) -> dict[str, str]:
    """Why the shift, or its interval, is ``None``; ``asked``: the spec has answers to compare."""
    if delta is not None and delta.shift is not None:
        why = "; ".join(map(str, delta.doubts))
        return {} if delta.interval is not None else {f"intervals.{FIELD}.{end}": why for end in ("low", "high")}
    return {FIELD: _why_none(record, asked, delta)}


def _why_none(record: ConfigRecord, asked: bool, delta: LengthDelta | None) -> str:
    if not asked:
        return _NOTHING_ASKED
    if record.role == "baseline":
        return OWN
    if record.stored is not None and record.stored.length_shift is None and not record.invalid:
        return NOT_STORED
    if record.invalid or not (record.suites or record.drift):
        return "; ".join(map(str, record.invalid)) or "not measured in this run"
    return "; ".join(map(str, delta.faults)) if delta else "there is no baseline to compare with"


def unseen_length(spec: Spec, records: Sequence[ConfigRecord], deltas: Mapping[str, LengthDelta]) -> Iterator[str]:
    """What the run did not see of lengths: candidates without a figure, and answers that were cut."""
    if not lengths_asked(spec):
        yield f"Length of answers: {_NOTHING_ASKED}"
        return
    for record in records:
        delta = deltas.get(record.key)
        if record.role == "baseline":
            continue
        if delta is None or delta.shift is None:
            yield f"{record.key}: Length of answers: {_why_none(record, True, delta)}"
        elif delta.truncated:
            yield f"{record.key}: Length of {delta.truncated} of {delta.n} answers beyond max_tokens: they were cut"
