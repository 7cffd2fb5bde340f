"""What a stored run lacks, in words."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.records import ConfigRecord, GateSpec

Sides = tuple[GateSpec, ConfigRecord, ConfigRecord | None]
"""A gate, the candidate's record, and the baseline's; ``None``: there is none, or the gate does not compare."""


def lacks(figure: str, config: ConfigRecord) -> str:
    """The sentence on one figure that is missing."""
    return f"{figure} of {config.key} is not stored"


def both(candidate: ConfigRecord, baseline: ConfigRecord | None) -> Iterator[ConfigRecord]:
    """The sides that there are."""
    yield candidate
    if baseline is not None:
        yield baseline
