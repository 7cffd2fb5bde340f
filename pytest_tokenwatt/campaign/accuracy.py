"""The accuracy suites on one running engine: what was asked before is kept, progress is live, answers go to disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.accuracy import suite_record
from pytest_tokenwatt.quality.asking import CONTROL, MAIN, Question, ask_all, concurrency, questions
from pytest_tokenwatt.quality.suites import LoadedSuite
from pytest_tokenwatt.records import Reason, SuiteRecord
from pytest_tokenwatt.records.accuracy import Answer
from pytest_tokenwatt.spec.model import Configuration, Suite
from pytest_tokenwatt.store.answers import AnswerLog, answers_name
from pytest_tokenwatt.store.journal import Event

PROGRESS_EVERY_S = 10.0


def measure_suite(configuration: Configuration, suite: Suite, engine: RunningEngine, session: Session) -> SuiteRecord:
    """Ask a suite, and on the baseline its control too. Raises ``TokenwattError`` for what is no fault of the engine.

    So it does when the time budget runs out meanwhile (``LoadError`` with the reason ``time_budget``).
    ``KeyboardInterrupt`` passes through; every answer that came until then is on disk.
    """
    loaded, scorer = session.shelf.open(suite), session.shelf.scorer(suite)
    asked = questions(loaded.items, suite)
    if suite.control and configuration.role == "baseline":
        asked += questions(loaded.items, suite, part=CONTROL)
    session.journal.write(Event.SUITE_STARTED, config=configuration.key, suite=suite.title, questions=len(asked))
    spec = session.spec
    pairs = [(config.key, each.title) for config in spec.configurations for each in spec.accuracy]
    name = answers_name(configuration.key, suite.title, pairs)
    path = session.run_dir.file(name)
    with AnswerLog(path, _head(configuration, suite, loaded, engine), resume=session.resumed) as log:
        invalid = _Inquiry(configuration, suite, engine, session, log).run(asked)
        answers = dict(log.known)
    record = suite_record(suite, loaded, scorer, asked, answers, invalid=invalid, answers_file=name)
    session.journal.write(
        Event.SUITE_FINISHED,
        config=configuration.key,
        suite=suite.title,
        score=record.score,
        counts=dict(record.counts),
        invalid=[str(reason) for reason in record.invalid],
    )
    session.say(f"{configuration.key} {suite.title}: {_told(record)}")
    for note in record.notes:
        if note not in loaded.notes:  # what is odd about the answers, not what was known before
            session.say(f"{configuration.key} {suite.title}: {note}")
    return record


def _head(configuration: Configuration, suite: Suite, loaded: LoadedSuite, engine: RunningEngine) -> dict[str, Any]:
    """What must be equal for the answers of an interrupted run to count: the questions, and the engine."""
    return {
        "config": configuration.key,
        "suite": suite.title,
        "sha256": loaded.sha256,
        "fingerprint": engine.fingerprint,
        "launch": dict(engine.launch),
    }


def _told(record: SuiteRecord) -> str:
    if record.score is None:
        return "; ".join(map(str, record.invalid)) or "no score"
    others = [f"{count} {name}" for name, count in record.counts.items() if count and name != "correct"]
    return f"{record.score:.1f} % of {len(record.items)} right" + (f" ({', '.join(others)})" if others else "")


@dataclass(slots=True)
class _Inquiry:
    """Asks what is not known yet."""

    configuration: Configuration
    suite: Suite
    engine: RunningEngine
    session: Session
    log: AnswerLog

    def run(self, asked: Sequence[Question]) -> tuple[Reason, ...]:
        """Ask, pass after pass; why the answers are not to be believed, if something happened to the engine."""
        for part in (MAIN, CONTROL):
            left = [question for question in asked if question.part == part and question.key not in self.log.known]
            known = sum(1 for question in asked if question.part == part) - len(left)
            if known:
                self.session.say(f"{self._name(part)}: {known} answers of the interrupted run are kept")
            try:
                self._ask(part, left)
            except EngineError as error:
                return (Reason(error.reason, str(error)),)
        return ()

    def _name(self, part: str) -> str:
        return f"{self.configuration.key} {self.suite.title}" + ("" if part == MAIN else f" ({part})")

    def _ask(self, part: str, left: Sequence[Question]) -> None:
        if not left:
            return
        deadline = self.session.deadline
        deadline.check()
        try:
            self.engine.call(self._ask_until(deadline.at_s, part, left))
        except TimeoutError:
            deadline.check()
            raise

    async def _ask_until(self, at_s: float | None, part: str, left: Sequence[Question]) -> None:
        """Ask until a monotonic instant, behind which ``TimeoutError`` is raised; what was answered by then is kept."""
        progress = _Progress(self._name(part), len(left), self.session)

        def keep(question: Question, answer: Answer) -> None:
            self.log.known[question.key] = answer
            self.log.write(question.key, answer)
            progress.count()

        # A little later, so that whoever looks at the clock then agrees.
        async with asyncio.timeout(None if at_s is None else max(0.0, at_s - time.monotonic()) + 0.01):
            await ask_all(
                self.engine.client,
                self.suite,
                left,
                in_flight=concurrency(self.suite, part),
                keep=keep,
                death=self.engine.death,
            )


@dataclass(slots=True)
class _Progress:
    """Says every ten seconds how many answers are there and when the last one may be."""

    name: str
    total: int
    session: Session
    done: int = 0
    began_s: float = field(default_factory=time.monotonic)
    said_s: float = field(default_factory=time.monotonic)

    def count(self) -> None:
        """One more answer."""
        now_s = time.monotonic()
        self.done += 1
        if now_s - self.said_s >= PROGRESS_EVERY_S and self.done < self.total:
            self.said_s = now_s
            left_s = (now_s - self.began_s) / self.done * (self.total - self.done)
            self.session.say(f"{self.name}: {self.done} of {self.total} answers, about {left_s:.0f} s left")
