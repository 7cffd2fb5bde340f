"""Simulated power: the embedded engine's own answer, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from source_contexts import Pages, context, serving, settings

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.simulated import SimulatedSource

SENSOR: dict[str, Any] = {
    "sensor": "SIM-quickstart-0",
    "name": "H100",
    "memory_gib": 80.0,
    "limit_w": 700.0,
    "bandwidth_tbs": 3.35,
    "watts": 512.3,
    "energy_j": 12345.6,
    "reasons": 4,
    "throttle_ns": {"sw_power_cap": 123},
}


@pytest.fixture
def pages() -> Iterator[Pages]:
    with serving() as served:
        yield served


@pytest.fixture
def source(pages: Pages, tmp_path: Path) -> Iterator[SimulatedSource]:
    made = SimulatedSource(settings("simulated"), context(tmp_path, root=pages.url))
    yield made
    made.close()


def tell(pages: Pages, **answer: Any) -> None:
    pages.pages["/tokenwatt/power"] = json.dumps({"simulated": True, "label": "simulated H100", **answer})


def test_what_the_engine_says_is_read(pages: Pages, source: SimulatedSource) -> None:
    tell(pages, sensors=[SENSOR])
    (info,) = source.open()
    assert (info.sensor, info.memory_gib, info.limit_w, info.bandwidth_tbs) == ("SIM-quickstart-0", 80.0, 700.0, 3.35)
    (reading,) = source.read()
    assert (reading.watts, reading.reasons, reading.throttle_ns) == (512.3, 4, {"sw_power_cap": 123})
    assert source.read_counters() == {"SIM-quickstart-0": 12345.6}
    assert source.label == "simulated H100"
    assert "no sensor was read" in source.notes[0]


def test_the_label_always_says_simulated(pages: Pages, source: SimulatedSource) -> None:
    tell(pages, label="H100", sensors=[SENSOR])
    source.open()
    assert source.label == "H100 (simulated)"


@pytest.mark.parametrize(
    "page",
    [
        None,
        "<html>welcome</html>",
        "[]",
        "{}",
        json.dumps({"simulated": False, "sensors": [SENSOR]}),
        json.dumps({"sensors": [SENSOR]}),
        json.dumps({"simulated": True, "sensors": []}),
        json.dumps({"simulated": True, "sensors": "none"}),
    ],
)
def test_any_other_engine_is_refused(pages: Pages, source: SimulatedSource, page: str | None) -> None:
    pages.pages["/tokenwatt/power"] = page
    with pytest.raises(PowerError, match="goes with the embedded engine only") as caught:
        source.open()
    assert caught.value.reason == "no_power_source"


def test_gaps_stay_gaps(pages: Pages, source: SimulatedSource) -> None:
    tell(pages, sensors=[SENSOR])
    source.open()
    tell(pages, sensors=[{"sensor": "SIM-quickstart-0", "watts": None}])
    (reading,) = source.read()
    assert (reading.watts, reading.reasons, reading.throttle_ns) == (None, None, {})
    assert source.read_counters() == {}
    tell(pages, sensors=[])
    assert "no longer lists" in str(source.read()[0].problem)
    pages.pages["/tokenwatt/power"] = 500
    with pytest.raises(PowerError, match="answered 500"):
        source.read()
