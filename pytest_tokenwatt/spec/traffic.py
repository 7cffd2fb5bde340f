"""The blocks of timed load: SLO, workload, measurement, sweep, profiles, and the scenario that joins them."""

from __future__ import annotations

import re
from decimal import Decimal
from difflib import get_close_matches
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from pytest_tokenwatt.records import SloBound
from pytest_tokenwatt.spec.scalars import (
    AboveOne,
    BelowOne,
    Block,
    Count,
    CountOrZero,
    Filled,
    Integer,
    Name,
    NonNegative,
    Positive,
    drop_nulls,
    whole_number,
    wrong,
)

METRICS = ("ttft", "tpot", "itl", "e2e")
_SLO_KEY = re.compile(r"(?P<metric>[a-z0-9]+)_p(?P<percentile>\d{1,3}(\.\d{1,4})?)_ms")
_NEARLY = re.compile(r"(?P<metric>[a-z0-9]+?)[_ -]*p(?P<percentile>\d+(\.\d+)?)([_ -]*(ms|s))?", re.IGNORECASE)


def slo_bound(key: str, bound_ms: float) -> SloBound:
    """The bound that a key such as ``tpot_p99.9_ms`` names. Raises ``PydanticCustomError`` for any other key."""
    match = _SLO_KEY.fullmatch(key)
    if match is None or match["metric"] not in METRICS:
        raise wrong("is no promise", _slo_remedy(key))
    percentile = float(match["percentile"])
    if not 0 < percentile < 100:
        raise wrong(f"percentile {percentile:g} is not between 0 and 100", "such as ttft_p99_ms or tpot_p99.9_ms")
    return SloBound(match["metric"], percentile, bound_ms)


def _slo_remedy(key: str) -> str:
    match = _NEARLY.fullmatch(key)
    near = get_close_matches(match["metric"].lower(), METRICS, 1) if match else []
    if match and near:
        return f"did you mean {near[0]}_p{match['percentile']}_ms?"
    return f"write <metric>_p<percentile>_ms, such as ttft_p99_ms; metrics: {', '.join(METRICS)}"


def _slo_key(key: str) -> str:
    slo_bound(key, 1.0)
    return key


def _slo_filled(slo: dict[str, float]) -> dict[str, float]:
    if not slo:
        raise wrong("promises nothing", "name a bound such as ttft_p99_ms: 2000, or remove the block")
    named: dict[str, str] = {}
    for key in slo:
        first = named.setdefault(slo_bound(key, 1.0).name, key)
        if first != key:
            raise wrong(f"{first} and {key} are the same percentile", "keep one of them")
    return slo


SloKey = Annotated[str, AfterValidator(_slo_key)]
Slo = Annotated[
    dict[SloKey, Positive],
    BeforeValidator(drop_nulls),
    AfterValidator(_slo_filled),
    WithJsonSchema(
        {
            "type": "object",
            "patternProperties": {
                rf"^({'|'.join(METRICS)})_p\d{{1,3}}(\.\d{{1,4}})?_ms$": {"type": "number", "exclusiveMinimum": 0}
            },
            "additionalProperties": False,
            "minProperties": 1,
        }
    ),
]


def sorted_bounds(slo: dict[str, float] | None) -> tuple[SloBound, ...]:
    """The bounds by metric (TTFT, TPOT, ITL, e2e), then percentile."""
    bounds = [slo_bound(key, bound_ms) for key, bound_ms in (slo or {}).items()]
    return tuple(sorted(bounds, key=lambda bound: (METRICS.index(bound.metric), bound.percentile)))


def requests_needed(percentile: float) -> int:
    """Fewest requests whose nearest-rank percentile is not simply the maximum: n ≥ 1 / (1 − p)."""
    # In decimal, since 1 / (1 − 0.999) in binary is a hair above 1,000.
    return ceil(100 / (100 - Decimal(str(percentile))))


class LengthMix(Block):
    """A lognormal length in tokens by two of its quantiles."""

    median: Positive
    """Half of the requests are shorter."""
    p90: Positive
    """Nine of ten requests are shorter."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p90 < self.median:
            raise wrong(f"p90 ({self.p90:g}) is below the median ({self.median:g})")
        return self


def _length_shape(value: object) -> str:
    return "<mix>" if isinstance(value, dict | LengthMix) else "<number>"


Length = (
    Annotated[Annotated[Count, Tag("<number>")] | Annotated[LengthMix, Tag("<mix>")], Discriminator(_length_shape)]
    | None
)


class Workload(Block):
    """What the requests look like."""

    trace: Filled = "chat-mix-v1"
    """A trace's name, or a file: own JSONL, Mooncake, Azure, …"""
    input_tokens: Length = None
    """Prompt length: null (the trace's), a number, or {median: , p90: }."""
    output_tokens: Length = None
    """Output length: null (the trace's), a number, or {median: , p90: }."""
    max_output_tokens: Count | None = None
    """Caps the tail of the output lengths."""
    content: Filled = "random"
    """random token ids, or a text file to cut prompts from."""
    seed: Integer = 0
    """Seed of arrivals, lengths and prompts; all configurations share it."""


class Measurement(Block):
    """How long and how often is measured."""

    warmup_s: NonNegative = 45
    """Load before the first window."""
    warmup_max_s: NonNegative = 120
    """Latest end of a warm-up whose requests in flight are not level yet."""
    window_s: Positive = 120
    """Length of a confirming window."""
    search_window_s: Positive = 60
    """Length of a window of the search."""
    repeats: Count = 2
    """Confirming windows; all must pass."""
    request_timeout_s: Positive = 300
    """A request that takes longer has failed."""
    max_concurrency: Count = 8192
    """Requests in flight that the client allows; reaching it invalidates the window."""

    @model_validator(mode="before")
    @classmethod
    def _default_maximum(cls, data: object) -> object:
        """Without an own maximum, a long warm-up lifts the default one."""
        if not isinstance(data, dict) or data.get("warmup_max_s") is not None:
            return data
        warmup_s = data.get("warmup_s")
        long = isinstance(warmup_s, int | float) and not isinstance(warmup_s, bool) and warmup_s > 120
        return {**data, "warmup_max_s": warmup_s} if long else data

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.warmup_max_s < self.warmup_s:
            raise wrong(f"warmup_max_s ({self.warmup_max_s:g}) is below warmup_s ({self.warmup_s:g})")
        return self


class Sweep(Block):
    """How the highest rate that meets the SLO is searched."""

    rates: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    """Fixed rates instead of a search."""
    start_rps: Positive = 2
    """First rate, requests per second."""
    growth: AboveOne = 2
    """Factor until a window fails."""
    bisect_steps: CountOrZero = 3
    """Bisections between the highest passing and the lowest failing rate."""
    resolution: AboveOne | None = None
    """Instead of bisect_steps: bisect until lowest failing / highest passing is at most this."""
    max_rps: Positive = 2000
    """Where the search stops growing."""
    backoff: BelowOne = 0.9
    """Factor on the rate after a failed confirmation."""
    max_backoffs: CountOrZero = 4
    """How often the rate is backed off."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.start_rps > self.max_rps:
            raise wrong(f"start_rps ({self.start_rps:g}) is above max_rps ({self.max_rps:g})")
        if self.rates is not None and len(set(self.rates)) != len(self.rates):
            raise wrong("rates names a rate twice", "use measurement.repeats to measure a rate several times")
        return self


def _concurrency(value: object) -> object:
    if value == "all":
        return value
    count = whole_number(value)
    if count < 1:
        raise wrong(f"must be all or at least 1, not {count}")
    return count


class Profile(Block):
    """Closed-loop work for the speed and memory gates."""

    concurrency: Annotated[int | Literal["all"], BeforeValidator(_concurrency)]
    """Requests in flight; all: every request is sent at once."""
    input_tokens: Count
    """Prompt length."""
    output_tokens: Count
    """Output length."""
    requests: Count
    """Requests of one repeat."""
    repeats: Count = 3
    """How often the profile runs."""
    kv_gib: Positive | None = None
    """Size of the KV cache of an engine started for this profile alone; null: the engine as it is."""

    @property
    def in_flight(self) -> int:
        """Requests in flight."""
        return self.requests if self.concurrency == "all" else self.concurrency

    @model_validator(mode="after")
    def _enough_requests(self) -> Self:
        if self.requests < self.in_flight:
            raise wrong(f"{self.requests} requests cannot keep {self.in_flight} in flight", "raise requests")
        return self


ONLINE_SLO = "online_slo"
"""The goodput search as a profile: it has no settings of its own."""
CAPPED = "memory_capped"
_USUAL_PROFILES: dict[str, dict[str, int | str]] = {
    "serve": {"concurrency": 32, "input_tokens": 8192, "output_tokens": 512, "requests": 128},
    "interactive": {"concurrency": 1, "input_tokens": 1024, "output_tokens": 256, "requests": 16},
    "long_context": {"concurrency": 64, "input_tokens": 16000, "output_tokens": 256, "requests": 128},
    "offline": {"concurrency": "all", "input_tokens": 1024, "output_tokens": 256, "requests": 256},
    CAPPED: {"concurrency": 32, "input_tokens": 8192, "output_tokens": 512, "requests": 128},
}


def _usual_profiles(value: object) -> object:
    """The usual profiles have defaults: ``serve: {}`` is enough. ``online_slo`` is no closed loop."""
    if not isinstance(value, dict):
        return value
    if not value:
        raise wrong("names no profile", "write serve: {} for the usual one, or remove the block")
    if value.get(ONLINE_SLO):
        raise wrong(f"{ONLINE_SLO} takes no settings", f"write {ONLINE_SLO}: {{}}; it is the search of sweep")
    if CAPPED in value and not (value[CAPPED] or {}).get("kv_gib"):
        raise wrong(f"{CAPPED} has no cap", f"give {CAPPED}.kv_gib, the size of its KV cache in GiB")
    return {name: _with_defaults(name, profile) for name, profile in value.items() if name != ONLINE_SLO}


def _with_defaults(name: str, profile: object) -> object:
    usual = _USUAL_PROFILES.get(name, {})
    if profile is None:
        return usual
    if not isinstance(profile, dict):
        return profile
    return usual | {key: value for key, value in profile.items() if value is not None or key not in usual}


Profiles = Annotated[dict[Name, Profile], BeforeValidator(_usual_profiles)]


class Scenario(BaseModel):
    """One SLO class of one configuration, with every block resolved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    workload: Workload
    slo: dict[str, float] | None
    sweep: Sweep
    measurement: Measurement

    @property
    def bounds(self) -> tuple[SloBound, ...]:
        """The SLO, sorted by metric and percentile; empty without one."""
        return sorted_bounds(self.slo)

    @property
    def max_percentile(self) -> float | None:
        """The highest percentile that the SLO asks for."""
        return max((bound.percentile for bound in self.bounds), default=None)

    @property
    def requests_needed(self) -> int:
        """Requests that a window must hold for the highest percentile (1 without an SLO)."""
        highest = self.max_percentile
        return 1 if highest is None else requests_needed(highest)
