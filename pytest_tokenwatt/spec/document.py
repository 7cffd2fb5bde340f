"""The file itself: every top-level key with its default, configurations and scenarios as written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pytest_tokenwatt.spec.gating import Gates
from pytest_tokenwatt.spec.quality import Audit, Budget, Drift, Fleet, Score, Suites
from pytest_tokenwatt.spec.scalars import Block, Filled, Name, Text, mapping_only
from pytest_tokenwatt.spec.serving import Engine, Hardware, Load, Model, Power, PowerSource
from pytest_tokenwatt.spec.traffic import Measurement, Profiles, Slo, Sweep, Workload

Role = Literal["baseline", "tuned", "other"]


def _partial(block: type[Block]) -> BeforeValidator:
    """Part of a block: a mapping whose keys are checked once it is merged."""
    return BeforeValidator(mapping_only, json_schema_input_type=block)


def _power(value: object) -> object:
    return value


class ConfigEntry(Block):
    """One configuration as written: what it changes of the blocks above."""

    key: Name
    """Name in test ids and file names."""
    role: Role | None = None
    """null: the key if it is a role, other for a repeat (like), else tuned."""
    label: Text | None = None
    """Name in reports; null: the key."""
    like: Filled | None = None
    """Key of the configuration that this one repeats exactly."""
    precision: Filled | None = None
    """Declared precision, such as W8A8KV8; read back from the engine."""
    engine: Annotated[dict[str, Any], _partial(Engine)] | None = None
    """Overrides of engine; args are appended."""
    model: Annotated[dict[str, Any], _partial(Model)] | None = None
    """Overrides of model."""
    power: Annotated[Any, BeforeValidator(_power, json_schema_input_type=PowerSource | list[PowerSource])] = None
    """Overrides of power."""
    workload: Annotated[dict[str, Any], _partial(Workload)] | None = None
    """Overrides of workload."""
    gates: Annotated[dict[str, Any], _partial(Gates)] | None = None
    """Overrides of gates."""


class ScenarioEntry(Block):
    """One SLO class as written: what it changes of the blocks above."""

    name: Name
    """Name in test ids."""
    workload: Annotated[dict[str, Any], _partial(Workload)] | None = None
    """Overrides of workload."""
    slo: Slo | None = None
    """Replaces slo as a whole."""
    sweep: Annotated[dict[str, Any], _partial(Sweep)] | None = None
    """Overrides of sweep."""
    measurement: Annotated[dict[str, Any], _partial(Measurement)] | None = None
    """Overrides of measurement."""


class Document(Block):
    """The whole file. Blocks that are absent and create nothing are ``None`` or empty."""

    name: Name = "tokenwatt"
    """Name of the run directory; absent: the file's name."""
    title: Text | None = None
    """Title of the report."""
    hardware: Hardware = Hardware()
    """The machine under test."""
    engine: Engine = Engine()
    """How the engine is started or reached."""
    model: Model = Model()
    """The model that is served."""
    configs: Annotated[tuple[ConfigEntry, ...], Field(min_length=1)] | None = None
    """Configurations to compare; absent: one, its role given on the command line."""
    slo: Slo | None = None
    """Latency promises: ttft, tpot, itl or e2e at any percentile, in milliseconds."""
    workload: Workload = Workload()
    """What the requests look like."""
    measurement: Measurement = Measurement()
    """How long and how often is measured."""
    sweep: Sweep = Sweep()
    """How the highest rate is searched."""
    scenarios: tuple[ScenarioEntry, ...] = ()
    """Several SLO classes with one engine start."""
    profiles: Profiles = Field(default_factory=dict)
    """Closed-loop work for the speed and memory gates."""
    accuracy: Suites = ()
    """Accuracy suites: one, or a list."""
    drift: Drift | None = None
    """KL divergence and perplexity."""
    audit: Audit | None = None
    """Audit of timed output."""
    budget: Budget | None = None
    """Rerun with less memory."""
    score: Score | None = None
    """The leaderboard figures."""
    fleet: Fleet | None = None
    """What the figures mean for many cards."""
    power: Power = ()
    """Where power is read: one source, or a list."""
    load: Load = Load()
    """How load is generated."""
    gates: Gates = Gates()
    """Limits of every gate."""
    not_covered: tuple[Text, ...] = ()
    """What the report says was not looked at."""
