"""What the fixtures hand to tests: measured values that refuse to be read when they were not measured."""

from __future__ import annotations

from pytest_tokenwatt.values.answers import Accuracy, AccuracyChange, LengthShift
from pytest_tokenwatt.values.drift import KlDrift, PerplexityChange
from pytest_tokenwatt.values.energy import Energy, Power
from pytest_tokenwatt.values.goodput import Goodput

__all__ = [
    "Accuracy",
    "AccuracyChange",
    "Energy",
    "Goodput",
    "KlDrift",
    "LengthShift",
    "PerplexityChange",
    "Power",
]
