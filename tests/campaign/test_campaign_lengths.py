"""The length of answers as tests get it: a value, or the error that says why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.ledger import blank_record
from pytest_tokenwatt.campaign.lengths import length_value
from pytest_tokenwatt.errors import GateFailed, NotMeasured
from pytest_tokenwatt.records import ConfigRecord, ItemResult, Outcome, Reason, SuiteRecord
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

SPEC = """
engine: {endpoint: "http://127.0.0.1:8000/v1", model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
accuracy: {name: sums, suite: sums.jsonl}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    path = tmp_path / "lab.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return load_spec(path)


def record_of(spec: Spec, key: str, lengths: Sequence[int], sha256: str = "ab") -> ConfigRecord:
    items = tuple(ItemResult(f"q{n}", 0, Outcome.CORRECT, output_tokens=each) for n, each in enumerate(lengths))
    suite = SuiteRecord("sums", "sums.jsonl", sha256, "numeric", "chat", None, 64, 1, items, 100.0, None, {}, ())
    return replace(blank_record(spec.configuration(key)), suites={"sums": suite})


def test_the_value_has_the_figure_with_what_it_is_made_of(spec: Spec) -> None:
    base = record_of(spec, "baseline", [20] * 50)
    found = length_value(spec, record_of(spec, "tuned", [20, 22] * 24 + [21, 64]), base)
    assert found.config == "tuned"
    assert found.share == pytest.approx(1093 / 1000 - 1)
    assert found.interval[0] < found.share < found.interval[1]
    assert (found.tokens, found.baseline_tokens) == (1093 / 50, 20.0)
    assert (found.answers, found.truncated, found.validity) == (50, 1, ())


def test_a_figure_that_decides_nothing_says_why(spec: Spec) -> None:
    found = length_value(spec, record_of(spec, "tuned", [22] * 5), record_of(spec, "baseline", [20] * 5))
    assert (found.share, [reason.code for reason in found.validity]) == (0.1, ["interval_unknown"])
    with pytest.raises(NotMeasured, match="tuned length_shift interval was not measured: interval_unknown: 5 answers"):
        _ = found.interval


def test_what_cannot_be_compared_is_an_invalid_measurement(spec: Spec) -> None:
    base = record_of(spec, "baseline", [20] * 50)
    with pytest.raises(GateFailed, match="tuned length_shift is invalid: suite_differs") as caught:
        length_value(spec, record_of(spec, "tuned", [20] * 50, sha256="cd"), base)
    assert caught.value.verdict == "invalid"
    dead = replace(blank_record(spec.configuration("tuned")), invalid=(Reason("engine_died", "signal 9"),))
    with pytest.raises(GateFailed, match="invalid: engine_died: signal 9"):
        length_value(spec, dead, base)


def test_suites_that_nobody_asked_are_not_measured(spec: Spec) -> None:
    blank = blank_record(spec.configuration("tuned"))
    with pytest.raises(NotMeasured, match="nothing was asked"):
        length_value(spec, blank, record_of(spec, "baseline", [20] * 50))
