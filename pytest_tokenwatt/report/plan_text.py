"""What ``--tokenwatt-plan`` prints: the phases of a run, their cost, and what the gates will be able to tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType

from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.report.text import duration


@dataclass(frozen=True, slots=True)
class PhaseView:
    """One engine start of the plan.

    ``name`` is A, B or A'; ``start`` says how the engine comes to run; ``commands`` are lines as they would be
    run, variables unexpanded; ``measurements`` say what is measured in order; ``minutes`` is an estimate.
    """

    name: str
    config: str
    start: str
    commands: tuple[str, ...]
    measurements: tuple[str, ...]
    minutes: float


@dataclass(frozen=True, slots=True)
class PlanView:
    """A whole run before it starts; ``resolution`` says of each gate what it can tell, ``problems`` what is wrong."""

    title: str
    phases: tuple[PhaseView, ...]
    resolution: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    max_minutes: float | None = None

    @property
    def minutes(self) -> float:
        """Estimate of the whole run in minutes."""
        return sum(phase.minutes for phase in self.phases)


def render_plan(plan: PlanView, screen: Screen) -> str:
    """The plan as text; its last line says that nothing was started."""
    parts: list[RenderableType] = [screen.title(f"tokenwatt plan: {plan.title}")]
    parts += [_phase(phase, screen) for phase in plan.phases]
    parts.append(screen.text(_total(plan), "bold"))
    parts += _section("what the gates can tell", plan.resolution, screen)
    parts += _section("problems", plan.problems, screen, "bold red")
    parts.append(screen.text("nothing was started"))
    return screen.render(*parts)


def _phase(phase: PhaseView, screen: Screen) -> Group:
    head = f"phase {phase.name}  {phase.config}, {phase.start}, about {duration(phase.minutes)}"
    commands = [screen.hanging(command, lead="$", style="dim", indent=2) for command in phase.commands]
    measured = [screen.hanging(line, lead="-", style="dim", indent=2) for line in phase.measurements]
    return Group(screen.hanging("", lead=head, style="bold"), *commands, *measured)


def _total(plan: PlanView) -> str:
    starts = f"{len(plan.phases)} engine {'start' if len(plan.phases) == 1 else 'starts'}"
    budget = "" if plan.max_minutes is None else f" of {duration(plan.max_minutes)} allowed"
    return f"{starts}, about {duration(plan.minutes)}{budget}"


def _section(heading: str, lines: Iterable[str], screen: Screen, style: str = "bold") -> list[RenderableType]:
    told = [screen.hanging(line, lead="-", style="dim", indent=2) for line in lines]
    return [screen.text(heading, style), *told] if told else []
