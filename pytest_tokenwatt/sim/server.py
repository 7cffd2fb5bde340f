"""The embedded engine as an OpenAI-compatible HTTP server that behaves like vLLM."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Sequence

from aiohttp import web

from pytest_tokenwatt import __version__
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.sim.api import Served
from pytest_tokenwatt.sim.board import LiveBoard
from pytest_tokenwatt.sim.fixed_ids import ScaleOut
from pytest_tokenwatt.sim.live import LiveEngine
from pytest_tokenwatt.sim.lm import LanguageModel
from pytest_tokenwatt.sim.options import Options, parse_options
from pytest_tokenwatt.sim.routes import Handlers, build_app
from pytest_tokenwatt.sim.scheduler import Scheduler
from pytest_tokenwatt.sim.startup import LOG, cache_config, log_loading, open_log
from pytest_tokenwatt.sim.steptime import StepTime
from pytest_tokenwatt.sim.tokenizer import Tokenizer

VERSION = f"{__version__}+simulated"
_STATS_EVERY_S = 10.0
_CANNED = " the same answer for every question again"


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code (4: usage, 1: the port is taken or the engine crashed)."""
    try:
        options = parse_options(argv)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 4
    open_log()
    return asyncio.run(_serve(options))


async def _serve(options: Options) -> int:
    stop = _stop_signal()
    log_loading(options, VERSION)
    if options.faults.exit is not None:
        LOG.error("Engine core initialization failed (fault exit=%d)", options.faults.exit)
        return options.faults.exit
    if options.faults.never_ready or await _happens(stop, options.faults.slow_start):
        await stop.wait()
        return 0
    tokenizer = Tokenizer()
    engine = _engine(options, tokenizer)
    runner = web.AppRunner(
        _app(options, engine, tokenizer), access_log=None, handler_cancellation=True, shutdown_timeout=0.5
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port, backlog=1024).start()
    except OSError as error:
        LOG.error("cannot listen on %s:%d: %s", options.host, options.port, error.strerror)
        await runner.cleanup()
        return 1
    LOG.info("Starting simulated server on http://%s:%d", options.host, runner.addresses[0][1])
    await _run(options, engine, stop)
    await runner.cleanup()
    return 0


async def _run(options: Options, engine: LiveEngine, stop: asyncio.Event) -> None:
    """Step and log until the stop signal; an error of the engine ends the process with it."""
    crash_after_s = options.faults.crash_after
    if crash_after_s is not None:
        asyncio.get_running_loop().call_later(crash_after_s, _crash)
    waiter = asyncio.create_task(stop.wait())
    stepping = asyncio.create_task(engine.run(options.faults.stall))
    stats = asyncio.create_task(_log_stats(engine))
    await asyncio.wait((waiter, stepping), return_when=asyncio.FIRST_COMPLETED)
    for task in (waiter, stepping, stats):
        task.cancel()
    for outcome in await asyncio.gather(waiter, stepping, stats, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    """Whether the event comes before ``within_s`` seconds are over."""
    if within_s <= 0:
        return event.is_set()
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
    return True


def _engine(options: Options, tokenizer: Tokenizer) -> LiveEngine:
    return LiveEngine(
        scheduler=Scheduler(options.profile.limits(options.kv_dtype)),
        step_time=StepTime(options.profile, options.kv_dtype, options.slowdown * options.faults.throttle),
        board=LiveBoard(options.profile, options.kv_dtype, options.faults, asyncio.get_running_loop().time()),
        model=LanguageModel(tokenizer, seed=options.seed, precision=options.kv_dtype),
        tokenizer=tokenizer,
        canned=tokenizer.encode(_CANNED) if options.faults.canned else (),
    )


def _app(options: Options, engine: LiveEngine, tokenizer: Tokenizer) -> web.Application:
    model = "tokenwatt/some-other-model" if options.faults.wrong_model else options.model
    served = Served(model, options.profile.max_model_len, tokenizer)
    handlers = Handlers(
        served=served,
        engine=engine,
        faults=options.faults,
        seed=options.seed,
        version=VERSION,
        root=options.profile.model,
        fingerprint=_fingerprint(options),
        cache_config=cache_config(options),
        scale_out=ScaleOut(served, options.scale_out, options.trace_replay, engine.score_ids, engine.score),
    )
    return build_app(handlers)


def _fingerprint(options: Options) -> str:
    """Tells one configuration from another, as vLLM's ``system_fingerprint`` does; the port is not part of it."""
    parts = (options.profile, options.kv_dtype, options.seed, options.slowdown)
    return f"tokenwatt-{VERSION}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


async def _log_stats(engine: LiveEngine) -> None:
    prompt, generated = 0, 0
    while True:
        await asyncio.sleep(_STATS_EVERY_S)
        stats, scheduler = engine.stats, engine.scheduler
        LOG.info(
            "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, "
            "Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: %.1f%%, Prefix cache hit rate: 0.0%%",
            (stats.prompt_tokens - prompt) / _STATS_EVERY_S,
            (stats.generation_tokens - generated) / _STATS_EVERY_S,
            scheduler.running,
            scheduler.waiting,
            scheduler.kv_usage * 100,
        )
        prompt, generated = stats.prompt_tokens, stats.generation_tokens


def _crash() -> None:
    LOG.error("EngineCore encountered a fatal error (fault crash-after)")
    sys.stdout.flush()
    os._exit(1)
