"""Lays out a whole stretch of load before it starts, and splits it over workers."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass

import numpy as np

from pytest_tokenwatt.load.arrivals import Instants, poisson_arrivals
from pytest_tokenwatt.load.lengths import Tokens
from pytest_tokenwatt.load.traces import Traffic
from pytest_tokenwatt.records import LoadPlan, Schedule

SWITCH_LEAD_S = 0.3
"""How far ahead the start of the measured load is announced; the warm-up's arrivals go on at least this long."""

DEADLINE_MARGIN_S = 10.0
"""What a run may take beyond its last window and the request timeout before it is stopped by force."""


@dataclass(frozen=True, slots=True)
class _Draw:
    """One stretch of arrivals from second 0 with its lengths."""

    offset_s: Instants
    input_tokens: Tokens
    output_tokens: Tokens

    def shifted(self, by_s: float) -> _Draw:
        return _Draw(self.offset_s + by_s, self.input_tokens, self.output_tokens)


def build_plan(
    *,
    label: str,
    rate_rps: float,
    traffic: Traffic,
    windows: int,
    window_s: float,
    warmup_s: float,
    warmup_max_s: float,
    request_timeout_s: float,
    max_concurrency: int,
    seed: int,
    purpose: str,
    salt: int | str,
) -> LoadPlan:
    """The plan of ``windows`` back-to-back windows at ``rate_rps``.

    Every window replays the same relative arrivals and lengths with fresh prompts, so that repeats measure the machine
    and not the draw; warm-up and tail are other draws. Gaps and lengths depend on (``seed``, ``purpose``) and the index
    only: another rate sees the same draw with its gaps scaled. Prompts depend on all of (``salt``, ``seed``,
    ``purpose``, ``label``, ``rate_rps``): within one engine's life a combination must not come twice, or its
    prompts are in the prefix cache.
    """
    draws = _Draws(traffic, rate_rps, seed, purpose)
    window = draws.stretch("window", window_s)
    tail_s = request_timeout_s + DEADLINE_MARGIN_S
    parts = [window.shifted(k * window_s) for k in range(windows)]
    parts.append(draws.stretch("tail", tail_s).shifted(windows * window_s))
    identity = f"{salt}/{seed}/{purpose}/{label}/{rate_rps!r}"
    return LoadPlan(
        label=label,
        rate_rps=rate_rps,
        warmup=_schedule([draws.stretch("warmup", warmup_max_s + SWITCH_LEAD_S)], _key(identity, "warmup")),
        measured=_schedule(parts, _key(identity, "measured")),
        warmup_s=warmup_s,
        warmup_max_s=warmup_max_s,
        window_s=window_s,
        windows=windows,
        request_timeout_s=request_timeout_s,
        max_concurrency=max_concurrency,
    )


@dataclass(frozen=True, slots=True)
class _Draws:
    """Draws stretches of one traffic at one rate from named random streams."""

    traffic: Traffic
    rate_rps: float
    seed: int
    purpose: str

    def stretch(self, name: str, span_s: float) -> _Draw:
        offset_s = poisson_arrivals(self.rate_rps, span_s, self._generator(name, "gaps"))
        lengths = self.traffic.draw(len(offset_s), self._generator(name, "input"), self._generator(name, "output"))
        return _Draw(offset_s, *lengths)

    def _generator(self, stretch: str, side: str) -> np.random.Generator:
        words = [self.seed & (2**64 - 1), _key(self.purpose, f"{stretch}/{side}")]
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def _key(identity: str, part: str) -> int:
    digest = hashlib.blake2b(f"{identity}/{part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _schedule(parts: list[_Draw], prompt_key: int) -> Schedule:
    return Schedule(
        offset_s=_floats([part.offset_s for part in parts]),
        input_tokens=_ints([part.input_tokens for part in parts]),
        output_tokens=_ints([part.output_tokens for part in parts]),
        prompt_key=prompt_key,
    )


def _floats(parts: list[Instants]) -> array[float]:
    return array("d", np.concatenate(parts).astype(np.float64).tobytes())


def _ints(parts: list[Tokens]) -> array[int]:
    return array("q", np.concatenate(parts).astype(np.int64).tobytes())


def split(schedule: Schedule, workers: int, worker: int) -> Schedule:
    """The requests of one worker: its local request j is request j · ``workers`` + ``worker`` of the schedule."""
    part = slice(worker, None, workers)
    return Schedule(
        schedule.offset_s[part], schedule.input_tokens[part], schedule.output_tokens[part], schedule.prompt_key
    )
