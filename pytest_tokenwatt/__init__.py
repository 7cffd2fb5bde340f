"""Gate LLM-serving upgrades with pytest: goodput at the SLO, measured and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.errors import GateFailed, NotMeasured, TokenwattError

if TYPE_CHECKING:
    from pytest_tokenwatt.plugin.handle import LabHandle as Lab
    from pytest_tokenwatt.values import Goodput

__version__ = "0.1.0"
__all__ = ["GateFailed", "Goodput", "Lab", "NotMeasured", "TokenwattError", "__version__"]


def __getattr__(name: str) -> Any:
    """The types of the fixtures, for annotations; imported on use, since every pytest run imports this module."""
    if name == "Lab":
        from pytest_tokenwatt.plugin.handle import LabHandle

        return LabHandle
    if name == "Goodput":
        from pytest_tokenwatt.values import Goodput

        return Goodput
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
