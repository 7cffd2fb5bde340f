"""Before an engine starts: can the workload be drawn, is there a promise, do the rules name figures?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from pytest_tokenwatt.campaign.scenario import SERVER
from pytest_tokenwatt.errors import Problem, UsageError
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.figures import figure_needs
from pytest_tokenwatt.load.traces import open_trace
from pytest_tokenwatt.metrics.energy import POWER_FIGURES
from pytest_tokenwatt.metrics.goodput import figure_names
from pytest_tokenwatt.records import DEFAULT_SCENARIO
from pytest_tokenwatt.spec.model import Configuration, Rule, Scenario, Spec


def misfits(spec: Spec, configurations: Sequence[Configuration]) -> list[Problem]:
    """Workloads whose lengths cannot be drawn and rules about no figure (errors), scenarios without an SLO (warnings).

    A trace file that does not exist is left to the spec's own preflight.
    """
    scenarios = [(configuration, each) for configuration in configurations for each in configuration.scenarios]
    found = [problem for pair in scenarios for problem in (*_undrawable(spec, *pair), *_unpromised(spec, *pair))]
    rules = [problem for config in configurations for problem in _unknown_figures(spec, config)]
    return list(dict.fromkeys([*found, *rules, *_gates_of_no_block(spec)]))


def _undrawable(spec: Spec, configuration: Configuration, scenario: Scenario) -> Iterator[Problem]:
    try:
        open_trace(scenario.workload, None, spec.path.parent)
    except UsageError as error:
        if error.where != "workload.trace" or spec.resolve(scenario.workload.trace).is_file():
            line = spec.line("workload") or configuration.line
            what = f"{error.where}: {error.what}" if error.where else error.what
            yield Problem(str(spec.path), line, "workload", what, error.remedy)


def _unpromised(spec: Spec, configuration: Configuration, scenario: Scenario) -> Iterator[Problem]:
    # A spec of suites alone is meant so.
    if not scenario.bounds and (scenario.name != DEFAULT_SCENARIO or not spec.accuracy):
        what = f"{configuration.key} promises nothing in scenario {scenario.name}, so that no goodput is measured"
        yield Problem(str(spec.path), configuration.line, "slo", what, "add slo", severity="warning")


def _unknown_figures(spec: Spec, configuration: Configuration) -> Iterator[Problem]:
    """A misspelt figure would be found missing only when everything is measured, as would one of no sensor."""
    known = {name for each in configuration.scenarios for name in figure_names(each.bounds)} | set(figure_needs(spec))
    powered = any(source.source != "none" for source in configuration.power)
    for rule in configuration.gates.rules:
        concerned = rule.configs is None or configuration.key in rule.configs
        if not concerned or rule.mode == "off" or rule.metric.startswith(SERVER):
            continue
        if rule.metric not in known:
            near = get_close_matches(rule.metric, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"figures: {', '.join(sorted(known))}"
            yield _of_rule(spec, configuration, rule, f"metric {rule.metric} is no figure that is measured", remedy)
        elif rule.metric in POWER_FIGURES and not powered:
            remedy = "add a power: block"
            yield _of_rule(spec, configuration, rule, f"metric {rule.metric} needs a power source", remedy)


def _of_rule(spec: Spec, configuration: Configuration, rule: Rule, what: str, remedy: str) -> Problem:
    places = [configuration.gates.rules.index(rule)]
    keys = [entry.key for entry in spec.configs or ()]
    own = ("configs", keys.index(configuration.key), "gates", "rules") if configuration.key in keys else ()
    paths = [(*own, *places), ("gates", "rules", *places), ("gates", "rules")]
    line = next((line for path in paths if (line := spec.line(*path)) is not None), None)
    return Problem(str(spec.path), line, f"rule {rule.name}", what, remedy)


def _gates_of_no_block(spec: Spec) -> Iterator[Problem]:
    """Limits that the file writes down for gates that no block makes: they would vanish without a word."""
    listed = {gate.kind for gate in list_gates(spec)}
    for kind, missing in _BLOCK_OF.items():
        lines = [line for path in _written(spec, kind) if (line := spec.line(*path)) is not None]
        if lines and kind not in listed and _asks_something(spec, kind):
            yield Problem(str(spec.path), lines[0], f"gates.{kind}", f"makes no gate: {missing}", severity="warning")


def _asks_something(spec: Spec, kind: str) -> bool:
    """Whether a configuration's gate differs from its defaults and is not switched off."""
    blocks = [configuration.gates.block(kind) for configuration in spec.configurations]
    return any(block != type(block)() and block.mode != "off" for block in blocks)


def _written(spec: Spec, kind: str) -> list[tuple[str | int, ...]]:
    own: list[tuple[str | int, ...]] = [("configs", place, "gates", kind) for place in range(len(spec.configs or ()))]
    return [("gates", kind), *own]


_BLOCK_OF = {
    "energy": "there is no power: block, or nothing has an slo",
    "accuracy": "there is no accuracy: block, or nothing to compare",
    "length": "there is neither an accuracy: nor a drift: block, or nothing to compare",
    "kl": "there is no drift: block, or nothing to compare",
    "perplexity": "there is no drift.perplexity: block, or nothing to compare",
    "speed": "there is no profiles: block, or nothing to compare",
    "memory": "there is no profiles: block, or nothing to compare",
    "audit": "there is no audit: block, or nothing to compare",
    "budget": "there is no budget: block, or nothing to compare",
    "score": "there is no score: block, or nothing to compare",
}
"""What a gate needs besides its own block."""
