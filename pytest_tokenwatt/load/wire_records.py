"""How workers report requests: readings while they run, and whole records, as structs and raw arrays."""

from __future__ import annotations

import itertools
import math
import struct
from array import array
from collections.abc import Iterable, Iterator

from pytest_tokenwatt.load.exchange import PHASES
from pytest_tokenwatt.records import ErrorClass, RequestProgress, RequestRecord

_ERRORS = (None, *ErrorClass)
_ERROR_CODES = {error: code for code, error in enumerate(_ERRORS)}
_PHASE_CODES = {phase: code for code, phase in enumerate(PHASES)}

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


_RECORD = struct.Struct("<BQdQQddddqqqqQ??BIIIqq")


def pack_records(records: Iterable[RequestRecord]) -> bytes:
    """Whole records, chunk stamps included."""
    return b"".join(map(_pack_record, records))


def _pack_record(record: RequestRecord) -> bytes:
    finish, message = _text(record.finish_reason), _text(record.error_message)
    head = _RECORD.pack(
        _PHASE_CODES[record.phase], record.index, record.scheduled_s,
        record.planned_input_tokens, record.planned_output_tokens,
        _float(record.sent_s), _float(record.first_token_s), _float(record.last_token_s), _float(record.end_s),
        _int(record.prompt_tokens), _int(record.cached_tokens), _int(record.output_tokens), _int(record.status),
        record.bytes_received, record.tokens_estimated, record.connection_reused, _ERROR_CODES[record.error],
        len(finish), len(message), len(record.chunk_s), _length(record.prompt_ids), _length(record.output_ids),
    )  # fmt: skip
    columns = (record.chunk_s, record.chunk_tokens, record.prompt_ids, record.output_ids)
    return b"".join([head, finish, message, *(column.tobytes() for column in columns if column is not None)])


def unpack_records(payload: bytes) -> Iterator[RequestRecord]:
    """What ``pack_records`` packed."""
    at = 0
    while at < len(payload):
        record, at = _unpack_record(payload, at)
        yield record


def _unpack_record(payload: bytes, at: int) -> tuple[RequestRecord, int]:
    (
        phase, index, scheduled_s, planned_in, planned_out, sent, first, last, end,
        prompt, cached, output, status, received, estimated, reused, error, n_finish, n_message, chunks,
        n_prompt, n_output,
    ) = _RECORD.unpack_from(payload, at)  # fmt: skip
    at += _RECORD.size
    edges = [at]
    for size in (n_finish, n_message, chunks * 8, chunks * 8, max(0, n_prompt) * 8, max(0, n_output) * 8):
        edges.append(edges[-1] + size)
    finish, message, stamps, tokens, prompt_ids, output_ids = (
        payload[start:end] for start, end in itertools.pairwise(edges)
    )
    record = RequestRecord(
        phase=PHASES[phase],
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
        prompt_ids=None if n_prompt < 0 else array("q", prompt_ids),
        output_ids=None if n_output < 0 else array("q", output_ids),
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


def _length(ids: array[int] | None) -> int:
    return -1 if ids is None else len(ids)
