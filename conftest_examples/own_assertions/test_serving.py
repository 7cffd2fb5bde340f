"""Your own promises beside the built-in gates. Run with: pytest --tokenwatt-spec=… conftest_examples/own_assertions"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_tokenwatt import Goodput, Lab


def test_median_latency(goodput: Goodput, tokenwatt: Lab) -> None:
    """Runs once for each configuration; the rule appears in the report like a built-in gate."""
    tokenwatt.gate("TTFT p50", goodput.ttft_p50_ms, "<=", 500.0, unit="ms")


@pytest.mark.tokenwatt(config="tuned")
def test_tuned_is_no_slower(goodput: Goodput, baseline: Any, tokenwatt: Lab) -> None:
    """Narrowed to one configuration, compared with the baseline of the same session."""
    tokenwatt.gate("tokens per second", goodput.tok_s, ">=", 0.9 * baseline.goodput.tok_s, unit="tok/s")


def test_answers_are_not_empty(engine: Any) -> None:
    """Talks to the running engine, in the engine start that was measured."""
    reply = engine.call(engine.client.complete("1, 2, 3,", max_tokens=8))
    assert reply.text.strip()
