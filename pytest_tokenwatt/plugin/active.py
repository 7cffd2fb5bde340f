"""A session with a spec: everything that an idle run must not load is loaded from here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_tokenwatt.plugin.arguments import SpecRequest
from pytest_tokenwatt.plugin.bench import open_benches
from pytest_tokenwatt.plugin.collect import SpecCollection
from pytest_tokenwatt.plugin.gatekeeper import Gatekeeper
from pytest_tokenwatt.plugin.live import Live
from pytest_tokenwatt.plugin.options import read_settings
from pytest_tokenwatt.plugin.ordering import Ordering
from pytest_tokenwatt.plugin.outcome import Outcome, judge
from pytest_tokenwatt.plugin.registry import Registry
from pytest_tokenwatt.plugin.saving import Saving
from pytest_tokenwatt.plugin.termination import Termination
from pytest_tokenwatt.plugin.usertests import UserTests

PREFIX = "tokenwatt_"


def activate(config: pytest.Config, requests: Sequence[SpecRequest]) -> None:
    """Load the specs and register the hooks that run them. Raises ``pytest.UsageError``."""
    settings = read_settings(config)
    _refuse_workers(config)
    live = Live(config)
    registry = Registry()
    config.hook.pytest_tokenwatt_register(registry=registry)
    benches = open_benches(config, requests, settings, live, registry.scorers)
    saving = Saving(config, benches)
    plugins = {
        "active": UserTests(benches),
        "collection": SpecCollection(benches, judge),
        "ordering": Ordering(benches),
        "gatekeeper": Gatekeeper(config, benches),
        "saving": saving,
        "outcome": Outcome(config, benches, saving),
        "live": live,
        "termination": Termination(),
    }
    for name, plugin in plugins.items():
        config.pluginmanager.register(plugin, f"{PREFIX}{name}")


def _refuse_workers(config: pytest.Config) -> None:
    """pytest-xdist would run the gates side by side on one machine, each spoiling the others' figures."""
    spread = config.getoption("dist", "no") != "no" or config.getoption("tx", None) or hasattr(config, "workerinput")
    if spread and not config.option.collectonly:
        raise pytest.UsageError(
            "gates measure the whole machine and cannot share it with the workers of pytest-xdist; "
            "run them with -n0, and other tests in a run of their own"
        )
