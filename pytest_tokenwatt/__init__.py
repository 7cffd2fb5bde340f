"""Gate LLM-serving upgrades with pytest: goodput at the SLO, measured and judged."""

from pytest_tokenwatt.errors import GateFailed, NotMeasured, TokenwattError

__version__ = "0.1.0"
__all__ = ["GateFailed", "NotMeasured", "TokenwattError", "__version__"]
