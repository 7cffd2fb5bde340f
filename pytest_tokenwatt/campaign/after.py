"""What comes behind the last configuration's phase: capped engines, the baseline again, and reruns within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pytest_tokenwatt.campaign.again import measure_again
from pytest_tokenwatt.campaign.audit import audited, without_audit
from pytest_tokenwatt.campaign.budget import measure_budgets, measure_capped, needs_starts
from pytest_tokenwatt.campaign.kinds import AGAIN, AUDIT, BUDGET, PROFILES
from pytest_tokenwatt.campaign.ledger import blank_record
from pytest_tokenwatt.campaign.order import partner_of, repeat_of_baseline
from pytest_tokenwatt.campaign.phase import Phase
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.metrics.speed import drift
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.spec.model import Configuration, Spec


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Engine starts that belong to no configuration's own phase. ``keys`` are the configurations that are measured.

    ``repeats`` is false where the baseline is a stored one, which no second start could repeat.
    """

    spec: Spec
    kinds: frozenset[str]
    keys: tuple[str, ...]
    repeats: bool = True

    @property
    def needed(self) -> bool:
        """Whether anything is to be done."""
        return self.capped or self.budgets or self.second_start

    @property
    def capped(self) -> bool:
        """Whether a profile asks for a KV cache of its own."""
        return PROFILES in self.kinds and needs_starts(self.spec.profiles)

    @property
    def budgets(self) -> bool:
        """Whether candidates run again within a budget."""
        return BUDGET in self.kinds and self.spec.budget is not None and bool(self._candidates())

    @property
    def second_start(self) -> bool:
        """Whether the baseline is started again: a candidate wants it, and no configuration repeats the baseline."""
        audits = AUDIT in self.kinds and self.spec.audit is not None
        asked = audits or (self.repeats and AGAIN in self.kinds and bool(self.spec.profiles))
        if self.spec.baseline is None:
            return False
        return asked and repeat_of_baseline(self.spec) is None and bool(self.scored_later())

    def scored_later(self) -> list[str]:
        """Candidates whose outputs the baseline scores in its second start: it is not up beside them."""
        return [each.key for each in self._candidates() if partner_of(each, self.spec) is None]

    def run(self, records: Mapping[str, ConfigRecord], session: Session) -> Iterator[ConfigRecord]:
        """The records that this changes, each as soon as it is changed."""
        known = dict(records)
        yield from self._capped(known, session)
        yield from self._again(known, session)
        yield from self._rerun(known, session)

    def audited_by(self, repeat: Phase, records: Iterable[ConfigRecord], session: Session) -> list[ConfigRecord]:
        """The records of the candidates with their audit by a configuration that is the baseline again."""
        later = set(self.scored_later())
        candidates = [record for record in records if record.key in later]
        if repeat.engine is None:
            reason = Reason("baseline_invalid", f"{repeat.configuration.key} did not run: nobody scored the outputs")
            return [without_audit(record, session, reason) for record in candidates]
        return [audited(record, repeat.engine, session) for record in candidates]

    def _candidates(self) -> list[Configuration]:
        return [each for each in self._configurations() if each.role != "baseline"]

    def _configurations(self) -> Iterable[Configuration]:
        return (self.spec.configuration(key) for key in self.keys)

    def _capped(self, known: dict[str, ConfigRecord], session: Session) -> Iterator[ConfigRecord]:
        for configuration in self._configurations() if self.capped else ():
            record = known.get(configuration.key)
            if record is not None and not record.invalid:
                known[configuration.key] = measure_capped(configuration, record, session)
                yield known[configuration.key]

    def _rerun(self, known: Mapping[str, ConfigRecord], session: Session) -> Iterator[ConfigRecord]:
        drifts = self._drifts(known)
        for configuration in self._candidates() if self.budgets else ():
            record = known.get(configuration.key)
            if record is not None and not record.invalid:
                yield from measure_budgets(configuration, record, session, drifts)

    def _drifts(self, known: Mapping[str, ConfigRecord]) -> dict[str, float]:
        """By profile, by how much the baseline's rate changed from its first start to its second."""
        base = known.get(self.spec.baseline.key) if self.spec.baseline is not None else None
        if base is None:
            return {}
        repeat = repeat_of_baseline(self.spec)
        declared = known.get(repeat.key) if repeat is not None else None
        again = base.again or (declared.profiles if declared is not None else {})
        both = {name: (base.profiles[name], each) for name, each in again.items() if name in base.profiles}
        alike = {name: pair for name, pair in both.items() if pair[0].load_sha256 == pair[1].load_sha256}
        return {name: moved for name, pair in alike.items() if (moved := drift(*pair)) is not None}

    def _again(self, known: dict[str, ConfigRecord], session: Session) -> Iterator[ConfigRecord]:
        base = self.spec.baseline
        if not self.second_start or base is None:
            return
        candidates = [known[key] for key in self.scored_later() if key in known] if AUDIT in self.kinds else []
        record = known.get(base.key, blank_record(base))
        if record.invalid:
            reason = Reason("baseline_invalid", "; ".join(map(str, record.invalid)))
            known.update({each.key: without_audit(each, session, reason) for each in candidates})
            yield from (known[each.key] for each in candidates)
            return
        profiles = self.repeats and bool(self.spec.profiles)
        others = [each for key, each in known.items() if key != base.key]
        changed = measure_again(base, record, candidates, session, profiles=profiles, others=others)
        known.update({each.key: each for each in changed if each.key in known})
        yield from (known[each.key] for each in changed if each.key in known)
