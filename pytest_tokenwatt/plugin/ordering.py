"""The order of the items: one engine start for each configuration, whatever was collected in which order."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.collect import GateItem
from pytest_tokenwatt.plugin.fixtures import LIVE
from pytest_tokenwatt.plugin.usertests import handle_of

Place = tuple[int, int, int]
_UNMEASURED: Place = (-1, -1, 0)


class Ordering:
    """Sorts last of all, and lets an engine go when no later item needs it."""

    def __init__(self, benches: tuple[Bench, ...]) -> None:
        self._benches = benches

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Group by spec and configuration; measurements before tests that want the engine they load."""
        yield
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
            bench.lab.leave(bench.keys[place[1]])
        return done

    def _place(self, item: pytest.Item) -> Place:
        """Rank of spec, configuration, and kind of item; tests that do not measure come first, in their order."""
        if isinstance(item, GateItem):
            return (*self._rank(item.bench, item.gate.config), 0)
        handle = handle_of(item)
        if handle is None:
            return _UNMEASURED
        return (*self._rank(handle.bench, handle.config.key), 2 if LIVE in getattr(item, "fixturenames", ()) else 1)

    def _rank(self, bench: Bench, key: str) -> tuple[int, int]:
        return next(n for n, each in enumerate(self._benches) if each is bench), bench.keys.index(key)
