"""The decode path of one running engine, by what the engine can do."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.decode_gap import DecodeGap, decode_gap
from pytest_tokenwatt.quality.drift.trace_replay import replay_gap
from pytest_tokenwatt.records import drift

Tops = tuple[drift.TopK, ...]
Sequences = tuple[drift.Sequence, ...]


@dataclass(frozen=True, slots=True)
class Decoding:
    """``tokens`` are generated at most for a prompt; ``notes`` are added to."""

    engine: RunningEngine
    tokens: int
    notes: list[str]

    async def gap(self, sequences: Sequences, tops: Tops) -> DecodeGap | None:
        """Of the sequences themselves where the engine can replay them, else of what it serves."""
        try:
            gap = await replay_gap(self.engine.post, sequences, tops, death=self.engine.death)
        except EngineError as error:
            self._bear(error)
            return None
        if gap is not None:
            return gap
        self.notes.append("the decode path is that of served tokens: the server replays no traces")
        return await self.served(sequences)

    async def served(self, sequences: Sequences) -> DecodeGap | None:
        """Of what the engine generates behind the prompts of ``sequences``."""
        longest = self.engine.identity.max_model_len
        try:
            return await decode_gap(
                self.engine.client,
                sequences,
                self.tokens,
                max_model_len=longest,
                death=self.engine.death,
            )
        except EngineError as error:
            self._bear(error)
            return None

    def _bear(self, error: EngineError) -> None:
        """What was scored before stays, unless the engine is gone."""
        if self.engine.death() is not None:
            raise error
        self.notes.append(f"the decode path was not scored: {error}")
