"""One report with its raw material, and how its configurations look in every figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_tokenwatt.report.html.access import mappings, text
from pytest_tokenwatt.report.html.material import Material
from pytest_tokenwatt.report.html.palette import Mark
from pytest_tokenwatt.report.html.words import shortened


@dataclass(frozen=True)
class Page:
    """What every section is made from; ``report`` may lack anything."""

    report: Mapping[str, Any]
    material: Material

    @cached_property
    def configs(self) -> list[Mapping[str, Any]]:
        """The entries of the configurations in the report's order."""
        return mappings(self.report, "configs")

    @cached_property
    def keys(self) -> list[str]:
        """Keys of all configurations that anything is told of."""
        told = [text(config, "key") for config in self.configs]
        drawn = [serving.config for serving in self.material.serving] + [each.config for each in self.material.power]
        return list(dict.fromkeys([*told, *drawn]))

    @property
    def scenarios(self) -> list[str]:
        """Names of all scenarios that load was offered by."""
        return list(dict.fromkeys(serving.scenario for serving in self.material.serving))

    def mark(self, key: str) -> Mark:
        """The look of a configuration."""
        return Mark(self.keys.index(key) if key in self.keys else 0)

    def name(self, key: str) -> str:
        """Key and label: ``tuned · vllm-fp8kv``."""
        label = next((text(config, "label") for config in self.configs if text(config, "key") == key), "")
        return key if not label or label == key else f"{key} · {shortened(label, 60)}"

    @cached_property
    def baselines(self) -> frozenset[str]:
        """Keys of the baselines; where a file has no roles, the key is the role."""
        return frozenset(key for key, config in self.named() if (text(config, "role") or key) == "baseline")

    def legend(self, keys: list[str]) -> tuple[tuple[Mark, str], ...]:
        """The key to the marks of these configurations."""
        return tuple((self.mark(key), self.name(key)) for key in keys)

    def named(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Every configuration's key and entry."""
        return ((text(config, "key"), config) for config in self.configs)

    @property
    def heads(self) -> tuple[str, ...]:
        """Column heads, one for each configuration of the report."""
        return tuple(self.name(key) for key, _ in self.named())
