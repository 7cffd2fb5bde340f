"""What an engine must be able to do to be measured, and what else it can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pytest_tokenwatt.engine import paired_streams, probes, scored_probes
from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.probing import PROBE_TIMEOUT_S, ProbeFailure, Probing
from pytest_tokenwatt.records import Contract, ProbeOutcome

_NOT_OFFERED = frozenset({400, 404, 405, 422, 501})
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Probe:
    """A question to the engine; ``cost`` is what a report loses without a good answer."""

    name: str
    ask: Callable[[Probing], Awaitable[str]]
    cost: str
    required: Callable[[Probing], bool] = lambda _: False


def _always(_: Probing) -> bool:
    return True


def _when_load_sends_ids(probing: Probing) -> bool:
    return probing.engine.prompt == "ids" and not probing.chat


PROBES: tuple[Probe, ...] = (
    Probe("model_served", probes.model_served, "nothing can be measured", _always),
    Probe("stream_usage", probes.stream_usage, "nothing can be measured", _always),
    Probe("prompt_ids", probes.prompt_ids, "prompt lengths are approximate, drift", _when_load_sends_ids),
    Probe("continuous_usage", probes.continuous_usage, "tokens of a chunk are known by their ids only, or estimated"),
    Probe("completions_stream", probes.completions_stream, "load by completions, drift, suites of prompts"),
    Probe("chat_stream", probes.chat_stream, "load by chat, suites of messages"),
    Probe("token_ids", probes.token_ids, "token ids of prompts and outputs: drift, audit"),
    Probe("ignore_eos", probes.ignore_eos, "output lengths as planned"),
    Probe("stop_string", probes.stop_string, "stop strings of accuracy suites"),
    Probe("logprobs", scored_probes.logprobs, "log-probabilities of generated tokens: the decode gap of drift"),
    Probe(
        "prompt_logprobs", scored_probes.prompt_logprobs, "log-probabilities of given text: drift, perplexity, audit"
    ),
    Probe("tokenize", probes.tokenize, "prompts tokenised by the engine itself"),
    Probe("server_metrics", probes.server_metrics, "preemptions, cache use, cache hits and steps of the server"),
    Probe("version", probes.version, "the served version"),
    Probe("concurrency", paired_streams.concurrency, "batching: rates and profiles then measure a queue of requests"),
    Probe("cancellation", probes.cancellation, "an idle engine behind a failed rate: aborted requests go on running"),
)
_ALONE = ("concurrency", "cancellation")
"""What these see, other requests would disturb."""
_AT_ONCE = 2
"""As many as the engine was seen to serve together; a gateway may turn away more."""


async def check_contract(probing: Probing) -> Contract:
    """Ask everything, each probe bounded in time; no probe raises.

    After a required probe failed the optional ones are not tried, since what they say would be of no use. Those that
    do not disturb each other are asked two at a time, unless the engine cannot serve two requests at once.
    """
    needed = [probe for probe in PROBES if probe.required(probing)]
    found = {probe.name: await _outcome(probe, probing) for probe in needed}
    optional = [probe for probe in PROBES if probe not in needed]
    if all(outcome.state == "pass" for outcome in found.values()):
        found |= await _ask_optional(optional, probing)
    return Contract(tuple(found.get(probe.name) or _untried(probe) for probe in PROBES))


async def _ask_optional(optional: list[Probe], probing: Probing) -> dict[str, ProbeOutcome]:
    found = {probe.name: await _outcome(probe, probing) for probe in optional if probe.name in _ALONE}
    others = [probe for probe in optional if probe.name not in _ALONE]
    slots = asyncio.Semaphore(_AT_ONCE if found["concurrency"].state == "pass" else 1)

    async def in_turn(probe: Probe) -> ProbeOutcome:
        async with slots:
            return await _outcome(probe, probing)

    outcomes = await asyncio.gather(*map(in_turn, others))
    return found | {outcome.name: outcome for outcome in outcomes}


def _untried(probe: Probe) -> ProbeOutcome:
    return ProbeOutcome(probe.name, False, "missing", "not tried, since a required probe failed", probe.cost)


async def _outcome(probe: Probe, probing: Probing) -> ProbeOutcome:
    state, detail = await _answer(probe, probing)
    return ProbeOutcome(probe.name, probe.required(probing), state, detail, "" if state == "pass" else probe.cost)


async def _answer(probe: Probe, probing: Probing) -> tuple[str, str]:
    try:
        return "pass", await asyncio.wait_for(probe.ask(probing), 2 * PROBE_TIMEOUT_S + _MARGIN_S)
    except ProbeFailure as failure:
        return failure.state, failure.detail
    except HttpError as error:
        return "missing" if error.status in _NOT_OFFERED else "wrong", error.what
    except TimeoutError:
        return "wrong", "no answer in time"
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        return "wrong", f"the answer has a form that is not understood: {error}"
