"""Drift on one running engine: the baseline is captured, candidates score the same token ids.

It comes behind everything timed: scoring fills the engine's caches and batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from pytest_tokenwatt.campaign.capture import Capture
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, UsageError
from pytest_tokenwatt.metrics.divergence import divergence
from pytest_tokenwatt.quality.drift.continuations import sample_sequences
from pytest_tokenwatt.quality.drift.decode_gap import decode_gap
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.quality.drift.fitting import aligned, fit, narrowed
from pytest_tokenwatt.quality.drift.limits import ask_limits
from pytest_tokenwatt.quality.drift.perplexity import perplexity_record
from pytest_tokenwatt.quality.drift.scoring import CONTROL_IN_FLIGHT, ROUTE, score
from pytest_tokenwatt.quality.drift.text_windows import text_windows
from pytest_tokenwatt.quality.suites import iter_items
from pytest_tokenwatt.records import Reason, SuiteItem, drift
from pytest_tokenwatt.spec.model import Configuration, Drift, Perplexity
from pytest_tokenwatt.spec.quality import Suite
from pytest_tokenwatt.store.journal import Event
from pytest_tokenwatt.store.topk_npz import StoredTopK, write_topk

_CONTROL_ORDER = 1
_PERPLEXITY_K = 2


def measure_drift(configuration: Configuration, engine: RunningEngine, session: Session) -> drift.DriftRecord:
    """Capture the baseline, or score a candidate on what the baseline was captured on.

    Raises ``EngineError`` when the engine cannot be scored or dies of it, ``LoadError`` (``time_budget``) when the
    time budget runs out meanwhile, ``UsageError`` for prompts that cannot be read.
    """
    session.journal.write(Event.DRIFT_STARTED, config=configuration.key)
    scoring = _Scoring(configuration, engine, session)
    record = engine.call(_in_time(scoring, session.deadline))
    session.journal.write(
        Event.DRIFT_FINISHED, config=configuration.key, invalid=[str(reason) for reason in _faults(record)]
    )
    session.say(f"{configuration.key} drift: {_told(record)}")
    return record


def unmeasured_drift(reason: Reason) -> drift.DriftRecord:
    """The record of a configuration that could not be scored, for ``reason``."""
    return drift.DriftRecord("", ROUTE, 0, 0, 0, None, None, invalid=(reason,))


async def _in_time(scoring: _Scoring, deadline: Deadline) -> drift.DriftRecord:
    """Score until the time budget is used up."""
    # A little later, so that whoever looks at the clock then agrees.
    left_s = None if deadline.at_s is None else max(0.0, deadline.at_s - time.monotonic()) + 0.01
    try:
        async with asyncio.timeout(left_s):
            return await (scoring.capture() if scoring.configuration.role == "baseline" else scoring.compare())
    except TimeoutError:
        deadline.check()
        raise


def _faults(record: drift.DriftRecord) -> tuple[Reason, ...]:
    """What is wrong with the scoring and with the divergence."""
    return (*record.invalid, *(record.against.invalid if record.against else ()))


def _told(record: drift.DriftRecord) -> str:
    faults = _faults(record)
    if faults:
        return "; ".join(map(str, faults))
    found = record.against or record.control
    name = "control" if record.against is None else "KL"
    size = f"{record.sequences} sequences, {record.tokens} tokens"
    if found is None or found.kl is None:
        return f"{size} scored"
    return f"{name} {found.kl:.3g} nats a token ({size})"


@dataclass(slots=True)
class _Scoring:
    """One configuration's part; everything asynchronous runs on the engine's own loop."""

    configuration: Configuration
    engine: RunningEngine
    session: Session
    notes: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Drift:
        found = self.session.spec.drift
        if found is None:
            raise UsageError("the spec has no drift block")
        return found

    async def capture(self) -> drift.DriftRecord:
        """On the baseline: sample, score, score again as control, and prepare the texts."""
        longest = self.engine.identity.max_model_len
        self._say("sampling continuations")
        sampled = await sample_sequences(
            self.engine.client, self._prompts(), self.settings, max_model_len=longest, death=self.engine.death
        )
        self.notes += sampled.notes
        if sampled.invalid:
            return unmeasured_drift(sampled.invalid[0])
        k = await self._allowed(sampled.sequences[0].ids)
        tops, reasons = await self._scored(sampled.sequences, k)
        corpora = {each.name: await self._windows(each) for each in self.settings.perplexity}
        self.session.captures.held = Capture(sampled.sequences, tops, corpora)
        control = await self._control(sampled.sequences, tops, k) if self.settings.control else None
        record = await self._record(sampled.sequences, k, None, control, corpora)
        return replace(record, file=self._stored(sampled.sequences, tops), invalid=reasons)

    async def compare(self) -> drift.DriftRecord:
        """On a candidate: score what the baseline scored."""
        capture = self.session.captures.held
        if capture is None:
            return unmeasured_drift(Reason("baseline_invalid", self.session.captures.why_none))
        fitted = fit(capture.sequences, self.engine.identity.max_model_len)
        self.notes += fitted.notes
        base = aligned(capture.sequences, capture.tops, fitted.sequences)
        if not fitted.sequences:
            return unmeasured_drift(Reason("no_sequences", "; ".join(fitted.notes)))
        k = await self._allowed(fitted.sequences[0].ids)
        tops, reasons = await self._scored(fitted.sequences, k)
        width = min(base[0].k, tops[0].k)
        pairs = [narrowed(top, width) for top in base], [narrowed(top, width) for top in tops]
        against = divergence(*pairs, drawn=fitted.sequences)
        return replace(
            await self._record(fitted.sequences, k, against, None, capture.corpora),
            sha256=drift_sha256(capture.sequences),
            file=self._stored(fitted.sequences, tops),
            k=width,
            invalid=reasons,
        )

    async def _record(
        self,
        sequences: Sequence[drift.Sequence],
        k: int,
        against: drift.Divergence | None,
        control: drift.Divergence | None,
        corpora: Mapping[str, tuple[drift.Sequence, ...] | Reason],
    ) -> drift.DriftRecord:
        perplexity = {name: await self._perplexity(name, windows) for name, windows in corpora.items()}
        gap = None
        if self.settings.decode:
            gap = await decode_gap(
                self.engine.client,
                sequences,
                self.settings.tokens,
                max_model_len=self.engine.identity.max_model_len,
                death=self.engine.death,
            )
            self.notes += [*gap.notes, *map(str, gap.invalid)]
        return drift.DriftRecord(
            sha256=drift_sha256(sequences),
            route=ROUTE,
            k=k,
            sequences=len(sequences),
            tokens=sum(len(each.ids) - each.prompt for each in sequences),
            against=against,
            control=control,
            perplexity=perplexity,
            decode_gap=gap.mean_nats if gap else None,
            decode_tokens=gap.tokens if gap else 0,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    async def _allowed(self, ids: Sequence[int]) -> int:
        wanted, known = self.settings.top_k, self.engine.vocabulary_size
        if 0 < known < wanted:  # some engines do not refuse more than there are, but die of it
            self.notes.append(f"drift.top_k {wanted} is more than the vocabulary has: all {known} are asked for")
            wanted = known
        limits = await ask_limits(self.engine.client, ids, wanted, death=self.engine.death)
        self.notes += limits.notes
        return limits.top_k

    async def _scored(
        self, sequences: Sequence[drift.Sequence], k: int
    ) -> tuple[tuple[drift.TopK, ...], tuple[Reason, ...]]:
        self._say(f"scoring {len(sequences)} sequences")
        scores = await score(self.engine.client, sequences, k, death=self.engine.death)
        self.notes += scores.notes
        return scores.tops, scores.invalid

    async def _control(
        self, sequences: Sequence[drift.Sequence], tops: Sequence[drift.TopK], k: int
    ) -> drift.Divergence:
        """The baseline against itself: another order, another number at once."""
        self._say("scoring them again as control")
        again = await score(
            self.engine.client,
            sequences,
            k,
            in_flight=CONTROL_IN_FLIGHT,
            order_seed=_CONTROL_ORDER,
            death=self.engine.death,
        )
        return divergence(tops, again.tops, drawn=sequences)

    async def _windows(self, corpus: Perplexity) -> tuple[drift.Sequence, ...] | Reason:
        """A text that cannot be used costs its own perplexity only."""
        try:
            return await self._cut(corpus)
        except EngineError as error:
            if self.engine.death() is not None:
                raise
            return Reason(error.reason, str(error))
        except UsageError as error:
            return Reason("text_unusable", str(error))

    async def _cut(self, corpus: Perplexity) -> tuple[drift.Sequence, ...]:
        text = await asyncio.to_thread(_read, self.session.spec.resolve(corpus.file))
        windows = await text_windows(
            self.engine.tokenize,
            text,
            corpus,
            bos_id=await self.engine.bos_id(),
            max_model_len=self.engine.identity.max_model_len,
        )
        self.notes += windows.notes
        return windows.sequences

    async def _perplexity(self, name: str, windows: tuple[drift.Sequence, ...] | Reason) -> drift.PerplexityRecord:
        if isinstance(windows, Reason):
            return drift.PerplexityRecord(name, "", 0, 0, (), None, (windows,))
        self._say(f"scoring {len(windows)} windows of {name}")
        scores = await score(self.engine.client, windows, _PERPLEXITY_K, death=self.engine.death)
        return perplexity_record(name, windows, scores.tops, scores.invalid)

    def _prompts(self) -> list[SuiteItem]:
        """Prompts of the file, else of the suites, whatever their limit; no more than there are sequences."""
        return list(islice(self._all_prompts(), self.settings.sequences))

    def _all_prompts(self) -> Iterator[SuiteItem]:
        spec = self.session.spec
        if self.settings.prompts is not None:
            yield from iter_items(spec.resolve(self.settings.prompts), Suite(suite=self.settings.prompts))
        else:
            for suite in spec.accuracy:
                yield from iter_items(spec.resolve(suite.suite), suite)

    def _stored(self, sequences: Sequence[drift.Sequence], tops: Sequence[drift.TopK]) -> str:
        name = f"drift-{self.configuration.key}.npz"
        stored = StoredTopK(
            sequences=tuple(sequences),
            tops=tuple(tops),
            sha256=drift_sha256(sequences),
            model=next(iter(self.engine.identity.model_ids), ""),
            k=tops[0].k,
            fingerprint=self.engine.fingerprint or "",
        )
        write_topk(self.session.run_dir.file(name), stored)
        return name

    def _say(self, what: str) -> None:
        self.session.say(f"{self.configuration.key} drift: {what}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the text cannot be read: {error}", where=str(path)) from error
