"""A load that is watched: it goes on behind a window that passed, and the engine is read at the windows' edges."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from pytest_tokenwatt.campaign.observe import Deadline, ObservedLoader
from pytest_tokenwatt.engine.metrics import ServerMetrics
from pytest_tokenwatt.records import (
    CONTINUE,
    ClockAnchor,
    Decision,
    InFlight,
    LoadPlan,
    LoadRun,
    LoadWatch,
    RequestProgress,
    Schedule,
    WindowSpan,
)

EMPTY = Schedule(array("d"), array("q"), array("q"), 0)
PLAN = LoadPlan("confirm-00", 1.0, EMPTY, EMPTY, 0.0, 0.0, 10.0, 1, 30.0, 100)
SPAN = WindowSpan(100.0, 110.0)


@dataclass
class SecondBySecond:
    """Asks the watch once a second until it stops the load."""

    asked_s: list[float] = field(default_factory=list)

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        now_s = SPAN.start_s
        decision = CONTINUE
        while not decision.stop and now_s < SPAN.end_s + 20:
            now_s += 1.0
            self.asked_s.append(now_s)
            decision = watch.decide(now_s, (SPAN,), ())
        anchor = ClockAnchor(0.0, 0.0)
        return LoadRun(plan, (SPAN,), (), (), (), decision.why, True, 0, anchor, SPAN.start_s, now_s)


@dataclass
class Decides:
    """Stops at an instant, for good or because the window failed."""

    at_s: float
    abort: bool = False

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        return True

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        return Decision(stop=True, why="decided", abort=self.abort) if now_s >= self.at_s else CONTINUE


def observed(loader: SecondBySecond, hold_s: float) -> ObservedLoader:
    metrics = ServerMetrics.parse("a_total 1\n")
    return ObservedLoader(
        loader, name="x", say=lambda _: None, read_metrics=lambda: metrics, deadline=Deadline(), hold_s=hold_s
    )


@pytest.mark.parametrize(
    ("at_s", "abort", "hold_s", "stopped_s"),
    [
        (110.0, False, 0.0, 110.0),
        (110.0, False, 2.5, 113.0),
        (111.0, False, 2.5, 113.0),
        (114.0, False, 2.5, 114.0),
        (105.0, False, 2.5, 105.0),  # a search that is certain before the window's end
        (110.0, True, 2.5, 110.0),
        (104.0, True, 2.5, 104.0),
    ],
)
def test_load_goes_on_behind_a_window_that_passed(at_s: float, abort: bool, hold_s: float, stopped_s: float) -> None:
    loader = SecondBySecond()
    run = observed(loader, hold_s).run(PLAN, Decides(at_s, abort))
    assert (run.ended_s, run.stop) == (stopped_s, "decided")


def test_the_engine_is_read_at_both_edges() -> None:
    loader = observed(SecondBySecond(), 0.0)
    loader.run(PLAN, Decides(110.0))
    assert loader.edges.before is not None
    assert loader.edges.after is not None
    assert loader.edges.seconds >= 0.0
