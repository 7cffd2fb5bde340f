"""A candidate's record as a baseline: what it says of itself stays, what it says against its own baseline goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.drift import Divergence, DriftRecord, PerplexityRecord
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.records.stored import StoredFigures

_ABSOLUTE = frozenset({"contract", "slo", "precision"})
"""Kinds of gates whose verdict does not depend on the baseline."""


def promoted(record: ConfigRecord) -> ConfigRecord:
    """The record as that of a baseline under the same key; a baseline's own is returned as it is.

    A candidate was scored on sequences that its baseline drew, and never against itself: they say nothing of a
    divergence from the candidate, so that KL gates are invalid until it was captured as a baseline. Its audits were
    made by its baseline, and profiles may have been run in turn with it.
    """
    if record.role == "baseline":
        return record
    return replace(
        record,
        role="baseline",
        like=None,
        drift=record.drift and _own_drift(record.key, record.drift),
        profiles=_own_profiles(record.profiles),
        audits={},
        stored=record.stored and _own_figures(record.stored),
    )


def _own_drift(key: str, drift: DriftRecord) -> DriftRecord:
    text = f"{key} was scored as a candidate: measure it as a baseline to capture its drift"
    return replace(
        drift,
        sha256="",
        against=None,
        control=_unusable(Reason("not_captured", text)),
        file=None,
        perplexity={name: each for name, each in drift.perplexity.items() if _whole(each)},
    )


def _unusable(reason: Reason) -> Divergence:
    return Divergence(
        kl=None,
        kl_se=None,
        kl_lower=None,
        kl_lower_se=None,
        kl_sampled=None,
        kl_sampled_se=None,
        kl_median=None,
        kl_per_token=None,
        tail_mass=None,
        top1_agreement=None,
        k=0,
        sequences=0,
        tokens=0,
        invalid_positions=0,
        invalid=(reason,),
    )


def _whole(perplexity: PerplexityRecord) -> bool:
    """Whether the windows were scored to their ends: others compare only with the same beginnings."""
    return not perplexity.base_nll


def _own_profiles(profiles: Mapping[str, ProfileRecord]) -> dict[str, ProfileRecord]:
    return {name: replace(profile, paired=()) for name, profile in profiles.items()}


def _own_figures(stored: StoredFigures) -> StoredFigures:
    verdicts = {gate: verdict for gate, verdict in stored.verdicts.items() if gate.partition("[")[0] in _ABSOLUTE}
    return StoredFigures(
        source=stored.source,
        band_pct=stored.band_pct,
        spread_pts=stored.spread_pts,
        gpu_hours=stored.gpu_hours,
        verdicts=verdicts,
        unknown=stored.unknown,
    )
