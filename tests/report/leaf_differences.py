"""Two documents compared leaf by leaf, but for the rounding of what is computed again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

ABSENT = "absent"
ROUNDED = {
    # Ratios, the score and what goes into it are computed again, from figures of six digits.
    r"(\.submission\.result)?\.(speeds?|memor(y|ies)|speed_serve|memory_saved)(\.\w+)?": 2e-5,
    r"\.submission\.result\.(drift|gpu_hours|efficiency_gain|score|mean_drop)": 2e-5,
    r"\.accuracy_summary\.\w+_pts": 2e-5,
    r"\.intervals\.(tokens_per_joule|memor\w+)(\.\w+)*": 2e-5,
    # Their errors are of differences between repeats that are alike in the first digits.
    r"\.intervals\.speeds?(\.\w+)*": 1e-3,
}
"""What may differ at all: paths as regular expressions, with the largest relative difference."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All values by their paths; empty mappings and lists are values, too."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def differences(before: Any, after: Any) -> list[str]:
    ours, theirs = dict(leaves(before)), dict(leaves(after))
    both = ((path, ours.get(path, ABSENT), theirs.get(path, ABSENT)) for path in {**ours, **theirs})
    return [f"{path}: {one!r} -> {other!r}" for path, one, other in both if one != other and not near(path, one, other)]


def near(path: str, one: Any, other: Any) -> bool:
    allowed = next((limit for pattern, limit in ROUNDED.items() if re.fullmatch(rf"\[\d\]{pattern}", path)), 0.0)
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=allowed)
