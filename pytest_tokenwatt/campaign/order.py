"""The order of phases: A the baseline, B the candidates, A' the baseline again."""

from __future__ import annotations

from pytest_tokenwatt.spec.model import Configuration, Spec


def phase_name(configuration: Configuration) -> str:
    """``A``, ``B`` or ``A'``."""
    if configuration.like is not None:
        return "A'"
    return "A" if configuration.role == "baseline" else "B"


def by_phase(spec: Spec) -> tuple[Configuration, ...]:
    """All configurations in the order in which they are measured; within a phase as the spec has them."""
    ranks = ("A", "B", "A'")
    return tuple(sorted(spec.configurations, key=lambda configuration: ranks.index(phase_name(configuration))))
