"""Accuracy suites and drift of a configuration as reports and submissions state them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.records import Reason, SuiteRecord
from pytest_tokenwatt.records.accuracy import Outcome
from pytest_tokenwatt.records.drift import Divergence, DriftRecord, Histogram, PerplexityDelta, PerplexityRecord
from pytest_tokenwatt.store.replay.contradiction import Suite, misordered, other_dnll
from pytest_tokenwatt.store.replay.fields import Fields


@dataclass(frozen=True, slots=True)
class Asked:
    """The suites that a report was made with: their titles, and their blocks of the spec by title."""

    titles: Sequence[str]
    blocks: Mapping[str, Fields]

    def name(self, entry: Fields, number: int) -> str:
        """Which suite an entry is of: the only one, the one it names, else by its place."""
        named = entry.text("suite")
        if len(self.titles) == 1 or named is None:
            return self.titles[number] if number < len(self.titles) else named or f"suite-{number + 1}"
        return named


def entries(row: Fields, asked: Asked) -> dict[str, Fields]:
    """What a configuration says of each suite, by name. Raises ``UsageError`` for a suite that is there twice."""
    found: dict[str, Fields] = {}
    for number, entry in enumerate(row.rows("accuracy")):
        name = asked.name(entry, number)
        if name in found:
            raise row.wrong(f"accuracy[{number}]", f"there is another entry of the suite {name}")
        found[name] = entry
    return found


def suites(
    row: Fields, asked: Asked, hashes: Fields, baseline: Mapping[str, Fields], *, ours: bool
) -> dict[str, SuiteRecord]:
    """Every suite of a configuration's entry that has a figure; ``baseline`` are the entries to compare with."""
    return {
        name: _suite(Suite(name, entry, baseline.get(name), ours), asked.blocks.get(name), hashes.text(name) or "")
        for name, entry in entries(row, asked).items()
        if entry.data.get("score") is not None or entry.reasons()
    }


def _suite(told: Suite, block: Fields | None, sha256: str) -> SuiteRecord:
    name, entry = told.name, told.entry
    asked = block or Fields(entry.where, {}, "spec.accuracy")
    score = entry.number("score", least=0.0, most=100.0)
    return SuiteRecord(
        name=name,
        suite=asked.text("suite") or name,
        sha256=sha256,
        scorer=asked.text("scorer") or "numeric",
        api=asked.text("api") or "completions",
        shots=asked.count("shots"),
        max_tokens=asked.count("max_tokens") or 384,
        seeds=asked.count("seeds") or 1,
        items=(),
        score=score,
        spread_pts=entry.number("spread_pts", least=0.0),
        counts=_counts(entry),
        invalid=entry.reasons() or told.reasons(),
        notes=entry.texts("notes"),
        n=entry.count("n"),
        limit=asked.count("limit"),
    )


def _counts(entry: Fields) -> dict[str, int]:
    counts = entry.block("counts")
    known = set(map(str, Outcome))
    return {name: counts.count(name) or 0 for name in counts.data if name in known}


def by_suite(row: Fields, asked: Asked, figure: str) -> dict[str, float]:
    """One figure of every suite's entry (``score``, ``delta_pts``, ``spread_pts``), nulls left out."""
    found = {name: entry.number(figure) for name, entry in entries(row, asked).items()}
    return {name: value for name, value in found.items() if value is not None}


# --- drift

_FIGURES = ("kl", "kl_se", "kl_lower", "kl_lower_se", "kl_sampled", "kl_sampled_se", "kl_median", "kl_per_token")

_ROUNDING = 1e-3
"""By how much probabilities may sum above 1."""
_LEAST = {name: 0.0 for name in _FIGURES if name.endswith("_se")}


def candidate_drift(block: Fields, sha256: str) -> DriftRecord | None:
    """What was scored on a candidate, from its ``kl`` block; ``None`` without one."""
    if not block.data:
        return None
    against = _divergence(block) if any(block.has(name) for name in _FIGURES) else None
    return _drift(
        block,
        sha256=sha256,
        against=against,
        control=None,
        perplexity=_corpora(block.block("ppl"), "ppl"),
        invalid=block.reasons() if against is None else (),
    )


def baseline_drift(own: Fields, candidate: Fields, sha256: str) -> DriftRecord | None:
    """What was scored on the baseline, from its own block or from what a candidate's block says of it."""
    control = own.block("identity") if own.block("identity").data else candidate.block("identity")
    corpora = {**_corpora(candidate.block("ppl"), "ppl_bf16"), **_corpora(own.block("ppl"), "ppl")}
    if not own.data and not control.data and not corpora:
        return None
    return _drift(
        own,
        sha256=sha256,
        against=None,
        control=_divergence(control) if control.data else None,
        perplexity=corpora,
        invalid=own.reasons(),
    )


def _drift(block: Fields, *, perplexity: dict[str, PerplexityRecord], **parts: Any) -> DriftRecord:
    return DriftRecord(
        route=block.text("route"),
        k=block.count("k") or 0,
        sequences=block.count("sequences") or 0,
        tokens=block.count("tokens") or 0,
        perplexity=perplexity,
        decode_gap=block.number("decode_gap"),
        decode_tokens=block.count("decode_tokens") or 0,
        decode_route=block.text("decode_route"),
        notes=block.texts("notes"),
        **parts,
    )


def _divergence(block: Fields) -> Divergence:
    figures: dict[str, Any] = {name: block.number(name, least=_LEAST.get(name)) for name in _FIGURES}
    return Divergence(
        **figures,
        tail_mass=block.number("tail_mass", least=-_ROUNDING, most=1.0 + _ROUNDING),
        top1_agreement=block.number("top1_agreement", least=0.0, most=1.0),
        k=block.count("k") or 0,
        sequences=block.count("sequences") or 0,
        tokens=block.count("tokens") or 0,
        invalid_positions=block.count("invalid_positions") or 0,
        by_confidence={
            name: (lower, float(part.count("tokens") or 0))
            for name, part in block.block("by_confidence").blocks()
            if (lower := part.number("kl_lower")) is not None
        },
        invalid=block.reasons() or tuple(misordered(figures)),
        doubts=tuple(Reason(row.wanted("code"), row.text("text") or "") for row in block.rows("doubts")),
        histogram=_histogram(block.block("histogram")),
    )


def _histogram(block: Fields) -> Histogram | None:
    """Sequences by their lower bound."""
    bins, counts = block.series("bins"), block.series("counts")
    if not bins and not counts:
        return None
    if len(bins) != len(counts) + 1 or list(bins) != sorted(bins):
        raise block.wrong("bins", f"expected {len(counts) + 1} edges in their order")
    if any(count < 0 or not count.is_integer() for count in counts):
        raise block.wrong("counts", "expected whole numbers, at least 0")
    return Histogram(bins, tuple(int(count) for count in counts))


def _corpora(block: Fields, figure: str) -> dict[str, PerplexityRecord]:
    return {
        name: PerplexityRecord(
            name=name,
            sha256="",
            windows=corpus.count("windows") or 0,
            tokens=corpus.count("tokens") or 0,
            nll=(),
            ppl=corpus.number(figure, least=0.0),
            invalid=corpus.reasons(),
        )
        for name, corpus in block.blocks()
    }


def perplexity_deltas(block: Fields) -> dict[str, PerplexityDelta]:
    """Corpora against the baseline, by name."""
    return {
        name: PerplexityDelta(
            name=name,
            dnll=corpus.number("dnll"),
            dnll_se=corpus.number("dnll_se", least=0.0),
            ppl=corpus.number("ppl", least=0.0),
            ppl_bf16=corpus.number("ppl_bf16", least=0.0),
            windows=corpus.count("windows") or 0,
            tokens=corpus.count("tokens") or 0,
            invalid=(*corpus.reasons(), *other_dnll(name, corpus)),
        )
        for name, corpus in block.blocks()
    }
