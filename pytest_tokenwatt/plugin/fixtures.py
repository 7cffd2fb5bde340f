"""The fixture ``tokenwatt``, and the private ones by which a test says what it needs of the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_tokenwatt.plugin.handle import LabHandle

MARK = "tokenwatt"
CONFIG = "_tokenwatt_config"
CANDIDATE = "_tokenwatt_candidate"
LIVE = "_tokenwatt_live"
MEASURED = "_tokenwatt_measured"

NO_SPEC = (
    "this test measures with tokenwatt and no spec is active; add --tokenwatt-spec=FILE, or leave it out with "
    "-m 'not tokenwatt'"
)
NOT_DECLARED = (
    "a tokenwatt fixture was asked for while the test runs, when its configuration can no longer be chosen; name it "
    "among the arguments of the test"
)


@pytest.fixture(scope="session")
def _tokenwatt_config(request: pytest.FixtureRequest) -> LabHandle:
    """The configuration that a test runs for; the plugin parametrises every test that depends on it."""
    handle: LabHandle | None = getattr(request, "param", None)
    if handle is None:
        pytest.fail(NOT_DECLARED if request.config.pluginmanager.hasplugin("tokenwatt_active") else NO_SPEC, False)
    return handle


@pytest.fixture(scope="session")
def _tokenwatt_candidate(_tokenwatt_config: LabHandle) -> LabHandle:
    """Asked for by what compares with the baseline: the test does not run for the baseline itself."""
    return _tokenwatt_config


@pytest.fixture(scope="session")
def _tokenwatt_live(_tokenwatt_config: LabHandle) -> LabHandle:
    """Asked for by what talks to the running engine: the test comes behind the measurements of the phase."""
    return _tokenwatt_config


@pytest.fixture(scope="session")
def _tokenwatt_measured(_tokenwatt_config: LabHandle) -> LabHandle:
    """Asked for by every measurement: the test has measured something."""
    return _tokenwatt_config


@pytest.fixture(scope="session")
def tokenwatt(_tokenwatt_config: LabHandle) -> LabHandle:
    """The lab for one configuration of the active spec: .spec .config .baseline .run_dir .gate(...)."""
    return _tokenwatt_config
