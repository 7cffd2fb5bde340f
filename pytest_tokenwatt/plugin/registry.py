"""What other people's code brings into a run, by name."""

from __future__ import annotations

import pytest

from pytest_tokenwatt.quality.scorers import BUILT_IN
from pytest_tokenwatt.quality.scoring import Scorer

_METHODS = ("check_gold", "score")


class Registry:
    """Handed to ``pytest_tokenwatt_register``; what is added can be named in a spec."""

    def __init__(self) -> None:
        self.scorers: dict[str, Scorer] = {}

    def add_scorer(self, scorer: Scorer) -> None:
        """Offer a scorer under its ``name``.

        Raises ``pytest.UsageError`` for a name that is taken and for an object that is no scorer.
        """
        name = getattr(scorer, "name", None)
        missing = [method for method in _METHODS if not callable(getattr(scorer, method, None))]
        if not isinstance(name, str) or not name or missing:
            lacking = ", ".join(missing) or "name"
            raise pytest.UsageError(f"{type(scorer).__name__} is no scorer: it lacks {lacking}")
        if name in BUILT_IN or name in self.scorers:
            raise pytest.UsageError(f"there is a scorer {name!r} already; give {type(scorer).__name__} another name")
        self.scorers[name] = scorer
