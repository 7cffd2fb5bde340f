"""Memory at the peak of a profile, and how much less of it a candidate needs.

The pre-allocated pool of the KV cache is not use: what counts is the largest share of it that was in use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.metrics.polling import polled_too_slowly
from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRun, Ratio, Startup

SERVE = "serve"
"""The profile whose saving is the one that is told."""

_GIB = 2.0**30
_NOT_TOLD = "the start-up log does not tell it"
_OTHER_PARTS = ("activation_gib", "non_torch_gib", "cuda_graph_gib")


def kv_bytes_per_token(kv_gib: float, tokens: float) -> float:
    """KV cache of ``kv_gib`` GiB over the tokens it holds, in bytes: of a profile in use, or of a whole pool."""
    return kv_gib * _GIB / tokens


def peak_memory(
    runs: Sequence[ProfileRun],
    startup: Startup,
    weights: tuple[float, str] | None,
    *,
    concurrency: int,
    tokens_per_request: int,
) -> PeakMemory:
    """The memory of a profile from the peaks of its repeats; ``weights`` are GiB and their source.

    ``kv_gib`` = peak usage · pool, ``other_gib`` = activation + non-torch + graph memory, ``peak_gib`` = weights + KV
    + other, ``kv_bytes_per_token`` = kv_gib · 2³⁰ / (``concurrency`` · ``tokens_per_request``) as if all requests had
    their full length at the peak. Peaks are the largest over the repeats; ``None`` when one of them was not read,
    or the metrics of one too seldom (``polled_too_slowly``), as it may have been the largest. ``error`` is (largest −
    smallest) / 2 of the repeats' peaks, over the largest; ``None`` with one repeat.
    """
    pool_gib = startup.kv_cache_gib
    weights_gib, source = weights or (None, None)
    other_gib = _sum(startup.activation_gib, startup.non_torch_gib, startup.cuda_graph_gib)
    usages = [None if polled_too_slowly(run.peaks) else run.peaks.kv_usage for run in runs]
    kv_usage = _largest(usages)
    kv_gib = _used_gib(kv_usage, pool_gib)
    found = PeakMemory(
        weights_gib=weights_gib,
        kv_gib=kv_gib,
        other_gib=other_gib,
        peak_gib=_sum(weights_gib, kv_gib, other_gib),
        kv_usage=kv_usage,
        kv_bytes_per_token=None if kv_gib is None else kv_bytes_per_token(kv_gib, concurrency * tokens_per_request),
        device_peak_gib=_largest([run.peaks.device_gib for run in runs]),
        error=_half_range([_sum(weights_gib, _used_gib(usage, pool_gib), other_gib) for usage in usages]),
        weights_source=source,
    )
    return replace(found, missing=_missing(found, runs, startup))


def memory_gain(candidate: PeakMemory, baseline: PeakMemory) -> Ratio:
    """Baseline peak / candidate peak, with both relative errors in quadrature.

    The error is ``None`` unless both are known: with one repeat nothing was seen of it, and a bound that is wider by
    the error of the other side alone would favour the candidate for having been measured less.
    """
    unknown = [
        f"{side}: {memory.missing.get('peak_gib', 'the peak is not known')}"
        for side, memory in (("candidate", candidate), ("baseline", baseline))
        if memory.peak_gib is None
    ]
    if baseline.peak_gib is None or not candidate.peak_gib:
        return Ratio(None, None, "; ".join(unknown) or "candidate: the peak is 0 GiB")
    value = baseline.peak_gib / candidate.peak_gib
    if candidate.error is None or baseline.error is None:
        sides = [side for side, memory in (("candidate", candidate), ("baseline", baseline)) if memory.error is None]
        return Ratio(value, None, f"the spread of the peak over repeats is not known ({', '.join(sides)})")
    return Ratio(value, value * math.hypot(candidate.error, baseline.error))


def memory_saved(gains: Mapping[str, Ratio]) -> float | None:
    """1 − 1 / gain of the profile ``serve``, a share; ``None`` without it."""
    gain = gains.get(SERVE)
    return None if gain is None or not gain.value else 1.0 - 1.0 / gain.value


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _largest(readings: Sequence[float | None]) -> float | None:
    known = [reading for reading in readings if reading is not None]
    return max(known) if known and len(known) == len(readings) else None


def _used_gib(usage: float | None, pool_gib: float | None) -> float | None:
    return None if usage is None or pool_gib is None else usage * pool_gib


def _half_range(peaks_gib: Sequence[float | None]) -> float | None:
    """Half the range over the largest; ``None`` below two repeats or when one is not known."""
    known = [peak for peak in peaks_gib if peak is not None]
    if len(known) < 2 or len(known) < len(peaks_gib) or max(known) <= 0:
        return None
    return (max(known) - min(known)) / 2.0 / max(known)


def _missing(found: PeakMemory, runs: Sequence[ProfileRun], startup: Startup) -> dict[str, str]:
    """Why each figure that is ``None`` is."""
    missing: dict[str, str] = {}
    if found.weights_gib is None:
        why = startup.missing.get("weights_gib", _NOT_TOLD)
        missing["weights_gib"] = f"{why}, and no checkpoint tells what was loaded"
    if found.kv_usage is None:
        missing["kv_usage"] = _unread(runs, "kv_usage")
    if found.kv_gib is None:
        pool = startup.missing.get("kv_cache_gib", _NOT_TOLD)
        missing["kv_gib"] = missing.get("kv_usage") or f"size of the pool: {pool}"
        missing["kv_bytes_per_token"] = missing["kv_gib"]
    if found.other_gib is None:
        unknown = [part for part in _OTHER_PARTS if getattr(startup, part) is None]
        told = f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not known"
        missing["other_gib"] = f"{told} ({startup.missing.get(unknown[0], _NOT_TOLD)})"
    if found.device_peak_gib is None:
        missing["device_peak_gib"] = _unread(runs, "device_gib")
    if found.peak_gib is None:
        parts = [name for name in ("weights_gib", "kv_gib", "other_gib") if name in missing]
        missing["peak_gib"] = "; ".join(f"{name}: {missing[name]}" for name in parts)
    if found.error is None:
        missing["error"] = "one repeat" if len(runs) == 1 else missing.get("peak_gib", "the peak was not measured")
    return missing


def _unread(runs: Sequence[ProfileRun], name: str) -> str:
    told = [run.peaks.missing.get(name, "not read") for run in runs if getattr(run.peaks, name) is None]
    slow = [f"{run.label}: {why}" for run in runs if (why := polled_too_slowly(run.peaks))]
    return next((why for why in (*told, *slow)), "no repeat was run")
