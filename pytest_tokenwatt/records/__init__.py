"""The vocabulary that all layers share: plain frozen records, and the protocols of the seams.

Standard library only. Instants (``…_s`` fields named ``start_s``, ``sent_s`` …) are seconds of
``time.monotonic()``, which all processes of one machine share; ``ClockAnchor`` ties them to the wall clock.
"""

from __future__ import annotations

from pytest_tokenwatt.records.accuracy import (
    Answer,
    ItemResult,
    Outcome,
    Scored,
    SuiteItem,
    SuiteRecord,
)
from pytest_tokenwatt.records.base import (
    DEFAULT_SCENARIO,
    SCHEMA,
    ClockAnchor,
    Figure,
    Reason,
)
from pytest_tokenwatt.records.engine import (
    Client,
    Contract,
    ProbeOutcome,
    Reply,
    ServedIdentity,
)
from pytest_tokenwatt.records.goodput import (
    ClientHealth,
    GoodputRecord,
    Percentile,
    SloBound,
    WindowResult,
)
from pytest_tokenwatt.records.load import (
    CONTINUE,
    Decision,
    ErrorClass,
    InFlight,
    Loader,
    LoadPlan,
    LoadRun,
    LoadWatch,
    RequestProgress,
    RequestRecord,
    Schedule,
    Target,
    WindowSpan,
    WorkerTrace,
)
from pytest_tokenwatt.records.power import (
    HARMLESS_REASONS,
    REASON_BITS,
    REASONS_UNKNOWN,
    EnergyRecord,
    PowerEvent,
    PowerRecord,
    PowerTrace,
    SensorInfo,
    SensorTrace,
    WindowPower,
)
from pytest_tokenwatt.records.verdicts import (
    ConfigRecord,
    GateResult,
    GateSpec,
    RatedBandwidth,
    Verdict,
)

__all__ = [
    "CONTINUE",
    "DEFAULT_SCENARIO",
    "HARMLESS_REASONS",
    "REASONS_UNKNOWN",
    "REASON_BITS",
    "SCHEMA",
    "Answer",
    "Client",
    "ClientHealth",
    "ClockAnchor",
    "ConfigRecord",
    "Contract",
    "Decision",
    "EnergyRecord",
    "ErrorClass",
    "Figure",
    "GateResult",
    "GateSpec",
    "GoodputRecord",
    "InFlight",
    "ItemResult",
    "LoadPlan",
    "LoadRun",
    "LoadWatch",
    "Loader",
    "Outcome",
    "Percentile",
    "PowerEvent",
    "PowerRecord",
    "PowerTrace",
    "ProbeOutcome",
    "RatedBandwidth",
    "Reason",
    "Reply",
    "RequestProgress",
    "RequestRecord",
    "Schedule",
    "Scored",
    "SensorInfo",
    "SensorTrace",
    "ServedIdentity",
    "SloBound",
    "SuiteItem",
    "SuiteRecord",
    "Target",
    "Verdict",
    "WindowPower",
    "WindowResult",
    "WindowSpan",
    "WorkerTrace",
]
