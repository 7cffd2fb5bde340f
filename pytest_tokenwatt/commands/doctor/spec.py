"""What one spec needs of this machine: its preflight, and whether its endpoints are as they should be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_tokenwatt.commands.doctor.check import Check
from pytest_tokenwatt.commands.preflight import preflight_of
from pytest_tokenwatt.engine.access import Access, normalise
from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.errors import Problem, SpecError
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

_SUBJECT = "spec"


def check_spec(path: Path) -> Iterator[Check]:
    """All problems of the spec; one line when there are none."""
    try:
        spec = load_spec(path)
    except SpecError as error:
        yield from (_problem(found) for found in error.problems)
        return
    found = [*(_problem(each) for each in preflight_of(spec)), *_endpoints(spec)]
    yield from found
    if not any(check.stops for check in found):
        keys = ", ".join(configuration.key for configuration in spec.configurations)
        yield Check(_SUBJECT, "ok", f"{path} loads, and can be run: {keys}")


def _problem(problem: Problem) -> Check:
    stops = problem.severity == "error"
    return Check(_SUBJECT, "missing" if stops else "warning", str(problem), needed=stops)


def _endpoints(spec: Spec) -> Iterator[Check]:
    """An engine that is attached to must answer; where one is going to be started, nothing may."""
    seen: set[tuple[str, str]] = set()
    for configuration in spec.configurations:
        endpoint, method = configuration.engine.endpoint, configuration.engine.method
        if endpoint is None or (endpoint, method) in seen:
            continue
        seen.add((endpoint, method))
        access = Access(normalise(endpoint))
        answered = bool(answers(access.host, access.port))
        if method == "attach" and not answered:
            told = f"{configuration.key}: nothing answers at {access.endpoint}"
            yield Check(_SUBJECT, "missing", told, "start the server, or give --tokenwatt-endpoint", needed=True)
        if method == "up" and answered:
            told = f"{configuration.key}: something answers at {access.endpoint} before it is started"
            yield Check(_SUBJECT, "missing", told, "stop it", needed=True)
