"""A scorer of your own: answers are lists of which only the members count. A spec then says ``scorer: members``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_tokenwatt import Outcome, Scored, SuiteItem

if TYPE_CHECKING:
    from pytest_tokenwatt.plugin.registry import Registry


class Members:
    """Compares two lists whatever their order, case and separators."""

    name = "members"

    def check_gold(self, item: SuiteItem) -> str | None:
        """A gold must name something."""
        return None if _members(item.answer) else "the answer names nothing"

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """Right with the same members; a cut answer may have gone on."""
        found = _members(text)
        if found == _members(item.answer):
            return Scored(Outcome.CORRECT, ", ".join(sorted(found)))
        return Scored(Outcome.TRUNCATED if cut else Outcome.WRONG, ", ".join(sorted(found)))


def _members(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def pytest_tokenwatt_register(registry: Registry) -> None:
    """Offer the scorer to all specs of this run."""
    registry.add_scorer(Members())
