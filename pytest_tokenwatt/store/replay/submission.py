"""Submission records of a leaderboard as a replay reads them: a baseline and the candidate that was submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Reason, ServedIdentity
from pytest_tokenwatt.records.stored import Provenance, StoredFigures
from pytest_tokenwatt.spec.traffic import ONLINE_SLO
from pytest_tokenwatt.store.replay import asked
from pytest_tokenwatt.store.replay.engine_facts import audits, precision, startup
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.named import config_entry
from pytest_tokenwatt.store.replay.profiles import budgets, profiles
from pytest_tokenwatt.store.replay.quality import baseline_drift, candidate_drift, perplexity_deltas
from pytest_tokenwatt.store.replay.told import intervals, unknown
from pytest_tokenwatt.store.rundir import file_part
from pytest_tokenwatt.store.stored_run import StoredRun

KIND = "submission"
BASELINE, CANDIDATE = "baseline", "tuned"
_DONE, _FAILED = "done", "failed"
_LIMITS = "a submission stores no limits: the usual ones count, unless a spec is given"


def read_submission(path: Path, content: Mapping[str, Any]) -> StoredRun:
    """The two records of a submission: what it was measured against, and what was submitted. Raises ``UsageError``."""
    whole = Fields(str(path), content)
    result = whole.block("result")
    if not result.data:
        raise whole.wrong("result", "there is no figure" if whole.has("result") else "the key is missing")
    reader = _Reader(whole, result)
    spec = reader.spec()
    left = [f"{ONLINE_SLO}: its rates are not compared, since the SLO is not stored"] if reader.online else []
    return StoredRun(
        kind=KIND,
        spec=spec,
        records=(reader.baseline(spec), reader.candidate(spec)),
        notes=(_LIMITS, *asked.unknown_settings(reader.names), *left),
        title=whole.text("participant"),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the two sides of a submission; ``whole`` is the file, ``result`` its figures."""

    whole: Fields
    result: Fields

    @property
    def engine(self) -> Fields:
        """What is known of the submitted engine itself."""
        return self.result.block("engine")

    @property
    def audit(self) -> Fields:
        """The audit of the timed runs."""
        timed = self.result.block("timed_audit")
        return timed if timed.data else self.engine.block("audit")

    @property
    def names(self) -> list[str]:
        """All closed-loop profiles of either side."""
        blocks = ("anchor_efficiency", "efficiency", "anchor_peak_memory", "peak_memory")
        found = dict.fromkeys(name for block in blocks for name in self.result.block(block).data)
        return [name for name in found if name != ONLINE_SLO]

    @property
    def online(self) -> bool:
        """Whether the goodput search is one of the profiles."""
        return any(ONLINE_SLO in self.result.block(block).numbers() for block in ("anchor_efficiency", "efficiency"))

    def spec(self) -> dict[str, Any]:
        """Every block of which the record has figures, with the usual limits."""
        label, declared = self._label(), self._declared()
        tuned = config_entry(CANDIDATE, CANDIDATE, label)
        model = self._task()
        kl, shift = self.result.block("kl"), self.result.number("length_shift", least=-1.0)
        blocks = {
            "title": self.whole.text("participant"),
            "model": {"name": model} if model else None,
            "profiles": asked.profiles_block(self.names, self.result.block("peak_memory")),
            "drift": asked.drift_block(kl) if kl.data or shift is not None else None,
            # A leaderboard asks for it: a record that lost its audits does not do without.
            "audit": asked.audit_block(self.audit) or {},
            "budget": asked.budget_block(self.engine.block("budget")),
        }
        return {
            "name": file_part(self.whole.text("agent") or self.whole.text("id") or KIND),
            **{name: block for name, block in blocks.items() if block is not None},
            "configs": [
                config_entry(BASELINE, BASELINE, BASELINE),
                {**tuned, **({"precision": declared} if declared else {})},
            ],
            "score": {},
        }

    def baseline(self, spec: dict[str, Any]) -> ConfigRecord:
        """What the submission was measured against."""
        rates, peaks = self.result.block("anchor_efficiency"), self.result.block("anchor_peak_memory")
        own = Fields(self.result.where, {})
        return self._record(
            spec,
            key=BASELINE,
            label=BASELINE,
            drift=baseline_drift(own, self.result.block("kl"), ""),
            profiles=profiles(rates, peaks, own, self._settings(spec)),
            stored=StoredFigures(source=KIND, unknown=unknown(self.result)),
        )

    def candidate(self, spec: dict[str, Any]) -> ConfigRecord:
        """What was submitted."""
        own = Fields(self.result.where, {})
        read = startup(self.engine.block("startup"))
        stored_gib = self.engine.number("stored_gib", least=0.0)
        return self._record(
            spec,
            key=CANDIDATE,
            label=self._label(),
            identity=self._identity(),
            invalid=tuple(self._faults()),
            drift=candidate_drift(self.result.block("kl"), ""),
            startup=read,
            precision=precision(self.result.block("precision"), stored_gib, self._declared()),
            profiles=profiles(
                self.result.block("efficiency"), self.result.block("peak_memory"), own, self._settings(spec)
            ),
            budgets=budgets(self.engine.block("budget")),
            audits=audits(self.audit, "goodput"),
            stored=self._stored(),
        )

    def _record(self, spec: dict[str, Any], *, key: str, label: str, **parts: Any) -> ConfigRecord:
        blank: dict[str, Any] = {"identity": None, "invalid": ()}
        return ConfigRecord(
            key=key,
            role=key,
            label=label,
            like=None,
            fingerprint=None,
            contract=None,
            scenarios={},
            not_covered=(),
            launch={},
            minutes={},
            spec=spec,
            provenance=Provenance(
                recorded=self.whole.text("created_at"),
                finished=self.whole.text("updated_at"),
                title=self.whole.text("participant"),
            ),
            **{**blank, **parts},
        )

    def _settings(self, spec: dict[str, Any]) -> Fields:
        return Fields(self.result.where, asked.profile_settings(spec.get("profiles")), "profiles")

    def _label(self) -> str:
        method = self.whole.block("solution").text("method")
        return self.whole.text("participant") or method or CANDIDATE

    def _task(self) -> str | None:
        return self.whole.text("task_id") or self.result.text("task_id")

    def _declared(self) -> str | None:
        solution = self.whole.block("solution")
        return solution.text("precision") if solution.flag("declared_precision") else None

    def _identity(self) -> ServedIdentity | None:
        found = self.engine.block("startup")
        checkpoint = self.whole.block("solution").text("checkpoint")
        if checkpoint is None and not found.data:
            return None
        cache = found.text("kv_cache_dtype")
        return ServedIdentity(
            model_ids=(checkpoint,) if checkpoint else (),
            version=found.text("vllm_version"),
            cache_config={"cache_dtype": cache} if cache else {},
        )

    def _faults(self) -> Iterator[Reason]:
        """Why nothing of the record is to be believed: an error, a stage that failed, or that it was not admitted."""
        error, reason = self.whole.text("error"), self.result.text("reason")
        if error is not None:
            yield Reason("submission_error", error)
        for name, status in self._stages().items():
            if status == _FAILED and name != "contract":
                yield Reason("stage_failed", f"the stage {name} failed")
        if self.result.flag("admitted") is False and self._stages().get("contract") != _FAILED:
            yield Reason("not_admitted", reason or "the record was not admitted")

    def _stages(self) -> dict[str, str]:
        return {row.wanted("name"): row.text("status") or "" for row in self.whole.rows("stages")}

    def _verdicts(self) -> dict[str, str]:
        """What the record decides itself: its contract, and that it does not qualify."""
        contract = {_DONE: "pass", _FAILED: "fail"}.get(self._stages().get("contract", ""))
        return {
            **({"contract": contract} if contract else {}),
            **({"score": "fail"} if self.result.flag("qualified") is False else {}),
        }

    def _stored(self) -> StoredFigures:
        result = self.result
        drop = result.number("mean_drop", least=-1.0, most=1.0)
        return StoredFigures(
            source=KIND,
            mean_drop_pts=None if drop is None else 100.0 * drop,
            valid_domains=result.block("quality").count("valid_domains"),
            length_shift=result.number("length_shift", least=-1.0),
            drift_points=result.number("drift", least=0.0),
            score_se=result.number("score_se", least=0.0),
            gpu_hours=result.number("gpu_hours", least=0.0),
            verdicts=self._verdicts(),
            perplexity=perplexity_deltas(result.block("kl").block("ppl")),
            intervals=intervals(result),
            unknown=unknown(result),
        )
