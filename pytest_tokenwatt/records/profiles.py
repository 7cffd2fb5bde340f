"""Closed-loop profiles: what a fixed number of requests in flight gave, and the memory that it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.records.base import Reason


@dataclass(frozen=True, slots=True)
class Startup:
    """What an engine's start-up log says of memory and time; ``missing`` names the reason of every ``None``.

    Sizes are GiB. ``kv_bytes_per_token`` = pool bytes / pool tokens. ``max_concurrency_sequences`` requests of
    ``max_concurrency_tokens`` tokens fit into the pool. ``dtype`` and ``quantization`` are the model's as the log
    names them, ``device`` what the engine runs on (``cuda``, ``cpu`` …; empty: not told).
    ``kernels`` is what the log names as computing quantised layers. ``notes`` say which figures were taken from
    elsewhere, or only some workers told.
    """

    weights_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_cache_tokens: float | None = None
    kv_bytes_per_token: float | None = None
    cuda_graph_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    load_seconds: float | None = None
    engine_init_seconds: float | None = None
    max_concurrency_sequences: float | None = None
    max_concurrency_tokens: int | None = None
    kv_cache_dtype: str | None = None
    speculative_config: str | None = None
    vllm_version: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    device: str = ""
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits of weights, activations and KV cache as they were read; ``label`` is such as ``W8A8KV8``.

    ``weights_average`` is bits per stored weight by size, ``stored_gib`` the size of the checkpoint. ``sources`` names
    where each figure was read, ``missing`` why it was not. ``declared`` is the configuration's own label.
    ``unconfirmed`` is the number format (``FP8``, ``FP4``) of activations that were told by the checkpoint or the
    engine's settings alone: on hardware without arithmetic in it engines compute in more bits.
    """

    weights: float | None = None
    activations: float | None = None
    kv: float | None = None
    label: str | None = None
    weights_average: float | None = None
    stored_gib: float | None = None
    declared: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    unconfirmed: str = ""


@dataclass(frozen=True, slots=True)
class EnginePeaks:
    """The largest readings of an engine's gauges during one run of a profile; ``None`` with its reason in ``missing``.

    ``kv_usage`` is a share of the pool, ``device_gib`` the driver's figure of used memory summed over the GPUs under
    test. ``preemptions`` is the growth of their counter. ``readings`` of the metrics were taken in ``seconds``, between
    two of which ``longest_gap_s`` went by at most, the ends included.
    """

    kv_usage: float | None = None
    running: float | None = None
    preemptions: float | None = None
    device_gib: float | None = None
    readings: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    longest_gap_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """One repeat of a profile. ``output_tokens`` are those delivered in the window, whichever request they belong to.

    The window reaches from the first measured request's sending to the last one's end (``window_s``). ``held_share``
    is the share of it during which exactly ``concurrency`` requests were in flight. ``client_cpu_share`` is the
    busiest load worker's share of one core. Latencies are medians in ms over the measured requests.
    """

    label: str
    window_s: float | None
    output_tokens: int
    output_tok_s: float | None
    requests: int
    failed: int
    held_share: float | None
    client_cpu_share: float | None
    ttft_p50_ms: float | None = None
    tpot_p50_ms: float | None = None
    e2e_p50_ms: float | None = None
    peaks: EnginePeaks = EnginePeaks()
    requests_file: str | None = None
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Memory at the peak of a profile in GiB: weights, used KV cache, and the rest; ``None`` with its reason.

    ``peak_gib`` = ``weights_gib`` + ``kv_gib`` + ``other_gib``; the pre-allocated pool is not use. ``error`` is the
    relative half-range of the peak over the repeats. ``weights_source`` is ``log`` or ``checkpoint``.
    """

    weights_gib: float | None = None
    kv_gib: float | None = None
    other_gib: float | None = None
    peak_gib: float | None = None
    kv_usage: float | None = None
    kv_bytes_per_token: float | None = None
    device_peak_gib: float | None = None
    error: float | None = None
    weights_source: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """One profile on one configuration; ``output_tok_s`` is tokens over seconds, summed over the repeats.

    ``load_sha256`` is the hash of the profile's own settings and of how requests are sent: others are not compared.
    ``paired`` are runs of the baseline that were taken in turn with ``runs`` while both engines were up.
    """

    name: str
    concurrency: int
    input_tokens: int
    output_tokens: int
    requests: int
    runs: tuple[ProfileRun, ...]
    output_tok_s: float | None
    memory: PeakMemory
    load_sha256: str
    paired: tuple[ProfileRun, ...] = ()
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetRun:
    """A profile run again with its KV cache cut, so that the peak may be ``factor`` times the measured one.

    ``budget_gib`` = ``factor`` · the measured peak, ``kv_gib`` the pool that the engine was given. ``running`` and
    ``full_running`` are the most requests that ran at once, cut and uncut; ``value`` is output tok/s. ``healthy``:
    as many ran, none was preempted, and it is as fast within its error.
    """

    profile: str
    factor: float
    budget_gib: float | None
    kv_gib: float | None
    running: float | None
    full_running: float | None
    healthy: bool | None
    value: float | None
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ratio:
    """Candidate / baseline (for memory the reverse) with its 95 % half-width, in the same unit; ``None``: unknown.

    ``drift`` is the part of ``error`` that bounds how far the machine drifted, in the same unit; it is common to all
    profiles, the rest is not.
    """

    value: float | None
    error: float | None
    missing: str | None = None
    drift: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeedDelta:
    """Output tok/s of each profile against the baseline's, and their geometric mean.

    ``smallest`` is the smallest relative change that the repeats could have shown. ``how`` says where the error came
    from. ``None`` where ``faults`` say why.
    """

    profiles: Mapping[str, Ratio] = field(default_factory=dict)
    overall: Ratio | None = None
    smallest: float | None = None
    how: str = ""
    faults: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryDelta:
    """Baseline peak / candidate peak by profile, their geometric mean, and ``saved`` = 1 − 1 / that of ``serve``."""

    profiles: Mapping[str, Ratio] = field(default_factory=dict)
    overall: Ratio | None = None
    saved: float | None = None
    faults: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreDelta:
    """The leaderboard figures of one configuration; ``None`` with its reason in ``missing``.

    ``efficiency_gain`` = sqrt(speed / (1 + max(0, length shift)) · memory); ``drift`` = points; ``score`` =
    efficiency_gain · exp(−drift / 10). ``tier`` is the best one that the mean drop allows. ``admitted``: contract
    passed and every measurement valid. ``qualified``: admitted, and no needed gate failed; ``reason`` says what did.
    ``undecided`` names needed gates that are inconclusive.
    """

    efficiency_gain: float | None = None
    drift: float | None = None
    score: float | None = None
    score_se: float | None = None
    tier: str | None = None
    mean_drop_pts: float | None = None
    valid_domains: int | None = None
    admitted: bool = False
    qualified: bool | None = None
    reason: str | None = None
    undecided: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
