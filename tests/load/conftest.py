"""Shorter waits for the load tests: the generator looks at its watch every quarter of a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_tokenwatt.load import generator


@pytest.fixture(scope="session", autouse=True)
def quick_decisions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in {"DECIDE_S": 0.1, "LEVEL_S": 0.2, "START_LEAD_S": 0.05, "SWITCH_LEAD_S": 0.15}.items():
            patch.setattr(generator, name, seconds)
        yield
