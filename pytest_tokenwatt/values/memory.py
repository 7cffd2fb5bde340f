"""Memory as a test reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_tokenwatt.records import Reason
    from pytest_tokenwatt.records.profiles import MemoryDelta, PeakMemory, ProfileRecord, Startup


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one configuration: at the peak of its profiles, and at start-up as its log tells.

    ``delta`` compares with the baseline, ``None`` for the baseline itself. Raises ``NotMeasured`` with the reason for a
    figure without a value, and for a profile that was not measured.
    """

    config: str
    records: Mapping[str, ProfileRecord] = field(repr=False)
    startup: Startup | None = field(default=None, repr=False)
    delta: MemoryDelta | None = None

    def peak_gib(self, profile: str | None = None) -> float:
        """Weights, used KV cache and the rest at the peak of a profile, in GiB; ``None``: the largest of all."""
        return self._peak("peak_gib", profile)

    @property
    def kv_gib(self) -> float:
        """KV cache in use at the peak, the largest of all profiles, in GiB; the reserved pool is ``kv_cache_gib``."""
        return self._peak("kv_gib", None)

    @property
    def weights_gib(self) -> float:
        """Weights in GiB, from the start-up log or else the checkpoint."""
        return self._peak("weights_gib", None)

    @property
    def device_peak_gib(self) -> float:
        """The driver's figure of used memory at the peak, the largest of all profiles, in GiB."""
        return self._peak("device_peak_gib", None)

    def at_peak(self, profile: str) -> PeakMemory:
        """All parts of the peak of one profile, ``None`` where ``missing`` says why."""
        record = self.records.get(profile)
        if record is None or record.invalid:
            raise NotMeasured(f"{self.config} memory of {profile}", self._why_no(profile))
        return record.memory

    def kv_bytes_per_token(self, profile: str) -> float:
        """KV cache in use at the peak over the tokens of all requests in flight, in bytes."""
        return self._of(profile, "kv_bytes_per_token")

    @property
    def gain(self) -> float:
        """Baseline peak / candidate peak, the geometric mean over profiles: 2 is half the memory."""
        overall = self.delta.overall if self.delta else None
        if overall is None or overall.value is None:
            raise NotMeasured(f"{self.config} memory gain", self._not_compared())
        return overall.value

    @property
    def gains(self) -> dict[str, float]:
        """Baseline peak / candidate peak by profile; those that cannot be compared are not in it."""
        profiles = self.delta.profiles if self.delta else {}
        return {name: each.value for name, each in profiles.items() if each.value is not None}

    @property
    def saved(self) -> float:
        """The share of the baseline's peak that the profile ``serve`` does without: 0.46 is 46 % less."""
        if self.delta is None or self.delta.saved is None:
            raise NotMeasured(f"{self.config} memory saved", self._not_compared())
        return self.delta.saved

    # --- at start-up

    @property
    def kv_cache_gib(self) -> float:
        """The pool that was reserved for KV cache at start-up, in GiB."""
        return self._startup("kv_cache_gib")

    @property
    def kv_cache_tokens(self) -> float:
        """Tokens that fit into the pool."""
        return self._startup("kv_cache_tokens")

    @property
    def pool_bytes_per_token(self) -> float:
        """Bytes of the pool over its tokens."""
        return self._startup("kv_bytes_per_token")

    @property
    def cuda_graph_gib(self) -> float:
        """Memory of captured graphs, in GiB."""
        return self._startup("cuda_graph_gib")

    @property
    def load_seconds(self) -> float:
        """How long loading the weights took."""
        return self._startup("load_seconds")

    @property
    def engine_init_seconds(self) -> float:
        """How long profiling, reserving the pool and warming up took."""
        return self._startup("engine_init_seconds")

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe a profile, or why it cannot be compared; empty when all is well."""
        own = [reason for record in self.records.values() for reason in record.invalid]
        return tuple(dict.fromkeys((*own, *(self.delta.faults if self.delta else ()))))

    def _peak(self, name: str, profile: str | None) -> float:
        """Of one profile, or the largest: one that is not known might be that."""
        if profile is not None:
            return self._of(profile, name)
        if not self.records:
            raise NotMeasured(f"{self.config} {name}", "no profile was measured")
        return max(self._of(each, name) for each in self.records)

    def _of(self, profile: str, name: str) -> float:
        memory = self.at_peak(profile)
        value: float | None = getattr(memory, name)
        if value is None:
            raise NotMeasured(f"{self.config} {profile} {name}", memory.missing.get(name, "not read"))
        return value

    def _why_no(self, profile: str) -> str:
        record = self.records.get(profile)
        if record is None:
            return f"profiles: {', '.join(self.records) or 'none was measured'}"
        return "; ".join(map(str, record.invalid))

    def _startup(self, name: str) -> float:
        value: float | None = getattr(self.startup, name) if self.startup else None
        if value is None:
            told = self.startup.missing.get(name) if self.startup else None
            raise NotMeasured(f"{self.config} {name}", told or "the engine's start-up log was not read")
        return value

    def _not_compared(self) -> str:
        if self.delta is None:
            return "the baseline is compared with nothing"
        return "; ".join(map(str, self.delta.faults)) or "the profile was not measured"
