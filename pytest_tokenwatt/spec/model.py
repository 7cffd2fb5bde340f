"""The spec as the rest of the package sees it: every key of the file with its default, and what is merged from it.

``Document`` is the file itself. ``Spec`` adds what loading made of it: configurations with their merged blocks, each
with its scenarios, and where every key stands in the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import TypeAdapter, ValidationError

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.spec.builder import KeyPath
from pytest_tokenwatt.spec.configuration import Configuration
from pytest_tokenwatt.spec.digest import load_digest, profile_digest
from pytest_tokenwatt.spec.document import ConfigEntry, Document, Role, ScenarioEntry
from pytest_tokenwatt.spec.gating import (
    AccuracyGate,
    EnergyGate,
    GateBlock,
    Gates,
    GoodputGate,
    LengthGate,
    MemoryGate,
    Rule,
    SloGate,
    SpeedGate,
)
from pytest_tokenwatt.spec.quality import Audit, Budget, Drift, Fleet, Perplexity, Sampling, Score, Suite
from pytest_tokenwatt.spec.quick import quick_drift, quick_measurement, quick_power, quick_profiles, quick_suites
from pytest_tokenwatt.spec.scalars import Endpoint
from pytest_tokenwatt.spec.serving import Engine, Hardware, Load, Model, PowerSource
from pytest_tokenwatt.spec.traffic import (
    ONLINE_SLO,
    LengthMix,
    Measurement,
    Profile,
    Scenario,
    Sweep,
    Workload,
    requests_needed,
)

__all__ = [
    "AccuracyGate",
    "Audit",
    "Budget",
    "ConfigEntry",
    "Configuration",
    "Document",
    "Drift",
    "EnergyGate",
    "Engine",
    "Fleet",
    "GateBlock",
    "Gates",
    "GoodputGate",
    "Hardware",
    "KeyPath",
    "LengthGate",
    "LengthMix",
    "Load",
    "Measurement",
    "MemoryGate",
    "Model",
    "Perplexity",
    "PowerSource",
    "Profile",
    "Role",
    "Rule",
    "Sampling",
    "Scenario",
    "ScenarioEntry",
    "Score",
    "SloGate",
    "Spec",
    "SpeedGate",
    "Suite",
    "Sweep",
    "Workload",
    "requests_needed",
]


class Spec(Document):
    """A loaded spec: the blocks of the file, and ``configurations`` merged from them (never empty)."""

    path: Path
    """The file as the user named it."""
    raw: Mapping[str, Any]
    """The mapping as written, variables unexpanded."""
    lines: Mapping[KeyPath, int]
    """Line of every key path in the file."""
    configurations: tuple[Configuration, ...]
    """Never empty; each with its merged blocks."""
    is_quick: bool = False
    """Whether the limits of --tokenwatt-quick were applied: the report is then a draft."""

    @property
    def baseline(self) -> Configuration | None:
        """The configuration whose role is baseline."""
        return next((config for config in self.configurations if config.role == "baseline"), None)

    def configuration(self, key: str) -> Configuration:
        """The configuration of that key. Raises ``UsageError`` naming the nearest key."""
        keys = [config.key for config in self.configurations]
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            remedy = f"{hint}configurations: {', '.join(keys)}"
            raise UsageError(f"there is no configuration {key}", where=str(self.path), remedy=remedy)
        return self.configurations[keys.index(key)]

    def present(self, block: str) -> bool:
        """Whether the file has this top-level block (``null`` is absent)."""
        return self.raw.get(block) is not None

    @property
    def online_slo(self) -> bool:
        """Whether the goodput search counts as a profile."""
        return ONLINE_SLO in (self.raw.get("profiles") or {})

    def line(self, *path: str | int) -> int | None:
        """Line (from 1) of a key path such as ``("gates", "rules", 0)``; ``None`` when the file does not have it."""
        return self.lines.get(path)

    def resolve(self, path: str) -> Path:
        """A path of the spec on disk: ``~`` expanded, relative to the spec file."""
        return self.path.parent / os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises without a home

    def digest(self, configuration: Configuration, scenario: Scenario) -> str:
        """A hash of what must be equal for two records to be comparable (workload and SLO, not limits or labels)."""
        return load_digest(configuration, scenario, self.resolve)

    def profile_digest(self, configuration: Configuration, profile: Profile) -> str:
        """The same for a closed-loop profile."""
        return profile_digest(configuration, profile, self.resolve)

    def quick(self) -> Self:
        """The spec with the limits of --tokenwatt-quick."""
        return self.model_copy(
            update={
                "is_quick": True,
                "measurement": quick_measurement(self.measurement),
                "profiles": quick_profiles(self.profiles),
                "accuracy": quick_suites(self.accuracy),
                "drift": quick_drift(self.drift),
                "power": quick_power(self.power),
                "configurations": tuple(config.quick() for config in self.configurations),
            }
        )

    def with_role(self, role: str | None = None, label: str | None = None) -> Self:
        """A spec without ``configs:`` as a run of this role (its key then) and label.

        Raises ``UsageError`` for a spec with ``configs:`` and for a role that does not exist.
        """
        if role is None and label is None:
            return self
        if self.configs is not None:
            remedy = "the roles and labels stand in the spec; use --tokenwatt-config to select configurations"
            raise UsageError("a role or label was given for a spec with configs:", where=str(self.path), remedy=remedy)
        if role is not None and role not in get_args(Role):
            raise UsageError(f"there is no role {role}", remedy=f"roles: {', '.join(get_args(Role))}")
        only = self.configurations[0]
        key = role or only.role
        changed = only.model_copy(update={"role": key, "key": key, "label": label or key})
        return self.model_copy(update={"configurations": (changed,)})

    def with_endpoint(self, key: str | None, url: str) -> Self:
        """Attach to ``url`` instead of what the spec says: for the configuration ``key``, or for the only one.

        Raises ``UsageError`` for an unknown key, a bad URL, and no key with several configurations.
        """
        if key is None and len(self.configurations) > 1:
            keys = ", ".join(f"{config.key}=URL" for config in self.configurations)
            raise UsageError("one endpoint was given for several configurations", remedy=f"write {keys}")
        chosen = self.configurations[0] if key is None else self.configuration(key)
        attached = chosen.attached(_checked_endpoint(url))
        configurations = tuple(attached if config is chosen else config for config in self.configurations)
        return self.model_copy(update={"configurations": configurations})


def _checked_endpoint(url: str) -> str:
    try:
        return TypeAdapter[str](Endpoint).validate_python(url)
    except ValidationError as error:
        context = error.errors(include_url=False)[0].get("ctx", {})
        raise UsageError(f"the endpoint {context.get('what')}", remedy=str(context.get("remedy"))) from None
