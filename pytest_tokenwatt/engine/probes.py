"""The probes of the contract, one function each: returns what it saw, or raises ``ProbeFailure`` or ``HttpError``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.probing import PROBE_TIMEOUT_S, PROMPT_IDS, TEXT, ProbeFailure, Probing
from pytest_tokenwatt.engine.streaming import StreamSeen, watch_stream

_OUTPUT_TOKENS = 24
_FEW_TOKENS = 8
_LONG_OUTPUT = 4096
_CANCEL_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.1
_RUNNING = "vllm:num_requests_running"
_REFUSED = (400, 422)
_WITHOUT: tuple[tuple[str, str], ...] = (
    ("return_token_ids", "engine.extra_body: {return_token_ids: null}"),
    ("continuous_usage_stats", "engine.extra_body: {stream_options: {include_usage: true}}"),
    ("ignore_eos", "engine.ignore_eos: false"),
)


async def model_served(probing: Probing) -> str:
    """The model is listed."""
    url = f"{probing.client.access.endpoint}/models"
    told = probing.client.http.expect_json("GET", url, await probing.client.http.get(url, PROBE_TIMEOUT_S))
    listed = told.get("data") if isinstance(told, dict) else None
    ids = [entry.get("id") for entry in listed or () if isinstance(entry, dict)]
    if probing.client.model not in ids:
        raise ProbeFailure("wrong", f"serves {', '.join(map(str, ids)) or 'nothing'}, not {probing.client.model}")
    return probing.client.model


async def stream_usage(probing: Probing) -> str:
    """One stream in the load's own form comes to its end with tokens and a usage count."""
    return _whole(await _load_stream(probing, _OUTPUT_TOKENS))


async def completions_stream(probing: Probing) -> str:
    """A completions stream without any of vLLM's own fields comes to its end with a usage count."""
    return await _plain_stream(probing, "/completions", {"prompt": TEXT})


async def chat_stream(probing: Probing) -> str:
    """So does a chat stream; an engine without a chat template refuses it."""
    return await _plain_stream(probing, "/chat/completions", {"messages": [{"role": "user", "content": TEXT}]})


_REFUSALS = range(400, 429)
"""Statuses that speak of the request; 429 and 5xx speak of the server, and text prompts would not help."""


async def prompt_ids(probing: Probing) -> str:
    """A prompt of token ids is taken as it is."""
    remedy = "; set engine.prompt: text" if probing.engine.prompt == "ids" and not probing.chat else ""
    try:
        reply = await probing.ask("/completions", prompt=probing.ids(), max_tokens=1)
    except HttpError as error:
        told = f"token ids are refused: {error.what}{remedy}" if error.status in _REFUSALS else error.what
        raise ProbeFailure("wrong" if remedy else "missing", told) from None
    if reply.prompt_tokens != PROMPT_IDS:
        said = f"{PROMPT_IDS} ids were sent and the server counted {reply.prompt_tokens}"
        raise ProbeFailure("wrong", f"{said}{remedy}")
    return f"{PROMPT_IDS} ids"


async def continuous_usage(probing: Probing) -> str:
    """Each chunk with a token tells the count so far."""
    seen = await _load_stream(probing, _OUTPUT_TOKENS)
    if seen.running_usage < seen.token_chunks:
        raise ProbeFailure("missing", f"{seen.running_usage} of {seen.token_chunks} chunks carried a count")
    return f"{seen.running_usage} chunks"


async def token_ids(probing: Probing) -> str:
    """The ids of prompt and output come back, and the prompt's are those that were sent."""
    prompt = probing.prompt()
    reply = await probing.ask(**prompt, max_tokens=_FEW_TOKENS, return_token_ids=True)
    if reply.token_ids is None:
        raise ProbeFailure("missing", "the reply carries no token ids")
    if len(reply.token_ids) != reply.output_tokens:
        raise ProbeFailure("wrong", f"{len(reply.token_ids)} ids for {reply.output_tokens} output tokens")
    sent, echoed = prompt.get("prompt"), reply.raw["choices"][0].get("prompt_token_ids")
    if isinstance(sent, list) and echoed != sent:
        count = len(echoed) if isinstance(echoed, list) else "no"
        raise ProbeFailure("wrong", f"{len(sent)} prompt ids were sent, other ones ({count}) came back")
    return f"{len(reply.token_ids)} ids"


async def ignore_eos(probing: Probing) -> str:
    """The output has exactly the length that was asked for."""
    reply = await probing.ask(**probing.prompt(), max_tokens=_OUTPUT_TOKENS, ignore_eos=True)
    if reply.output_tokens != _OUTPUT_TOKENS:
        raise ProbeFailure("wrong", f"{_OUTPUT_TOKENS} tokens were asked for, {reply.output_tokens} came")
    return f"{_OUTPUT_TOKENS} tokens"


async def server_metrics(probing: Probing) -> str:
    """Metrics with vLLM's names are to be had."""
    metrics = await probing.metrics()
    if metrics.problem:
        raise ProbeFailure("missing", metrics.problem)
    if not metrics.has_prefix("vllm:"):
        raise ProbeFailure("missing", "the metrics hold none of vLLM's names")
    return f"{len(metrics.samples)} names"


async def version(probing: Probing) -> str:
    """The engine tells its version."""
    if probing.identity.version is None:
        raise ProbeFailure("missing", "/version does not answer")
    return probing.identity.version


async def tokenize(probing: Probing) -> str:
    """The engine turns text into ids."""
    url = f"{probing.client.access.root}/tokenize"
    told = await probing.client.http.ask(url, {"model": probing.client.model, "prompt": "Hello"}, PROBE_TIMEOUT_S)
    tokens = told.get("tokens") if isinstance(told, dict) else None
    if not isinstance(tokens, list) or not tokens:
        raise ProbeFailure("wrong", "/tokenize answers without tokens")
    return f"{len(tokens)} tokens"


async def stop_string(probing: Probing) -> str:
    """Output ends before a stop string."""
    prompt = probing.prompt()
    free = await probing.ask(**prompt, max_tokens=_OUTPUT_TOKENS, ignore_eos=True)
    later = free.text[len(free.text) // 2 :]
    stop = next((character for character in later if "!" <= character <= "~"), None)
    if stop is None:
        raise ProbeFailure("missing", "not tried: the model wrote nothing to stop at")
    held = await probing.ask(**prompt, max_tokens=_OUTPUT_TOKENS, ignore_eos=True, stop=[stop])
    if stop in held.text:
        raise ProbeFailure("wrong", f"the output ran past the stop string {stop!r}")
    if (held.output_tokens or 0) >= _OUTPUT_TOKENS:
        raise ProbeFailure("missing", f"not tried: asked again, the model wrote no {stop!r} to stop at")
    return f"stopped at {stop!r}"


async def cancellation(probing: Probing) -> str:
    """The engine drops a request whose connection is closed."""
    before = (await probing.metrics()).value(_RUNNING)
    if before is None:
        raise ProbeFailure("missing", f"cannot be seen without the metric {_RUNNING}")
    await _load_stream(probing, probing.at_most(_LONG_OUTPUT), stop_after=1)
    dropped = time.monotonic()
    while time.monotonic() - dropped < _CANCEL_WITHIN_S:
        running = (await probing.metrics()).value(_RUNNING)
        if running is not None and running <= before:
            return f"within {time.monotonic() - dropped:.1f} s"
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ProbeFailure("wrong", f"a dropped request still ran after {_CANCEL_WITHIN_S:g} s")


async def _plain_stream(probing: Probing, path: str, prompt: Mapping[str, Any]) -> str:
    fields = {"max_tokens": _FEW_TOKENS, "temperature": 0, "stream_options": {"include_usage": True}}
    body = {"model": probing.client.model, **prompt, **fields}
    return _whole(await watch_stream(probing.client, path, body, PROBE_TIMEOUT_S))


def _whole(seen: StreamSeen) -> str:
    if seen.flaw:
        raise ProbeFailure("wrong", seen.flaw)
    if seen.output_tokens is None:
        raise ProbeFailure("wrong", "the stream carried no usage although it was asked for: tokens cannot be counted")
    return f"{seen.output_tokens} tokens in {seen.token_chunks} chunks"


async def _load_stream(probing: Probing, max_tokens: int, stop_after: int | None = None) -> StreamSeen:
    body = probing.load_body(max_tokens)
    try:
        return await watch_stream(probing.client, probing.path, body, PROBE_TIMEOUT_S, stop_after)
    except HttpError as error:
        if error.status not in _REFUSED:
            raise
        raise ProbeFailure("wrong", await _explain(probing, body, error)) from None


async def _explain(probing: Probing, body: Mapping[str, Any], refusal: HttpError) -> str:
    """Which optional field of the load's request the server refuses, if leaving one out helps."""
    for field, remedy in _WITHOUT:
        try:
            await watch_stream(probing.client, probing.path, _without(body, field), PROBE_TIMEOUT_S, stop_after=1)
        except HttpError:
            continue
        return f"the field {field} is refused: {refusal.what}; set {remedy}"
    return f"the load's request is refused: {refusal.what}"


def _without(body: Mapping[str, Any], field: str) -> dict[str, Any]:
    kept = {name: value for name, value in body.items() if name != field}
    options = kept.get("stream_options")
    if isinstance(options, dict):
        kept["stream_options"] = {name: value for name, value in options.items() if name != field}
    return kept
