"""Memory bandwidth utilisation of decoding (MBU): bytes that must be read over bytes that could have been read."""

from __future__ import annotations

import math

from pytest_tokenwatt.geometry.model import ModelGeometry
from pytest_tokenwatt.metrics.decode import DecodeWork, mean_chunk_gap
from pytest_tokenwatt.records import Figure, RatedBandwidth, Reason

MOST_TOKENS_PER_STEP = 1.05
"""Tokens of one sequence in one step above which it is no plain decoding."""

_BUSY_SEQUENCES = 4.0
_UNIT = "%"
_TB = 1e12


def mbu(
    geometry: ModelGeometry | Reason,
    bandwidth: RatedBandwidth | None,
    gpus: int,
    work: DecodeWork,
    steps_per_s: float | None,
    seconds: float,
    replicas: int = 1,
) -> Figure:
    """MBU in per cent: (steps/s · W(B) + Σ over decoded tokens/s of KV(context)) / (rated bandwidth · GPUs).

    ``work`` is that of ``seconds`` of windows; ``gpus`` are all that serve it. ``replicas`` counts engines that step
    on their own (replicas x data-parallel ranks), ``steps_per_s`` the steps of all of them together by the server's
    counter; ``None``: replicas / mean chunk gap, where each step is taken to bring one chunk. W is the weight bytes
    of a step of B decode tokens; what prefill reads besides does not count.

    The value is ``None``, with its reason, for an unknown geometry, bandwidth or topology, without a decoded token,
    and above 100 %.
    """
    if isinstance(geometry, Reason):
        return _none(geometry)
    if geometry.problem is not None:
        return _none(geometry.problem)
    if bandwidth is None:
        return _none(Reason("bandwidth_unknown", "no rated bandwidth; say it in hardware.rated_bw_tbs_per_gpu"))
    if gpus < 1 or seconds <= 0 or work.total == 0:
        return _none(Reason("no_decode_tokens", "no token was decoded in the windows"))
    steps_s = _counted(steps_per_s) or _steps_by_gaps(work, seconds, replicas)
    if steps_s is None:
        return _none(Reason("steps_unknown", "neither the server's step counter nor the chunks tell steps per second"))
    per_step = _tokens_per_step(_counted(steps_per_s), work, seconds, replicas)
    if per_step > MOST_TOKENS_PER_STEP:
        return _none(_several_per_step(per_step))
    weights_s = steps_s * geometry.weight_read_bytes(work.total / seconds / steps_s)
    cache_s = geometry.kv_read_bytes_of_runs(work.first_context, work.tokens) / seconds
    return _share(weights_s + cache_s, bandwidth.tbs * gpus, work.total)


def engine_mbu(read_bytes_per_gpu_per_s: float | None, bandwidth: RatedBandwidth | None) -> Figure:
    """The cross-check in per cent: bytes that the engine itself estimates to read, on each GPU, over the rated.

    An engine that exports no estimate, or zero, gives no value.
    """
    if read_bytes_per_gpu_per_s is None or not read_bytes_per_gpu_per_s > 0:
        return _none(Reason("not_exported", "the engine exports no estimate of the bytes that it reads"))
    if bandwidth is None:
        return _none(Reason("bandwidth_unknown", "no rated bandwidth; say it in hardware.rated_bw_tbs_per_gpu"))
    return _share(read_bytes_per_gpu_per_s, bandwidth.tbs, None)


def _counted(steps_per_s: float | None) -> float | None:
    usable = steps_per_s is not None and math.isfinite(steps_per_s) and steps_per_s > 0
    return steps_per_s if usable else None


def _steps_by_gaps(work: DecodeWork, seconds: float, replicas: int) -> float | None:
    """One over the chunk gap for each replica, at most one a chunk (an engine that idles at times)."""
    gap_s = mean_chunk_gap(work)
    return None if gap_s is None else min(replicas / gap_s, work.chunks / seconds)


def _tokens_per_step(counted: float | None, work: DecodeWork, seconds: float, replicas: int) -> float:
    """Of one sequence. Servers gather the tokens of several steps in a chunk when the reader is slow, so that counted
    steps know better; but an engine that idles at times has fewer of them than its sequences' time suggests."""
    sequences = work.decode_s / seconds / replicas
    if counted is not None and sequences >= _BUSY_SEQUENCES:
        return work.total / seconds / counted / sequences
    return work.total / work.chunks


def _several_per_step(per_step: float) -> Reason:
    text = f"{per_step:.2f} tokens a step and sequence: speculative decoding, or chunks that hold several steps"
    return Reason("unknown_topology", text)


def _share(bytes_per_s: float, tbs: float, n: int | None) -> Figure:
    percent = 100.0 * bytes_per_s / (tbs * _TB)
    if not percent <= 100.0:
        return Figure(None, _UNIT, n=n, reason=f"implausible: {percent:.0f} %")
    return Figure(percent, _UNIT, n=n)


def _none(reason: Reason) -> Figure:
    return Figure(None, _UNIT, reason=str(reason))
