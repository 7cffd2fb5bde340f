"""The short names of the measurements: ``goodput``, ``engine`` and so on.

They live in a plugin of their own, ``tokenwatt_aliases``, that ``-p no:tokenwatt_aliases`` switches off; nothing of
ours depends on them. A name that another plugin offers already stays that plugin's.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_tokenwatt.engine.start import RunningEngine
    from pytest_tokenwatt.plugin.handle import Baseline, LabHandle
    from pytest_tokenwatt.values import (
        Accuracy,
        Audit,
        Energy,
        Goodput,
        KlDrift,
        LengthShift,
        Memory,
        PerplexityChange,
        Power,
        Speed,
    )

PLUGIN_NAME = "tokenwatt_aliases"


@pytest.fixture(scope="session")
def engine(_tokenwatt_live: LabHandle, _tokenwatt_measured: LabHandle) -> RunningEngine:
    """The running engine of the configuration; engine.client is an async client."""
    return _tokenwatt_live.engine()


@pytest.fixture(scope="session")
def goodput(_tokenwatt_measured: LabHandle) -> Goodput:
    """Goodput at the highest rate that meets the SLO, with its latency percentiles (goodput.tok_s, .ttft_p99_ms)."""
    return _tokenwatt_measured.goodput()


@pytest.fixture(scope="session")
def baseline(_tokenwatt_candidate: LabHandle, _tokenwatt_measured: LabHandle) -> Baseline:
    """The baseline measured beside the configuration: baseline.goodput."""
    return _tokenwatt_candidate.compared()


@pytest.fixture(scope="session")
def energy(_tokenwatt_measured: LabHandle) -> Energy:
    """Energy over the confirming windows: energy.tokens_per_joule, .node_power_kw, .throttle_counts."""
    return _tokenwatt_measured.energy()


@pytest.fixture(scope="session")
def power(_tokenwatt_measured: LabHandle) -> Power:
    """The power sources: power.idle_w, .sources, and the samples in the file power.trace."""
    return _tokenwatt_measured.power()


@pytest.fixture(scope="session")
def accuracy(_tokenwatt_measured: LabHandle) -> Accuracy:
    """The accuracy suite: accuracy.score in per cent, .delta_pts against the baseline, .interval_pts, .flips."""
    return _tokenwatt_measured.accuracy()


@pytest.fixture(scope="session")
def length_shift(_tokenwatt_candidate: LabHandle, _tokenwatt_measured: LabHandle) -> LengthShift:
    """The answers' length against the baseline's: length_shift.share (0.018 is 1.8 % longer), .interval, .answers."""
    return _tokenwatt_candidate.length_shift()


@pytest.fixture(scope="session")
def kl_drift(_tokenwatt_candidate: LabHandle, _tokenwatt_measured: LabHandle) -> KlDrift:
    """KL divergence from the baseline: kl_drift.nats_per_token, .se, .lower, .control, .over_control."""
    return _tokenwatt_candidate.kl_drift()


@pytest.fixture(scope="session")
def perplexity(_tokenwatt_measured: LabHandle) -> PerplexityChange:
    """Perplexity on the only corpus: perplexity.ppl, .dnll against the baseline, .dnll_se."""
    return _tokenwatt_measured.perplexity()


@pytest.fixture(scope="session")
def memory(_tokenwatt_measured: LabHandle) -> Memory:
    """Memory at the peak of each profile: memory.peak_gib(profile), .kv_bytes_per_token(profile), .gain."""
    return _tokenwatt_measured.memory()


@pytest.fixture(scope="session")
def speed(_tokenwatt_candidate: LabHandle, _tokenwatt_measured: LabHandle) -> Speed:
    """Closed-loop throughput against the baseline: speed.ratio, .error, .profiles, .smallest_change."""
    return _tokenwatt_candidate.speed()


@pytest.fixture(scope="session")
def audit(_tokenwatt_candidate: LabHandle, _tokenwatt_measured: LabHandle) -> Audit:
    """Timed output as the baseline scores it: audit.gap_median, .empty_alone, .length_ratio, .runs."""
    return _tokenwatt_candidate.audit()


def free_aliases(manager: pytest.PytestPluginManager) -> ModuleType:
    """The short names that no other plugin offers, as a plugin. Fixtures of a conftest win by their place anyway."""
    taken = {name for plugin in manager.get_plugins() for name in _offered(manager, plugin)}
    free = ModuleType(PLUGIN_NAME, __doc__)
    for value in list(globals().values()):
        if type(value) is type(goodput) and value.name not in taken:
            setattr(free, value.name, value)
    return free


def _offered(manager: pytest.PytestPluginManager, plugin: object) -> list[str]:
    if (manager.get_name(plugin) or "").endswith("conftest.py"):
        return []
    members = vars(plugin if isinstance(plugin, ModuleType) else type(plugin))
    return [member.name for member in list(members.values()) if type(member) is type(goodput)]
