"""The audit of a timed run: is what was served fast what the model says?

The baseline answers the same prompts, and then scores both outputs: the candidate's and its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.metrics.audit import INVALID, AuditSample, audit_record
from pytest_tokenwatt.quality.auditing.answers import own_answers
from pytest_tokenwatt.quality.auditing.rescoring import rescore
from pytest_tokenwatt.quality.drift.fitting import LEAST_TOKENS
from pytest_tokenwatt.quality.drift.patience import alive
from pytest_tokenwatt.records import Client, Reason
from pytest_tokenwatt.records.audit import AuditRecord, Served

_NOTHING: Mapping[str, Any] = MappingProxyType({})


async def audit_run(
    name: str,
    served: Sequence[Served],
    client: Client,
    *,
    max_model_len: int | None = None,
    extra_body: Mapping[str, Any] = _NOTHING,
    death: Callable[[], str | None] = alive,
) -> AuditRecord:
    """Audit the kept outputs of the timed run ``name`` with the baseline behind ``client``.

    ``served`` holds what each kept request got that came to its own end, empty outputs included. ``extra_body`` are the
    further fields of the timed requests, ``max_model_len`` is the baseline's. Raises nothing: what goes wrong is the
    record's reason (``no_token_ids``, ``no_room``, ``engine_died``, ``engine_unreachable``, ``wrong_echo``,
    ``other_tokenizer``, ``no_prompt_logprobs``, ``answers_failed``, ``sequences_failed``, those of ``audit_record``).
    """
    untold = sum(1 for one in served if not one.prompt)
    if untold:
        what = f"of {untold} of {len(served)} requests the server told no token ids of the prompt (return_token_ids)"
        return unaudited(name, Reason("no_token_ids", what))
    fitting = [one for one in served if max_model_len is None or _fits(one, max_model_len)]
    notes = tuple(_narrow(served, fitting, max_model_len))
    if 2 * len(fitting) < len(served):
        return unaudited(name, Reason("no_room", notes[0]))
    try:
        record = await _audited(name, fitting, client, max_model_len, extra_body, death)
    except EngineError as error:
        return unaudited(name, Reason(error.reason, str(error)))
    return replace(record, notes=(*notes, *record.notes))


def unaudited(name: str, reason: Reason) -> AuditRecord:
    """The record of a timed run that could not be audited, for ``reason``."""
    return AuditRecord(name, INVALID, 0, 0, 0, 0, 0, invalid=(reason,))


async def _audited(
    name: str,
    served: Sequence[Served],
    client: Client,
    max_model_len: int | None,
    extra_body: Mapping[str, Any],
    death: Callable[[], str | None],
) -> AuditRecord:
    own = await own_answers(client, served, max_model_len=max_model_len, extra_body=extra_body, death=death)
    pairs = [((one.prompt, one.output), (one.prompt, answer)) for one, answer in zip(served, own, strict=True)]
    texts = [text for pair in pairs for text in pair if text[1]]
    found = await rescore(client, texts, max_model_len=max_model_len, death=death)
    samples = [
        AuditSample(len(engine[1]), len(bf16[1]), found.scores.get(engine), found.scores.get(bf16))
        for engine, bf16 in pairs
    ]
    return audit_record(name, samples, found.notes)


def _fits(one: Served, max_model_len: int) -> bool:
    """Whether the baseline has room for an answer, and to score it: scoring generates one token more."""
    return len(one.prompt) + LEAST_TOKENS + 1 <= max_model_len


def _narrow(served: Sequence[Served], fitting: Sequence[Served], max_model_len: int | None) -> Iterator[str]:
    """What the baseline's context has no room for."""
    if max_model_len is None:
        return
    here = f"the baseline's max_model_len of {max_model_len}"
    gone = len(served) - len(fitting)
    if gone:
        yield f"{gone} of {len(served)} prompts are left out: {here} has no room for them"
    short = sum(1 for one in fitting if len(one.prompt) + one.max_tokens > max_model_len)
    if short:
        yield f"{short} of {len(fitting)} answers of the baseline had to be shorter than was asked for, by {here}"
