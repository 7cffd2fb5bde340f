from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    for engine in made.engines:
        engine.stop()
    assert made.leftovers == []
