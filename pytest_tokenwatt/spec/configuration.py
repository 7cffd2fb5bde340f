"""One configuration as the rest of the package sees it: its merged blocks and its scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pytest_tokenwatt.spec.document import Role
from pytest_tokenwatt.spec.gating import Gates
from pytest_tokenwatt.spec.quick import quick_measurement, quick_power
from pytest_tokenwatt.spec.serving import Engine, Model, PowerSource
from pytest_tokenwatt.spec.traffic import Scenario, Workload


class Configuration(BaseModel):
    """One configuration with its merged blocks.

    ``raw`` holds the merged ``engine``, ``model``, ``workload``, ``power`` and ``gates`` as written, variables
    unexpanded: the only form that a report may show. ``line`` is where the configuration stands in the file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    role: Role
    label: str
    like: str | None = None
    precision: str | None = None
    line: int | None = None
    engine: Engine
    model: Model
    workload: Workload
    power: tuple[PowerSource, ...] = ()
    gates: Gates
    scenarios: tuple[Scenario, ...] = Field(min_length=1)
    raw: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def model_name(self) -> str | None:
        """What {model} stands for: model.path, else engine.model."""
        return self.model.path or self.engine.model

    def scenario(self, name: str) -> Scenario:
        """The scenario of that name. Raises ``KeyError`` when there is none."""
        for scenario in self.scenarios:
            if scenario.name == name:
                return scenario
        raise KeyError(name)

    def quick(self) -> Configuration:
        """The same with the limits of --tokenwatt-quick."""
        scenarios = tuple(
            scenario.model_copy(update={"measurement": quick_measurement(scenario.measurement)})
            for scenario in self.scenarios
        )
        return self.model_copy(update={"scenarios": scenarios, "power": quick_power(self.power)})

    def attached(self, url: str) -> Configuration:
        """The same, attached to a running engine at ``url`` (checked and normalised by the caller)."""
        engine = self.engine.model_copy(update={**_OF_THE_START, "endpoint": url})
        written = {key: value for key, value in (self.raw.get("engine") or {}).items() if key not in _OF_THE_START}
        return self.model_copy(update={"engine": engine, "raw": {**self.raw, "engine": {**written, "endpoint": url}}})


# metrics too: their URLs belong to the engine that the spec names, and figures of another engine would be wrong ones.
_OF_THE_START: Mapping[str, Any] = {
    "command": None,
    "args": (),
    "up": None,
    "down": None,
    "logs": None,
    "prepare": (),
    "cleanup": (),
    "metrics": None,
}
