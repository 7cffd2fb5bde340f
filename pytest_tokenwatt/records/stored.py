"""What a published report or another tool states of a configuration without the parts that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.records.accuracy import FlipRate, SuiteDelta
from pytest_tokenwatt.records.drift import PerplexityDelta


@dataclass(frozen=True, slots=True)
class AnswerSample:
    """Of how many pairs of answers a shift in length is, how many were cut, and how many were left out."""

    n: int
    truncated: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """Figures of a record that was not made by this tool, or only summed up by it.

    ``source`` names the form (``lab report``, ``submission``, ``vllm bench serve`` …). ``band_pct`` is the report's
    ``variance_band_pct``; ``delta_pts`` and ``spread_pts`` are points by suite; ``mean_drop_pts`` and ``valid_domains``
    are of several suites whose scores are not stored. ``length_shift`` is a share, ``drift_points`` the leaderboard's
    drift, ``score_se`` and ``gpu_hours`` as they were stored. ``verdicts`` are the gates that the record decides
    itself (``contract``: ``pass``). What is not stated is ``None`` or absent.

    ``perplexity`` are corpora against the baseline. ``intervals`` are 95 % ones of figures against the baseline, by
    their names in a report: ``length_shift``, ``speed``, ``speeds.serve``, ``memory``, ``accuracy.<suite>`` (points) …
    ``unknown`` names errors and figures that are stored as null (``length_shift``, ``intervals.length_shift``,
    ``intervals.speeds.serve``, ``peak_memory.serve.error``, ``kl.kl_se``, ``variance_band_pct`` …): they stay unknown,
    where an error that a record has no field for counts as 0.

    ``suites`` are suites against the baseline as far as their answers told more than the difference, ``controls`` the
    flips of second passes, both by suite. ``answers`` is the sample of ``length_shift``. ``missing`` is why a figure is
    null, by the place of its block in the entry of the configuration (``""``, ``accuracy``, ``kl.ppl.wiki``) and its
    path there.
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
    perplexity: Mapping[str, PerplexityDelta] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    suites: Mapping[str, SuiteDelta] = field(default_factory=dict)
    controls: Mapping[str, FlipRate] = field(default_factory=dict)
    answers: AnswerSample | None = None
    missing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Provenance:
    """When and by what a record was made, for whoever compares with it or judges it again later.

    ``recorded`` and ``finished`` are ISO instants with their offsets. ``driver`` is the accelerator driver's version,
    ``spec_name`` what the spec was called, ``command`` the words that repeat the run, ``versions`` the software around
    the engine. ``endpoints`` are those that the command line gave instead of the spec's, by configuration; ``quick``
    says that its short windows were applied. ``interrupted`` says what ended the run early. ``gates`` are the ids of
    all gates that the run had items for, kept with a baseline. ``None``: not known.
    """

    recorded: str | None = None
    finished: str | None = None
    tool: str | None = None
    driver: str | None = None
    run_dir: str | None = None
    command: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    title: str | None = None
    spec_name: str | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    interrupted: str | None = None
    gates: tuple[str, ...] = ()
