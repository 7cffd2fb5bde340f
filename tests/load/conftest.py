"""Shorter waits for the load tests: the generator looks at its watch every quarter of a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_tokenwatt.load import generator


@pytest.fixture(scope="session", autouse=True)
def quick_decisions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DECIDE_S", "LEVEL_S", "ALIVE_S"):
            patch.setattr(generator, name, 0.1)
        patch.setattr(generator, "START_LEAD_S", 0.05)
        patch.setattr(generator, "SWITCH_LEAD_S", 0.15)
        yield
