"""Sampling fields of drift: all are sent, since servers fill in what is left out from the model's own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.spec.quality import Sampling


def sampling_fields(temperature: float, seed: int) -> Mapping[str, Any]:
    """The whole distribution at a temperature, with a seed."""
    return Sampling(temperature=temperature, seed=seed).model_dump()
