"""Hooks that others may implement, in a ``conftest.py`` or a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tokenwatt.plugin.registry import Registry


def pytest_tokenwatt_register(registry: Registry) -> None:
    """Bring scorers of your own, before the specs are checked.

    A scorer has a ``name``, says of an item why its gold cannot be scored (or ``None``), and scores a text::

        from pytest_tokenwatt import Outcome, Scored

        class Sql:
            name = "sql"

            def check_gold(self, item):
                return None if item.answer.strip() else "the answer holds no query"

            def score(self, item, text, *, cut):
                right = normalised(text) == normalised(item.answer)
                return Scored(Outcome.CORRECT if right else Outcome.WRONG, parsed=text)

        def pytest_tokenwatt_register(registry):
            registry.add_scorer(Sql())

    A spec then says ``scorer: sql``. ``cut`` is true when the answer ended at max_tokens.
    """
