"""What the requests look like: a named mix or a trace file, with the overrides of a workload, as ``Traffic``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.load.lengths import Fixed, Lengths, Lognormal, Tokens
from pytest_tokenwatt.load.tracefile import LengthPairs, read_pairs

CHAT_MIX = "chat-mix-v1"


class WorkloadLike(Protocol):
    """The part of a spec's ``workload`` block that shapes the traffic."""

    @property
    def trace(self) -> str:
        """A name, or a file relative to the spec."""
        ...

    @property
    def input_tokens(self) -> Any:
        """``None``, a number, or something with ``median`` and ``p90``."""
        ...

    @property
    def output_tokens(self) -> Any:
        """As ``input_tokens``."""
        ...

    @property
    def max_output_tokens(self) -> int | None:
        """The cap on an output's length."""
        ...


@dataclass(frozen=True, slots=True)
class Traffic:
    """The lengths of requests: independent ``input`` and ``output``, or both from ``pairs`` where these are ``None``.

    Drawn lengths are clipped: output ≤ min(``max_output_tokens``, ``max_model_len`` / 2), then input ≤
    ``max_model_len`` − output. Fixed lengths are not clipped to the model; ``open_trace`` refuses misfits.
    """

    name: str
    input: Lengths | None
    output: Lengths | None
    pairs: LengthPairs | None = None
    max_output_tokens: int | None = None
    max_model_len: int | None = None

    def draw(self, count: int, inputs: np.random.Generator, outputs: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Input and output tokens of the first ``count`` requests; request i's do not depend on ``count``."""
        drawn_in, drawn_out = self._draw(count, inputs, outputs)
        return self._clip(drawn_in, drawn_out)

    def _draw(self, count: int, inputs: np.random.Generator, outputs: np.random.Generator) -> tuple[Tokens, Tokens]:
        picked = self.pairs.draw(count, inputs) if self.pairs is not None else None
        sides = []
        for index, (lengths, generator) in enumerate(((self.input, inputs), (self.output, outputs))):
            if lengths is not None:
                sides.append(lengths.draw(count, generator))
            elif picked is not None:
                sides.append(picked[index])
            else:
                raise UsageError(f"trace {self.name!r} has no lengths", remedy="name a trace or give both lengths")
        return sides[0], sides[1]

    def _clip(self, drawn_in: Tokens, drawn_out: Tokens) -> tuple[Tokens, Tokens]:
        drawn_out = np.minimum(drawn_out, self._output_cap())
        if self.max_model_len is not None and _fixed(self.input) is None:
            drawn_in = np.minimum(drawn_in, self.max_model_len - drawn_out)
        return np.maximum(drawn_in, 1), np.maximum(drawn_out, 1)

    def _output_cap(self) -> int:
        caps = [np.iinfo(np.int64).max]
        if self.max_output_tokens is not None:
            caps.append(self.max_output_tokens)
        fixed_in = _fixed(self.input)
        if self.max_model_len is not None and _fixed(self.output) is None:
            caps.append(self.max_model_len // 2)
            if fixed_in is not None:
                caps.append(self.max_model_len - fixed_in)
        return int(min(caps))


def open_trace(workload: WorkloadLike, max_model_len: int | None, spec_dir: Path) -> Traffic:
    """The traffic of a workload on an engine that takes ``max_model_len`` tokens (``None``: unknown, no clipping).

    Raises ``UsageError`` when the trace is unknown or unreadable, or when lengths that the workload fixes do not fit.
    """
    traffic = replace(_base(workload.trace, spec_dir), max_output_tokens=workload.max_output_tokens)
    if workload.input_tokens is not None:
        traffic = replace(traffic, input=_lengths("input_tokens", workload.input_tokens))
    if workload.output_tokens is not None:
        traffic = replace(traffic, output=_lengths("output_tokens", workload.output_tokens))
    _check_fit(traffic, max_model_len)
    return replace(traffic, max_model_len=max_model_len)


def _base(trace: str, spec_dir: Path) -> Traffic:
    if trace == CHAT_MIX:
        return Traffic(CHAT_MIX, input=Lognormal(1024, 4096), output=Lognormal(256, 1024))
    path = spec_dir / trace
    if not path.is_file():
        raise UsageError(
            f"there is no trace named {trace!r} and no such file ({path})",
            where="workload.trace",
            remedy=f"use {CHAT_MIX}, or a JSONL or CSV file of lengths",
        )
    return Traffic(path.name, input=None, output=None, pairs=read_pairs(path))


def _lengths(key: str, value: Any) -> Lengths:
    if isinstance(value, int | float):
        if value < 1 or value != int(value):
            raise UsageError(f"{value!r} is not a number of tokens", where=f"workload.{key}", remedy="give 1 or more")
        return Fixed(int(value))
    median, p90 = _median_p90(value)
    if not 1 <= median < p90:
        raise UsageError(
            f"median {median} and p90 {p90} describe no lognormal",
            where=f"workload.{key}",
            remedy="need 1 ≤ median < p90",
        )
    return Lognormal(median, p90)


def _median_p90(value: Any) -> tuple[float, float]:
    if isinstance(value, Mapping):
        return float(value["median"]), float(value["p90"])
    return float(value.median), float(value.p90)


def _fixed(lengths: Lengths | None) -> int | None:
    return None if lengths is None else lengths.fixed


def _check_fit(traffic: Traffic, max_model_len: int | None) -> None:
    if max_model_len is None:
        return
    fixed_in, fixed_out = _fixed(traffic.input), _fixed(traffic.output)
    if fixed_out is not None and traffic.max_output_tokens is not None:
        fixed_out = min(fixed_out, traffic.max_output_tokens)
    need = (fixed_in or 1) + (fixed_out or 1)
    if need > max_model_len:
        raise UsageError(
            f"a request of {fixed_in or 1} + {fixed_out or 1} tokens exceeds max_model_len {max_model_len}",
            where="workload",
            remedy="lower input_tokens or output_tokens, or start the engine with a longer context",
        )
