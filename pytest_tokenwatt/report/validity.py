"""Whether a measurement is to be believed, as it stands in a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_tokenwatt.records import Reason


def reasons(found: Sequence[Reason]) -> list[dict[str, str]]:
    """Reasons as they stand in a report."""
    return [{"code": reason.code, "text": reason.text} for reason in found]


def validity(found: Sequence[Reason]) -> dict[str, Any]:
    """Valid without any reason against it; one that speaks twice counts once."""
    return {"valid": not found, "reasons": reasons(list(dict.fromkeys(found)))}
