"""Token ids of requests that are looked at again: of those that were picked only, and only as the server told them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from closed_loads import Patience, closed, of_phase
from hypothesis import given
from hypothesis import strategies as st
from load_server import LoadServer, Reply, Watch, all_ended, final, serving, small_plan, token, usage

from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.load.kept import KeepingReader
from pytest_tokenwatt.records import Target

PROMPT = [5, 9, 260_000]


def completion(parts: Iterable[list[int]]) -> list[dict[str, Any]]:
    """vLLM's events of a completion: the prompt's ids stand in the first choice, null in the others."""
    events: list[dict[str, Any]] = []
    count = 0
    for part in parts:
        count += len(part)
        event = token(False, ids=part, usage=usage(count))
        event["choices"][0]["prompt_token_ids"] = None if events else PROMPT
        events.append(event)
    return events


def chat(parts: Iterable[list[int]]) -> list[dict[str, Any]]:
    """vLLM's events of a chat: a first one with the role and, beside its choices, the prompt's ids."""
    first = token(True, delta={"role": "assistant", "content": ""}, usage=usage(0))
    events, count = [first | {"prompt_token_ids": PROMPT, "prompt_text": None}], 0
    for part in parts:
        count += len(part)
        events.append(token(True, ids=part, usage=usage(count)))
    return events


def written(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events) + b"data: [DONE]\n\n"


def kept(*pieces: bytes) -> tuple[list[int] | None, list[int] | None]:
    """Prompt and output as they were kept."""
    reader = KeepingReader()
    for piece in pieces:
        reader.feed(piece, 1.0)
    reader.close(2.0)
    return tuple(None if ids is None else ids.tolist() for ids in (reader.prompt_ids, reader.output_ids))  # type: ignore[return-value]


parts_of_answers = st.lists(st.lists(st.integers(0, 300_000), min_size=1, max_size=4), min_size=1, max_size=6)


@given(parts_of_answers, st.sampled_from([completion, chat]), st.lists(st.integers(0, 4000), max_size=9))
def test_ids_are_kept_whatever_the_pieces(parts: list[list[int]], api: Any, cuts: list[int]) -> None:
    data = written([*api(parts), final(sum(map(len, parts)))])
    edges = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert kept(*pieces) == (PROMPT, [each for part in parts for each in part])


def test_nothing_is_kept_of_a_server_that_tells_no_ids() -> None:
    assert kept(written([token(False), token(False), final(2)])) == (None, None)
    assert kept(written([token(True, ids=None, usage=usage(1)), final(1)])) == (None, None)


def test_an_answer_of_which_some_ids_are_missing_is_not_kept() -> None:
    silent = token(True, usage=usage(2))
    assert kept(written([*chat([[1]]), silent, final(2)])) == (PROMPT, None)
    assert kept(written([*chat([[1]]), final(4)])) == (PROMPT, None)


def test_an_answer_of_no_token_is_known_to_be_empty() -> None:
    assert kept(written([token(False, "", ids=[], finish="stop"), final(0)])) == (None, [])


def test_what_came_before_a_stream_broke_off_is_kept() -> None:
    data = written(completion([[1], [2], [3]]))
    assert kept(data[: data.rindex(b"data: {") + 30]) == (PROMPT, [1, 2])


async def echoing(reply: Reply) -> None:
    """Ids as vLLM tells them: the prompt's, then its last ones again as the answer."""
    prompt = reply.request.body.get("prompt", PROMPT)
    reply.head()
    first = token(reply.chat, "", delta={"role": "assistant", "content": ""})
    if reply.chat:
        reply.event(first | {"prompt_token_ids": prompt})
    for n, each in enumerate(prompt[-3:]):
        event = token(reply.chat, ids=[each], usage=usage(n + 1), finish="length" if n == 2 else None)
        if not reply.chat and n == 0:
            event["choices"][0]["prompt_token_ids"] = prompt
        reply.event(event)
    reply.event(final(3))
    reply.event("[DONE]")
    reply.end()


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with serving(LoadServer(echoing)) as running:
        yield running


@pytest.fixture(scope="module")
def generator(server: LoadServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    target = Target(server.endpoint, "m", vocab_size=50_000)
    with LoadGenerator(target, 2, lambda: None, tmp_path_factory.mktemp("kept") / "load.log") as running:
        yield running


def test_ids_of_the_picked_requests_of_a_closed_loop_are_kept(generator: LoadGenerator, server: LoadServer) -> None:
    server.requests.clear()
    run = generator.run_closed(closed(3, 3, 9, kept=frozenset({0, 4, 8, 99})), Patience())
    measured = of_phase(run, "measured")
    assert [record.index for record in run.requests if record.output_ids is not None] == [0, 4, 8]
    assert {record.index for record in measured if record.prompt_ids is not None} == {0, 4, 8}
    asked = {tuple(request.body["prompt"]) for request in server.requests}
    for record in (measured[0], measured[4], measured[8]):
        assert record.prompt_ids is not None
        assert tuple(record.prompt_ids) in asked
        assert record.output_ids == record.prompt_ids[-3:]
        assert list(record.chunk_tokens) == [1, 1, 1]
        assert (record.output_tokens, record.prompt_tokens) == (3, 7)


def test_ids_of_the_picked_requests_of_an_open_loop_are_kept(generator: LoadGenerator) -> None:
    plan = replace(small_plan([3] * 12), kept=frozenset({1, 6}))
    run = generator.run(plan, Watch(all_ended(12)))
    assert [record.index for record in run.requests if record.prompt_ids is not None] == [1, 6]
    assert [len(record.output_ids or ()) for record in run.requests] == [3 if k in (1, 6) else 0 for k in range(12)]


def test_ids_of_chats_are_kept(server: LoadServer, tmp_path: Path) -> None:
    target = Target(server.endpoint, "m", api="chat")
    with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as chatting:
        run = chatting.run_closed(closed(1, 0, 2, kept=frozenset({1})), Patience())
    first, second = of_phase(run, "measured")
    assert (first.prompt_ids, first.output_ids) == (None, None)
    assert (second.prompt_ids, second.output_ids) == (array("q", PROMPT), array("q", PROMPT))
