"""What the fixtures hand to tests: measured values that refuse to be read when they were not measured."""

from __future__ import annotations

from pytest_tokenwatt.values.answers import Accuracy, AccuracyChange, LengthShift
from pytest_tokenwatt.values.audit import Audit
from pytest_tokenwatt.values.drift import KlDrift, PerplexityChange
from pytest_tokenwatt.values.energy import Energy, Power
from pytest_tokenwatt.values.goodput import Goodput
from pytest_tokenwatt.values.memory import Memory
from pytest_tokenwatt.values.speed import Speed

__all__ = [
    "Accuracy",
    "AccuracyChange",
    "Audit",
    "Energy",
    "Goodput",
    "KlDrift",
    "LengthShift",
    "Memory",
    "PerplexityChange",
    "Power",
    "Speed",
]
