"""What coordinator and workers say to each other: length-prefixed frames; here all but what is said of requests."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from pytest_tokenwatt.records import ClosedPlan, Schedule, Target


class Kind(IntEnum):
    """Kinds of frames; the first six go to a worker."""

    CONFIG = 1
    SHARE = 2
    CLOSED_SHARE = 3
    START = 4
    MEASURE = 5
    STOP = 6
    READY = 7
    PROGRESS = 8
    TICK = 9
    RECORDS = 10
    END = 11
    FAILED = 12


_HEAD = struct.Struct("<IB")


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(len(payload), kind) + payload


class FrameSplitter:
    """Cuts a byte stream into frames."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[Kind, bytes]]:
        """The frames that ``piece`` completes."""
        self._pending += piece
        at = 0
        while len(self._pending) - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._pending, at)
            end = at + _HEAD.size + length
            if len(self._pending) < end:
                break
            yield Kind(kind), bytes(self._pending[at + _HEAD.size : end])
            at = end
        del self._pending[:at]


# --- target and share ---------------------------------------------------------------------------------------------


def pack_target(target: Target) -> bytes:
    """A target, with its headers: for a private socket only."""
    fields = asdict(target)
    fields["special_ids"] = sorted(target.special_ids)
    return json.dumps(fields).encode()


def unpack_target(payload: bytes) -> Target:
    """What ``pack_target`` packed."""
    fields = json.loads(payload)
    return Target(**{**fields, "special_ids": frozenset(fields["special_ids"])})


@dataclass(frozen=True, slots=True)
class Share:
    """One worker's part of a plan: local request j of a schedule has index j · ``workers`` + ``worker``."""

    worker: int
    workers: int
    warmup: Schedule
    measured: Schedule
    request_timeout_s: float
    max_in_flight: int
    kept: frozenset[int] = frozenset()


def pack_share(share: Share) -> bytes:
    """A share: a JSON line, then the schedules' arrays."""
    parts = {"warmup": share.warmup, "measured": share.measured}
    line: dict[str, Any] = {
        name: getattr(share, name) for name in ("worker", "workers", "request_timeout_s", "max_in_flight")
    }
    line |= {name: [len(part), part.prompt_key] for name, part in parts.items()}
    line["kept"] = sorted(share.kept)
    columns = [
        column.tobytes() for part in parts.values() for column in (part.offset_s, part.input_tokens, part.output_tokens)
    ]
    return b"".join([json.dumps(line).encode(), b"\n", *columns])


def unpack_share(payload: bytes) -> Share:
    """What ``pack_share`` packed."""
    text, _, rest = payload.partition(b"\n")
    line = json.loads(text)
    parts = {}
    at = 0
    for name in ("warmup", "measured"):
        count, prompt_key = line.pop(name)
        size = count * 8
        offset_s: array[float] = array("d", rest[at : at + size])
        inputs: array[int] = array("q", rest[at + size : at + 2 * size])
        outputs: array[int] = array("q", rest[at + 2 * size : at + 3 * size])
        parts[name] = Schedule(offset_s, inputs, outputs, prompt_key)
        at += 3 * size
    return Share(**{**line, **parts, "kept": frozenset(line["kept"])})


@dataclass(frozen=True, slots=True)
class ClosedShare:
    """One worker's part of a closed-loop plan; which requests are its own follows from its number."""

    worker: int
    workers: int
    plan: ClosedPlan


def pack_closed_share(share: ClosedShare) -> bytes:
    """A share of a closed loop, as JSON."""
    fields = asdict(share.plan)
    fields["kept"] = sorted(share.plan.kept)
    return json.dumps([share.worker, share.workers, fields]).encode()


def unpack_closed_share(payload: bytes) -> ClosedShare:
    """What ``pack_closed_share`` packed."""
    worker, workers, fields = json.loads(payload)
    return ClosedShare(worker, workers, ClosedPlan(**{**fields, "kept": frozenset(fields["kept"])}))


# --- instants and ticks -------------------------------------------------------------------------------------------

_INSTANT = struct.Struct("<d?")


def pack_instant(at_s: float, flag: bool = False) -> bytes:
    """An instant of a run: its start, the start of its measured part, or its stop (``flag``: abort)."""
    return _INSTANT.pack(at_s, flag)


def unpack_instant(payload: bytes) -> tuple[float, bool]:
    """What ``pack_instant`` packed."""
    at_s, flag = _INSTANT.unpack(payload)
    return at_s, flag


@dataclass(frozen=True, slots=True)
class Tick:
    """A worker's regular report. All that it received before ``at_s`` is in the progress sent before this tick."""

    at_s: float
    now_s: float
    cpu_s: float
    running: int
    waiting: int
    capped: int


_TICK = struct.Struct("<dddQQQ")


def pack_tick(tick: Tick) -> bytes:
    """A tick."""
    return _TICK.pack(tick.at_s, tick.now_s, tick.cpu_s, tick.running, tick.waiting, tick.capped)


def unpack_tick(payload: bytes) -> Tick:
    """What ``pack_tick`` packed."""
    return Tick(*_TICK.unpack(payload))


def pack_notice(notice: Mapping[str, Any]) -> bytes:
    """A small mapping, such as a failure."""
    return json.dumps(notice).encode()


def unpack_notice(payload: bytes) -> dict[str, Any]:
    """What ``pack_notice`` packed."""
    notice: dict[str, Any] = json.loads(payload)
    return notice
