"""Drift from the baseline in a lab report: divergence and perplexity, and why either is missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.drift import Divergence, DriftDelta, DriftRecord, PerplexityDelta, PerplexityRecord
from pytest_tokenwatt.report.text import nats
from pytest_tokenwatt.report.told import NO_BASELINE, NOT_STORED, OWN, why
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.quality import Drift

FIELD = "kl"
BINS = 20
_PUBLISHED = ("kl", "kl_median", "kl_per_token", "kl_se")
"""Figures that published records have, of the control too."""
_FIGURES = (
    *_PUBLISHED,
    *("kl_lower", "kl_lower_se", "kl_sampled", "kl_sampled_se", "tail_mass", "top1_agreement"),
)
_OF_SCORING = ("route", "k", "sequences", "tokens", "decode_tokens")
"""How it was scored, which only a record from elsewhere does not tell."""
_NO_BLOCK = "the spec has no drift block"
_MEASURABLE = 1.96
"""Standard errors beyond which a divergence is told from the control."""


def kl_entry(record: ConfigRecord, asked: Drift | None, delta: DriftDelta | None) -> dict[str, Any] | None:
    """What was scored on a configuration; ``None`` where nothing was. ``asked`` is the spec's block.

    Figures are in nats per token, those of ``identity`` are the baseline's against itself. A figure without a value
    has its reason in ``missing``.
    """
    drift = record.drift
    if drift is None:
        return None
    control = drift.control if delta is None else delta.control
    entry = {
        **_figures(drift.against, _FIGURES),
        **_counts(record, drift),
        "route": drift.route,
        "by_confidence": _by_confidence(drift.against),
        "histogram": _histogram(drift.against) if drift.against else None,
        "identity": None if control is None else _identity(control),
        "ppl": {name: _perplexity(record, drift, name, delta) for name in _corpora(drift, asked)},
        "decode_gap": _finite(drift.decode_gap),
        "decode_tokens": drift.decode_tokens if drift.decode_tokens or _tells(record) else None,
        **({"decode_route": drift.decode_route} if drift.decode_route else {}),
        "validity": validity(_faults(record, delta)),
        "doubts": [{"code": reason.code, "text": reason.text} for reason in delta.kl.doubts] if delta else [],
        "notes": [*drift.notes, *(drift.against.notes if drift.against else ())],
    }
    nulls = [name for name, value in entry.items() if value is None]
    return {**entry, "missing": {name: _why_none(name, record, asked, delta) for name in nulls}}


def _counts(record: ConfigRecord, drift: DriftRecord) -> dict[str, int | None]:
    """What was scored."""
    of = drift.against or drift
    return {
        "k": drift.k if _tells(record) else None,
        "sequences": of.sequences if of.sequences or _tells(record) else None,
        "tokens": of.tokens if of.tokens or _tells(record) else None,
        "invalid_positions": drift.against.invalid_positions if drift.against and _tells(record) else None,
    }


def _tells(record: ConfigRecord) -> bool:
    """Whether a record says how it was scored, as all of our own do."""
    return record.stored is None or (record.drift is not None and record.drift.k != 0)


def _figures(found: Divergence | None, names: Sequence[str]) -> dict[str, float | None]:
    return {name: _finite(getattr(found, name)) if found else None for name in names}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _identity(control: Divergence) -> dict[str, Any]:
    fields = {
        **_figures(control, (*_PUBLISHED, "top1_agreement")),
        "sequences": control.sequences,
        "tokens": control.tokens,
        "validity": validity(control.invalid),
    }
    return {**fields, **_missing(fields, why(control.invalid, "not known of what was scored"))}


_PAIR = 2
"""What a range of confidence holds: the bound and the number of tokens."""


def _by_confidence(found: Divergence | None) -> dict[str, dict[str, float]] | None:
    """By range of the baseline's largest probability, what the guaranteed bound is there and of how many tokens."""
    if found is None or not found.by_confidence:
        return None
    whole = {name: pair for name, pair in found.by_confidence.items() if len(pair) == _PAIR}
    return {name: {"kl_lower": kl, "tokens": int(tokens)} for name, (kl, tokens) in whole.items()}


def _histogram(found: Divergence) -> dict[str, list[float]] | None:
    """Sequences by their guaranteed bound: ``bins`` are the edges, one more than ``counts``."""
    if found.histogram is not None and not found.per_sequence:
        return {"bins": [*found.histogram.bins], "counts": [*found.histogram.counts]}
    finite = [value for value in found.per_sequence if math.isfinite(value)]
    if not finite:
        return None
    low, high = min(0.0, *finite), max(finite)
    width = (high - low) / BINS
    if width == 0:
        return {"bins": [low, high], "counts": [len(finite)]}
    counts = [0] * BINS
    for value in finite:
        counts[min(int((value - low) / width), BINS - 1)] += 1
    return {"bins": [*(low + place * width for place in range(BINS)), high], "counts": [*counts]}


def _corpora(drift: DriftRecord, asked: Drift | None) -> list[str]:
    return list(dict.fromkeys([*(corpus.name for corpus in (asked.perplexity if asked else ())), *drift.perplexity]))


def _perplexity(record: ConfigRecord, drift: DriftRecord, name: str, delta: DriftDelta | None) -> dict[str, Any]:
    """``ppl_bf16`` is the baseline's, whatever its precision: published records call it so."""
    own, compared = drift.perplexity.get(name), delta.perplexity.get(name) if delta else None
    faults = _corpus_faults(own, compared)
    fields = {
        "dnll": _finite(compared.dnll) if compared else None,
        "dnll_se": _finite(compared.dnll_se) if compared else None,
        "ppl": _finite(own.ppl) if own else None,
        "ppl_bf16": _finite(compared.ppl_bf16) if compared else None,
        "tokens": own.tokens if own else None,
        "windows": own.windows if own else None,
        "validity": validity(faults),
    }
    alone = OWN if record.role == "baseline" else NO_BASELINE
    reason = why(faults, "one window has no error" if compared else alone)
    return {**fields, **_missing(fields, reason)}


def _missing(fields: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """The reason of each null as a field; nothing without one."""
    nulls = [name for name, value in fields.items() if value is None]
    return {"missing": dict.fromkeys(nulls, reason)} if nulls else {}


def _corpus_faults(own: PerplexityRecord | None, compared: PerplexityDelta | None) -> tuple[Reason, ...]:
    if compared is not None:
        return compared.invalid
    return own.invalid if own else (Reason("not_measured", "the corpus was not scored"),)


def _faults(record: ConfigRecord, delta: DriftDelta | None) -> tuple[Reason, ...]:
    """Why the divergence is not to be believed."""
    if delta is not None:
        return delta.kl.faults
    drift = record.drift
    scored = (each for each in (drift.against, drift.control) if each is not None) if drift else ()
    return (*record.invalid, *(drift.invalid if drift else ()), *(reason for each in scored for reason in each.invalid))


def _why_none(name: str, record: ConfigRecord, asked: Drift | None, delta: DriftDelta | None) -> str:
    """Why the field ``name`` of an entry is ``None``."""
    if name == "identity":
        return "drift.control is off" if asked and not asked.control else "the baseline was not scored against itself"
    if name == "decode_gap":
        off = asked is not None and not asked.decode
        return "drift.decode is off" if off else "the decode path was not scored"
    drift = record.drift
    if name in _OF_SCORING:
        return NOT_STORED
    if drift is None or drift.against is None:
        return _why_no_kl(record, asked, delta)
    reasons = (*_faults(record, delta), *drift.against.doubts)
    return "; ".join(map(str, reasons)) or "not known of what was scored"


# --- what is missing


def missing_kl(record: ConfigRecord, asked: Drift | None) -> dict[str, str]:
    """Why a configuration has no ``kl`` block at all."""
    return {} if record.drift is not None else {FIELD: _why_no_kl(record, asked, None)}


def _why_no_kl(record: ConfigRecord, asked: Drift | None, delta: DriftDelta | None) -> str:
    """Why a configuration has no divergence."""
    if asked is None:
        return _NO_BLOCK
    own = (*record.invalid, *(record.drift.invalid if record.drift else ()))
    if own:
        return "; ".join(map(str, own))
    if record.drift is None:
        return "not measured in this run"
    if record.role == "baseline":
        return OWN
    return "; ".join(map(str, delta.kl.faults)) if delta else "there is no baseline to compare with"


def unseen_drift(spec: Spec, records: Sequence[ConfigRecord], deltas: Mapping[str, DriftDelta]) -> Iterator[str]:
    """What the run did not see of drift: candidates without a divergence or a corpus, no control, no decoding."""
    asked = spec.drift
    if asked is None:
        yield f"KL divergence and perplexity: {_NO_BLOCK}"
        return
    if not asked.control:
        yield "KL divergence of the baseline from itself: drift.control is off, so that it counts as 0"
    if not asked.decode:
        yield "Decode path: drift.decode is off, so that only prefill was scored"
    for record in records:
        delta = deltas.get(record.key)
        if record.role != "baseline" and (record.drift is None or record.drift.against is None):
            yield f"{record.key}: KL divergence: {_why_no_kl(record, asked, delta)}"
        if record.drift is not None:
            yield from _unscored(record.key, record.drift, asked, stored=record.stored is not None)


def _unscored(key: str, drift: DriftRecord, asked: Drift, *, stored: bool) -> Iterator[str]:
    if asked.decode and drift.decode_gap is None:
        yield f"{key}: Decode path: {NOT_STORED if stored else 'not scored'}"
    for corpus in asked.perplexity:
        found = drift.perplexity.get(corpus.name)
        if found is None or found.ppl is None:
            why = "; ".join(map(str, found.invalid)) if found else ""
            yield f"{key}: Perplexity ({corpus.name}): {why or 'not measured in this run'}"


def drift_words(delta: DriftDelta) -> Iterator[str]:
    """The divergence as one phrase of the summary; nothing without a figure."""
    kl = delta.kl
    if kl.value is None:
        return
    if kl.bit_identical:
        yield "gave the baseline's log-probabilities to the last bit"
    elif kl.se is None:
        yield f"drifted {nats(kl.value)} nats per token from the baseline with an unknown error"
    elif kl.control is None:
        error = nats(_MEASURABLE * kl.se)
        yield f"drifted {nats(kl.value)} nats per token from the baseline (± {error}, without a control)"
    elif kl.value <= _MEASURABLE * kl.se:
        yield f"showed no measurable drift ({nats(kl.value)} ± {nats(_MEASURABLE * kl.se)} nats per token)"
    else:
        yield f"drifted {nats(kl.value)} nats per token from the baseline (± {nats(_MEASURABLE * kl.se)})"
