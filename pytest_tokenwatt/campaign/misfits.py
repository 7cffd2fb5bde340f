"""Before an engine starts: can the workload be drawn, is there a promise, do the rules name figures?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from pytest_tokenwatt.campaign.scenario import SERVER
from pytest_tokenwatt.errors import Problem, UsageError
from pytest_tokenwatt.load.traces import open_trace
from pytest_tokenwatt.metrics.goodput import figure_names
from pytest_tokenwatt.records import DEFAULT_SCENARIO
from pytest_tokenwatt.spec.model import Configuration, Scenario, Spec

_NO_FIGURE = "its metric is no figure that is measured"


def misfits(spec: Spec, configurations: Sequence[Configuration]) -> list[Problem]:
    """Workloads whose lengths cannot be drawn and rules about no figure (errors), scenarios without an SLO (warnings).

    A trace file that does not exist is left to the spec's own preflight.
    """
    scenarios = [(configuration, each) for configuration in configurations for each in configuration.scenarios]
    found = [problem for pair in scenarios for problem in (*_undrawable(spec, *pair), *_unpromised(spec, *pair))]
    return list(
        dict.fromkeys([*found, *(each for config in configurations for each in _unknown_figures(spec, config))])
    )


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
    """A misspelt figure would be found missing only when everything is measured."""
    known = {name for each in configuration.scenarios for name in figure_names(each.bounds)}
    for rule in configuration.gates.rules:
        concerned = rule.configs is None or configuration.key in rule.configs
        if concerned and rule.mode != "off" and not rule.metric.startswith(SERVER) and rule.metric not in known:
            near = get_close_matches(rule.metric, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"figures: {', '.join(sorted(known))}"
            yield Problem(str(spec.path), spec.line("gates", "rules"), f"rule {rule.name}", _NO_FIGURE, remedy)
