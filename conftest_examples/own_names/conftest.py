"""A suite that had fixtures named ``engine`` and ``accuracy`` before: they stay its own, ``tokenwatt`` is ours."""

from __future__ import annotations

import pytest


@pytest.fixture
def engine() -> str:
    """Hides the plugin's alias for this directory; ``-p no:tokenwatt_aliases`` switches all of them off."""
    return "my own engine"
