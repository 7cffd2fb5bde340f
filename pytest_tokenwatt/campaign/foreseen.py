"""What a run will miss, as far as its gates and the machine tell before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_tokenwatt.campaign.identify import driver_trouble
from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.geometry.labels import declared_bits
from pytest_tokenwatt.records import GateSpec
from pytest_tokenwatt.spec.model import Configuration, Spec


def without_baseline(spec: Spec, selected: Sequence[GateSpec]) -> Iterator[Problem]:
    """Gates that compare with a baseline that there is not: said at once, though each has a verdict of its own."""
    relative = [gate for gate in selected if needs_baseline(gate) and gate.mode == "enforce"]
    if relative and spec.baseline is None:
        names = ", ".join(f"{gate.config} {gate.gate}" for gate in relative)
        skipped = relative[0].limits.get("on_missing_baseline") == "record"
        what = f"there is no baseline, so that {names} will {'be skipped' if skipped else 'fail'}"
        remedy = "add a configuration with role baseline"
        yield Problem(str(spec.path), relative[0].line, None, what, remedy, severity="warning")


def without_driver(spec: Spec, chosen: Sequence[Configuration]) -> Iterator[Problem]:
    """Boards that are to be read here, where no driver answers: energy would be found missing after everything."""
    boards = [config for config in chosen if any(source.source == "board" for source in config.power)]
    here = [config for config in boards if config.engine.method != "attach"]
    trouble = driver_trouble() if here else None
    if trouble is not None:
        what = f"source board cannot be read: {trouble}"
        yield Problem(str(spec.path), spec.line("power"), "power", what, severity="warning")


def without_candidate(spec: Spec) -> Iterator[Problem]:
    """A ratio to the baseline that the spec writes down, where the baseline is all there is to measure."""
    line = spec.line("gates", "goodput", "min")
    if line is not None and all(config.role == "baseline" for config in spec.configurations):
        what = "gates.goodput.min compares with the baseline, and there is nothing to compare: it makes no gate"
        remedy = "add a configuration, or give min_tok_s or min_rps"
        yield Problem(str(spec.path), line, None, what, remedy, severity="warning")


_RATIOS = {
    "rule": ("min_ratio", "max_ratio"),
    "accuracy": ("max_drop_pts", "max_mean_drop_pts"),
    "length": ("max_shift",),
    "kl": ("max_nats_per_token",),
    "perplexity": ("max_dnll",),
}
"""Limits of a gate that compare with the baseline, by its kind; of all others ``min`` does."""


def without_effect(spec: Spec, chosen: Sequence[Configuration], selected: Sequence[GateSpec]) -> Iterator[Problem]:
    """Labels of precision that nothing can equal (errors), and gates that can only come out undecided (warnings)."""
    path = str(spec.path)
    for config in chosen:
        if config.precision is not None and declared_bits(config.precision) is None:
            what = f"{config.key} declares precision {config.precision!r}, which says no bits"
            yield Problem(path, config.line, "precision", what, "write it as W8A8KV8")
    kinds = {gate.kind for gate in selected if gate.mode == "enforce"}
    attached = [each.key for each in chosen if each.role != "baseline" and each.engine.method != "command"]
    if "budget" in kinds and attached:
        what = f"{', '.join(attached)} cannot be started with less memory: only engine.command can"
        yield Problem(path, spec.line("budget"), "budget", what, "start it by command", severity="warning")
    if "score" in kinds and spec.drift is None:
        what = "there is no drift block, so that the score cannot be known"
        yield Problem(path, spec.line("score"), "score", what, "add drift", severity="warning")


_OF_THE_BASELINE = frozenset({"score", "audit"})
"""Gates that are about the baseline whatever their limits."""


def needs_the_band(gate: GateSpec) -> bool:
    """Whether the gate's error is the widest band of all configurations, so that all must be measured before."""
    return gate.kind == "energy" or (gate.kind == "goodput" and gate.limits.get("min") is not None)


def needs_baseline(gate: GateSpec) -> bool:
    """Whether the gate cannot be judged without a baseline."""
    ratios = _RATIOS.get(gate.kind, ("min",))
    return gate.kind in _OF_THE_BASELINE or any(gate.limits.get(name) is not None for name in ratios)


def compares(gate: GateSpec) -> bool:
    """Whether the gate shows a ratio to the baseline, limited or not."""
    return gate.kind == "energy" or needs_baseline(gate)
