"""The embedded engine in real time: the same scheduler and step times, with a clock to wait for and tokens to give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Sequence as Listed

import numpy as np

from pytest_tokenwatt.sim.api import GenerationRequest
from pytest_tokenwatt.sim.board import LiveBoard
from pytest_tokenwatt.sim.fixed_ids import Rows, Scores, score_ids
from pytest_tokenwatt.sim.lm import ORDER, LanguageModel, Logits, sample
from pytest_tokenwatt.sim.output import Delta, Output, TokenLogprob
from pytest_tokenwatt.sim.scheduler import Outcome, Scheduler, Sequence
from pytest_tokenwatt.sim.scoring import score_prompt, scored_token
from pytest_tokenwatt.sim.skill import Skill
from pytest_tokenwatt.sim.stats import Stats
from pytest_tokenwatt.sim.steptime import Batch, StepTime
from pytest_tokenwatt.sim.tokenizer import END_OF_TEXT, Tokenizer

_CATCH_UP_S = 0.05
"""How much lost time (the host was busy elsewhere) later steps may make good, so that the mean step time holds."""


class Generation:
    """One request in the engine, seen from its HTTP handler."""

    def __init__(
        self, request: GenerationRequest, tokenizer: Tokenizer, skill: Skill, seed: int, arrived_s: float
    ) -> None:
        self.request = request
        self.sequence = Sequence(len(request.prompt), request.max_tokens)
        self.output = Output(request, tokenizer)
        self.seed = seed
        self.arrived_s = arrived_s
        self.tail = [*[END_OF_TEXT] * ORDER, *request.prompt[-ORDER:]][-ORDER:]
        self._skill = skill
        self._script = skill.current(request.prompt)
        self._news = asyncio.Event()

    def steer(self, logits: Logits) -> None:
        """Favour what answers a question, in the ``(vocab,)`` logits of the next token."""
        if self._script is not None:
            self._script.steer(logits, len(self.request.prompt) + len(self.output.ids))

    def accept(self, token: int, *, last: bool, logprob: TokenLogprob | None) -> None:
        """Take the token of a step and wake the handler."""
        self.tail = [*self.tail[1:], token]
        self.output.accept(token, last=last, logprob=logprob)
        if token in self._skill.cues:
            ids = [*self.request.prompt, *self.output.ids]
            self._script = self._skill.begun(ids, len(ids)) or self._script
        self._news.set()

    async def deltas(self) -> AsyncIterator[Delta]:
        """What is new each time that there is something, up to the end."""
        while True:
            await self._news.wait()
            self._news.clear()
            delta = self.output.take()
            yield delta
            if delta.finish_reason is not None:
                return

    async def finished(self) -> None:
        """Wait for the end."""
        while self.output.finish_reason is None:
            await self._news.wait()
            self._news.clear()


class LiveEngine:
    """Runs steps while there is work. All methods belong to the event loop's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        step_time: StepTime,
        board: LiveBoard,
        model: LanguageModel,
        tokenizer: Tokenizer,
        canned: Listed[int],
    ) -> None:
        self.scheduler = scheduler
        self.board = board
        self.stats = Stats()
        self._step_time = step_time
        self._model = model
        self._tokenizer = tokenizer
        self._skill = Skill(tokenizer, model)
        self._canned = canned
        self._generations: dict[Sequence, Generation] = {}
        self._gone: list[Generation] = []
        self._work = asyncio.Event()
        self._submitted = 0

    def submit(self, request: GenerationRequest) -> Generation:
        """Queue a request. Raises ``ValueError`` when the KV pool could never hold it."""
        self._submitted += 1
        seed = self._submitted if request.seed is None else request.seed
        generation = Generation(request, self._tokenizer, self._skill, seed, asyncio.get_running_loop().time())
        self.scheduler.add(generation.sequence)
        self._generations[generation.sequence] = generation
        self._work.set()
        return generation

    def abort(self, generation: Generation) -> None:
        """Drop a request before the next step; does nothing when it has ended."""
        if generation.sequence in self._generations:
            self._gone.append(generation)
            self._work.set()

    async def run(self, stall_after_s: float | None = None) -> None:
        """Step for ever; with ``stall_after_s``, stop stepping that many seconds from now."""
        loop = asyncio.get_running_loop()
        stall_at_s = float("inf") if stall_after_s is None else loop.time() + stall_after_s
        due_s = 0.0
        while True:
            self._drop_gone()
            batch = self.scheduler.plan()
            if not batch.tokens or loop.time() >= stall_at_s:
                self._work.clear()
                await self._work.wait()
                due_s = loop.time()
                continue
            start_s = max(due_s, loop.time() - _CATCH_UP_S)
            due_s = start_s + self._step_time(batch)
            self.board.note(start_s, due_s, batch)
            await asyncio.sleep(due_s - loop.time())
            self._emit(batch, self.scheduler.commit(), loop.time())

    def score(self, prompt: Listed[int], top: int) -> list[TokenLogprob]:
        """Log-probabilities of the prompt's ids from the second on. Touches no state: any thread may call it."""
        return score_prompt(self._model, self._skill, prompt, top)

    def score_ids(self, prompt: Listed[int], rows: Rows, start: int) -> Scores:
        """Log-probabilities of given ids. Touches no state: any thread may call it."""
        return score_ids(self._model, self._skill, prompt, rows, start)

    def _drop_gone(self) -> None:
        for generation in self._gone:
            if self._generations.pop(generation.sequence, None) is not None:
                self.scheduler.remove(generation.sequence)
                self.stats.finished["abort"] += 1
        self._gone.clear()

    def _emit(self, batch: Batch, outcome: Outcome, now_s: float) -> None:
        """Give every sequence of the step its token."""
        self.stats.iteration_tokens.observe(batch.tokens)
        self.stats.read_bytes += sum(self._step_time.read_bytes(batch))
        sequences = [*self.scheduler.decoding, *outcome.finished]
        if not sequences:
            return
        generations = [self._generations[sequence] for sequence in sequences]
        logits = self._model.logits(np.array([generation.tail for generation in generations]))
        for row, generation in zip(logits, generations, strict=True):
            generation.steer(row)
        tokens = self._choose(generations, logits)
        last = set(outcome.finished)
        for row, (generation, token) in enumerate(zip(generations, tokens, strict=True)):
            top = generation.request.logprobs
            logprob = None if top is None else scored_token(logits[row], token, top)
            if not generation.output.ids:
                self.stats.prompt_tokens += len(generation.request.prompt)
                self.stats.ttft_s.observe(now_s - generation.arrived_s)
            generation.accept(token, last=generation.sequence in last, logprob=logprob)
            if generation.output.finish_reason is not None:
                self._retire(generation, now_s, running=generation.sequence not in last)
        self.stats.generation_tokens += len(tokens)

    def _choose(self, generations: Listed[Generation], logits: Logits) -> list[int]:
        if self._canned:
            return [self._canned[len(generation.output.ids) % len(self._canned)] for generation in generations]
        temperatures = np.array([generation.request.temperature for generation in generations])
        keys = [(generation.seed << 32) + len(generation.output.ids) & 2**64 - 1 for generation in generations]
        chosen: list[int] = sample(logits, temperatures, np.array(keys, dtype=np.uint64)).tolist()
        return chosen

    def _retire(self, generation: Generation, now_s: float, *, running: bool) -> None:
        if running:
            self.scheduler.remove(generation.sequence)
        del self._generations[generation.sequence]
        self.stats.finished[generation.output.finish_reason or "error"] += 1
        self.stats.e2e_s.observe(now_s - generation.arrived_s)
