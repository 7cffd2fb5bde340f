"""Active specs: each loaded, adapted to the command line, and given its lab. Nothing is started here."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from pytest_tokenwatt.campaign.desk import Finished, LabEvents, LabOptions
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.order import by_phase
from pytest_tokenwatt.campaign.saving import OPTION as SAVE
from pytest_tokenwatt.campaign.saving import SaveRequest, save_requests, shares
from pytest_tokenwatt.errors import SpecError, UsageError
from pytest_tokenwatt.gates.comparable import allowed_names
from pytest_tokenwatt.lab import Lab
from pytest_tokenwatt.plugin.arguments import SpecRequest
from pytest_tokenwatt.plugin.endpoints import attach
from pytest_tokenwatt.plugin.options import Settings
from pytest_tokenwatt.quality.scoring import Scorer
from pytest_tokenwatt.records import GateSpec
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.rundir import RUNS

if TYPE_CHECKING:
    from pytest_tokenwatt.replay import ReplayLab


AnyLab: TypeAlias = "Lab | ReplayLab"


@dataclass(slots=True)
class Bench:
    """One active spec: what was asked of it, its lab, and whether anything of it ran.

    ``nodeid`` is the id of its file node; ``place`` the path that messages show; ``phases`` all configurations in
    the order in which they are measured, ``keys`` the selected ones; ``gates`` theirs in the order of the items.
    ``saves`` are records that are to be stored as baselines in the end.
    """

    request: SpecRequest
    spec: Spec
    lab: AnyLab
    nodeid: str
    place: str
    phases: tuple[str, ...]
    keys: tuple[str, ...]
    gates: tuple[GateSpec, ...]
    saves: tuple[SaveRequest, ...] = ()
    ran: bool = False
    finished: Finished | None = None


def open_benches(
    config: pytest.Config,
    requests: Sequence[SpecRequest],
    settings: Settings,
    events: LabEvents,
    scorers: Mapping[str, Scorer],
) -> tuple[Bench, ...]:
    """Load all specs. Raises ``pytest.UsageError`` with every problem of every spec, one a line."""
    if settings.replays:
        return (_replay_bench(config, requests, settings, events),)
    specs = _load_all(config, requests)
    deadline = Deadline(settings.max_minutes)
    try:
        _check(specs, settings)
        attached = attach(specs, settings)
        saved = shares(settings.save_baselines, specs)
        endpoints = [_endpoints(spec, changed) for spec, changed in zip(specs, attached, strict=True)]
        specs = [_adapted(spec, settings) for spec in attached]
        if len(specs) > 1 and settings.out is None:
            settings = replace(settings, out=_shared_place(config, specs))
        several = len(specs) > 1
        nodeids = _nodeids([request.path for request in requests], config.rootpath)
        return tuple(
            _open(
                config,
                request,
                spec,
                nodeid,
                replace(settings, save_baselines=saves),
                events,
                deadline,
                part if several else None,
                scorers,
                given,
            )
            for request, spec, nodeid, part, given, saves in zip(
                requests, specs, nodeids, _parts(specs), endpoints, saved, strict=True
            )
        )
    except UsageError as error:
        raise pytest.UsageError(*str(error).splitlines()) from None


def _replay_bench(
    config: pytest.Config, requests: Sequence[SpecRequest], settings: Settings, events: LabEvents
) -> Bench:
    """Stored records under one spec: the one that was given, else the stored one."""
    from pytest_tokenwatt.replay import replay_lab

    _check_replay(requests, settings)
    request = requests[0]
    given = None if _absolute(settings.replays[0]) == request.path else _load_all(config, requests)[0]
    try:
        options = _options(config, settings, Deadline(settings.max_minutes), None, {})
        options = replace(options, replays=settings.replays)
        lab = replay_lab(given, options, events)
        _check([lab.spec], settings)
        return _bench(config, request, lab, next(_nodeids([request.path], config.rootpath)), settings)
    except UsageError as error:
        raise pytest.UsageError(*str(error).splitlines()) from None


def _check_replay(requests: Sequence[SpecRequest], settings: Settings) -> None:
    """What only a live run can do is refused, not ignored."""
    live = {"--tokenwatt-endpoint": settings.endpoints, "--tokenwatt-quick": settings.quick}
    live |= {"--tokenwatt-resume": settings.resume, "--tokenwatt-role": settings.role}
    named = [option for option, value in live.items() if value]
    if named:
        raise pytest.UsageError(f"{', '.join(named)} cannot be used with --tokenwatt-replay, which starts no engine")
    if len(requests) > 1:
        raise pytest.UsageError("--tokenwatt-replay judges by one spec; name one")


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - as arguments are


def shown(config: pytest.Config, path: Path) -> str:
    """The path as messages name it: relative to where pytest was started if it lies below."""
    base = config.invocation_params.dir
    return str(path.relative_to(base) if path.is_relative_to(base) else path)


def _load_all(config: pytest.Config, requests: Sequence[SpecRequest]) -> list[Spec]:
    specs: list[Spec] = []
    problems: list[str] = []
    for request in requests:
        try:
            specs.append(load_spec(request.path))
        except SpecError as error:
            named = shown(config, request.path)
            found = [replace(each, path=named) if each.path == str(request.path) else each for each in error.problems]
            problems += [str(problem) for problem in found]
    if problems:
        raise pytest.UsageError(*problems)
    return specs


def _check(specs: Sequence[Spec], settings: Settings) -> None:
    known = [config.key for spec in specs for config in spec.configurations]
    for key in settings.configs:
        if key not in known:
            near = get_close_matches(key, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"configurations: {', '.join(known)}"
            raise UsageError(f"there is no configuration {key}", where="--tokenwatt-config", remedy=remedy)
    if len(specs) > 1:
        _check_places(specs, settings)


def _check_places(specs: Sequence[Spec], settings: Settings) -> None:
    """Several specs must not write over each other's results."""
    remedy = "run the specs one by one"
    record = settings.out if settings.out is not None and settings.out.suffix.lower() == ".json" else None
    for path in (record, *settings.reports):
        if path is not None:
            raise UsageError(f"{path} cannot hold the results of {len(specs)} specs", remedy=remedy)


def _parts(specs: Sequence[Spec]) -> Iterator[str]:
    """Subdirectories of the specs: their names, numbered where several share one."""
    seen: Counter[str] = Counter()
    for spec in specs:
        seen[spec.name] += 1
        yield spec.name if seen[spec.name] == 1 else f"{spec.name}-{seen[spec.name]}"


def _shared_place(config: pytest.Config, specs: Sequence[Spec]) -> Path:
    """One run directory for several specs, each a subdirectory of it."""
    started = datetime.now(UTC).astimezone()
    return config.rootpath / RUNS / f"{started:%Y-%m-%dT%H-%M-%S}-{specs[0].name}-and-{len(specs) - 1}-more"


def _adapted(spec: Spec, settings: Settings) -> Spec:
    if settings.role is not None or settings.label is not None:
        if spec.present("configs"):
            what = "--tokenwatt-role and --tokenwatt-label are for specs without configs"
            raise UsageError(what, where=str(spec.path), remedy="give role and label in configs")
        spec = spec.with_role(settings.role or spec.configurations[0].role, settings.label)
    return spec.quick() if settings.quick else spec


def _open(
    config: pytest.Config,
    request: SpecRequest,
    spec: Spec,
    nodeid: str,
    settings: Settings,
    events: LabEvents,
    deadline: Deadline,
    part: str | None,
    scorers: Mapping[str, Scorer],
    endpoints: Mapping[str, str],
) -> Bench:
    options = replace(_options(config, settings, deadline, part, scorers), endpoints=endpoints)
    return _bench(config, request, Lab(spec, options, events), nodeid, settings)


def _endpoints(spec: Spec, attached: Spec) -> dict[str, str]:
    """The endpoints that the command line gave, by configuration."""
    pairs = zip(spec.configurations, attached.configurations, strict=True)
    return {new.key: str(new.engine.endpoint) for old, new in pairs if old.engine != new.engine}


def _options(
    config: pytest.Config, settings: Settings, deadline: Deadline, part: str | None, scorers: Mapping[str, Scorer]
) -> LabOptions:
    return LabOptions(
        rootdir=config.rootpath,
        invocation=("pytest", *map(str, config.invocation_params.args)),
        out=settings.out,
        part=part,
        deadline=deadline,
        title=settings.title,
        reports=settings.reports,
        resume=settings.resume,
        scorers=scorers,
        allow=allowed_names(settings.allow),
        baselines=settings.baselines,
    )


def _bench(config: pytest.Config, request: SpecRequest, lab: AnyLab, nodeid: str, settings: Settings) -> Bench:
    spec = lab.spec
    phases = tuple(each.key for each in by_phase(spec))
    keys = tuple(key for key in phases if not settings.configs or key in settings.configs)
    gates = sorted((gate for gate in lab.gates if gate.config in keys), key=lambda gate: keys.index(gate.config))
    saves = save_requests(settings.save_baselines, config.invocation_params.dir, spec)
    _check_distinct(config, settings, saves)
    return Bench(request, spec, lab, nodeid, shown(config, request.path), phases, keys, tuple(gates), saves)


def _check_distinct(config: pytest.Config, settings: Settings, saves: Sequence[SaveRequest]) -> None:
    """No two results may go into one file."""
    named = [("--tokenwatt-report", path) for path in settings.reports] + [(SAVE, each.path) for each in saves]
    if settings.out is not None and settings.out.suffix.lower() == ".json":
        named.insert(0, ("--tokenwatt-out", settings.out))
    known: dict[Path, str] = {}
    for option, path in named:
        before = known.setdefault(_absolute(path), option)
        if before != option:
            what = f"{shown(config, _absolute(path))} is named by {before} and by {option}"
            raise UsageError(what, remedy="name another file for one of them")


def _nodeids(paths: Sequence[Path], rootdir: Path) -> Iterator[str]:
    """Relative to rootdir; outside of it the file name, as long as that tells the specs apart."""
    outside = Counter(path.name for path in paths if not path.is_relative_to(rootdir))
    for path in paths:
        if path.is_relative_to(rootdir):
            yield path.relative_to(rootdir).as_posix()
        elif outside[path.name] == 1:
            yield path.name
        else:
            yield Path(os.path.relpath(path, rootdir)).as_posix()
