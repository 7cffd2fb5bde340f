"""What the client makes of servers: one run against a gallery of behaviours, one request each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from load_server import Behaviour, LoadServer, Reply, Watch, all_ended, final, good, serving, small_plan, token, usage

from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.records import ErrorClass, RequestRecord, Target

GALLERY: dict[str, Behaviour] = {"good": good}
TIMEOUT_S = 1.5


def shown(behave: Behaviour) -> Behaviour:
    GALLERY[behave.__name__] = behave
    return behave


def finish(reply: Reply, output: int | None) -> None:
    if output is not None:
        reply.event(final(output))
    reply.event("[DONE]")
    reply.end()


@shown
async def role_first(reply: Reply) -> None:
    reply.head()
    role = {"role": "assistant", "content": ""}
    reply.event(token(reply.chat, "", delta=role, usage=usage(0)))
    await reply.writer.drain()
    await asyncio.sleep(0.15)
    reply.event(token(reply.chat, ids=[1], usage=usage(1)))
    reply.event(token(reply.chat, ids=[2], usage=usage(2), finish="length"))
    finish(reply, 2)


@shown
async def several_tokens_a_chunk(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1, 2, 3]))
    reply.event(token(reply.chat, ids=[4, 5]))
    reply.event(token(reply.chat, ids=[6], finish="length"))
    finish(reply, 6)


@shown
async def half_a_character(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, "", ids=[1], usage=usage(1)))
    reply.event(token(reply.chat, "é", ids=[2], usage=usage(2)))
    reply.event(token(reply.chat, "", ids=[], usage=usage(2), finish="stop"))
    finish(reply, 2)


@shown
async def continuous_usage_only(reply: Reply) -> None:
    reply.head()
    for count in (1, 4, 5):
        reply.event(token(reply.chat, usage=usage(count), finish="length" if count == 5 else None))
    finish(reply, 5)


@shown
async def final_usage_only(reply: Reply) -> None:
    reply.head()
    for n in range(3):
        reply.event(token(reply.chat, finish="length" if n == 2 else None))
    finish(reply, 7)


@shown
async def usage_on_the_last_chunk(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat))
    reply.event(token(reply.chat, usage=usage(4), finish="length"))
    finish(reply, None)


@shown
async def usage_first(reply: Reply) -> None:
    reply.head()
    reply.event(final(2, prompt_tokens_details={"cached_tokens": 5}))
    reply.event(token(reply.chat, ids=[1]))
    reply.event(token(reply.chat, ids=[2], finish="length"))
    finish(reply, None)


@shown
async def no_usage(reply: Reply) -> None:
    reply.head()
    for n in range(3):
        reply.event(token(reply.chat, finish="length" if n == 2 else None))
    finish(reply, None)


@shown
async def zero_usage_until_the_end(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, usage=usage(0)))
    reply.event(token(reply.chat, usage=usage(0), finish="length"))
    finish(reply, 4)


@shown
async def pings_and_crlf(reply: Reply) -> None:
    reply.head()
    reply.piece(b": ping\r\n\r\n")
    text = json.dumps(token(reply.chat, ids=[1])).encode()
    for piece in (b"event: message\r", b"\ndata: " + text[:20], text[20:] + b"\r\n", b"\r\n: ping\n\ndata: [DONE]\n\n"):
        reply.piece(piece)
        await reply.writer.drain()
        await asyncio.sleep(0.005)
    reply.end()


@shown
async def error_in_the_stream(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1]))
    reply.event({"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}})
    finish(reply, None)


@shown
async def error_alone(reply: Reply) -> None:
    reply.head()
    reply.event({"object": "error", "message": "out of memory", "code": 500})
    finish(reply, None)


@shown
async def finish_reason_abort(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1]))
    reply.event(token(reply.chat, "", ids=[], finish="abort"))
    finish(reply, 1)


@shown
async def cut_after_two(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1], usage=usage(1)))
    reply.event(token(reply.chat, ids=[2], usage=usage(2)))
    reply.raw(b"40\r\ndata: {")
    await reply.writer.drain()
    reply.cut()


@shown
async def ended_after_two(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1]))
    reply.event(token(reply.chat, ids=[2]))
    reply.end()


@shown
async def finished_without_done(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1], finish="length"))
    reply.event(final(1))
    reply.end()


@shown
async def finished_and_closed(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1], finish="length"))
    reply.event(final(1))
    await reply.writer.drain()
    reply.cut()


@shown
async def nothing_but_done(reply: Reply) -> None:
    reply.head()
    finish(reply, 0)


@shown
async def too_many_requests(reply: Reply) -> None:
    reply.plain("429 Too Many Requests", b'{"error": {"message": "queue is full", "code": 429}}')


@shown
async def internal_error(reply: Reply) -> None:
    reply.plain("500 Internal Server Error", b"<html>boom</html>" * 1000, "text/html")


@shown
async def not_found(reply: Reply) -> None:
    reply.plain("404 Not Found", b'{"detail": "Not Found"}')


@shown
async def too_long(reply: Reply) -> None:
    reply.plain("400 Bad Request", b'{"error": {"message": "maximum context length is 4096 tokens", "code": 400}}')


@shown
async def no_stream(reply: Reply) -> None:
    reply.plain("200 OK", b'{"choices": [{"text": "all at once"}]}')


@shown
async def error_without_stream(reply: Reply) -> None:
    reply.plain("200 OK", b'{"error": {"message": "no such model"}}')


@shown
async def not_json(reply: Reply) -> None:
    reply.head()
    reply.event("{oops")
    finish(reply, 1)


@shown
async def not_http(reply: Reply) -> None:
    reply.raw(b"\x16\x03\x01 hello\r\n\r\n")
    await reply.writer.drain()
    reply.cut()


@shown
async def hangs_up(reply: Reply) -> None:
    reply.cut()


@shown
async def stalls(reply: Reply) -> None:
    reply.head()
    reply.event(token(reply.chat, ids=[1]))
    await reply.writer.drain()
    await asyncio.sleep(60)


@shown
async def closes_when_asked(reply: Reply) -> None:
    reply.head(extra="Connection: close\r\n")
    reply.event(token(reply.chat, ids=[1], finish="length"))
    finish(reply, 1)
    await reply.writer.drain()
    reply.cut()


CODES = {name: 1000 + number for number, name in enumerate(GALLERY)}
Records = Mapping[str, RequestRecord]


def run_gallery(api: str, log: Path) -> Records:
    server = LoadServer(gallery={CODES[name]: behave for name, behave in GALLERY.items()})
    plan = small_plan(list(CODES.values()), window_s=1.5, timeout_s=TIMEOUT_S)
    with serving(server):
        target = Target(server.endpoint, "m", api=api, vocab_size=50)
        with LoadGenerator(target, 1, lambda: None, log) as generator:
            run = generator.run(plan, Watch(all_ended(len(CODES))))
    names = {code: name for name, code in CODES.items()}
    return {names[record.planned_output_tokens]: record for record in run.requests}


@pytest.fixture(scope="module", params=["completions", "chat"])
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Records:
    return run_gallery(request.param, tmp_path_factory.mktemp("gallery") / "load.log")


def test_every_request_has_a_record(records: Records) -> None:
    assert set(records) == set(GALLERY)


OK: dict[str, tuple[list[int], int | None]] = {
    "good": ([1, 1, 1, 1], 4),
    "role_first": ([1, 1], 2),
    "several_tokens_a_chunk": ([3, 2, 1], 6),
    "half_a_character": ([1, 1], 2),
    "continuous_usage_only": ([1, 3, 1], 5),
    "final_usage_only": ([3, 2, 2], 7),
    "usage_on_the_last_chunk": ([2, 2], 4),
    "usage_first": ([1, 1], 2),
    "no_usage": ([1, 1, 1], None),
    "zero_usage_until_the_end": ([2, 2], 4),
    "pings_and_crlf": ([1], None),
    "finished_without_done": ([1], 1),
    "finished_and_closed": ([1], 1),
    "closes_when_asked": ([1], 1),
}


@pytest.mark.parametrize("name", OK)
def test_tokens_of_chunks_and_the_servers_count(records: Records, name: str) -> None:
    record = records[name]
    assert record.error is None, record.error_message
    assert record.ok
    assert (list(record.chunk_tokens), record.output_tokens) == OK[name]
    assert record.status == 200
    assert record.bytes_received > 100


ESTIMATED = {"final_usage_only", "usage_on_the_last_chunk", "no_usage", "zero_usage_until_the_end"}


@pytest.mark.parametrize("name", OK)
def test_only_shared_out_counts_are_flagged(records: Records, name: str) -> None:
    assert records[name].tokens_estimated is (name in ESTIMATED)


FAILED: dict[str, tuple[ErrorClass, int | None, str]] = {
    "error_in_the_stream": (ErrorClass.STREAM_ERROR, 200, "EngineCore died"),
    "error_alone": (ErrorClass.STREAM_ERROR, 200, "out of memory"),
    "finish_reason_abort": (ErrorClass.STREAM_ERROR, 200, "finish_reason abort"),
    "cut_after_two": (ErrorClass.TRUNCATED, 200, "after 2 of "),
    "ended_after_two": (ErrorClass.TRUNCATED, 200, "after 2 of "),
    "nothing_but_done": (ErrorClass.NO_TOKENS, 200, "without a token"),
    "too_many_requests": (ErrorClass.HTTP, 429, "HTTP 429: queue is full"),
    "internal_error": (ErrorClass.HTTP, 500, "HTTP 500: <html>boom"),
    "not_found": (ErrorClass.HTTP, 404, "HTTP 404: Not Found"),
    "too_long": (ErrorClass.HTTP, 400, "maximum context length is 4096 tokens"),
    "no_stream": (ErrorClass.PROTOCOL, 200, "without an event stream"),
    "error_without_stream": (ErrorClass.STREAM_ERROR, 200, "no such model"),
    "not_json": (ErrorClass.PROTOCOL, 200, "not JSON: b'{oops'"),
    "not_http": (ErrorClass.PROTOCOL, None, "not HTTP"),
    "hangs_up": (ErrorClass.CONNECT, None, "without a response"),
    "stalls": (ErrorClass.TIMEOUT, 200, "not finished within 1.5 s"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_has_its_class_and_the_servers_message(records: Records, name: str) -> None:
    record = records[name]
    kind, status, text = FAILED[name]
    assert not record.ok
    assert (record.error, record.status) == (kind, status)
    assert text in (record.error_message or "")
    assert len(record.error_message or "") <= 600


def test_the_gallery_is_judged_completely() -> None:
    assert set(OK) | set(FAILED) == set(GALLERY)


def test_a_role_only_chunk_is_no_first_token(records: Records) -> None:
    record = records["role_first"]
    assert record.first_token_s is not None
    assert record.sent_s is not None
    assert record.first_token_s - record.sent_s >= 0.15


def test_a_request_without_tokens_has_no_first_token_instant(records: Records) -> None:
    assert records["nothing_but_done"].first_token_s is None
    assert records["too_many_requests"].first_token_s is None
    assert records["error_alone"].last_token_s is None


def test_what_came_before_a_failure_is_kept(records: Records) -> None:
    assert list(records["cut_after_two"].chunk_tokens) == [1, 1]
    assert records["cut_after_two"].output_tokens == 2
    assert list(records["stalls"].chunk_tokens) == [1]


def test_cached_prompt_tokens_are_read(records: Records) -> None:
    assert records["usage_first"].cached_tokens == 5
    assert records["usage_first"].prompt_tokens == 7
    assert records["good"].cached_tokens is None


def test_instants_are_in_order(records: Records) -> None:
    for record in records.values():
        if record.ok:
            stamps = [record.scheduled_s, record.sent_s, *record.chunk_s, record.end_s]
            assert stamps == sorted(stamps, key=lambda stamp: stamp or 0.0)
            assert (record.first_token_s, record.last_token_s) == (record.chunk_s[0], record.chunk_s[-1])
            assert record.finish_reason in ("length", "stop", None)


REASONING: dict[str, Callable[[int], dict[str, object]]] = {
    "reasoning": lambda n: {"reasoning": f"step {n}"},
    "reasoning_content": lambda n: {"reasoning_content": f"step {n}"},
    "tool": lambda n: {"tool_calls": [{"index": 0, "function": {"arguments": f'{{"n": {n}'}}]},
}


@pytest.mark.parametrize("kind", REASONING)
def test_reasoning_and_tool_deltas_are_tokens(kind: str, tmp_path: Path) -> None:
    async def behave(reply: Reply) -> None:
        reply.head()
        for n in range(3):
            reply.event(token(chat=True, delta=REASONING[kind](n), finish="stop" if n == 2 else None))
        finish(reply, 3)

    with serving(LoadServer(behave)) as server:
        target = Target(server.endpoint, "m", api="chat")
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
            run = generator.run(small_plan([9], window_s=0.2), Watch(all_ended(1)))
    assert list(run.requests[0].chunk_tokens) == [1, 1, 1]
    assert run.requests[0].ok
