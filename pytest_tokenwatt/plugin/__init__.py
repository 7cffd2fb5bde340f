"""The pytest plugin.

This module is all that an idle run loads, beside the options and the fixtures: a run without a spec costs no import
beyond the standard library and pytest, touches no file and says nothing.
"""

from __future__ import annotations

import pytest

from pytest_tokenwatt.plugin import aliases, fixtures, hooks
from pytest_tokenwatt.plugin.arguments import take_specs
from pytest_tokenwatt.plugin.options import add_options, plan_only, refuse_unclear, spec_paths

MARKER = (
    "tokenwatt(config=KEY): a test that measures with tokenwatt; config=KEY (or a list) runs it for these "
    "configurations of the active spec only. Gates and tests that use our fixtures carry the mark by themselves."
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks."""
    pluginmanager.add_hookspecs(hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load the conftest files around a spec as if the spec were an argument."""
    namespace = early_config.known_args_namespace
    specs = [str(path) for path in spec_paths(early_config, namespace)]
    if specs:
        namespace.file_or_dir = [*namespace.file_or_dir, *specs]


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and the fixtures; the short names last, so that every other plugin's come first."""
    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(fixtures, "tokenwatt_fixtures")
    config.pluginmanager.register(aliases.free_aliases(config.pluginmanager), aliases.PLUGIN_NAME)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let ``-m tokenwatt`` find every test that measures, with a spec and without."""
    if fixtures.CONFIG in getattr(item, "fixturenames", ()):
        item.add_marker(fixtures.MARK)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Take over what is asked of us. Raises ``pytest.UsageError`` (exit code 4) when it cannot be done."""
    refuse_unclear(session.config)
    requests = take_specs(session.config)
    if requests:
        from pytest_tokenwatt.plugin.active import activate

        activate(session.config, requests)
    elif plan_only(session.config):
        raise pytest.UsageError("--tokenwatt-plan: there is no spec to plan; add --tokenwatt-spec=FILE")
