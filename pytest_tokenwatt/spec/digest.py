"""What must be equal for two records to be comparable: workload and SLO. Limits and labels are not part of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_tokenwatt.spec.configuration import Configuration
from pytest_tokenwatt.spec.traffic import Profile, Scenario


def load_digest(configuration: Configuration, scenario: Scenario, resolve: Callable[[str], Path]) -> str:
    """SHA-256 (hex) over the requests that are offered and the bounds that judge them.

    A trace or a text file of the workload counts by its bytes, not by its name; ``resolve`` finds it on disk.
    Windows, repeats and the course of the search do not count.
    """
    workload = scenario.workload.model_dump(mode="json")
    for key in ("trace", "content"):
        workload[key] = _content(resolve(workload[key])) or workload[key]
    return _hash(
        {
            "workload": workload,
            "ignore_eos": configuration.engine.ignore_eos,
            "slo": {bound.name: bound.bound_ms for bound in scenario.bounds},
        }
    )


def profile_digest(configuration: Configuration, profile: Profile, resolve: Callable[[str], Path]) -> str:
    """SHA-256 (hex) over the requests of a closed-loop profile; how often it is repeated does not count."""
    content = configuration.workload.content
    return _hash(
        {
            "profile": profile.model_dump(mode="json", exclude={"repeats"}),
            "content": _content(resolve(content)) or content,
            "ignore_eos": configuration.engine.ignore_eos,
        }
    )


def _hash(what: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return None
