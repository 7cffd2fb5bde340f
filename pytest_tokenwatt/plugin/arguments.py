"""Which specs a command line asks for, by option or as an argument. Reads no YAML: it must cost an idle run nothing."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_tokenwatt.plugin.options import replay_paths, spec_paths

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
PEEK_BYTES = 1 << 20
_TOP_LEVEL_KEY = re.compile(r"""^["']?([A-Za-z_][\w-]*)["']?\s*:""", re.MULTILINE)
_COMPANIONS = frozenset({"slo", "scenarios", "configs", "model", "workload", "sweep", "measurement", "gates"})


@dataclass(frozen=True, slots=True)
class SpecRequest:
    """A spec to run: ``nodes`` are the node paths asked for, such as ``("tuned", "slo[rag]")``; empty means all.

    Node paths narrow, also beside ``--tokenwatt-spec`` of the same file.
    """

    path: Path
    nodes: tuple[tuple[str, ...], ...] = ()


def take_specs(config: pytest.Config) -> tuple[SpecRequest, ...]:
    """The specs of this run, each once. Arguments that name specs are taken out of ``config.args``.

    Pytest must not collect them itself: beside a directory argument, a file argument costs pytest 8.4 the items of
    the directory, and pytest 9 the file. With ``--tokenwatt-spec`` and no argument, nothing else is collected.
    """
    by_option = [SpecRequest(_absolute(path)) for path in spec_paths(config)]
    replays = replay_paths(config)
    asked: list[SpecRequest] = []
    typed = config.args_source is pytest.Config.ArgsSource.ARGS
    others: list[str] = []
    for argument in config.args if typed or not (by_option or replays) else []:
        request = _as_spec(argument, config.invocation_params.dir, replays[:1])
        if request is None:
            others.append(argument)
        else:
            asked.append(request)
    if asked or by_option or replays:
        config.args = others
        config.args_source = pytest.Config.ArgsSource.ARGS
    # An argument that names the same spec says which of its nodes are meant.
    named = {request.path.resolve() for request in asked}
    whole = [request for request in by_option if request.path.resolve() not in named]
    # Without a spec the first file to replay stands for the one that it stores.
    return _merged([*whole, *asked]) or tuple(SpecRequest(_absolute(path)) for path in replays[:1])


def _as_spec(argument: str, base: Path, stored: tuple[Path, ...]) -> SpecRequest | None:
    """The request of an argument; ``stored`` is the replay whose items can be named as those of a spec."""
    name, _, node = argument.partition("::")
    path = _absolute(base / name)
    replayed = path in map(_absolute, stored)
    if not replayed and (path.suffix not in SUFFIXES or not _looks_like_spec(path)):
        return None
    return SpecRequest(path, (_node_path(node),) if node else ())


def _node_path(text: str) -> tuple[str, ...]:
    """``tuned::slo[a::b]`` as its parts; what stands in brackets is never split."""
    names, bracket, parameter = text.partition("[")
    *parents, last = names.split("::")
    return (*parents, f"{last}{bracket}{parameter}")


def _looks_like_spec(path: Path) -> bool:
    """Whether the file has the top-level keys of a spec; other tools' YAML tests are not ours to parse."""
    try:
        with path.open("rb") as file:
            text = file.read(PEEK_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return False
    keys = _json_keys(text) if text.lstrip().startswith("{") else set(_TOP_LEVEL_KEY.findall(text))
    return "engine" in keys and not keys.isdisjoint(_COMPANIONS)


def _json_keys(text: str) -> set[str]:
    try:
        return set(json.loads(text))
    except ValueError:
        return set()


def _merged(asked: list[SpecRequest]) -> tuple[SpecRequest, ...]:
    merged: dict[Path, SpecRequest] = {}
    for request in asked:
        known = merged.setdefault(request.path.resolve(), request)
        if known is not request:
            nodes = known.nodes + request.nodes if known.nodes and request.nodes else ()
            merged[request.path.resolve()] = SpecRequest(known.path, nodes)
    return tuple(merged.values())


def _absolute(path: Path) -> Path:
    # Normalised but not resolved: node ids keep the name under which a linked spec was given.
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.absolute keeps ".."
