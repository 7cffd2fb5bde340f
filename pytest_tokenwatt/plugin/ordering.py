"""The order of the items: one engine start for each configuration, whatever was collected in which order."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from pytest_tokenwatt.campaign.kinds import AFTER
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.collect import GateItem
from pytest_tokenwatt.plugin.fixtures import CANDIDATE, LIVE, MEASURED
from pytest_tokenwatt.plugin.usertests import handle_of
from pytest_tokenwatt.records import GateSpec

Place = tuple[int, int, int]
_UNMEASURED: Place = (-1, -1, 0)


_KINDS = {
    "tokenwatt": ("goodput", "profiles", "accuracy", "drift", "audit"),
    "baseline": ("goodput", "profiles", "accuracy", "drift"),
    "goodput": ("goodput",),
    "energy": ("goodput",),
    "power": ("goodput",),
    "accuracy": ("accuracy",),
    "length_shift": ("length",),
    "kl_drift": ("drift",),
    "perplexity": ("drift",),
    "memory": ("profiles",),
    "speed": ("profiles", "again"),
    "audit": ("audit",),
}
"""What a test measures that names one of our fixtures."""
_LATE = ("memory", "speed", "audit")
"""Fixtures whose figures may take engine starts behind all phases."""


class Ordering:
    """Sorts last of all, and lets an engine go when no later item needs it."""

    def __init__(self, benches: tuple[Bench, ...]) -> None:
        self._benches = benches

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Group by spec and configuration; measurements before tests that want the engine they load."""
        yield
        for bench in self._benches:
            bench.lab.select(*selected(items, bench), kinds(items, bench), measured(items, bench))
        _refuse_impossible(items)
        items.sort(key=self._place)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Stop the engine behind the last item of its configuration, so that two never run side by side."""
        done = yield
        place = self._place(item)
        if place is not _UNMEASURED and (nextitem is None or self._place(nextitem)[:2] != place[:2]):
            bench = self._benches[place[0]]
            bench.lab.leave(bench.phases[place[1]] if place[1] < len(bench.phases) else None)
        return done

    def _place(self, item: pytest.Item) -> Place:
        """Rank of spec, phase, and kind of item; tests that do not measure come first, in their order.

        A gate stands in the phase that completes what it compares: an earlier one would have to wait for it.
        """
        if isinstance(item, GateItem):
            return (*self._rank(item.bench, item.bench.lab.last_phase_of(item.gate)), 0)
        handle = handle_of(item)
        if handle is None:
            return _UNMEASURED
        key = AFTER if _measured_last(item, handle.bench) else handle.config.key
        return (*self._rank(handle.bench, key), 2 if LIVE in getattr(item, "fixturenames", ()) else 1)

    def _rank(self, bench: Bench, key: str) -> tuple[int, int]:
        """The place behind all phases follows the last one's."""
        phase = len(bench.phases) if key == AFTER else bench.phases.index(key)
        return next(n for n, each in enumerate(self._benches) if each is bench), phase


def _measured_last(item: pytest.Item, bench: Bench) -> bool:
    names = getattr(item, "fixturenames", ())
    return bench.lab.measured_last(kind for name in _LATE if name in names for kind in _KINDS[name])


def _refuse_impossible(items: list[pytest.Item]) -> None:
    """A running candidate and a figure that is known only when it has stopped cannot be had together."""
    for item in items:
        handle, names = handle_of(item), getattr(item, "fixturenames", ())
        if handle is not None and LIVE in names and _measured_last(item, handle.bench):
            late = ", ".join(name for name in _LATE if name in names)
            what = f"{item.nodeid} asks for engine and for {late}, which is known only when that engine has stopped"
            raise pytest.UsageError(f"{what}; make two tests of it")


def selected(items: list[pytest.Item], bench: Bench) -> tuple[list[GateSpec], list[str]]:
    """The selected gates of a spec, and the configurations that tests want beside: live, or to compare with."""
    gates = [item.gate for item in items if isinstance(item, GateItem) and item.bench is bench]
    wanted = {key for item in items for key in _wanted(item, bench)}
    return gates, [key for key in bench.phases if key in wanted]


def kinds(items: list[pytest.Item], bench: Bench) -> frozenset[str]:
    """What tests measure of a spec, by the fixtures that they name; the lab itself can give them anything."""
    handles = ((handle_of(item), getattr(item, "fixturenames", ())) for item in items)
    named = {name for handle, names in handles if handle is not None and handle.bench is bench for name in names}
    return frozenset(kind for name, found in _KINDS.items() if name in named for kind in found)


def measured(items: list[pytest.Item], bench: Bench) -> list[str]:
    """The configurations that tests measure, whether or not a gate of theirs is selected."""
    handles = (handle_of(item) for item in items if MEASURED in getattr(item, "fixturenames", ()))
    keys = {handle.config.key for handle in handles if handle is not None and handle.bench is bench}
    also = set(selected(items, bench)[1])
    return [key for key in bench.phases if key in keys | also]


def _wanted(item: pytest.Item, bench: Bench) -> Iterator[str]:
    handle = handle_of(item)
    if handle is None or handle.bench is not bench:
        return
    names = getattr(item, "fixturenames", ())
    if LIVE in names:
        yield handle.config.key
    if CANDIDATE in names and bench.spec.baseline is not None and not bench.lab.compares_with_stored:
        yield bench.spec.baseline.key
