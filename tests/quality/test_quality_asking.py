"""Asking a suite: everything once, so many at a time, failures as values, and no answer asked twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.accuracy import suite_record
from pytest_tokenwatt.quality.asking import CONTROL, Question, answer_of, ask_all, concurrency, questions
from pytest_tokenwatt.quality.scorers import find_scorer
from pytest_tokenwatt.quality.suites import LoadedSuite
from pytest_tokenwatt.records import Answer, Outcome, Reply, SuiteItem
from pytest_tokenwatt.spec.model import Suite

ITEMS = tuple(SuiteItem(id=f"q{number}", prompt=f"{number} + 1 =", answer=str(number + 1)) for number in range(40))
SETTINGS = Suite(suite="s.jsonl", concurrency=8, max_tokens=8)


def refusal(status: int | None) -> EngineError:
    error = EngineError("engine_http_error", f"POST answered {status}: no such model")
    error.status = status
    return error


@dataclass
class Server:
    """Adds; ``trouble`` maps a prompt to the errors that it raises before it answers."""

    trouble: dict[str, list[EngineError]] = field(default_factory=dict)
    always: EngineError | None = None
    asked: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        self.asked.append(str(prompt))
        self.sent.append(sampling)
        await asyncio.sleep(0)
        self.busy -= 1
        errors = self.trouble.get(str(prompt), [])
        if self.always or errors:
            raise self.always or errors.pop(0)
        text = f" {int(str(prompt).split()[0]) + 1}"
        raw = {"choices": [{"text": text, "finish_reason": "stop"}]}
        return Reply(text, "stop", 4, 2, None, raw)

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        return await self.complete(messages[-1]["content"], max_tokens=max_tokens, **sampling)


def ask(server: Server, asked: Sequence[Question], in_flight: int = 8, death: str | None = None) -> dict[Any, Answer]:
    answers: dict[Any, Answer] = {}

    def keep(question: Question, answer: Answer) -> None:
        assert question.key not in answers
        answers[question.key] = answer

    asyncio.run(ask_all(server, SETTINGS, asked, in_flight=in_flight, keep=keep, death=lambda: death))
    return answers


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def test_every_question_is_answered_once_and_so_many_are_in_flight() -> None:
    server = Server()
    answers = ask(server, questions(ITEMS, SETTINGS))
    assert len(answers) == len(server.asked) == 40
    assert server.busiest == 8


def test_seeds_and_the_control_are_the_same_items_in_another_order() -> None:
    settings = SETTINGS.model_copy(update={"seeds": 3})
    asked = questions(ITEMS, settings)
    orders = [[each.item.id for each in asked if each.seed == seed] for seed in range(3)]
    control = [each.item.id for each in questions(ITEMS, settings, part=CONTROL)]
    assert orders[0] == [item.id for item in ITEMS]
    assert len({tuple(order) for order in (*orders, control)}) == 4
    assert all(sorted(order) == sorted(orders[0]) for order in (*orders, control))
    assert concurrency(settings, CONTROL) == 4


def test_every_sampling_field_is_sent() -> None:
    server = Server()
    settings = Suite(suite="s", stop=("\n\n",), extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    asyncio.run(
        ask_all(server, settings, [Question(ITEMS[0], 2)], in_flight=1, keep=lambda *_: None, death=lambda: None)
    )
    assert server.sent == [
        {
            "temperature": 0,
            "top_p": 1,
            "top_k": 0,
            "min_p": 0,
            "repetition_penalty": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "seed": 2,
            "stop": ["\n\n"],
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


def test_passing_trouble_is_asked_again_and_a_refusal_is_not() -> None:
    trouble = {"0 + 1 =": [refusal(500), refusal(None)], "1 + 1 =": [refusal(404)], "2 + 1 =": [refusal(500)] * 3}
    server = Server(trouble)
    answers = ask(server, questions(ITEMS, SETTINGS))
    assert [server.asked.count(f"{number} + 1 =") for number in range(4)] == [3, 1, 3, 1]
    failed = {key[2]: answer.error for key, answer in answers.items() if answer.error}
    assert failed.keys() == {"q1", "q2"}
    assert "no such model" in str(failed["q1"])


def test_a_server_that_is_silent_for_long_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PATIENCE_S", -1.0)
    server = Server(trouble={"3 + 1 =": [refusal(None)] * 3})
    answers = ask(server, questions(ITEMS, SETTINGS))
    assert server.asked.count("3 + 1 =") == 1
    assert sum(1 for answer in answers.values() if answer.error) == 1


def test_a_server_that_refuses_everything_is_not_asked_to_the_end() -> None:
    server = Server(always=refusal(404))
    answers = ask(server, questions(ITEMS, SETTINGS), in_flight=4)
    assert len(answers) == 40
    assert 20 <= len(server.asked) < 25
    given_up = [answer for answer in answers.values() if "not asked, since 2" in str(answer.error)]
    assert len(given_up) == 40 - len(server.asked)


def test_an_engine_that_hangs_midway_is_given_up() -> None:
    items = [SuiteItem(id=f"q{number}", prompt=f"{number} + 1 =", answer="1") for number in range(200)]
    hanging = {item.prompt or "": [refusal(404)] for item in items[100:]}
    server = Server(trouble=hanging)
    answers = ask(server, questions(items, SETTINGS), in_flight=30)
    assert 130 <= len(server.asked) < 165
    assert sum(1 for answer in answers.values() if answer.error is None) == 100
    assert len(answers) == 200


def test_a_suite_that_may_still_count_is_asked_to_the_end() -> None:
    items = [SuiteItem(id=f"q{number}", prompt=f"{number} + 1 =", answer="1") for number in range(3000)]
    server = Server(trouble={item.prompt or "": [refusal(404)] for item in items[100:130]})
    answers = ask(server, questions(items, SETTINGS), in_flight=8)
    assert len(server.asked) == 3000
    assert sum(1 for answer in answers.values() if answer.error is None) == 2970


def test_a_dead_engine_ends_the_asking_with_its_last_words() -> None:
    with pytest.raises(EngineError, match="exit code 137") as caught:
        ask(Server(always=refusal(None)), questions(ITEMS, SETTINGS), death="engine tuned died with exit code 137")
    assert caught.value.reason == "engine_died"


@pytest.mark.parametrize(
    ("choice", "text", "reasoning_only"),
    [
        ({"text": " 4"}, " 4", False),
        ({"message": {"content": "4"}}, "4", False),
        ({"message": {"content": None}}, "", False),
        ({"message": {"content": None, "reasoning_content": "hm"}}, "", True),
        ({"message": {"content": "", "reasoning": "hm"}}, "", True),
        ({"message": {"content": "4", "reasoning": "hm"}}, "4", False),
    ],
)
def test_what_is_an_answer(choice: dict[str, Any], text: str, reasoning_only: bool) -> None:
    answer = answer_of(Reply("", None, 1, 1, None, {"choices": [choice]}))
    assert (answer.text, answer.reasoning_only, answer.error) == (text, reasoning_only, None)


def record_of(answers: Mapping[str, Answer]) -> Any:
    items = tuple(item for item in ITEMS if item.id in answers)
    loaded = LoadedSuite(path=None, items=items, sha256="0" * 64, domains={}, prefix="", available=len(items))  # type: ignore[arg-type]
    asked = questions(items, SETTINGS)
    found = {question.key: answers[question.item.id] for question in asked}
    return suite_record(SETTINGS, loaded, find_scorer("numeric"), asked, found)


def test_outcomes_are_kept_apart_and_remarks_say_what_is_odd() -> None:
    record = record_of(
        {
            "q0": Answer(" 1", "stop", 2),
            "q1": Answer(" 3", "stop", 2),
            "q2": Answer(" about", None, 8),
            "q3": Answer("", "stop", 1, reasoning_only=True),
        }
    )
    assert [item.outcome for item in record.items] == [
        Outcome.CORRECT,
        Outcome.WRONG,
        Outcome.TRUNCATED,
        Outcome.UNPARSEABLE,
    ]
    assert record.score == 25.0
    assert any("without a finish reason" in note for note in record.notes)
    assert any("reasoning alone" in note for note in record.notes)


def test_more_than_one_failure_in_a_hundred_leaves_no_score() -> None:
    right = {item.id: Answer(f" {item.answer}", "stop", 2) for item in ITEMS}
    assert record_of(right).score == 100.0
    broken = record_of({**right, "q7": Answer(None, error="POST answered 500: boom")})
    assert broken.score is None
    assert [reason.code for reason in broken.invalid] == ["items_failed"]
    assert "boom" in broken.invalid[0].text
    assert broken.counts["failed"] == 1
