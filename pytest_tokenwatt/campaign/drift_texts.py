"""The texts of the perplexity gate on one running engine: cut and scored on the baseline, scored on candidates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_tokenwatt.campaign.capture import Corpus
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, UsageError
from pytest_tokenwatt.quality.drift.fitting import aligned, fit
from pytest_tokenwatt.quality.drift.perplexity import perplexity_record
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.quality.drift.text_windows import text_windows
from pytest_tokenwatt.records import Reason, drift
from pytest_tokenwatt.spec.model import Perplexity, Spec

_K = 2

Sequences = tuple[drift.Sequence, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """``say`` tells of progress; ``notes`` are added to."""

    spec: Spec
    engine: RunningEngine
    say: Callable[[str], None]
    notes: list[str]

    async def captured(self, corpus: Perplexity) -> Corpus | Reason:
        """On the baseline: the windows, scored. A text that cannot be used costs its own perplexity only."""
        try:
            windows = await self._cut(corpus)
        except EngineError as error:
            if self.engine.death() is not None:
                raise
            return Reason(error.reason, str(error))
        except UsageError as error:
            return Reason("text_unusable", str(error))
        return Corpus(windows, *await self._windows(corpus.name, windows))

    async def _cut(self, corpus: Perplexity) -> Sequences:
        text = await asyncio.to_thread(_read, self.spec.resolve(corpus.file))
        windows = await text_windows(
            self.engine.tokenize,
            text,
            corpus,
            bos_id=await self.engine.bos_id(),
            max_model_len=self.engine.identity.max_model_len,
        )
        self.notes.extend(windows.notes)
        return windows.sequences

    async def _windows(self, name: str, windows: Sequences) -> tuple[tuple[drift.TopK, ...], tuple[Reason, ...]]:
        self.say(f"scoring {len(windows)} windows of {name}")
        scores = await score(self.engine.client, windows, _K, death=self.engine.death)
        return scores.tops, scores.invalid

    def record(self, name: str, corpus: Corpus | Reason) -> drift.PerplexityRecord:
        """The baseline's own."""
        if isinstance(corpus, Reason):
            return drift.PerplexityRecord(name, "", 0, 0, (), None, (corpus,))
        return perplexity_record(name, corpus.windows, corpus.tops, corpus.invalid)

    async def compared(self, name: str, corpus: Corpus | Reason) -> drift.PerplexityRecord:
        """On a candidate: the same windows, or as much of the beginning of each as its context holds."""
        if isinstance(corpus, Reason):
            return self.record(name, corpus)
        fitted = fit(corpus.windows, self.engine.identity.max_model_len)
        if len(fitted.sequences) < len(corpus.windows):
            return drift.PerplexityRecord(name, "", 0, 0, (), None, (Reason("no_windows", "; ".join(fitted.notes)),))
        self.notes.extend(f"{name}: {note}" for note in fitted.notes)
        base = aligned(corpus.windows, corpus.tops, fitted.sequences) if fitted.notes else ()
        tops, invalid = await self._windows(name, fitted.sequences)
        return perplexity_record(name, corpus.windows, tops, invalid, base=base)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the text cannot be read: {error}", where=str(path)) from error
