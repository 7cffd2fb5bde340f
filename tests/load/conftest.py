"""Shorter waits for the load tests: the generator looks at its watch every quarter of a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_tokenwatt.load import generator


@pytest.fixture(scope="session", autouse=True)
def quick_decisions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "DECIDE_S", 0.2)
        patch.setattr(generator, "LEVEL_S", 0.2)
        yield
