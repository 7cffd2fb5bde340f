"""What several gates of a spec are about: suites, drift prompts, profiles, and the gates that a score rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_tokenwatt.gates.stated import SUBMISSION, states
from pytest_tokenwatt.records import ConfigRecord, GateSpec
from pytest_tokenwatt.spec.model import Configuration, Score, Spec

QUALIFYING = ("accuracy", "speed", "memory", "length", "precision")
"""Kinds of gates that a configuration with a score must pass, in the order in which a reason names them."""


def is_submission(record: ConfigRecord | None) -> bool:
    """Whether a record is one of a leaderboard, which states the mean drop over its suites and no suite."""
    return record is not None and states(record).source == SUBMISSION


def is_scored(spec: Spec, record: ConfigRecord | None) -> bool:
    """Whether a configuration has a score: by the spec, or because its record is a submission."""
    return spec.score is not None or is_submission(record)


def scored_tiers(spec: Spec, record: ConfigRecord | None) -> dict[str, float]:
    """The tiers of a configuration that has a score; of any other none."""
    return dict((spec.score or Score()).tiers) if is_scored(spec, record) else {}


def counts_drift_answers(spec: Spec) -> bool:
    """Whether answers to drift prompts are compared too: those that are not the prompts of suites anyway."""
    return spec.drift is not None and (spec.drift.prompts is not None or not spec.accuracy)


def score_limits(spec: Spec, config: Configuration, listed: Sequence[GateSpec]) -> dict[str, Any]:
    """What the score of a configuration is made of, and which of its gates (``listed``) it must pass."""
    score = spec.score or Score()
    return {
        "points_per_nat": score.points_per_nat,
        "tiers": dict(score.tiers),
        "gates": [gate.gate for kind in QUALIFYING for gate in listed if gate.kind == kind],
        "suites": suite_sizes(spec),
        "drift": counts_drift_answers(spec),
        **speed_profiles(spec, config),
    }


def suite_sizes(spec: Spec) -> dict[str, int]:
    """The accuracy suites, and how many items of each are asked."""
    return {suite.title: suite.limit for suite in spec.accuracy}


def speed_profiles(spec: Spec, config: Configuration) -> dict[str, Any]:
    """The profiles that make up the speed; ``online_slo`` is the scenario whose search is one of them."""
    online = config.scenarios[0].name if spec.online_slo else None
    return {"profiles": list(spec.profiles), "online_slo": online}
