"""What a published report or another tool states of a configuration without the parts that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """Figures of a record that was not made by this tool, or only summed up by it.

    ``source`` names the form (``lab report``, ``submission``, ``vllm bench serve`` …). ``band_pct`` is the report's
    ``variance_band_pct``; ``delta_pts`` and ``spread_pts`` are points by suite; ``mean_drop_pts`` and ``valid_domains``
    are of several suites whose scores are not stored. ``length_shift`` is a share, ``drift_points`` the leaderboard's
    drift, ``score_se`` and ``gpu_hours`` as they were stored. ``verdicts`` are the gates that the record decides
    itself (``contract``: ``pass``). What is not stated is ``None`` or absent.
    """

    source: str
    band_pct: float | None = None
    delta_pts: Mapping[str, float] = field(default_factory=dict)
    spread_pts: Mapping[str, float] = field(default_factory=dict)
    mean_drop_pts: float | None = None
    valid_domains: int | None = None
    length_shift: float | None = None
    drift_points: float | None = None
    score_se: float | None = None
    gpu_hours: float | None = None
    verdicts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Provenance:
    """When, where and by what a record was made, for whoever compares with it later.

    ``recorded`` is an ISO instant with its offset. ``gpus`` are names, ``driver`` the driver's version. ``None``: not
    known.
    """

    recorded: str | None = None
    tool: str | None = None
    driver: str | None = None
    run_dir: str | None = None
    command: tuple[str, ...] = ()
