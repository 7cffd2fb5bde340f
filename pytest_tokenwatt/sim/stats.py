"""The embedded engine's counters, as Prometheus text under vLLM's names."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_E2E_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)


class Histogram:
    """Counts of observations up to each of some bounds, their number and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """(suffix, extra label, value) of every line."""
        running = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            yield "_bucket", f',le="{"+Inf" if bound == float("inf") else float(bound)}"', running
        yield "_count", "", running
        yield "_sum", "", self.total


@dataclass(slots=True)
class Stats:
    """What has happened since the start, which was at ``started_s`` of the wall clock.

    ``read_bytes`` are those that the steps read of the weights and of the KV cache.
    """

    prompt_tokens: int = 0
    generation_tokens: int = 0
    read_bytes: float = 0.0
    started_s: float = field(default_factory=time.time)
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    ttft_s: Histogram = field(default_factory=lambda: Histogram(_TTFT_S))
    e2e_s: Histogram = field(default_factory=lambda: Histogram(_E2E_S))


@dataclass(frozen=True, slots=True)
class Gauges:
    """The state at one moment; ``kv_usage`` is a share."""

    running: int
    waiting: int
    kv_usage: float
    preemptions: int


def exposition(model: str, stats: Stats, now: Gauges, cache_config: Mapping[str, str]) -> str:
    """The text of ``/metrics``."""
    labels = f'engine="0",model_name="{model}"'
    lines = [
        *_metric("vllm:num_requests_running", "gauge", labels, now.running),
        *_metric("vllm:num_requests_waiting", "gauge", labels, now.waiting),
        *_metric("vllm:kv_cache_usage_perc", "gauge", labels, now.kv_usage),
        *_metric("vllm:prefix_cache_queries_total", "counter", labels, 0),
        *_metric("vllm:prefix_cache_hits_total", "counter", labels, 0),
        *_metric("vllm:num_preemptions_total", "counter", labels, now.preemptions),
        *_metric("vllm:prompt_tokens_total", "counter", labels, stats.prompt_tokens),
        *_metric("vllm:generation_tokens_total", "counter", labels, stats.generation_tokens),
        *_metric("vllm:estimated_read_bytes_per_gpu_total", "counter", labels, stats.read_bytes),
        "# TYPE vllm:request_success_total counter",
        *(
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {float(count)}'
            for reason, count in stats.finished.items()
        ),
        *_histogram("vllm:iteration_tokens_total", labels, stats.iteration_tokens),
        *_histogram("vllm:time_to_first_token_seconds", labels, stats.ttft_s),
        *_histogram("vllm:e2e_request_latency_seconds", labels, stats.e2e_s),
        *_metric("vllm:cache_config_info", "gauge", ",".join(f'{k}="{v}"' for k, v in cache_config.items()), 1),
        *_metric("process_cpu_seconds_total", "counter", "", time.process_time()),
        *_metric("process_start_time_seconds", "gauge", "", stats.started_s),
    ]
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, labels: str, value: float) -> tuple[str, str]:
    return f"# TYPE {name} {kind}", f"{name}{{{labels}}} {float(value)}" if labels else f"{name} {float(value)}"


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    for suffix, label, value in histogram.samples():
        yield f"{name}{suffix}{{{labels}{label}}} {float(value)}"
