"""What the figures mean for a fleet: cards and power that serve what the baseline serves on so many cards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, EnergyRecord, GoodputRecord
from pytest_tokenwatt.report.machine import card_count
from pytest_tokenwatt.report.text import number
from pytest_tokenwatt.spec.model import Spec

HOURS_PER_DAY = 24.0
_LEAST_RATIO = 1e-12
"""Below it a need is no number of cards any more, but the reciprocal of next to nothing."""


@dataclass(frozen=True, slots=True)
class Bands:
    """How far equal measurements of this session differed, in per cent; ``None``: nothing was measured twice."""

    goodput_pct: float | None = None
    energy_pct: float | None = None


@dataclass(frozen=True, slots=True)
class _Need:
    """An amount that grows as a ratio to the baseline falls, with the interval that the ratio's error gives it."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, amount: float, ratio: float, error: float | None) -> _Need:
        """``amount`` / ``ratio``; without an upper end when the ratio may be zero, without any when it is unknown."""
        if error is None:
            return cls(amount / ratio, None, None)
        return cls(amount / ratio, amount / (ratio + error), amount / (ratio - error) if ratio > error else None)

    def times(self, factor: float) -> _Need:
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return _Need(self.value * factor, low, high)

    def fields(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


def fleet_block(spec: Spec, records: Sequence[ConfigRecord], bands: Bands) -> dict[str, Any]:
    """The projection for each candidate, linear from the cards that were measured.

    The load is the baseline's goodput on ``fleet.cards`` cards. Cards = cards · goodput per card of the baseline /
    that of the candidate, within the error of the goodput ratio; power = load / tokens per joule, within the band of
    tokens per joule. What cannot be projected is ``None``, with its reason in ``missing``.
    """
    if spec.fleet is None:
        return {"cards": None}
    baseline = next((record for record in records if record.role == "baseline"), None)
    base = _first(baseline)
    block: dict[str, Any] = {"cards": spec.fleet.cards}
    if baseline is None or base is None or not base.goodput_tok_s:
        return {**block, "missing": {"configs": "the goodput of a baseline is not known"}}
    measured = card_count(baseline, spec)
    scale = spec.fleet.cards / measured
    load_tok_s = base.goodput_tok_s * scale
    tok_j = base.energy.tokens_per_joule if base.energy else None
    kind = base.energy.kind if base.energy else None
    others = [record for record in records if record.role != "baseline" and record.like is None]
    return {
        **block,
        "cards_measured": measured,
        "text": f"{'one card' if measured == 1 else f'{measured} cards'} measured",
        "goodput_tok_s": load_tok_s,
        "power_kind": kind,
        "power_kw": load_tok_s / tok_j / 1000.0 if tok_j else None,
        "missing": {} if tok_j else {"power_kw": "the energy of the baseline is not known"},
        "configs": [_Projection(spec, record, baseline, base, bands).entry() for record in others],
    }


def _first(record: ConfigRecord | None) -> GoodputRecord | None:
    """The first scenario, unless it is not to be believed."""
    goodput = next(iter(record.scenarios.values()), None) if record and not record.invalid else None
    return None if goodput is None or goodput.invalid else goodput


def _measured(energy: EnergyRecord) -> tuple[str, bool]:
    """What was measured, and whether it was at all."""
    return energy.kind, energy.source == "simulated"


@dataclass(frozen=True, slots=True)
class _Projection:
    """One candidate against the baseline."""

    spec: Spec
    record: ConfigRecord
    baseline: ConfigRecord
    base: GoodputRecord
    bands: Bands

    def entry(self) -> dict[str, Any]:
        cards, power = self._cards(), self._power()
        found = {"cards_needed": cards, "power_kw": power}
        missing = {name: need for name, need in found.items() if isinstance(need, str)}
        needs = {name: None if isinstance(need, str) else need.fields() for name, need in found.items()}
        energy = None if isinstance(power, str) else power.times(HOURS_PER_DAY).fields()
        text = ", ".join(self._words(cards, power)) or None
        entry = {"key": self.record.key, **needs, "energy_kwh_per_day": energy, "text": text, "missing": missing}
        return {**entry, "cards_measured": card_count(self.record, self.spec)}

    @property
    def fleet(self) -> int:
        """Cards of the baseline's fleet."""
        return self.spec.fleet.cards if self.spec.fleet else 0

    def _cards(self) -> _Need | str:
        goodput = _first(self.record)
        if goodput is None or not goodput.goodput_tok_s or not self.base.goodput_tok_s:
            return "the goodput is not known"
        ratio = goodput.goodput_tok_s / self.base.goodput_tok_s
        if ratio < _LEAST_RATIO:
            return "the goodput is next to nothing"
        widths = [goodput.error_pct, self.base.error_pct, self.bands.goodput_pct]
        known = [width for width in widths if width is not None]
        scale = card_count(self.record, self.spec) / card_count(self.baseline, self.spec)
        return _Need.of(float(self.fleet), ratio, max(known) / 100.0 if known else None).times(scale)

    def _power(self) -> _Need | str:
        goodput = _first(self.record)
        energy, base = goodput.energy if goodput else None, self.base.energy
        if energy is None or not energy.tokens_per_joule:
            return "the energy is not known"
        if base is None or not base.tokens_per_joule or _measured(base) != _measured(energy):
            return "there is no energy of the baseline from the same kind of source"
        load_tok_s = (self.base.goodput_tok_s or 0.0) * self.fleet / card_count(self.baseline, self.spec)
        error = None if self.bands.energy_pct is None else self.bands.energy_pct / 100.0
        ratio = energy.tokens_per_joule / base.tokens_per_joule
        if ratio < _LEAST_RATIO:
            return "the energy is next to nothing"
        return _Need.of(load_tok_s / base.tokens_per_joule / 1000.0, ratio, error)

    def _words(self, cards: _Need | str, power: _Need | str) -> list[str]:
        words = []
        if isinstance(cards, _Need):
            whole = [None if each is None else math.ceil(each - 1e-9) for each in (cards.low, cards.high)]
            words.append(f"{math.ceil(cards.value - 1e-9)} cards{_range(*whole)} instead of {self.fleet}")
        if isinstance(power, _Need):
            words.append(f"{number(power.value)} kW{_range(power.low, power.high)}")
        return words


def _range(low: float | None, high: float | None) -> str:
    """An interval in words; empty when its lower end is not known."""
    if low is None:
        return ""
    return f" [{number(low)}, {'…' if high is None else number(high)}]"
