"""Speed and memory gain against the baseline, and output rate by profile, named as in published records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import MemoryDelta, Ratio, SpeedDelta
from pytest_tokenwatt.report.profiles import profile_faults
from pytest_tokenwatt.report.subject import NO_PROFILES, Subject
from pytest_tokenwatt.report.told import (
    NO_BASELINE,
    Told,
    by_name,
    explained,
    finite,
    one,
    together,
    why,
    why_not_compared,
)
from pytest_tokenwatt.spec.traffic import ONLINE_SLO

SERVE = "serve"
"""The profile whose figures stand for all where only one is shown."""
_NO_ERROR = "its error is not known"


def efficiency(subject: Subject) -> Told:
    """Output tok/s by profile; that of ``online_slo`` is at the rate which the goodput search found."""
    found = {name: _rate(subject, name) for name in subject.profiles}
    if subject.spec.online_slo:
        found[ONLINE_SLO] = _online(subject)
    rates = {name: rate for name, (rate, _) in found.items()}
    return by_name("efficiency", rates, {name: reason for name, (_, reason) in found.items()})


def _rate(subject: Subject, name: str) -> tuple[float | None, str]:
    profile = subject.record.profiles.get(name)
    if profile is None:
        return None, subject.why_no_profile(name)
    return finite(profile.output_tok_s), why(profile_faults(profile), "no repeat was measured")


def _online(subject: Subject) -> tuple[float | None, str]:
    goodput = next(iter(subject.record.scenarios.values()), None)
    if goodput is None:
        return None, why(subject.record.invalid)
    return finite(goodput.output_tok_s), why(goodput.invalid, "; ".join(goodput.misses) or "no rate was confirmed")


def speed(subject: Subject) -> Told:
    """``speed`` (geometric mean over ``speeds``) and ``speed_serve``: candidate / baseline of output tok/s."""
    delta = subject.speed
    if delta is None:
        return _nothing(subject, ("speed", "speed_serve", "speeds"))
    gains = _Gains(subject, delta.profiles, delta.faults)
    serve = gains.of(SERVE)
    online = (ONLINE_SLO,) if subject.spec.online_slo else ()
    return together([gains.overall("speed", delta.overall), one("speed_serve", *serve), gains.each("speeds", *online)])


def memory(subject: Subject) -> Told:
    """``memory`` (geometric mean over ``memories``: baseline peak / candidate peak), and the share that is saved."""
    delta = subject.memory
    if delta is None:
        return _nothing(subject, ("memory", "memories", "memory_saved"))
    gains = _Gains(subject, delta.profiles, delta.faults)
    saved = one("memory_saved", finite(delta.saved), gains.of(SERVE)[1])
    return together([gains.overall("memory", delta.overall), gains.each("memories"), saved])


def _nothing(subject: Subject, names: Sequence[str]) -> Told:
    """Nothing was compared at all."""
    spec = subject.spec
    asked = spec.profiles or spec.online_slo
    reason = why_not_compared(subject.record) if asked else NO_PROFILES
    return Told(dict.fromkeys(names), dict.fromkeys(names, reason))


@dataclass(frozen=True, slots=True)
class _Gains:
    """Ratios to the baseline by profile, and why any of them is not known."""

    subject: Subject
    ratios: Mapping[str, Ratio]
    faults: tuple[Reason, ...]

    def overall(self, name: str, ratio: Ratio | None) -> Told:
        """The geometric mean."""
        return one(name, *self._figure(ratio, why(self.faults, "no profile could be compared")))

    def of(self, name: str) -> tuple[float | None, str]:
        """One profile's ratio, and why there is none."""
        own = [fault for fault in self.faults if fault.text.startswith(f"{name}:")]
        reason = why(own or self.faults, NO_BASELINE)
        if not own and name not in self.ratios and name not in self.subject.record.profiles:
            reason = self.subject.why_no_profile(name)
        return self._figure(self.ratios.get(name), reason)

    def each(self, field: str, *further: str) -> Told:
        """All closed-loop profiles, and ``further`` ones."""
        found = {name: self.of(name) for name in dict.fromkeys([*self.subject.profiles, *further, *self.ratios])}
        values = {name: value for name, (value, _) in found.items()}
        return by_name(field, values, {name: reason for name, (_, reason) in found.items()})

    def _figure(self, ratio: Ratio | None, reason: str) -> tuple[float | None, str]:
        value = finite(ratio.value) if ratio else None
        return value, (ratio.missing if ratio else None) or reason


def gain_intervals(subject: Subject) -> dict[str, Any]:
    """95 % intervals of speed and memory; of speed also the smallest change that the repeats could have shown."""
    speeds, memories = subject.speed or SpeedDelta(), subject.memory or MemoryDelta()
    found = {
        "speed": _interval(speeds.overall, smallest_change=finite(speeds.smallest), error_from=speeds.how or None),
        "memory": _interval(memories.overall),
        "speeds": _intervals(speeds.profiles),
        "memories": _intervals(memories.profiles),
    }
    return {name: interval for name, interval in found.items() if interval}


def _intervals(ratios: Mapping[str, Ratio]) -> dict[str, Any]:
    found = {name: _interval(ratio) for name, ratio in ratios.items()}
    return {name: interval for name, interval in found.items() if interval}


def _interval(ratio: Ratio | None, **beside: Any) -> dict[str, Any]:
    """Empty without a value or with an error that is only counted as 0, null ends without an error."""
    value, error = (finite(ratio.value), finite(ratio.error)) if ratio else (None, None)
    if ratio is None or value is None or (error == 0 and ratio.missing is not None):
        return {}
    ends = {"low": None, "high": None} if error is None else {"low": value - error, "high": value + error}
    return explained({**ends, **beside}, {}, ratio.missing or _NO_ERROR)
