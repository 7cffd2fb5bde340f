"""What comes behind the last configuration's phase: capped engines, reruns within a budget, and the baseline again."""

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
        yield from self._cut(known, session)
        yield from self._again(known, session)

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

    def _cut(self, known: dict[str, ConfigRecord], session: Session) -> Iterator[ConfigRecord]:
        for configuration in self._configurations():
            record = known.get(configuration.key)
            if record is None or record.invalid:
                continue
            if self.capped:
                record = measure_capped(configuration, record, session)
            if self.budgets and configuration.role != "baseline":
                record = measure_budgets(configuration, record, session)
            known[configuration.key] = record
            yield record

    def _again(self, known: dict[str, ConfigRecord], session: Session) -> Iterator[ConfigRecord]:
        base = self.spec.baseline
        if not self.second_start or base is None:
            return
        candidates = [known[key] for key in self.scored_later() if key in known] if AUDIT in self.kinds else []
        record = known.get(base.key, blank_record(base))
        if record.invalid:
            reason = Reason("baseline_invalid", "; ".join(map(str, record.invalid)))
            yield from (without_audit(each, session, reason) for each in candidates)
            return
        profiles = self.repeats and bool(self.spec.profiles)
        changed = measure_again(base, record, candidates, session, profiles=profiles)
        yield from (each for each in changed if each.key in known)
