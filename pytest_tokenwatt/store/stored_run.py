"""What a replay reads out of files: a spec to judge by, and records to judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.records.verdicts import ConfigRecord


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One file or run directory, read back for a replay.

    ``kind`` says what was read: ``run record``, ``run directory``, ``lab report``, ``submission``, or the tool that
    wrote it (``vllm bench serve``, ``guidellm``, ``aiperf``). ``spec`` is a spec mapping made of what the file stores,
    which loads like a spec that was written by hand; it names every configuration of ``records``. ``notes`` are
    readable lines on what the file does not hold or means differently. ``status`` is the stored status of a report
    (``published``, ``draft``) and ``title`` its title; ``None``: the file has none. ``verdicts`` are those that a
    report lists, by the gate's id; nothing is judged by them.
    """

    kind: str
    spec: Mapping[str, Any]
    records: tuple[ConfigRecord, ...]
    notes: tuple[str, ...] = ()
    status: str | None = None
    title: str | None = None
    verdicts: Mapping[str, str] = field(default_factory=dict)
