"""One configuration's part of drift; everything here runs on the engine's own event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_tokenwatt.campaign.capture import Capture, Corpus, drift_file, store_scores
from pytest_tokenwatt.campaign.drift_decoding import Decoding
from pytest_tokenwatt.campaign.drift_prompts import drift_prompts, probe_texts, tokenised, tokenizer_fault
from pytest_tokenwatt.campaign.drift_texts import Texts
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, UsageError
from pytest_tokenwatt.metrics.divergence import divergence
from pytest_tokenwatt.quality.drift import fixed_ids
from pytest_tokenwatt.quality.drift.answers import answer_lengths, answers_sha256
from pytest_tokenwatt.quality.drift.continuations import sample_sequences
from pytest_tokenwatt.quality.drift.decode_gap import DecodeGap
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.quality.drift.fitting import aligned, fit, narrowed
from pytest_tokenwatt.quality.drift.fixed_ids import ask_fixed_ids, score_fixed_ids
from pytest_tokenwatt.quality.drift.limits import ask_limits
from pytest_tokenwatt.quality.drift.scoring import CONTROL_IN_FLIGHT, ROUTE, score
from pytest_tokenwatt.records import Reason, SuiteItem, drift
from pytest_tokenwatt.spec.model import Configuration, Drift

_CONTROL_ORDER = 1

Tops = tuple[drift.TopK, ...]
Sequences = tuple[drift.Sequence, ...]


def unmeasured_drift(reason: Reason) -> drift.DriftRecord:
    """The record of a configuration that could not be scored, for ``reason``."""
    return drift.DriftRecord("", ROUTE, 0, 0, 0, None, None, invalid=(reason,))


@dataclass(slots=True)
class Scoring:
    """Captures a baseline, or compares a candidate with what is captured."""

    configuration: Configuration
    engine: RunningEngine
    session: Session
    notes: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Drift:
        """The spec's drift block."""
        found = self.session.spec.drift
        if found is None:
            raise UsageError("the spec has no drift block")
        return found

    @property
    def _texts(self) -> Texts:
        return Texts(self.session.spec, self.engine, self._say, self.notes)

    @property
    def _decoding(self) -> Decoding:
        return Decoding(self.engine, self.settings.tokens, self.notes)

    # --- the two roles

    async def capture(self) -> drift.DriftRecord:
        """On the baseline: sample, score, score again as control, and score the texts. Raises ``EngineError``."""
        prompts = drift_prompts(self.session.spec, self.settings.sequences)
        sampled = await self._sampled(prompts)
        if isinstance(sampled, Reason):
            return unmeasured_drift(sampled)
        k = await self._allowed(sampled[0].ids)
        tops, reasons = await self._scored(sampled, k)
        probes = await tokenised(self.engine.tokenize, probe_texts(prompts))
        corpora = {each.name: await self._texts.captured(each) for each in self.settings.perplexity}
        capture = Capture(sampled, tops, corpora, probes)
        control = await self._control(sampled, tops, k) if self.settings.control else None
        record = drift.DriftRecord(
            sha256=drift_sha256(sampled),
            route=ROUTE,
            k=k,
            sequences=len(sampled),
            tokens=_tokens(sampled),
            against=None,
            control=control,
            perplexity={name: self._texts.record(name, each) for name, each in corpora.items()},
            file=self._stored(capture),
            invalid=reasons,
        )
        self.session.captures.held = capture
        return await self._completed(record, prompts, sampled, tops)

    async def compare(self) -> drift.DriftRecord:
        """On a candidate: score what the baseline scored. Raises ``EngineError``."""
        capture = self.session.captures.held
        if capture is None:
            return unmeasured_drift(Reason("baseline_invalid", self.session.captures.why_none))
        own = await tokenised(self.engine.tokenize, list(capture.probes))
        fault, unchecked = tokenizer_fault(capture.probes, own)
        self.notes += [unchecked] if unchecked else []
        if fault is not None:
            return await self._foreign(fault, own)
        fitted = fit(capture.sequences, self.engine.identity.max_model_len)
        self.notes += fitted.notes
        if not fitted.sequences:
            return unmeasured_drift(Reason("no_sequences", "; ".join(fitted.notes)))
        record, tops = await self._compared(capture, fitted.sequences)
        perplexity = {name: await self._texts.compared(name, each) for name, each in capture.corpora.items()}
        prompts = drift_prompts(self.session.spec, self.settings.sequences) if self.settings.prompts else []
        return await self._completed(replace(record, perplexity=perplexity), prompts, fitted.sequences, tops)

    async def _compared(self, capture: Capture, sequences: Sequences) -> tuple[drift.DriftRecord, Tops]:
        base = aligned(capture.sequences, capture.tops, sequences)
        route, tops, reasons = await self._scored_on(sequences, base)
        width = min(base[0].k, tops[0].k)
        pairs = [narrowed(top, width) for top in base], [narrowed(top, width) for top in tops]
        against = divergence(*pairs, drawn=sequences, fixed_ids=route == fixed_ids.ROUTE)
        self.notes += against.notes
        path = drift_file(self.session.run_dir.create(), self.configuration.key)
        self._store(path, sequences, tops)
        record = drift.DriftRecord(
            sha256=drift_sha256(capture.sequences),
            route=route,
            k=width,
            sequences=len(sequences),
            tokens=_tokens(sequences),
            against=against,
            control=None,
            file=path.name,
            invalid=reasons,
        )
        return record, tops

    async def _completed(
        self, record: drift.DriftRecord, prompts: Sequence[SuiteItem], sequences: Sequences, tops: Tops
    ) -> drift.DriftRecord:
        """With what neither role's comparison needs: the decode path and the lengths of answers."""
        gap = await self._decoding.gap(sequences, tops) if self.settings.decode else None
        answers = await self._answers(prompts) if self.settings.prompts is not None else ()  # suites have their own
        record = replace(
            record,
            answers=answers,
            answers_sha256=answers_sha256(prompts, self.settings.tokens) if answers else "",
        )
        return self._with_gap(record, gap)

    async def _answers(self, prompts: Sequence[SuiteItem]) -> tuple[drift.AnswerLength, ...]:
        self._say(f"answering {len(prompts)} prompts")
        try:
            return await answer_lengths(self.engine.client, prompts, self.settings.tokens, death=self.engine.death)
        except EngineError as error:
            if self.engine.death() is not None:
                raise
            self.notes.append(f"the lengths of answers are not known: {error}")
            return ()

    async def _foreign(self, fault: Reason, own: Mapping[str, tuple[int, ...]]) -> drift.DriftRecord:
        """Of an engine whose ids mean something else, the decode path alone says something: on its own ids."""
        prompts = tuple(drift.Sequence(f"probe/{at}", ids, len(ids)) for at, ids in enumerate(own.values()) if ids)
        gap = await self._decoding.served(prompts) if self.settings.decode else None
        return self._with_gap(unmeasured_drift(fault), gap)

    def _with_gap(self, record: drift.DriftRecord, gap: DecodeGap | None) -> drift.DriftRecord:
        self.notes += [*gap.notes, *map(str, gap.invalid)] if gap else []
        return replace(
            record,
            decode_gap=gap.mean_nats if gap else None,
            decode_tokens=gap.tokens if gap else 0,
            decode_route=gap.route if gap else None,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    # --- sequences

    async def _sampled(self, prompts: Sequence[SuiteItem]) -> Sequences | Reason:
        self._say("sampling continuations")
        sampled = await sample_sequences(
            self.engine.client,
            prompts,
            self.settings,
            max_model_len=self.engine.identity.max_model_len,
            death=self.engine.death,
        )
        self.notes += sampled.notes
        return sampled.invalid[0] if sampled.invalid else sampled.sequences

    async def _allowed(self, ids: Sequence[int]) -> int:
        wanted, known = self.settings.top_k, self.engine.vocabulary_size
        if 0 < known < wanted:  # some engines do not refuse more than there are, but die of it
            self.notes.append(f"drift.top_k {wanted} is more than the vocabulary has: all {known} are asked for")
            wanted = known
        limits = await ask_limits(self.engine.client, ids, wanted, death=self.engine.death)
        self.notes += limits.notes
        return limits.top_k

    async def _scored_on(
        self, sequences: Sequences, base: Sequence[drift.TopK]
    ) -> tuple[str, Tops, tuple[Reason, ...]]:
        """By the binary route where it is offered, which speaks of the baseline's likeliest tokens."""
        k = await self._allowed(sequences[0].ids)  # which warms the engine up, too
        if self.settings.top_k > 0:
            offer = await ask_fixed_ids(self.engine.post, sequences[0], base[0], death=self.engine.death)
            self.notes += offer.notes
            if offer.width:
                self._say(f"scoring {len(sequences)} sequences by fixed ids")
                scores = await score_fixed_ids(self.engine.post, sequences, base, offer.width, death=self.engine.death)
                self.notes += scores.notes
                return fixed_ids.ROUTE, scores.tops, scores.invalid
        return ROUTE, *await self._scored(sequences, k)

    async def _scored(self, sequences: Sequences, k: int) -> tuple[Tops, tuple[Reason, ...]]:
        self._say(f"scoring {len(sequences)} sequences")
        scores = await score(self.engine.client, sequences, k, death=self.engine.death)
        self.notes += scores.notes
        return scores.tops, scores.invalid

    async def _control(self, sequences: Sequences, tops: Tops, k: int) -> drift.Divergence:
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

    # --- files

    def _stored(self, capture: Capture) -> str:
        directory, key = self.session.run_dir.create(), self.configuration.key
        for name, corpus in capture.corpora.items():
            if isinstance(corpus, Corpus):
                self._store(drift_file(directory, key, name), corpus.windows, corpus.tops)
        path = drift_file(directory, key)
        self._store(path, capture.sequences, capture.tops, capture.probes)
        return path.name

    def _store(
        self, path: Path, sequences: Sequences, tops: Tops, probes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        model = next(iter(self.engine.identity.model_ids), "")
        fingerprint = self.engine.fingerprint or ""
        store_scores(path, sequences, tops, model=model, fingerprint=fingerprint, probes=probes)

    def _say(self, what: str) -> None:
        self.session.say(f"{self.configuration.key} drift: {what}")


def _tokens(sequences: Sequences) -> int:
    return sum(len(each.ids) - each.prompt for each in sequences)
