"""A running engine: how to talk to it, what it is, whether it lives, and how to end it."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pytest_tokenwatt.engine import processes
from pytest_tokenwatt.engine.contract import check_contract
from pytest_tokenwatt.engine.control import ControlClient, PrivateLoop
from pytest_tokenwatt.engine.health import Health
from pytest_tokenwatt.engine.identity import fingerprint
from pytest_tokenwatt.engine.metrics import ServerMetrics
from pytest_tokenwatt.engine.probing import Probing
from pytest_tokenwatt.engine.scraping import read_all
from pytest_tokenwatt.engine.startup_log import Ranks, parse_startup
from pytest_tokenwatt.engine.vocabulary import Vocabulary
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import Client, Contract, ServedIdentity, Target
from pytest_tokenwatt.records.profiles import Startup
from pytest_tokenwatt.spec.model import Configuration, Workload

T = TypeVar("T")

_LETTER = "a"


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What a running engine is made of; put together by ``start_engine``."""

    configuration: Configuration
    spec_dir: Path
    loop: PrivateLoop
    client: ControlClient
    health: Health
    identity: ServedIdentity
    vocabulary: Vocabulary
    launch: Mapping[str, Any]
    metrics_urls: tuple[str, ...]
    ready_s: float
    notes: tuple[str, ...] = field(default=())


class RunningEngine:
    """One started or attached engine, ready and verified. ``stop`` it; the end of the interpreter does so too."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._owner = os.getpid()
        self._stop_lock = threading.Lock()
        self._stop_s: float | None = None
        self._stop_notes: tuple[str, ...] = ()
        atexit.register(self.stop)

    def __repr__(self) -> str:
        return f"<RunningEngine {self._parts.configuration.key} at {self.endpoint}>"

    @property
    def endpoint(self) -> str:
        """The endpoint up to ``/v1``."""
        return self._parts.client.access.endpoint

    @property
    def identity(self) -> ServedIdentity:
        """What the engine says of itself."""
        return self._parts.identity

    @property
    def fingerprint(self) -> str | None:
        """A hash that equal engine starts share; ``None`` when the engine tells too little of itself."""
        return fingerprint(self._parts.identity)

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are; 0 when that is not known."""
        return self._parts.vocabulary.size

    @property
    def launch(self) -> Mapping[str, Any]:
        """How it was started, as a report may show it."""
        return self._parts.launch

    @property
    def log(self) -> Path | None:
        """The engine's log file, if there is one."""
        return self._parts.health.log.path

    @property
    def startup(self) -> Startup:
        """What its log tells of memory and start, read now; without a log, what its metrics tell of the KV cache."""
        model = self._parts.configuration.model
        ranks = Ranks(model.tensor_parallel, model.pipeline_parallel, model.data_parallel)
        return parse_startup(self._parts.health.log.whole_lines(), self.identity.cache_config, ranks=ranks)

    @property
    def ready_s(self) -> float:
        """Seconds from the start command to the first good answer."""
        return self._parts.ready_s

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be verified, and what went wrong at the end."""
        return self._parts.notes + self._stop_notes

    @property
    def client(self) -> Client:
        """The async client; may be awaited on any event loop."""
        return self._parts.client

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine (one of ``client``'s, for instance) from synchronous code."""
        return self._parts.loop.call(work)

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without special ones. Raises ``EngineError`` when the server has no ``/tokenize``."""
        return await self._parts.client.tokenize(text)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that the server answers at ``path`` below its root. Raises ``EngineError`` with ``status``."""
        return await self._parts.client.post(path, body)

    async def bos_id(self) -> int | None:
        """The id that the server puts before a text by itself; ``None`` when it puts none. Raises ``EngineError``."""
        client = self._parts.client
        bare, whole = await client.tokenize(_LETTER), await client.tokenize(_LETTER, special=True)
        return whole[0] if len(whole) > len(bare) and whole[1 : 1 + len(bare)] == bare else None

    def target(self, workload: Workload) -> Target:
        """Where and how load is sent for a workload."""
        engine, access = self._parts.configuration.engine, self._parts.client.access
        content = None
        if workload.content != "random":
            content = str(self._parts.spec_dir / Path(workload.content).expanduser())
        return Target(
            endpoint=access.endpoint,
            model=self._parts.client.model,
            api=engine.api,
            prompt=engine.prompt,
            vocab_size=self._parts.vocabulary.size,
            special_ids=self._parts.vocabulary.special,
            ignore_eos=engine.ignore_eos,
            extra_body=dict(engine.extra_body),
            headers=dict(access.headers),
            ca_file=access.ca_file,
            verify_tls=access.verify_tls,
            content_file=content,
        )

    def check_contract(self) -> Contract:
        """Ask the engine what it can do; each probe is bounded in time and none raises."""
        parts = self._parts
        engine = parts.configuration.engine
        probing = Probing(parts.client, engine, parts.identity, parts.vocabulary, parts.metrics_urls)
        return self.call(check_contract(probing))

    def read_metrics(self) -> ServerMetrics:
        """The engine's metrics now, within seconds; empty, with ``problem`` set, when they cannot be had."""
        try:
            return self.call(read_all(self._parts.client, self._parts.metrics_urls))
        except EngineError as error:
            return ServerMetrics(problem=str(error))

    def processes(self) -> frozenset[int] | None:
        """The engine's processes now; ``None`` when they cannot be known: remote, or in a container."""
        health, access = self._parts.health, self._parts.client.access
        if self._parts.configuration.engine.method == "command" and health.guard is not None:
            return processes.below_guard(health.guard.pid)
        return processes.behind_port(access.host, access.port)

    def environment(self, names: Iterable[str]) -> dict[str, str]:
        """Some variables of the environment that the engine runs with; empty when its processes are unknown."""
        return processes.environment_of(self.processes() or (), names)

    def death(self) -> str | None:
        """``None`` while the engine lives; else one line with how it ended and its last words."""
        return None if self._stop_s is not None else self._parts.health.death()

    def stop(self) -> float:
        """End the engine with its whole process tree; returns the seconds it took. Safe to call again.

        An engine that was only attached to goes on running. After a fork only the process that started it stops it.
        """
        if os.getpid() != self._owner:
            return 0.0
        with self._stop_lock:
            if self._stop_s is None:
                started = time.monotonic()
                self._stop_notes = self._parts.health.stop()
                self._parts.client.close()
                atexit.unregister(self.stop)
                self._stop_s = time.monotonic() - started
            return self._stop_s
