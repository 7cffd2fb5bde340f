"""Plans, watches and servers for the tests of closed-loop load."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from load_server import Behaviour, LoadServer, Received, Reply, final, token, usage

from pytest_tokenwatt.records import ClosedPlan, ClosedRun, RequestRecord, WindowSpan

PLAN = ClosedPlan(
    label="by hand", concurrency=4, warmup=4, requests=12, input_tokens=8, output_tokens=4, prompt_key=1,
    request_timeout_s=5.0, max_failures=0,
)  # fmt: skip


def closed(concurrency: int, warmup: int, requests: int, **more: Any) -> ClosedPlan:
    return replace(PLAN, concurrency=concurrency, warmup=warmup, requests=requests, **more)


@dataclass
class Patience:
    """A watch that keeps what it was told and stops when ``enough`` gives a reason."""

    enough: Callable[[float, int, int], str | None] = lambda now_s, ended, in_flight: None
    told: list[tuple[float, int, int]] = field(default_factory=list)

    def __call__(self, now_s: float, ended: int, in_flight: int) -> str | None:
        self.told.append((now_s, ended, in_flight))
        return self.enough(now_s, ended, in_flight)


def lasting(seconds: float, tokens: int = 4) -> Behaviour:
    """Answers of ``tokens`` ids over ``seconds``, the prompt's ids echoed as vLLM does."""

    async def behave(reply: Reply) -> None:
        reply.head()
        for n in range(tokens):
            await reply.writer.drain()
            await reply.sleep(seconds / tokens)
            finish = "length" if n == tokens - 1 else None
            reply.event(token(reply.chat, ids=[n + 3], usage=usage(n + 1), finish=finish))
        reply.event(final(tokens))
        reply.event("[DONE]")
        reply.end()

    return behave


def of_phase(run: ClosedRun, phase: str) -> list[RequestRecord]:
    return [record for record in run.requests if record.phase == phase]


def held_share(requests: Iterable[RequestRecord], span: WindowSpan, concurrency: int) -> float:
    """The share of the span during which exactly so many requests had been sent and had not ended."""
    steps = [(span.start_s, 0), (span.end_s, 0)]
    for record in requests:
        if record.sent_s is not None and record.end_s is not None:
            steps += [(max(record.sent_s, span.start_s), 1), (max(record.end_s, span.start_s), -1)]
    steps.sort()
    held, running = 0.0, 0
    for (at_s, step), (next_s, _) in pairwise(steps):
        running += step
        if running == concurrency and next_s <= span.end_s:
            held += next_s - at_s
    return held / span.length_s


def asked(server: LoadServer, input_tokens: int) -> list[Received]:
    """Requests with prompts of so many ids; what an earlier run left on its way arrives late and has another length."""
    return [request for request in server.requests if len(request.body["prompt"]) == input_tokens]
