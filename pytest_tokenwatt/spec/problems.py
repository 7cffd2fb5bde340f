"""Preflight of a spec: what can be known to go wrong before an engine starts, without asking anything but the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.spec.builder import KeyPath, problem
from pytest_tokenwatt.spec.model import Configuration, Scenario, Spec
from pytest_tokenwatt.spec.sensing import source_problems
from pytest_tokenwatt.spec.starting import used_placeholders

LONGEST_STRETCH = 5
"""How many times a window may be lengthened to hold enough requests for its percentile."""

KNOWN_TRACES = ("chat-mix-v1",)


def preflight(
    spec: Spec, selected: Sequence[Configuration] | None = None, environ: Mapping[str, str] | None = None
) -> list[Problem]:
    """All problems of the selected configurations (default: all) and of what they share, errors and warnings.

    ``environ`` is where variables and programs are looked up (default: the process's environment).
    """
    chosen = spec.configurations if selected is None else selected
    check = _Preflight(spec, os.environ if environ is None else environ)
    found = [*check.shared(), *(each for config in chosen for each in check.configuration(config))]
    return list(dict.fromkeys([*found, *check.twins(chosen)]))


class _Preflight:
    def __init__(self, spec: Spec, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._environ = environ
        self._places: dict[str | None, int] = {entry.key: place for place, entry in enumerate(spec.configs or ())}

    def shared(self) -> Iterator[Problem]:
        """Files of the quality blocks."""
        spec = self._spec
        if spec.load.backend == "ray":
            what = "load from several machines is not available in this version; all will come from this one"
            yield self._problem(what, "remove backend", ("load", "backend"), severity="warning")
        for place, suite in enumerate(spec.accuracy):
            yield from self._file(suite.suite, ("accuracy", place, "suite"), ("accuracy", "suite"))
        if spec.drift is None:
            return
        if spec.drift.prompts is not None:
            yield from self._file(spec.drift.prompts, ("drift", "prompts"))
        elif not spec.accuracy:
            remedy = "name a file in drift.prompts, or add an accuracy block whose prompts can be used"
            yield self._problem("there are no prompts", remedy, ("drift",))
        for place, corpus in enumerate(spec.drift.perplexity):
            yield from self._file(corpus.file, ("drift", "perplexity", place, "file"))

    def configuration(self, config: Configuration) -> Iterator[Problem]:
        """What one configuration needs: a way to start, files, variables, programs, and enough requests."""
        yield from self._start(config)
        yield from self._variables(config)
        yield from self._programs(config)
        yield from self._power(config)
        for scenario in config.scenarios:
            yield from self._workload(config, scenario)
            yield from self._enough_requests(config, scenario)

    def twins(self, configs: Sequence[Configuration]) -> Iterator[Problem]:
        """Two configurations attached to one endpoint measure the same engine twice."""
        first: dict[str, str] = {}
        for config in configs:
            endpoint = config.engine.endpoint
            if config.engine.method != "attach" or endpoint is None or config.like is not None:
                continue
            other = first.setdefault(endpoint, config.key)
            if other != config.key:
                what = f"{other} and {config.key} attach to the same endpoint, so they measure the same engine"
                remedy = "give each its endpoint, or start them by up and down"
                yield self._problem(what, remedy, *self._paths(config, "engine", "endpoint"), severity="warning")

    def _start(self, config: Configuration) -> Iterator[Problem]:
        engine = config.engine
        if engine.command is None and engine.endpoint is None:
            what = f"{config.key} does not say how the engine is started or reached"
            yield self._problem(what, "add engine.command or engine.endpoint", *self._paths(config, "engine"))
        if config.model_name is None and any(name == "model" for _, name in used_placeholders(engine)):
            paths = self._paths(config, "engine", "command" if engine.command else "up")
            yield self._problem("{model} has no value", "set model.path or engine.model", *paths)
        if engine.ca_file is not None:
            yield from self._file(engine.ca_file, *self._paths(config, "engine", "ca_file"))
        path = config.model.path
        if path is not None and engine.method == "command" and self._is_local(path):
            yield from self._exists(path, *self._paths(config, "model", "path"))
        if config.model.config is not None and not self._spec.resolve(config.model.config).is_file():
            what = f"there is no file {self._spec.resolve(config.model.config)}"
            remedy = "without it figures that need the model's geometry are left out"
            yield self._problem(what, remedy, *self._paths(config, "model", "config"), severity="warning")

    def _is_local(self, path: str) -> bool:
        """Whether a model is a path: ``org/name`` is a hub id unless a directory ``org`` lies beside the spec."""
        if path.startswith(("/", "./", "../", "~")) or path.count("/") > 1:
            return True
        return "/" in path and self._spec.resolve(path).parent.is_dir()

    def _variables(self, config: Configuration) -> Iterator[Problem]:
        engine = config.engine
        if engine.api_key_env is not None:
            yield from self._variable(engine.api_key_env, *self._paths(config, "engine", "api_key_env"))
        for header, name in engine.headers_env.items():
            yield from self._variable(name, *self._paths(config, "engine", "headers_env", header))

    def _power(self, config: Configuration) -> Iterator[Problem]:
        for place, source in enumerate(config.power):
            if source.ca_file is not None:
                yield from self._file(source.ca_file, *self._power_paths(config, place, "ca_file"))
            if source.password_env is not None:
                yield from self._variable(source.password_env, *self._power_paths(config, place, "password_env"))
            if source.command is not None and source.source == "command":
                yield from self._runnable(source.command[0], self._path(), self._power_paths(config, place, "command"))
            for found in source_problems(source, self._path()):
                paths = self._power_paths(config, place, *([found.key] if found.key else []))
                yield self._problem(found.what, found.remedy, *paths, severity=found.severity)

    def _power_paths(self, config: Configuration, place: int, *key: str) -> tuple[KeyPath, ...]:
        """Where a key of a source may stand: in a list of sources, or in the only one."""
        listed: list[KeyPath] = [(*path, place, *key) for path in self._paths(config, "power")]
        return (*listed, *self._paths(config, "power", *key))

    def _path(self) -> str:
        return self._environ.get("PATH", os.defpath)

    def _variable(self, name: str, *paths: KeyPath) -> Iterator[Problem]:
        if not self._environ.get(name):
            yield self._problem(f"the variable {name} is not set", f"export {name}", *paths)

    def _programs(self, config: Configuration) -> Iterator[Problem]:
        engine = config.engine
        folders = engine.env.get("PATH") or self._path()
        for key in ("command", "up", "down", "logs"):
            words = getattr(engine, key)
            if isinstance(words, tuple):
                yield from self._program(words[0], folders, config, key)
        for key in ("prepare", "cleanup"):
            for words in getattr(engine, key):
                yield from self._program(words[0], folders, config, key)

    def _program(self, word: str, folders: str, config: Configuration, key: str) -> Iterator[Problem]:
        if "{" in word:
            return
        yield from self._runnable(word, folders, self._paths(config, "engine", key))

    def _runnable(self, word: str, folders: str, paths: Sequence[KeyPath]) -> Iterator[Problem]:
        local = os.sep in word
        path = self._spec.resolve(word)
        if local and not (path.is_file() and os.access(path, os.X_OK)):
            yield self._problem(f"{path} is not a program", "check the path", *paths)
        if not local and shutil.which(word, path=folders) is None:
            remedy = f"install {word}, activate its environment, or give its full path"
            yield self._problem(f"{word} is not on PATH", remedy, *paths)

    def _workload(self, config: Configuration, scenario: Scenario) -> Iterator[Problem]:
        workload = scenario.workload
        if workload.trace not in KNOWN_TRACES and not self._spec.resolve(workload.trace).is_file():
            what = f"there is no trace and no file {workload.trace}"
            remedy = f"traces: {', '.join(KNOWN_TRACES)}; paths start at the spec file"
            yield self._problem(what, remedy, *self._scenario_paths(config, scenario, "workload", "trace"))
        if workload.content != "random":
            yield from self._file(workload.content, *self._scenario_paths(config, scenario, "workload", "content"))

    def _enough_requests(self, config: Configuration, scenario: Scenario) -> Iterator[Problem]:
        rate, window_s = _slowest(config, scenario)
        held = rate * window_s * LONGEST_STRETCH
        if held < scenario.requests_needed:
            what = (
                f"p{scenario.max_percentile:g} needs {scenario.requests_needed} requests, and {rate:g} req/s gives"
                f" {held:.0f} in {LONGEST_STRETCH} × {window_s:g} s"
            )
            remedy = "lengthen the window, raise the first rate, or ask for a lower percentile"
            yield self._problem(what, remedy, *self._scenario_paths(config, scenario, "slo"), severity="warning")

    def _file(self, name: str, *paths: KeyPath) -> Iterator[Problem]:
        if not self._spec.resolve(name).is_file():
            yield self._absent(self._spec.resolve(name), paths)

    def _exists(self, name: str, *paths: KeyPath) -> Iterator[Problem]:
        if not self._spec.resolve(name).exists():
            yield self._absent(self._spec.resolve(name), paths)

    def _absent(self, path: Path, paths: Sequence[KeyPath]) -> Problem:
        what = f"{path} is a directory" if path.is_dir() else f"there is no file {path}"
        return self._problem(what, "check the path; relative ones start at the spec file", *paths)

    def _paths(self, config: Configuration, *loc: str) -> tuple[KeyPath, ...]:
        """Where a key of a configuration may stand: in its own entry, the one it repeats, or the block above."""
        places = [self._places[key] for key in (config.key, config.like) if key in self._places]
        own: list[KeyPath] = [("configs", place, *loc) for place in places]
        return (*own, loc)

    def _scenario_paths(self, config: Configuration, scenario: Scenario, *loc: str) -> tuple[KeyPath, ...]:
        entries = enumerate(self._spec.scenarios)
        own: list[KeyPath] = [("scenarios", place, *loc) for place, entry in entries if entry.name == scenario.name]
        return (*own, *self._paths(config, *loc))

    def _problem(self, what: str, remedy: str, *paths: KeyPath, severity: str = "error") -> Problem:
        """A problem at the first of the paths that the file has, else at what encloses the last."""
        lines = self._spec.lines
        path = next((path for path in paths if path in lines), paths[-1])
        line = next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), None)
        return replace(problem(str(self._spec.path), line, path, what, remedy), severity=severity)


def _slowest(config: Configuration, scenario: Scenario) -> tuple[float, float]:
    """The lowest rate that will surely be measured, and the length of its window in seconds."""
    fixed = config.gates.slo.at_rps
    if fixed is not None:
        return fixed, scenario.measurement.window_s
    if scenario.sweep.rates is not None:
        return min(scenario.sweep.rates), scenario.measurement.window_s
    return scenario.sweep.start_rps, scenario.measurement.search_window_s
