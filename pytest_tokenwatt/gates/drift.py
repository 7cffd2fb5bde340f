"""The rules of the gates kl and perplexity: how far a configuration may drift from the baseline."""

from __future__ import annotations

import math

from pytest_tokenwatt.gates.divergence import (
    ONE_SIDED,
    drift_faults,
    kl_delta,
    perplexity_delta,
    perplexity_faults,
    perplexity_of,
)
from pytest_tokenwatt.gates.finding import Finding, no_baseline, unusable
from pytest_tokenwatt.gates.stated import COUNTED_AS_0, lacks_error, states
from pytest_tokenwatt.gates.wording import nats, nats_apart
from pytest_tokenwatt.metrics.perplexity import ppl_of
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.drift import Divergence, KlDelta, PerplexityDelta

_UNIT = "nats"
_HALF_WIDTH = 1.96
"""Standard errors to a two-sided 95 % half-width."""
_MOST_SEQUENCES = 1_000_000
"""More than that is no advice that anybody can follow."""


# --- kl


def judge_kl(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    """Pass when (kl − control) + 1.645 errors is within ``max_nats_per_token``, fail when the bound is beyond it.

    The bound is (kl_lower − control) − 1.645 of its errors. It needs no model of the tail, so that it fails whatever
    the estimators of ``kl`` say of each other; otherwise estimators that contradict each other are inconclusive, and so
    is a control beyond the limit.
    """
    limit = float(gate.limits["max_nats_per_token"])
    rule = f"<= {limit:g} nats"
    found = candidate.drift.against if candidate.drift else None
    if baseline is None:
        faults = drift_faults(candidate) if candidate.drift or candidate.invalid else ()
        text = "not measured" if found is None else _kl_text(found, KlDelta())
        missing = no_baseline(gate.limits.get("on_missing_baseline", "fail"), text, rule)
        return unusable(faults, rule) if faults else missing
    delta = kl_delta(candidate, baseline, control=bool(gate.limits.get("control", True)))
    if delta.faults or found is None:
        return unusable(delta.faults, rule)
    verdict, reasons = _judge_kl(found, delta, limit)
    error = None if delta.se is None else _HALF_WIDTH * delta.se
    text = _kl_text(found, delta)
    if lacks_error(candidate, found.kl_se, "kl.kl_se", "kl_se"):
        text = f"{text}, {COUNTED_AS_0}"
    return Finding(verdict, text, rule, delta.value, _UNIT, limit, error, reasons)


def _judge_kl(found: Divergence, delta: KlDelta, limit: float) -> tuple[Verdict, tuple[Reason, ...]]:
    if delta.lower is not None and delta.lower > limit:
        why = f"at least {nats_apart(delta.lower, limit)} nats > {limit:g} ({_details(found, delta)})"
        return Verdict.FAIL, (Reason("kl_drift", why), *delta.doubts)
    if delta.doubts or delta.upper is None:
        return Verdict.INCONCLUSIVE, delta.doubts
    if delta.control is not None and delta.control > limit:
        why = f"two passes over the baseline differ by {nats(delta.control)} nats, more than the limit of {limit:g}"
        return Verdict.INCONCLUSIVE, (Reason("control_too_large", f"{why}: that noise hides what is looked for"),)
    if delta.upper <= limit:
        return Verdict.PASS, _noted(delta)
    bounds = f"up to {nats_apart(delta.upper, limit)} nats > {limit:g}"
    if delta.lower is not None:
        bounds = f"from {nats(delta.lower)} {bounds}"
    needed = _needed(found.sequences, delta, limit)
    return Verdict.INCONCLUSIVE, (Reason("within_error", f"{bounds} ({_details(found, delta)}){needed}"),)


def _noted(delta: KlDelta) -> tuple[Reason, ...]:
    if not delta.bit_identical:
        return ()
    text = "two engine starts with the same weights and KV cache type gave the same log-probabilities to the last bit"
    return (Reason("bit_identical", text),)


def _kl_text(found: Divergence, delta: KlDelta) -> str:
    """ "0.0097 nats (control 0.0000)"."""
    known = found.kl if found.kl is not None else found.kl_lower
    value = "unknown" if known is None else f"{'' if found.kl is not None else '>= '}{nats(known)} nats"
    control = "no control" if delta.control is None else f"control {nats(delta.control)}"
    return f"{value} ({control}{', bit-identical' if delta.bit_identical else ''})"


def _details(found: Divergence, delta: KlDelta) -> str:
    parts = [("kl", found.kl), ("kl_lower", found.kl_lower), ("control", delta.control), ("error", delta.se)]
    told = [f"{name} {nats(value)}" for name, value in parts if value is not None]
    told += ["no lower bound of it is on record"] if found.kl_lower is None else []
    return ", ".join([*told, f"{found.sequences} sequences"])


def _needed(sequences: int, delta: KlDelta, limit: float) -> str:
    """How many sequences would show that the divergence is within the limit, if it is what it seems."""
    if delta.value is None or not delta.se or not delta.value < limit:
        return ""
    needed = sequences * (ONE_SIDED * delta.se / (limit - delta.value)) ** 2
    return f", about {math.ceil(needed):,} would show less" if needed < _MOST_SEQUENCES else ""


# --- perplexity


def judge_perplexity(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    """Pass when dnll + 1.645 errors is within ``max_dnll``, fail when dnll − 1.645 errors is beyond it."""
    limit, name = float(gate.limits["max_dnll"]), gate.param or ""
    rule = f"<= {limit:g} nats"
    if baseline is None:
        return _alone(gate, name, candidate, rule)
    delta = perplexity_delta(name, candidate, baseline)
    if delta.dnll is None or delta.invalid:
        return unusable(delta.invalid or (Reason("not_measured", f"the dnll of {name} is not known"),), rule)
    verdict, reasons = _judge_dnll(delta, delta.dnll, limit)
    error, text = None if delta.dnll_se is None else _HALF_WIDTH * delta.dnll_se, _dnll_text(delta, delta.dnll, limit)
    stated = states(candidate).perplexity.get(name)
    if stated is not None and stated.dnll_se is None and error == 0:
        text = f"{text}, {COUNTED_AS_0}"
    return Finding(verdict, text, rule, delta.dnll, _UNIT, limit, error, reasons)


def _alone(gate: GateSpec, name: str, candidate: ConfigRecord, rule: str) -> Finding:
    """Without a baseline there is only the candidate's own perplexity."""
    faults, record = perplexity_faults(name, candidate), perplexity_of(name, candidate)
    if faults or record is None:
        return unusable(faults, rule)
    ppl = ppl_of(record.nll)
    text = "ppl not finite" if ppl is None else f"ppl {ppl:.4g}"
    return no_baseline(gate.limits.get("on_missing_baseline", "fail"), text, rule, ppl, "ppl")


def _judge_dnll(delta: PerplexityDelta, dnll: float, limit: float) -> tuple[Verdict, tuple[Reason, ...]]:
    if delta.dnll_se is None:
        return Verdict.INCONCLUSIVE, (Reason("error_unknown", "one window tells no error; score more of them"),)
    low, high = dnll - ONE_SIDED * delta.dnll_se, dnll + ONE_SIDED * delta.dnll_se
    if high <= limit:
        return Verdict.PASS, ()
    sample = f"dnll {nats(dnll)}, error {nats(delta.dnll_se)}, {delta.windows} windows"
    if low > limit:
        why = f"at least {nats_apart(low, limit)} nats > {limit:g} ({sample})"
        return Verdict.FAIL, (Reason("perplexity_rise", why),)
    why = f"from {nats(low)} up to {nats_apart(high, limit)} nats > {limit:g} ({sample}); score more windows"
    return Verdict.INCONCLUSIVE, (Reason("within_error", why),)


def _dnll_text(delta: PerplexityDelta, dnll: float, limit: float) -> str:
    """ "+0.0011 nats (ppl 9.733, baseline 9.722)"."""
    sign = "+" if dnll > 0 else ""
    return f"{sign}{nats_apart(dnll, limit)} nats (ppl {_ppl(delta.ppl)}, baseline {_ppl(delta.ppl_bf16)})"


def _ppl(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
