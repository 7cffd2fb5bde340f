"""What coordinator and workers say to each other: length-prefixed frames of JSON, structs and raw arrays."""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from pytest_tokenwatt.records import ErrorClass, RequestProgress, RequestRecord, Schedule, Target


class Kind(IntEnum):
    """Kinds of frames; the first five go to a worker."""

    CONFIG = 1
    SHARE = 2
    START = 3
    MEASURE = 4
    STOP = 5
    READY = 6
    PROGRESS = 7
    TICK = 8
    RECORDS = 9
    END = 10
    FAILED = 11


_HEAD = struct.Struct("<IB")
_ERRORS = (None, *ErrorClass)
_ERROR_CODES = {error: code for code, error in enumerate(_ERRORS)}


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


def pack_share(share: Share) -> bytes:
    """A share: a JSON line, then the schedules' arrays."""
    parts = {"warmup": share.warmup, "measured": share.measured}
    line: dict[str, Any] = {
        name: getattr(share, name) for name in ("worker", "workers", "request_timeout_s", "max_in_flight")
    }
    line |= {name: [len(part), part.prompt_key] for name, part in parts.items()}
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
    return Share(warmup=parts["warmup"], measured=parts["measured"], **line)


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


# --- progress and records -----------------------------------------------------------------------------------------

_PROGRESS = struct.Struct("<QdddQdQ?B")


def pack_progress(readings: Iterable[RequestProgress]) -> bytes:
    """Readings of requests of the current run."""
    return b"".join(
        _PROGRESS.pack(
            reading.index,
            reading.scheduled_s,
            _float(reading.sent_s),
            _float(reading.first_token_s),
            reading.first_tokens,
            _float(reading.last_token_s),
            reading.tokens,
            reading.ended,
            _ERROR_CODES[reading.error],
        )
        for reading in readings
    )


def unpack_progress(payload: bytes) -> Iterator[RequestProgress]:
    """What ``pack_progress`` packed."""
    for index, due, sent, first, n_first, last, tokens, ended, error in _PROGRESS.iter_unpack(payload):
        yield RequestProgress(
            index, due, _instant(sent), _instant(first), n_first, _instant(last), tokens, ended, _ERRORS[error]
        )


_RECORD = struct.Struct("<?QdQQddddqqqqQ??BIII")


def pack_records(records: Iterable[RequestRecord]) -> bytes:
    """Whole records, chunk stamps included."""
    return b"".join(map(_pack_record, records))


def _pack_record(record: RequestRecord) -> bytes:
    finish, message = _text(record.finish_reason), _text(record.error_message)
    head = _RECORD.pack(
        record.phase == "measured", record.index, record.scheduled_s,
        record.planned_input_tokens, record.planned_output_tokens,
        _float(record.sent_s), _float(record.first_token_s), _float(record.last_token_s), _float(record.end_s),
        _int(record.prompt_tokens), _int(record.cached_tokens), _int(record.output_tokens), _int(record.status),
        record.bytes_received, record.tokens_estimated, record.connection_reused, _ERROR_CODES[record.error],
        len(finish), len(message), len(record.chunk_s),
    )  # fmt: skip
    return b"".join([head, finish, message, record.chunk_s.tobytes(), record.chunk_tokens.tobytes()])


def unpack_records(payload: bytes) -> Iterator[RequestRecord]:
    """What ``pack_records`` packed."""
    at = 0
    while at < len(payload):
        record, at = _unpack_record(payload, at)
        yield record


def _unpack_record(payload: bytes, at: int) -> tuple[RequestRecord, int]:
    (
        measured, index, scheduled_s, planned_in, planned_out, sent, first, last, end,
        prompt, cached, output, status, received, estimated, reused, error, n_finish, n_message, chunks,
    ) = _RECORD.unpack_from(payload, at)  # fmt: skip
    at += _RECORD.size
    edges = [at]
    for size in (n_finish, n_message, chunks * 8, chunks * 8):
        edges.append(edges[-1] + size)
    finish, message, stamps, tokens = (payload[edges[k] : edges[k + 1]] for k in range(4))
    record = RequestRecord(
        phase="measured" if measured else "warmup",
        index=index,
        scheduled_s=scheduled_s,
        planned_input_tokens=planned_in,
        planned_output_tokens=planned_out,
        sent_s=_instant(sent),
        first_token_s=_instant(first),
        last_token_s=_instant(last),
        end_s=_instant(end),
        chunk_s=array("d", stamps),
        chunk_tokens=array("q", tokens),
        prompt_tokens=_known(prompt),
        cached_tokens=_known(cached),
        output_tokens=_known(output),
        tokens_estimated=estimated,
        finish_reason=finish.decode() or None,
        status=_known(status),
        error=_ERRORS[error],
        error_message=message.decode() or None,
        bytes_received=received,
        connection_reused=reused,
    )
    return record, edges[-1]


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def _instant(value: float) -> float | None:
    return None if math.isnan(value) else value


def _int(value: int | None) -> int:
    return -1 if value is None else value


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _text(value: str | None) -> bytes:
    return (value or "").encode("utf-8", "replace")


def pack_notice(notice: Mapping[str, Any]) -> bytes:
    """A small mapping, such as a failure."""
    return json.dumps(notice).encode()


def unpack_notice(payload: bytes) -> dict[str, Any]:
    """What ``pack_notice`` packed."""
    notice: dict[str, Any] = json.loads(payload)
    return notice
