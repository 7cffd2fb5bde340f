"""What an engine's start-up log says of its memory, its KV cache and its start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pytest_tokenwatt.engine.startup_lines import Told, read_lines
from pytest_tokenwatt.records.profiles import Startup

_GIB = 2**30
_LOGGED_DIGITS_GIB = 0.0051
"""Half of the last digit that vLLM logs, and a little for floats."""

_WHAT = {
    "weights_gib": "the memory of the weights",
    "kv_cache_gib": "the size of the KV cache",
    "kv_cache_tokens": "the tokens of the KV cache",
    "kv_bytes_per_token": "the KV cache's bytes of a token",
    "cuda_graph_gib": "the memory of CUDA graphs",
    "activation_gib": "the peak of activations",
    "non_torch_gib": "memory outside torch",
    "load_seconds": "the time of loading",
    "engine_init_seconds": "the time of initialisation",
    "max_concurrency_sequences": "the maximum concurrency",
    "max_concurrency_tokens": "the maximum concurrency",
    "kv_cache_dtype": "the data type of the KV cache",
    "speculative_config": "speculative decoding",
    "vllm_version": "the engine's version",
    "dtype": "the model's data type",
    "quantization": "the model's quantisation",
}
_PROFILED = frozenset({"activation_gib", "non_torch_gib"})
_NOT_ON_CPU = _PROFILED | {"weights_gib", "cuda_graph_gib"}
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ranks:
    """How many workers an engine has: tensor-parallel, pipeline-parallel, and in all of its data-parallel parts."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def workers(self) -> int:
        """All workers together."""
        return self.tensor * self.pipeline * self.data


def parse_startup(
    lines: Iterable[str], cache_config: Mapping[str, str] = _NOTHING, *, ranks: Ranks = Ranks()
) -> Startup:
    """What the last start in a log of vLLM tells; whatever the lines are, nothing is raised.

    ``cache_config`` are the labels of ``vllm:cache_config_info``: they give the KV cache where the log does not, and
    its exact size where that agrees with the log's rounded one. A log whose KV cache is another one is of another
    start, and is not believed.

    Weights, pool, activations, graphs and memory outside torch are told by each worker of its own GPU: they are
    summed over the workers. Where only the first of several tensor-parallel workers speaks, as in some versions, the
    others are taken to hold as much, which a note says; with pipeline stages, which differ, the figure is missing.
    Tokens and concurrency are one engine's, summed over data-parallel ones; seconds are the slowest process's.
    ``ranks`` holds for the labels when the log does not tell its own.
    """
    read = [line for line in lines if line]
    told, labels = read_lines(read), _Labels(cache_config)
    stale = _other_start(told, labels)
    if stale:
        told = Told()
    return _Assembly(told, labels, _ranks(told, ranks), stale or _unread(read, told)).startup()


def _ranks(told: Told, otherwise: Ranks) -> Ranks:
    sizes = [told.setting(f"{kind}_parallel_size") or "" for kind in ("tensor", "pipeline", "data")]
    if not all(size.isdecimal() and 0 < len(size) < 6 for size in sizes[:2]):
        return otherwise
    return Ranks(*(max(1, int(size)) for size in sizes if size.isdecimal() and len(size) < 6))


def _unread(lines: list[str], told: Told) -> str | None:
    if not lines:
        return "there is no log of the engine to read (engine.logs can name one)"
    return None if told else "the log holds no line of vLLM's start-up"


def _other_start(told: Told, labels: _Labels) -> str | None:
    logged, served = told.total("tokens"), labels.number("kv_cache_size_tokens")
    if logged is None or served is None or told.count("tokens") > 1 or abs(logged - served) <= 1:
        return None
    return f"the log is of another start: its KV cache has {logged:.0f} tokens, the engine's {served:.0f}"


class _Labels:
    """The labels of ``vllm:cache_config_info``; Python writes an absent value as ``None``."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels

    def text(self, name: str) -> str | None:
        value = self._labels.get(name)
        return None if value in (None, "", "None") else value

    def number(self, name: str) -> float | None:
        """A positive, finite number."""
        try:
            value = float(self.text(name) or "")
        except ValueError:
            return None
        return value if 0 < value < math.inf else None

    def tokens(self) -> float | None:
        """Tokens of the pool; older versions tell only its blocks."""
        told = self.number("kv_cache_size_tokens")
        return told if told is not None else self.of_blocks(self.number("num_gpu_blocks"))

    def of_blocks(self, blocks: float | None) -> float | None:
        """Tokens of so many blocks."""
        size = self.number("block_size")
        return blocks * size if blocks and size else None


@dataclass(slots=True)
class _Assembly:
    """Puts the figures together, and keeps what was taken from elsewhere and what is missing."""

    told: Told
    labels: _Labels
    ranks: Ranks
    unread: str | None
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    alike: set[str] = field(default_factory=set)

    def startup(self) -> Startup:
        """All figures, with a reason for each that is not there."""
        told, pool, tokens = self.told, self._pool(), self._tokens()
        sequences, request_tokens = self._concurrency()
        known = Startup(
            weights_gib=self._weights(),
            kv_cache_gib=pool,
            kv_cache_tokens=tokens,
            kv_bytes_per_token=pool * _GIB / tokens if pool and tokens else None,
            cuda_graph_gib=self._graphs(),
            activation_gib=self._activation(),
            non_torch_gib=self._non_torch(),
            load_seconds=self._load_seconds(),
            engine_init_seconds=told.largest("init_s"),
            max_concurrency_sequences=sequences,
            max_concurrency_tokens=request_tokens,
            kv_cache_dtype=told.setting("kv_cache_dtype") or told.texts.get("kv_dtype") or self._label_dtype(),
            speculative_config=told.setting("speculative_config"),
            vllm_version=told.texts.get("version") or told.texts.get("server_version"),
            dtype=told.setting("dtype"),
            quantization=told.setting("quantization"),
            device="cpu" if self._on_cpu() else told.setting("device_config") or "",
            kernels=tuple(told.kernels),
        )
        absent = {name: self._reason(name) for name in _WHAT if getattr(known, name) is None}
        if "kv_bytes_per_token" in absent:
            absent["kv_bytes_per_token"] = absent.get("kv_cache_gib") or absent["kv_cache_tokens"]
        return replace(known, missing=absent, notes=self._all_notes())

    def _of_workers(self, figure: str, name: str) -> float | None:
        """A figure that each worker tells of itself, of all of them together."""
        total, count, workers = self.told.total(figure), self.told.count(figure), self.ranks.workers
        if total is None or count >= workers:
            return total
        if self.ranks.pipeline > 1:
            self.missing[name] = f"only {count} of {workers} workers, which differ, logged {_WHAT[name]}"
            return None
        self.alike.add(_WHAT[name])
        return total * workers / count

    def _unrounded(self, figure: str, name: str) -> float | None:
        """Like ``_of_workers`` for what is never nothing, only too small for the log's digits."""
        found = self._of_workers(figure, name)
        if found == 0:
            self.missing[name] = f"the log rounds {_WHAT[name]} to 0"
        return found or None

    def _weights(self) -> float | None:
        return self._unrounded("weights", "weights_gib")

    def _pool(self) -> float | None:
        logged, each = self._unrounded("pool", "kv_cache_gib"), self.labels.number("kv_cache_memory_bytes")
        if each is None:
            return logged
        exact = each * self.ranks.workers / _GIB
        if logged is None:
            self._from_labels("kv_cache_gib")
        elif abs(exact - logged) > _LOGGED_DIGITS_GIB * self.ranks.workers:
            return logged
        return exact

    def _tokens(self) -> float | None:
        logged = self._of_engines(self.told.total("tokens"), self.told.count("tokens"))
        if logged is None:
            logged = self.labels.of_blocks(self.told.total("blocks"))
        if logged is None and (told := self.labels.tokens()):
            self._from_labels("kv_cache_tokens")
            return told * self.ranks.data
        return logged

    def _concurrency(self) -> tuple[float | None, int | None]:
        """Requests at once, and tokens of each."""
        sequences = self._of_engines(self.told.total("sequences"), self.told.count("sequences"))
        tokens = self.told.largest("request_tokens")
        if sequences is not None and tokens is not None:
            return sequences, int(tokens)
        each, pool = self.labels.number("kv_cache_max_concurrency"), self.labels.number("kv_cache_size_tokens")
        if each is None or pool is None:
            return None, None
        self._from_labels("max_concurrency_sequences")
        return each * self.ranks.data, round(pool / each)

    def _of_engines(self, total: float | None, count: int) -> float | None:
        """Data-parallel engines are alike; where not all of them speak, the others have as much."""
        return total if total is None or count >= self.ranks.data else total * self.ranks.data / count

    def _graphs(self) -> float | None:
        """An engine that runs eagerly has none, and says nothing of them."""
        found = self._of_workers("graphs", "cuda_graph_gib")
        if found is None and (found := self._of_workers("graph", "cuda_graph_gib")) is not None:
            found += self._of_workers("encoder_graph", "cuda_graph_gib") or 0.0
        eager = self.told.setting("enforce_eager") == "True" or "no_graphs" in self.told.texts
        return 0.0 if found is None and eager and not self._on_cpu() else found

    def _activation(self) -> float | None:
        """Where vLLM sets the estimated graphs aside before it sizes the pool, it counts them as activations."""
        reserved = self._of_workers("reserved_activation", "activation_gib")
        if reserved is None:
            found = self._of_workers("activation", "activation_gib")
            return found if found is not None else self._beyond_weights("torch_peak", "activation_gib")
        if self.told.texts.get("graph_profiling") == "enabled":
            reserved -= self._of_workers("graph_estimate", "activation_gib") or 0.0
        return max(0.0, round(reserved, 4))

    def _non_torch(self) -> float | None:
        found = self._of_workers("non_torch", "non_torch_gib")
        return found if found is not None else self._beyond_weights("consumed", "non_torch_gib")

    def _beyond_weights(self, figure: str, name: str) -> float | None:
        whole, weights = self._of_workers(figure, name), self._of_workers("weights", "weights_gib")
        return None if whole is None or weights is None else round(whole - weights, 4)

    def _load_seconds(self) -> float | None:
        loading, reading = self.told.largest("load_s"), self.told.largest("read_s")
        if loading is None and reading is not None:
            self.notes.append("the time of loading is that of reading the weights alone")
        return reading if loading is None else loading

    def _label_dtype(self) -> str | None:
        told = self.labels.text("cache_dtype")
        if told:
            self._from_labels("kv_cache_dtype")
        return told

    def _from_labels(self, name: str) -> None:
        self.missing.pop(name, None)
        self.notes.append(f"{_WHAT[name]}: from vllm:cache_config_info")

    def _all_notes(self) -> tuple[str, ...]:
        if self.alike:
            named = ", ".join(sorted(self.alike))
            self.notes.append(f"logged by some of {self.ranks.workers} equal workers and taken alike for all: {named}")
        return tuple(self.notes)

    def _on_cpu(self) -> bool:
        return "device" in self.told.texts or self.told.setting("device_config") == "cpu"

    def _reason(self, name: str) -> str:
        if self.unread or name in self.missing:
            return self.unread or self.missing[name]
        if self._on_cpu() and name in _NOT_ON_CPU:
            return f"vLLM on a CPU logs no line about {_WHAT[name]}"
        if "given_pool" in self.told.texts and name in _PROFILED:
            return f"vLLM does not measure {_WHAT[name]} when the size of the KV cache is given"
        return f"the log has no line about {_WHAT[name]}"
