"""Gate LLM-serving upgrades with pytest: goodput at the SLO, measured and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.errors import GateFailed, NotMeasured, TokenwattError

if TYPE_CHECKING:
    from pytest_tokenwatt.plugin.handle import LabHandle as Lab
    from pytest_tokenwatt.records import Outcome, Scored, SuiteItem
    from pytest_tokenwatt.values import Accuracy, Energy, Goodput, KlDrift, LengthShift, PerplexityChange, Power

__version__ = "0.1.0"
__all__ = [
    "Accuracy",
    "Energy",
    "GateFailed",
    "Goodput",
    "KlDrift",
    "Lab",
    "LengthShift",
    "NotMeasured",
    "Outcome",
    "PerplexityChange",
    "Power",
    "Scored",
    "SuiteItem",
    "TokenwattError",
    "__version__",
]
_VALUES = ("Accuracy", "Energy", "Goodput", "KlDrift", "LengthShift", "PerplexityChange", "Power")
_RECORDS = ("Outcome", "Scored", "SuiteItem")


def __getattr__(name: str) -> Any:
    """The types of fixtures and scorers, imported on use, since every pytest run imports this module."""
    if name == "Lab":
        from pytest_tokenwatt.plugin.handle import LabHandle

        return LabHandle
    if name in _VALUES:
        from pytest_tokenwatt import values

        return getattr(values, name)
    if name in _RECORDS:
        from pytest_tokenwatt import records

        return getattr(records, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
