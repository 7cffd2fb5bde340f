"""Sensors that do not exist, for tests of what reads power.

``pytest_plugins = ["pytest_tokenwatt.testing"]`` in a ``conftest.py`` gives the fixtures ``fake_nvml`` (a GPU driver's
library, ``FakeNvml``) and ``fake_bmc`` (a BMC that speaks Redfish over TLS, ``FakeBmc``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_tokenwatt.testing.bmc import FakeBmc
    from pytest_tokenwatt.testing.fake_gpu import FakeGpu
    from pytest_tokenwatt.testing.nvml import FakeNvml, running_fake_nvml

__all__ = ["FakeBmc", "FakeGpu", "FakeNvml", "running_fake_nvml"]

pytest_plugins = ["pytest_tokenwatt.testing.nvml", "pytest_tokenwatt.testing.bmc"]
_HOMES = {"FakeBmc": "bmc", "FakeGpu": "fake_gpu", "FakeNvml": "nvml", "running_fake_nvml": "nvml"}


def __getattr__(name: str) -> Any:
    """The classes behind the fixtures, imported on use."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
