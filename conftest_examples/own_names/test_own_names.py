"""The measurement is still there, behind the one name that is reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tokenwatt import Lab


def test_own_engine_and_measured_goodput(engine: str, tokenwatt: Lab) -> None:
    assert engine == "my own engine"
    assert tokenwatt.goodput().tok_s > 0
