"""Whether a model is dense or a mixture of experts, as its ``config.json`` says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def model_shape(geometry: Mapping[str, Any], places: Iterable[Path | None]) -> str | None:
    """``dense``, ``MoE``, or ``None`` when neither ``geometry`` nor any of ``places`` tells.

    ``geometry`` are the spec's overrides; ``places`` are files, or model directories that hold a ``config.json``.
    """
    for config in (geometry, *(_read(place) for place in places if place is not None)):
        if config:
            experts = _experts(config) or _experts(config.get("text_config"))
            return "MoE" if experts else "dense"
    return None


def _experts(config: Any) -> int:
    if not isinstance(config, Mapping):
        return 0
    found = [config.get(key) for key in _EXPERTS]
    return max((count for count in found if isinstance(count, int) and count > 1), default=0)


def _read(place: Path) -> Mapping[str, Any]:
    try:
        content = json.loads((place / "config.json" if place.is_dir() else place).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
