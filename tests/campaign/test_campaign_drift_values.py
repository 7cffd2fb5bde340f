"""Divergence and perplexity as tests get them: values, or the errors that say why not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.campaign.drift_values import corpus_name, kl_value, perplexity_value
from pytest_tokenwatt.campaign.ledger import blank_record
from pytest_tokenwatt.errors import GateFailed, NotMeasured, UsageError
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.drift import Divergence, DriftRecord, PerplexityRecord
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

SPEC = """
engine: {endpoint: "http://127.0.0.1:8000/v1", model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
"""
AGAINST = Divergence(0.01, 0.001, 0.009, 0.001, 0.0101, 0.002, 0.008, 0.01, 0.02, 0.97, 20, 64, 4096, 0)
CONTROL = replace(AGAINST, kl=0.002, kl_se=0.0)
DIED = Reason("engine_died", "signal 9")


def spec_of(tmp_path: Path, drift: str = "") -> Spec:
    path = tmp_path / "lab.yaml"
    path.write_text(SPEC + drift, encoding="utf-8")
    return load_spec(path)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return spec_of(tmp_path)


def record_of(spec: Spec, key: str, nll: tuple[float, ...] = (), **changes: Any) -> ConfigRecord:
    ppl = math.exp(sum(nll) / len(nll)) if nll else None
    corpora = {"wiki": PerplexityRecord("wiki", "ef", len(nll), 100, nll, ppl)} if nll else {}
    own = {"against": AGAINST, "control": None} if key == "tuned" else {"against": None, "control": CONTROL}
    drift = DriftRecord("ab", "prompt_logprobs", 20, 64, 4096, perplexity=corpora, **{**own, **changes})
    return replace(blank_record(spec.configuration(key)), drift=drift)


def test_the_divergence_has_its_control_and_its_bounds(spec: Spec) -> None:
    found = kl_value(record_of(spec, "tuned"), record_of(spec, "baseline"), control=True)
    assert (found.config, found.nats_per_token, found.control, found.over_control) == ("tuned", 0.01, 0.002, 0.008)
    assert (found.se, found.lower, found.sampled, found.median) == (0.001, 0.009, 0.0101, 0.008)
    assert (found.top1_agreement, found.tail_mass, found.sequences, found.tokens) == (0.97, 0.02, 64, 4096)
    assert (found.bit_identical, found.validity) == (False, ())


def test_a_divergence_that_decides_nothing_says_why(spec: Spec) -> None:
    found = kl_value(record_of(spec, "tuned"), record_of(spec, "baseline", control=None), control=True)
    assert (found.nats_per_token, [reason.code for reason in found.validity]) == (0.01, ["no_control"])
    for name in ("control", "over_control"):
        with pytest.raises(NotMeasured, match=f"tuned kl_drift {name} was not measured: no_control"):
            getattr(found, name)
    off = kl_value(record_of(spec, "tuned"), record_of(spec, "baseline", control=None), control=False)
    with pytest.raises(NotMeasured, match="the spec does not ask for it"):
        _ = off.control


def test_what_cannot_be_compared_is_an_invalid_measurement(spec: Spec) -> None:
    base = record_of(spec, "baseline", (1.0, 2.0))
    with pytest.raises(GateFailed, match="tuned kl_drift is invalid: incomparable") as caught:
        kl_value(other_ids(spec), base, control=True)
    assert caught.value.verdict == "invalid"
    dead = replace(blank_record(spec.configuration("tuned")), invalid=(DIED,))
    with pytest.raises(GateFailed, match="tuned kl_drift is invalid: engine_died: signal 9"):
        kl_value(dead, base, control=True)
    with pytest.raises(GateFailed, match="tuned perplexity of wiki is invalid: engine_died: signal 9"):
        perplexity_value("wiki", dead, base)


def other_ids(spec: Spec) -> ConfigRecord:
    record = record_of(spec, "tuned")
    return replace(record, drift=replace(record.drift, sha256="cd")) if record.drift else record


def test_what_nothing_asked_for_was_not_measured(spec: Spec) -> None:
    blank, base = blank_record(spec.configuration("tuned")), record_of(spec, "baseline", (1.0, 2.0))
    with pytest.raises(NotMeasured, match="nothing that was selected needs it"):
        kl_value(blank, base, control=True)
    with pytest.raises(NotMeasured, match="nothing that was selected needs it"):
        perplexity_value("wiki", record_of(spec, "tuned", (1.0, 2.0)), blank_record(spec.configuration("baseline")))


def test_perplexity_has_its_difference_to_the_baseline(spec: Spec) -> None:
    base = record_of(spec, "baseline", (1.0, 2.0, 3.0, 4.0))
    found = perplexity_value("wiki", record_of(spec, "tuned", (1.1, 1.9, 3.3, 4.1)), base)
    assert (found.corpus, found.windows, found.tokens, found.validity) == ("wiki", 4, 100, ())
    assert found.dnll == pytest.approx(0.1)
    assert found.dnll_se == pytest.approx(0.0816497, rel=1e-5)
    assert found.ppl == pytest.approx(math.exp(2.6))
    assert found.baseline_ppl == pytest.approx(math.exp(2.5))
    own = perplexity_value("wiki", base, None)
    assert own.ppl == pytest.approx(math.exp(2.5))
    with pytest.raises(NotMeasured, match="dnll was not measured: the baseline is compared with nothing"):
        _ = own.dnll
    one = perplexity_value("wiki", record_of(spec, "tuned", (1.1,)), record_of(spec, "baseline", (1.0,)))
    with pytest.raises(NotMeasured, match="dnll_se was not measured: one window has no error"):
        _ = one.dnll_se


TWO = "[{name: a, file: a}, {name: b, file: b}]"


@pytest.mark.parametrize(("corpora", "asked", "found"), [("[{name: a, file: a}]", None, "a"), (TWO, "b", "b")])
def test_the_only_corpus_need_not_be_named(tmp_path: Path, corpora: str, asked: str | None, found: str) -> None:
    spec = spec_of(tmp_path, f"drift: {{prompts: p.jsonl, perplexity: {corpora}}}\n")
    assert corpus_name(spec, asked) == found


def test_a_corpus_that_is_not_meant_clearly_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match=r"the spec has no drift\.perplexity"):
        corpus_name(spec_of(tmp_path), None)
    spec = spec_of(tmp_path, f"drift: {{prompts: p.jsonl, perplexity: {TWO}}}\n")
    with pytest.raises(UsageError, match=r"there are several corpora; .* one of a, b"):
        corpus_name(spec, None)
    with pytest.raises(UsageError, match="there is no corpus 'c'"):
        corpus_name(spec, "c")
