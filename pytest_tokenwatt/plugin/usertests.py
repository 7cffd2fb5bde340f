"""Tests that use our fixtures: one run for each configuration, marked, and held to measuring something."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from difflib import get_close_matches

import pytest

from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.collect import GateItem
from pytest_tokenwatt.plugin.fixtures import CANDIDATE, CONFIG, MARK, MEASURED
from pytest_tokenwatt.plugin.handle import LabHandle, Running
from pytest_tokenwatt.plugin.verdicts import MeasurementFailed, failure, forget_properties

_EXPLICIT = pytest.StashKey[bool]()


def handle_of(item: pytest.Item) -> LabHandle | None:
    """The configuration that a test runs for; ``None`` for a test that does not measure."""
    callspec = getattr(item, "callspec", None)
    handle = callspec.params.get(CONFIG) if callspec is not None else None
    return handle if isinstance(handle, LabHandle) else None


class UserTests:
    """The hooks around tests that are not gates."""

    def __init__(self, benches: tuple[Bench, ...]) -> None:
        self._running = Running()
        self._several = len(benches) > 1
        self._keys = tuple(config.key for bench in benches for config in bench.spec.configurations)
        self._handles = tuple(
            LabHandle(bench, bench.spec.configuration(key), self._running) for bench in benches for key in bench.keys
        )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test that depends on our fixtures once for each configuration that it is meant for."""
        if CONFIG not in metafunc.fixturenames:
            return
        wanted = self._wanted(metafunc.definition)
        compares = CANDIDATE in metafunc.fixturenames
        chosen = [
            pytest.param(handle, id=self._id(handle))
            for handle in self._handles
            if (not wanted or handle.config.key in wanted) and not (compares and handle.config.role == "baseline")
        ]
        metafunc.parametrize(CONFIG, chosen or [_nothing(wanted, compares)], indirect=True, scope="session")

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note who carries the mark by the user's own hand, before all that measures is given it."""
        if not isinstance(item, GateItem):
            item.stash[_EXPLICIT] = item.get_closest_marker(MARK) is not None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start an attempt with a clean slate."""
        forget_properties(item)
        self._running.item = item
        self._running.measured = False
        self._running.broken = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Fail a test that is marked as a measurement and measured nothing, or that caught the failure of its rule."""
        yield
        if self._running.broken is not None:
            # The table shows the rule as failed: the run must not be green beside it.
            raise MeasurementFailed(failure(self._running.broken), self._running.broken.verdict)
        measured = self._running.measured or MEASURED in getattr(item, "fixturenames", ())
        if item.stash.get(_EXPLICIT, False) and not measured:
            pytest.fail(
                "the test is marked tokenwatt and measured nothing; ask for a measurement such as goodput, record "
                "one with tokenwatt.gate(...), or take the mark away",
                pytrace=False,
            )

    def _wanted(self, node: pytest.Item) -> frozenset[str]:
        """The configurations that the nearest mark names; empty for all of them."""
        for mark in node.iter_markers(MARK):
            _check_arguments(node, mark)
            if "config" in mark.kwargs:
                named = mark.kwargs["config"]
                keys = frozenset([named] if isinstance(named, str) else named)
                self._check_keys(node, keys)
                return keys
        return frozenset()

    def _check_keys(self, node: pytest.Item, keys: frozenset[str]) -> None:
        for key in sorted(keys - set(self._keys)):
            near = get_close_matches(key, self._keys, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"configurations: {', '.join(self._keys)}"
            pytest.fail(f"{node.nodeid}: mark tokenwatt: there is no configuration {key!r}; {remedy}", pytrace=False)

    def _id(self, handle: LabHandle) -> str:
        return f"{handle.spec.name}:{handle.config.key}" if self._several else handle.config.key


def _check_arguments(node: pytest.Item, mark: pytest.Mark) -> None:
    if mark.args:
        pytest.fail(f"{node.nodeid}: mark tokenwatt takes config=KEY, not {mark.args!r}", pytrace=False)
    for name in _unknown(mark.kwargs):
        near = get_close_matches(name, ["config"], 1)
        remedy = f"did you mean {near[0]!r}?" if near else "it takes config=KEY"
        pytest.fail(f"{node.nodeid}: mark tokenwatt has no argument {name!r}; {remedy}", pytrace=False)


def _unknown(arguments: Mapping[str, object]) -> list[str]:
    return [name for name in arguments if name != "config"]


def _nothing(wanted: frozenset[str], compares: bool) -> object:
    """The parameter of a test for which no configuration is left; it skips, saying why."""
    which = f" of {', '.join(sorted(wanted))}" if wanted else ""
    why = f"no configuration{which} is selected" + (" beside the baseline, with which it compares" if compares else "")
    return pytest.param(None, id="none", marks=pytest.mark.skip(reason=why))
