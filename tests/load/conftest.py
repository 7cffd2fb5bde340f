"""Shorter waits for the load tests: the generator looks at its watch every quarter of a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_tokenwatt.load import closed_stretch, open_stretch, stretch


@pytest.fixture(scope="session", autouse=True)
def quick_decisions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_stretch, "DECIDE_S", 0.1)
        patch.setattr(open_stretch, "LEVEL_S", 0.1)
        patch.setattr(stretch, "ALIVE_S", 0.1)
        patch.setattr(stretch, "START_LEAD_S", 0.05)
        for module in (open_stretch, closed_stretch):
            patch.setattr(module, "SWITCH_LEAD_S", 0.15)
        yield
