"""Starting an engine, or attaching to one: the one function that the lab calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_tokenwatt.engine import vocabulary
from pytest_tokenwatt.engine.access import Access, build_access, secret_variables
from pytest_tokenwatt.engine.control import DEFAULT_TIMEOUT_S, ControlClient, PrivateLoop
from pytest_tokenwatt.engine.guarded import GuardProcess
from pytest_tokenwatt.engine.health import TAIL_LINES, Health
from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.identity import SIMULATED_OWNER, check_version, read_identity, served_model
from pytest_tokenwatt.engine.launch import EnginePlace, Launch, build_launch, launch_record
from pytest_tokenwatt.engine.listener import Owner, answers, owner_of
from pytest_tokenwatt.engine.logtail import LogTail
from pytest_tokenwatt.engine.ready import ATTACH_PATIENCE_S, PROGRESS_EVERY_S, Waiting, wait_until_ready
from pytest_tokenwatt.engine.remedies import ending
from pytest_tokenwatt.engine.running import EngineParts, RunningEngine
from pytest_tokenwatt.engine.scraping import read_all
from pytest_tokenwatt.engine.scrub import Scrubber
from pytest_tokenwatt.engine.vocabulary import Vocabulary
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import ServedIdentity
from pytest_tokenwatt.spec.model import Configuration

__all__ = ["EnginePlace", "RunningEngine", "start_engine"]

_REFUSES_UNKNOWN_IDS = ("vllm", SIMULATED_OWNER)
_LOOK_TIMEOUT_S = 5.0
_GUARD_MARGIN_S = 10.0


def start_engine(configuration: Configuration, place: EnginePlace) -> RunningEngine:
    """Start the engine of a configuration, or attach to it, and verify that it is the one that was asked for.

    Raises ``EngineError`` with one readable line; whatever was started by then is stopped again. Its ``reason``:
    ``engine_start_failed`` (missing program, early exit, never ready), ``wrong_model``, ``wrong_version``,
    ``foreign_listener``, ``endpoint_in_use``, ``engine_refused``, ``missing_secret``, ``bad_command``, ``bad_tls``.
    """
    return _Start(configuration, place).run()


class _Start:
    """One start: what its steps share, and what must be undone when a later one fails."""

    def __init__(self, configuration: Configuration, place: EnginePlace) -> None:
        self._configuration = configuration
        self._engine = configuration.engine
        self._place = place
        self._scrub = Scrubber(place.environ, secret_variables(configuration.engine))
        self._loop = PrivateLoop()
        self._started_s = time.monotonic()
        self._notes: list[str] = []

    def run(self) -> RunningEngine:
        launch = build_launch(self._configuration, self._place)
        try:
            access = build_access(self._engine, launch.endpoint, self._place.environ, self._place.spec_dir)
            return self._reached(launch, ControlClient(self._loop, access, self._scrub, self._timeout_s()))
        except BaseException:
            if launch.claim is not None:
                launch.claim.release()
            raise

    def _timeout_s(self) -> float:
        """A long answer may take as long as the spec lets a request of the load take."""
        limits = (scenario.measurement.request_timeout_s for scenario in self._configuration.scenarios)
        return max(DEFAULT_TIMEOUT_S, *limits)

    def _reached(self, launch: Launch, client: ControlClient) -> RunningEngine:
        try:
            self._refuse_if_taken(client)
            return self._guarded(launch, client)
        except BaseException:
            client.close()
            raise

    def _refuse_if_taken(self, client: ControlClient) -> None:
        """Before we start anything, nothing may answer where it is going to be reached."""
        access = client.access
        if self._engine.method == "command":
            taken = answers(access.host, access.port) is True
        else:
            taken = self._engine.method == "up" and self._loop.call(_answers_http(client))
        if taken:
            raise EngineError(
                "endpoint_in_use",
                f"something answers at {access.endpoint} before engine {self._configuration.key} is started",
                remedy="stop it, use another port, or attach to it with engine.endpoint alone",
            )

    def _guarded(self, launch: Launch, client: ControlClient) -> RunningEngine:
        own_log = self._place.log_of(self._configuration.key)
        offset = own_log.stat().st_size if launch.log == own_log and own_log.exists() else 0
        log = LogTail(launch.log, self._scrub, offset)
        guard = None
        if launch.plan is not None:
            own_log.parent.mkdir(parents=True, exist_ok=True)
            guard = GuardProcess(launch.plan, own_log)
        health = Health(self._configuration.key, client.access, launch, guard, log)
        try:
            if guard is not None:
                self._await_commands(health, guard)
            return self._verified(client, health, self._await_answer(client, health))
        except BaseException as error:
            for problem in health.stop():
                self._place.progress(problem)
            if isinstance(error, EngineError) and error.log is None and log.path is not None:
                raise _with_log(error, log) from None
            raise

    def _await_commands(self, health: Health, guard: GuardProcess) -> None:
        """Until prepare and up have run, and the engine's own command is started."""
        deadline = self._started_s + self._engine.ready_timeout_s + _GUARD_MARGIN_S
        while not guard.wait(lambda: guard.started or guard.failure is not None, PROGRESS_EVERY_S):
            elapsed_s = time.monotonic() - self._started_s
            if guard.gone or time.monotonic() > deadline:
                raise health.start_failure("was not started: its guard process " + ("ended" if guard.gone else "hangs"))
            last = health.log.last()
            self._place.progress(
                f"preparing {self._configuration.key} … {elapsed_s:.0f} s" + (f", {last}" if last else "")
            )
        if guard.failure is not None:
            raise health.start_failure(_failed_command(guard.failure, self._engine.ready_timeout_s))

    def _await_answer(self, client: ControlClient, health: Health) -> list[Any]:
        left_s = max(0.0, self._started_s + self._engine.ready_timeout_s - time.monotonic())
        patience_s = ATTACH_PATIENCE_S if self._engine.method == "attach" else left_s
        waiting = Waiting(self._configuration.key, left_s, patience_s, health.pause, self._place.progress, health.log)
        return wait_until_ready(client, self._loop, waiting)

    def _verified(self, client: ControlClient, health: Health, models: list[Any]) -> RunningEngine:
        ready_s = time.monotonic() - self._started_s
        if health.guard is not None:
            health.guard.remember()
        served = served_model(self._configuration, models, client.access.endpoint)
        client.model = str(served["id"])
        self._check_listener(client.access, health)
        urls = self._engine.metrics or (f"{client.access.root}/metrics",)
        metrics = self._loop.call(read_all(client, urls))
        log_lines = health.log.whole_lines()
        told = self._loop.call(read_identity(client, models, served, log_lines, metrics))
        identity = replace(told, start_args=self._scrub.mapping(told.start_args))
        check_version(self._engine.version, identity.version, client.access.endpoint)
        known = self._vocabulary(client, identity, str(served.get("owned_by")))
        self._place.progress(
            f"{self._configuration.key} is ready after {ready_s:.0f} s: {_described(identity, client)}"
        )
        return RunningEngine(
            EngineParts(
                configuration=self._configuration,
                spec_dir=self._place.spec_dir,
                loop=self._loop,
                client=client,
                health=health,
                identity=identity,
                vocabulary=known,
                launch=launch_record(self._configuration, self._scrub),
                metrics_urls=urls,
                ready_s=ready_s,
                notes=tuple(self._notes),
            )
        )

    def _check_listener(self, access: Access, health: Health) -> None:
        if self._engine.method != "command" or health.guard is None:
            return
        owner = owner_of(access.port, health.guard.pid)
        if owner is Owner.FOREIGN:
            raise EngineError(
                "foreign_listener",
                f"port {access.port} is answered by a process that engine {self._configuration.key} did not start",
                remedy="stop that server; for containers use engine.endpoint with engine.up and engine.down",
            )
        if owner is Owner.UNKNOWN:
            self._notes.append(f"whether the listener on port {access.port} is ours could not be verified")

    def _vocabulary(self, client: ControlClient, identity: ServedIdentity, owner: str) -> Vocabulary:
        model = self._configuration.model
        names = (model.path, self._engine.model, identity.root)
        known = vocabulary.from_files(model, names, self._place.spec_dir, self._place.environ)
        needed = self._engine.prompt == "ids" and self._engine.api == "completions" and not known.size
        if needed and owner in _REFUSES_UNKNOWN_IDS:
            return Vocabulary(self._loop.call(vocabulary.ask_size(client)), known.special)
        return known


async def _answers_http(client: ControlClient) -> bool:
    try:
        answer = await client.http.get(f"{client.access.endpoint}/models", _LOOK_TIMEOUT_S)
    except HttpError:
        return False
    # A gateway without anything behind it answers, but with a 5xx.
    return answer.status < 500


def _failed_command(failure: Mapping[str, Any], timeout_s: float) -> str:
    name = f"{failure['name']} ({failure['program']})"
    if failure["error"]:
        return f"was not started: {name} could not run: {failure['error']}"
    if failure["code"] is None:
        return f"was not started: {name} did not end within {timeout_s:g} s"
    return f"was not started: {name} failed with {ending(failure['code'])}"


def _with_log(error: EngineError, log: LogTail) -> EngineError:
    return EngineError(error.reason, error.what, remedy=error.remedy, log=log.path, tail=log.lines(TAIL_LINES))


def _described(identity: ServedIdentity, client: ControlClient) -> str:
    version = f" on version {identity.version}" if identity.version else ""
    return f"{client.model}{version}" + (" (simulated)" if identity.simulated else "")
