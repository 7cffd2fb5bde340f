"""A spec's own preflight, without pytest: everything that can be known to go wrong before a run."""

from __future__ import annotations

from pathlib import Path

from pytest_tokenwatt.campaign.desk import LabOptions
from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.lab import Lab
from pytest_tokenwatt.spec.model import Spec


class _Unheard:
    def line(self, text: str) -> None:
        """Nothing runs, so that there is no progress to show."""


def preflight_of(spec: Spec) -> list[Problem]:
    """All problems of all gates and configurations, errors and warnings. Starts and writes nothing."""
    lab = Lab(spec, LabOptions(rootdir=Path.cwd(), invocation=()), _Unheard())
    return lab.preflight(lab.gates, [configuration.key for configuration in spec.configurations])
