"""A configuration's record, the gates that judge it, and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pytest_tokenwatt.records.accuracy import SuiteRecord
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.base import SCHEMA, Reason
from pytest_tokenwatt.records.drift import DriftRecord
from pytest_tokenwatt.records.engine import Contract, ServedIdentity
from pytest_tokenwatt.records.goodput import GoodputRecord
from pytest_tokenwatt.records.power import PowerRecord, SensorInfo
from pytest_tokenwatt.records.profiles import BudgetRun, Precision, ProfileRecord, Startup
from pytest_tokenwatt.records.stored import Provenance, StoredFigures


@dataclass(frozen=True, slots=True)
class RatedBandwidth:
    """Memory bandwidth of one accelerator by its data sheet in TB/s (10**12 B/s), and who says so."""

    tbs: float
    source: str


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """All that one session measured of one configuration; stored as ``record-<key>.json``.

    ``invalid`` holds reasons that make every measurement of the configuration unusable (a failed start, another
    model, a contract that was not met).
    ``minutes`` maps phase names to their wall-clock minutes. ``spec`` is the spec as written, variables unexpanded, so
    that a replay can judge by its limits. ``power`` has one entry for each source, ``gpus`` the accelerators under test
    as the driver (or the simulator) names them. ``suites`` are the accuracy suites by name, ``drift`` is what was
    scored of the ``drift`` block. ``startup`` and ``precision`` are what was read of the engine before it was measured.
    ``profiles`` are the closed-loop ones by name; ``again`` (of a baseline only) those of its second start, A'.
    ``stored`` are figures of a record that came from elsewhere; ``None`` for one that this tool measured.
    ``budgets`` and ``audits`` are by profile; the audit of the goodput windows is called ``goodput`` or
    ``goodput[scenario]``.
    """

    key: str
    role: str
    label: str
    like: str | None
    identity: ServedIdentity | None
    fingerprint: str | None
    contract: Contract | None
    scenarios: Mapping[str, GoodputRecord]
    invalid: tuple[Reason, ...]
    not_covered: tuple[str, ...]
    launch: Mapping[str, Any]
    minutes: Mapping[str, float]
    files: tuple[str, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    power: tuple[PowerRecord, ...] = ()
    gpus: tuple[SensorInfo, ...] = ()
    rated_bandwidth: RatedBandwidth | None = None
    suites: Mapping[str, SuiteRecord] = field(default_factory=dict)
    drift: DriftRecord | None = None
    startup: Startup | None = None
    precision: Precision | None = None
    profiles: Mapping[str, ProfileRecord] = field(default_factory=dict)
    again: Mapping[str, ProfileRecord] = field(default_factory=dict)
    budgets: Mapping[str, BudgetRun] = field(default_factory=dict)
    audits: Mapping[str, AuditRecord] = field(default_factory=dict)
    stored: StoredFigures | None = None
    provenance: Provenance = field(default_factory=Provenance)
    schema: str = SCHEMA


class Verdict(StrEnum):
    """The four outcomes of a gate, and ``-`` for an informational one."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    INFO = "-"


@dataclass(frozen=True, slots=True)
class GateSpec:
    """A gate that will be judged: what the collector turns into a test item.

    ``gate`` is the id without the configuration (``slo``, ``slo[rag]``, ``rule[ttft-p50]``), ``kind`` the part before
    the bracket, ``param`` the part inside. ``needs`` names the measurement (``contract``, ``goodput``, ``profiles``,
    ``accuracy``, ``drift``, ``audit``, ``budget``) or is ``score``, which rests on other gates. ``line`` is the line
    of the spec that asks for it.
    """

    config: str
    gate: str
    kind: str
    param: str | None
    scenario: str | None
    needs: str
    mode: str
    on_inconclusive: str
    line: int | None
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GateResult:
    """A judged gate: one entry of the report's ``gates`` list.

    ``text`` and ``rule`` are the readable value and bound of the table; ``reasons`` explain anything but a pass.
    ``found`` is what the rule says whatever the mode, where ``verdict`` of an informational gate is ``-``; ``None``
    where nothing but the verdict is known.
    """

    id: str
    config: str
    gate: str
    value: float | None
    unit: str | None
    limit: float | None
    error: float | None
    verdict: Verdict
    mode: str
    reasons: tuple[Reason, ...]
    text: str
    rule: str
    on_inconclusive: str = "fail"
    line: int | None = None
    found: Verdict | None = None
