"""Which accelerators have no arithmetic in a number format, by the name that their driver gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Compute capability by NVIDIA's table of CUDA GPUs.
_NAMES = (
    (r"\bV100\b|\bTITAN V\b", 7.0),
    (r"\bT4G?\b|\bQuadro RTX \d{4}\b|\bRTX 20\d\d\b|\bGTX 16\d\d\b|\bTITAN RTX\b", 7.5),
    (r"\bA(?:100|800|30)\b", 8.0),
    (r"\bA(?:2|10|10G|10M|16|40)\b|\bRTX A\d{4}\b|\bRTX 30\d\d\b", 8.6),
    (r"\bL(?:2|4|20|40|40S|40G)\b|\b[ \d]Ada Generation\b|\bRTX 40\d\d\b", 8.9),
    (r"\bG?H(?:20|100|200|800)\b", 9.0),
)
_FORMS = tuple((re.compile(form), capability) for form, capability in _NAMES)
NEEDED = {"FP8": 8.9, "FP4": 10.0}
"""The compute capability from which tensor cores compute in a format."""


def without_arithmetic(boards: Iterable[str | None], number_format: str) -> str | None:
    """The first board that is known to have none in ``FP8`` or ``FP4``, and its compute capability, in words.

    ``None`` also where no name is known: most of what is not listed is newer.
    """
    needed = NEEDED.get(number_format)
    for name in boards:
        capability = _capability(name or "")
        if needed is not None and capability is not None and capability < needed:
            return f"{name} (compute capability {capability})"
    return None


def _capability(name: str) -> float | None:
    return next((capability for form, capability in _FORMS if form.search(name)), None)
