"""The HTTP routes of the embedded engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from pytest_tokenwatt.sim.api import ApiError, GenerationRequest, Served, check_model, parse_generation, prompt_ids
from pytest_tokenwatt.sim.faults import Faults
from pytest_tokenwatt.sim.fixed_ids import ScaleOut
from pytest_tokenwatt.sim.live import Generation, LiveEngine
from pytest_tokenwatt.sim.replies import DONE, Flaws, Reply, event
from pytest_tokenwatt.sim.stats import Gauges, exposition

OWNER = "tokenwatt-simulated"
"""``owned_by`` of the model: how everybody can tell that an endpoint is the embedded engine."""

_MAX_BODY_BYTES = 64 * 2**20
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Handlers:
    """Everything that the routes need; ``seed`` decides which requests the faults hit."""

    served: Served
    engine: LiveEngine
    faults: Faults
    seed: int
    version: str
    root: str
    fingerprint: str
    cache_config: Mapping[str, str]
    scale_out: ScaleOut
    _requests: int = 0
    _dice: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._dice.seed(self.seed)

    async def health(self, _: web.Request) -> web.Response:
        """200 while the engine runs."""
        return web.Response()

    async def show_version(self, _: web.Request) -> web.Response:
        """The engine's version."""
        return _json({"version": self.version})

    async def models(self, _: web.Request) -> web.Response:
        """The one served model."""
        card = {
            "id": self.served.model,
            "object": "model",
            "created": 0,
            "owned_by": OWNER,
            "root": self.root,
            "parent": None,
            "max_model_len": self.served.max_model_len,
            "permission": [],
        }
        return _json({"object": "list", "data": [card]})

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        scheduler = self.engine.scheduler
        now = Gauges(scheduler.running, scheduler.waiting, scheduler.kv_usage, scheduler.preemptions)
        text = exposition(self.served.model, self.engine.stats, now, self.cache_config)
        return web.Response(text=text, content_type="text/plain")

    async def power(self, _: web.Request) -> web.Response:
        """What the simulated board's sensors say now."""
        return _json(self.engine.board.report(asyncio.get_running_loop().time()))

    async def tokenize(self, http: web.Request) -> web.Response:
        """Ids of a prompt or of messages."""
        body = await _body(http)
        check_model(body, self.served)
        ids = prompt_ids(body, self.served, chat="messages" in body)
        tokenizer = self.served.tokenizer
        strings = [tokenizer.token_bytes(token).decode("utf-8", "replace") for token in ids]
        return _json(
            {
                "count": len(ids),
                "max_model_len": self.served.max_model_len,
                "tokens": ids,
                "token_strs": strings if body.get("return_token_strs") else None,
            }
        )

    async def detokenize(self, http: web.Request) -> web.Response:
        """Text of ids."""
        body = await _body(http)
        check_model(body, self.served)
        ids = prompt_ids({"prompt": body.get("tokens")}, self.served, chat=False)
        return _json({"prompt": self.served.tokenizer.decode(ids)})

    async def generate(self, http: web.Request) -> web.Response:
        """``/inference/v1/generate``, for scores only."""
        return _json(await asyncio.to_thread(self.scale_out.answer, await _body(http)))

    async def completions(self, http: web.Request) -> web.StreamResponse:
        """``/v1/completions``."""
        return await self._generate(http, chat=False)

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """``/v1/chat/completions``."""
        return await self._generate(http, chat=True)

    async def _generate(self, http: web.Request, *, chat: bool) -> web.StreamResponse:
        body = await _body(http)
        self._maybe_refuse()
        request = parse_generation(body, self.served, chat=chat)
        self._requests += 1
        reply = Reply(
            request, self.served.tokenizer, self._requests, self.served.model, self.fingerprint, self._flaws()
        )
        generation = self.engine.submit(request)
        try:
            if request.stream:
                return await self._stream(http, request, reply, generation)
            return await self._whole(request, reply, generation)
        finally:
            self.engine.abort(generation)

    def _maybe_refuse(self) -> None:
        if self._dice.random() < self.faults.http_429:
            raise ApiError(
                429,
                "TooManyRequestsError",
                "too many requests (fault http-429)",
                headers={"Retry-After": str(self.faults.retry_after)},
            )
        if self._dice.random() < self.faults.http_500:
            raise ApiError(500, "InternalServerError", "internal error (fault http-500)")

    def _flaws(self) -> Flaws:
        faults = self.faults
        return Flaws(
            null_content=self._hits(faults.null_content),
            reasoning_only=self._hits(faults.reasoning_only),
            no_finish_reason=self._hits(faults.no_finish_reason),
        )

    def _hits(self, share: float) -> bool:
        """A fault that is off throws no dice, so it does not change which requests the others hit."""
        return share > 0 and self._dice.random() < share

    async def _whole(self, request: GenerationRequest, reply: Reply, generation: Generation) -> web.Response:
        await generation.finished()
        scored = None
        if request.prompt_logprobs is not None:
            scored = await asyncio.to_thread(self.engine.score, request.prompt, request.prompt_logprobs)
        return _json(reply.whole(generation.output.take(), scored))

    async def _stream(
        self, http: web.Request, request: GenerationRequest, reply: Reply, generation: Generation
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        try:
            return await self._send_events(http, response, request, reply, generation)
        except ConnectionResetError:
            return response  # the client has gone: nobody is left to answer

    async def _send_events(
        self,
        http: web.Request,
        response: web.StreamResponse,
        request: GenerationRequest,
        reply: Reply,
        generation: Generation,
    ) -> web.StreamResponse:
        broken = self._dice.random() < self.faults.stream_error
        cut = self._dice.random() < self.faults.cut_stream
        await response.prepare(http)
        if opening := reply.opening():
            await response.write(opening)
        async for delta in generation.deltas():
            if (broken or cut) and 2 * len(generation.output.ids) >= request.max_tokens:
                return await self._break_off(http, response, cut=cut)
            await response.write(reply.chunk(delta))
        await response.write(reply.closing())
        await response.write_eof()
        return response

    async def _break_off(self, http: web.Request, response: web.StreamResponse, *, cut: bool) -> web.StreamResponse:
        if not cut:
            error = ApiError(500, "InternalServerError", "EngineCore encountered an issue (fault stream-error)")
            await response.write(event(error.body) + DONE)
            await response.write_eof()
        elif http.transport is not None:
            http.transport.close()
        return response


def build_app(handlers: Handlers) -> web.Application:
    """The application with all routes."""
    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_errors])
    app.add_routes(
        [
            web.get("/health", handlers.health),
            web.get("/version", handlers.show_version),
            web.get("/metrics", handlers.metrics),
            web.get("/v1/models", handlers.models),
            web.get("/tokenwatt/power", handlers.power),
            web.post("/v1/completions", handlers.completions),
            web.post("/v1/chat/completions", handlers.chat),
            web.post("/inference/v1/generate", handlers.generate),
            web.post("/tokenize", handlers.tokenize),
            web.post("/detokenize", handlers.detokenize),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return _json(error.body, status=error.status, headers=error.headers)
    except web.HTTPException as error:
        return _json({"detail": error.reason}, status=error.status)


async def _body(http: web.Request) -> Mapping[str, Any]:
    try:
        body = orjson.loads(await http.read())
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "Bad Request", f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "Bad Request", "the body must be a JSON object")
    return body


def _json(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, headers=headers, content_type="application/json")
