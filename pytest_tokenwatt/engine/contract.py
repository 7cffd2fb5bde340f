"""What an engine must be able to do to be measured, and what else it can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pytest_tokenwatt.engine import probes
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
    Probe("token_ids", probes.token_ids, "token ids of prompts and outputs: drift, audit"),
    Probe("ignore_eos", probes.ignore_eos, "output lengths as planned"),
    Probe("server_metrics", probes.server_metrics, "preemptions, cache use, cache hits and steps of the server"),
    Probe("version", probes.version, "the served version"),
    Probe("tokenize", probes.tokenize, "prompts tokenised by the engine itself"),
    Probe("stop_string", probes.stop_string, "stop strings of accuracy suites"),
    Probe("cancellation", probes.cancellation, "an idle engine behind a failed rate: aborted requests go on running"),
)


async def check_contract(probing: Probing) -> Contract:
    """Ask everything, one probe after the other, each bounded in time; no probe raises.

    After a required probe failed the optional ones are not tried, since what they say would be of no use.
    """
    outcomes: list[ProbeOutcome] = []
    for probe in PROBES:
        required = probe.required(probing)
        lost = any(outcome.required and outcome.state != "pass" for outcome in outcomes)
        if lost and not required:
            state, detail = "missing", "not tried, since a required probe failed"
        else:
            state, detail = await _outcome(probe, probing)
        outcomes.append(ProbeOutcome(probe.name, required, state, detail, "" if state == "pass" else probe.cost))
    return Contract(tuple(outcomes))


async def _outcome(probe: Probe, probing: Probing) -> tuple[str, str]:
    try:
        return "pass", await asyncio.wait_for(probe.ask(probing), 2 * PROBE_TIMEOUT_S + _MARGIN_S)
    except ProbeFailure as failure:
        return failure.state, failure.detail
    except HttpError as error:
        return "missing" if error.status in _NOT_OFFERED else "wrong", error.what
    except TimeoutError:
        return "wrong", "no answer in time"
