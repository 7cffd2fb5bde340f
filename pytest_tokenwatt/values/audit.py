"""The audit of timed outputs as a test reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_tokenwatt.records import Reason
    from pytest_tokenwatt.records.audit import AuditRecord

_AUDITED = "audited"


@dataclass(frozen=True, slots=True)
class Audit:
    """What the baseline says of the outputs of one configuration's timed runs.

    Runs are profiles by name, and ``goodput``. Without a run every figure is that of the worst run. Raises
    ``NotMeasured`` with the reason for a run that was not audited, and for a figure without a value.
    """

    config: str
    records: Mapping[str, AuditRecord] = field(repr=False)

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs that were to be audited."""
        return tuple(self.records)

    def gap_median(self, run: str | None = None) -> float:
        """How much less likely the outputs are than the baseline's own, in nats per token: median over samples."""
        return self._worst(max, run, "gap_median")

    def gap(self, run: str | None = None) -> float:
        """The same as the difference of the means over samples."""
        return self._worst(max, run, "gap")

    def top1_gap(self, run: str | None = None) -> float:
        """How much smaller the share of tokens is that are the baseline's likeliest."""
        return self._worst(max, run, "top1_gap")

    def length_ratio(self, run: str | None = None) -> float:
        """Tokens of the outputs over those of the baseline's own: median over samples."""
        return self._worst(min, run, "length_ratio")

    def length_ratio_min(self, run: str | None = None) -> float:
        """The least such ratio of a sample."""
        return self._worst(min, run, "length_ratio_min")

    def empty_alone(self, run: str | None = None) -> int:
        """How many outputs are empty where the baseline's own are not."""
        return int(self._worst(max, run, "empty_alone"))

    def samples(self, run: str | None = None) -> int:
        """How many outputs that are not empty were scored."""
        return int(self._worst(min, run, "samples"))

    def record(self, run: str) -> AuditRecord:
        """All figures of one run. Raises ``NotMeasured`` when it was not audited."""
        return self._audited(run, "audit")

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe an audit; empty when all are valid."""
        return tuple(reason for record in self.records.values() for reason in record.invalid)

    def _worst(self, worst: Callable[[list[float]], float], run: str | None, name: str) -> float:
        names = [run] if run is not None else list(self.records)
        if not names:
            raise NotMeasured(f"{self.config} audit {name}", "nothing that was timed was audited")
        return worst([self._figure(each, name) for each in names])

    def _figure(self, run: str, name: str) -> float:
        value: float | None = getattr(self._audited(run, name), name)
        if value is None:
            raise NotMeasured(f"{self.config} audit of {run} {name}", "no output that is not empty")
        return value

    def _audited(self, run: str, name: str) -> AuditRecord:
        record = self.records.get(run)
        if record is None or record.status != _AUDITED:
            own = "; ".join(map(str, record.invalid)) if record else f"runs: {', '.join(self.records) or 'none'}"
            raise NotMeasured(f"{self.config} audit of {run} {name}", own or "the run was not audited")
        return record
