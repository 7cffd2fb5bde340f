"""Asking a running server for all that a spec about it needs: model, version, limits, and what it can do."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pytest_tokenwatt.engine.access import Access, normalise
from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.engine.start import EnginePlace, RunningEngine, start_engine
from pytest_tokenwatt.errors import EngineError, SpecError, UsageError
from pytest_tokenwatt.records import Contract, ServedIdentity
from pytest_tokenwatt.spec.load import build_spec
from pytest_tokenwatt.spec.model import Configuration
from pytest_tokenwatt.spec.reader import parse_source

_READY_TIMEOUT_S = 8.0
_ROUNDS = 6
_PARALLEL = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "dp": "data_parallel"}
_NAMES = (("vllm:", "vLLM"), ("sglang:", "SGLang"), ("tgi_", "TGI"), ("llamacpp:", "llama.cpp"))
_REFUSED_FIELD = re.compile(r"the field (\w+) is refused")
_WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "return_token_ids": {"extra_body": {"return_token_ids": None}},
    "continuous_usage_stats": {"extra_body": {"stream_options": {"include_usage": True}}},
    "ignore_eos": {"ignore_eos": False},
}
"""What an engine block says so that the load leaves a field out."""
_REMEDIES = {
    "wrong_model": "say which one: --model ID",
    "engine_refused": "name its key's variable: --api-key-env NAME",
    "engine_start_failed": "check the URL, or wait until the server is ready",
}
_PLAIN: Mapping[str, Any] = {
    "extra_body": {"return_token_ids": None, "stream_options": {"include_usage": True}},
    "ignore_eos": False,
}
"""A request of nothing but what every OpenAI-compatible server knows."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which server, which of its models (``None``: the only one), and the variable that holds its key."""

    endpoint: str
    model: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """What a server told.

    ``settings`` are the keys of ``engine:`` that make the load's requests fit it. ``parallel`` are the model's keys
    (``tensor_parallel`` …) as far as it tells them. ``pids`` are its processes (``None``: not to be known).
    """

    endpoint: str
    model: str
    name: str | None
    identity: ServedIdentity
    contract: Contract
    settings: Mapping[str, Any]
    parallel: Mapping[str, int]
    vocabulary_size: int
    pids: frozenset[int] | None = field(repr=False, default=None)

    @property
    def here(self) -> bool:
        """Whether it runs on this machine, as far as its address tells."""
        host = Access(self.endpoint).host
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False


def ask_server(question: Question, environ: Mapping[str, str], say: Callable[[str], None]) -> Server:
    """Attach, look around and leave again. A server that refuses part of a request is asked once more without it.

    Raises ``UsageError`` for a URL that is none or where nobody listens, ``EngineError`` for a server that does not
    answer as an OpenAI-compatible one, refuses the key, or serves several models when none was named.
    """
    settings = _settings(question)
    _knock(_configuration(settings, environ), question)
    say(f"asking {normalise(question.endpoint)}")
    first = server = _ask(settings, environ)
    for _ in range(_ROUNDS):
        changed = _merged(settings, _adapted(server.contract, settings))
        if changed == settings:
            break
        settings, server = changed, _ask(changed, environ)
    # What did not help is not written down.
    return server if server.contract.passed else first


def _settings(question: Question) -> dict[str, Any]:
    named = {"model": question.model, "api_key_env": question.api_key_env}
    return {"endpoint": question.endpoint, **{key: value for key, value in named.items() if value}}


def _configuration(settings: Mapping[str, Any], environ: Mapping[str, str]) -> Configuration:
    engine = {**settings, "ready_timeout_s": _READY_TIMEOUT_S}
    try:
        text = json.dumps({"engine": engine}).replace("${", "$${")
        return build_spec(parse_source(text, "init"), Path("init"), environ).configurations[0]
    except SpecError as error:
        found = error.problems[0]
        option = {"engine.endpoint": "--endpoint", "engine.api_key_env": "--api-key-env", "engine.model": "--model"}
        raise UsageError(found.what, where=option.get(found.key or "", "init"), remedy=found.remedy) from None


def _knock(configuration: Configuration, question: Question) -> None:
    """Nobody there is told at once: there is nothing to wait for."""
    access = Access(normalise(configuration.engine.endpoint or question.endpoint))
    answered = answers(access.host, access.port)
    if not answered:
        what = f"{access.endpoint} cannot be reached" if answered is None else f"nothing listens at {access.endpoint}"
        remedy = "start the server, or leave --endpoint out for a spec that starts one"
        raise UsageError(what, where="--endpoint", remedy=remedy)


def _ask(settings: Mapping[str, Any], environ: Mapping[str, str]) -> Server:
    configuration = _configuration(settings, environ)
    with tempfile.TemporaryDirectory(prefix="tokenwatt-init-") as folder:
        place = EnginePlace(Path(folder), "init", Path.cwd(), environ, _unheard)
        try:
            engine = start_engine(configuration, place)
        except EngineError as error:
            raise _in_our_words(error) from None
        try:
            return _told(engine, configuration, settings)
        finally:
            engine.stop()


def _unheard(_: str) -> None:
    """What a start tells speaks of configurations, and there are none yet."""


def _in_our_words(error: EngineError) -> EngineError:
    """What a start says speaks of a configuration and of a spec's keys, and there is no spec yet."""
    remedy = _REMEDIES.get(error.reason, error.remedy)
    if error.reason != "engine_start_failed":
        return EngineError(error.reason, error.what, remedy=remedy)
    last = error.what.partition(": ")[2] or error.what
    return EngineError(error.reason, f"no answer of an OpenAI-compatible server: {last}", remedy=remedy)


def _told(engine: RunningEngine, configuration: Configuration, settings: Mapping[str, Any]) -> Server:
    metrics = engine.read_metrics()
    names = (name for prefix, name in _NAMES if metrics.has_prefix(prefix))
    contract = engine.check_contract()
    return Server(
        endpoint=engine.endpoint,
        model=engine.target(configuration.workload).model,
        name="tokenwatt embedded engine" if engine.identity.simulated else next(names, None),
        identity=engine.identity,
        contract=contract,
        settings={key: value for key, value in settings.items() if key not in ("endpoint", "model")},
        parallel=dict(parallel_sizes(engine.identity.start_args, _fingerprint(engine))),
        vocabulary_size=engine.vocabulary_size,
        pids=engine.processes(),
    )


def parallel_sizes(start_args: Mapping[str, str], fingerprint: str) -> Iterator[tuple[str, int]]:
    """The model's keys (``tensor_parallel`` …) and sizes above 1.

    From the start-up arguments, else from the fingerprint that vLLM writes into every reply (``vllm-0.32.0-tp2-…``).
    """
    for short, key in _PARALLEL.items():
        stated = next((value for name, value in start_args.items() if name.rpartition(".")[2] == f"{key}_size"), "")
        match = re.search(rf"-{short}(\d+)(?=-)", fingerprint)
        size = stated if stated.isdecimal() else match[1] if match else "1"
        if int(size) > 1:
            yield key, int(size)


def _fingerprint(engine: RunningEngine) -> str:
    try:
        reply = engine.call(engine.client.complete("Hello", max_tokens=1))
    except EngineError:
        return ""
    return str(reply.raw.get("system_fingerprint") or "")


def _adapted(contract: Contract, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """What to say in ``engine:`` beside ``settings`` so that the next contract goes better; empty: nothing helps."""
    found = {probe.name: probe for probe in contract.probes}
    stream, ids, eos = found["stream_usage"], found["prompt_ids"], found["ignore_eos"]
    refused = _REFUSED_FIELD.search(stream.detail)
    if refused and refused[1] in _WITHOUT:
        return _WITHOUT[refused[1]]
    if ids.required and ids.state != "pass":
        return {"prompt": "text"}
    if stream.state != "pass":
        plain = _merged(settings, _PLAIN)
        return plain if plain != settings else {"api": "chat"}
    return {"ignore_eos": False} if eos.state != "pass" and not eos.detail.startswith("not tried") else {}


def _merged(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**settings, **more}
    if "extra_body" in settings and "extra_body" in more:
        merged["extra_body"] = {**settings["extra_body"], **more["extra_body"]}
    return merged
