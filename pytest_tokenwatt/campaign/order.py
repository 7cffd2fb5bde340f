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


def partner_of(configuration: Configuration, spec: Spec) -> Configuration | None:
    """The baseline, where its engine is up beside that of another configuration and nothing need be started for it.

    So it is when we are only attached to it, at an endpoint of its own.
    """
    baseline = spec.baseline
    if baseline is None or configuration.key == baseline.key or baseline.engine.method != "attach":
        return None
    return baseline if configuration.engine.endpoint != baseline.engine.endpoint else None


def repeat_of_baseline(spec: Spec) -> Configuration | None:
    """The configuration that is the baseline again, which then is phase A'."""
    base = spec.baseline
    return None if base is None else next((each for each in spec.configurations if each.like == base.key), None)
