"""The suite of sums: certain answers, no question twice, and a parser that reads what it wrote."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.arithmetic import OPERATIONS, generate, solve
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.few_shot import Example, as_prompt, as_turns

COMPUTE = {
    "addition": lambda a, b: a + b,
    "subtraction": lambda a, b: a - b,
    "multiplication": lambda a, b: a * b,
}


def test_the_answers_are_right_by_another_way() -> None:
    for item in generate(2_000, seed=3):
        a, b = map(int, re.findall(r"\d+", item.prompt or ""))
        assert int(item.answer) == COMPUTE[item.domain or ""](a, b)


def test_every_question_and_every_id_is_there_once() -> None:
    items = list(generate(60_000, seed=1))
    assert len({item.prompt for item in items}) == len({item.id for item in items}) == 60_000


def test_there_is_no_end_to_the_questions_of_one_operation() -> None:
    """Multiplication has 3 × 64 × 64 pairs of its first size; then factors grow."""
    prompts = [item.prompt for item in generate(3 * 3 * 64 * 64, operations=["multiplication"])]
    assert len(set(prompts)) == len(prompts)
    assert max(int(number) for prompt in prompts[-100:] for number in re.findall(r"\d+", prompt or "")) > 66


def test_a_seed_is_a_suite_and_its_head_does_not_depend_on_the_count() -> None:
    assert list(generate(50, seed=5)) == list(islice(generate(None, seed=5), 50)) == list(generate(90, seed=5))[:50]
    first, second = ({item.prompt for item in generate(500, seed=seed)} for seed in (0, 1))
    assert len(first & second) < 25


def test_the_first_items_stay_as_they_are() -> None:
    assert [(item.id, item.prompt, item.answer) for item in generate(2)] == [
        ("arithmetic-0-1", "Question: 369 + 485 = ?\nAnswer:", "854"),
        ("arithmetic-0-2", "Question: 340 - 476 = ?\nAnswer:", "-136"),
    ]


def test_operations_and_wordings_come_in_turn() -> None:
    items = list(generate(900))
    assert Counter(item.domain for item in items) == dict.fromkeys(OPERATIONS, 300)
    assert {str(item.prompt).count("?") for item in items} == {1}
    assert not any(item.template for item in items)
    assert {item.domain for item in generate(9, operations=["addition"])} == {"addition"}


def test_answers_are_spread() -> None:
    answers = Counter(item.answer for item in generate(3_000))
    assert len(answers) > 1_000
    assert sum(answer.startswith("-") for answer in answers) > 100


@pytest.mark.parametrize("operations", [["division"], []])
def test_an_unknown_operation_is_refused_at_once(operations: list[str]) -> None:
    with pytest.raises(UsageError, match="known: addition, subtraction, multiplication"):
        generate(1, operations=operations)


def test_the_parser_solves_every_item() -> None:
    assert all(solve(item.prompt or "") == item.answer for item in generate(3_000, seed=9))


def test_the_parser_reads_the_last_question() -> None:
    items = list(generate(30, seed=2))
    shown = [Example((item.prompt or "")[len("Question: ") : -len("\nAnswer:")], item.answer) for item in items]
    for item, own in zip(items[5:], shown[5:], strict=True):
        assert solve(as_prompt(shown[:5], own.question)) == item.answer


def test_the_parser_reads_a_conversation_rendered_as_text() -> None:
    item = next(generate(1))
    rendered = "".join(f"{turn['role']}\n{turn['content']}\n" for turn in as_turns((), item.prompt or ""))
    assert solve(f"{rendered}assistant\n") == item.answer


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Hello",
        "Question: Why?\nAnswer:",
        "Question: 1 + = ?\nAnswer:",
        "Question: 1 + 2 = ? And 3?\nAnswer:",
        "1 + 2",
    ],
)
def test_what_is_no_sum_has_no_answer(prompt: str) -> None:
    assert solve(prompt) is None


@given(st.text() | st.text("Question: 12+*-=?\nAw").map("Question: {}".format))
def test_the_parser_takes_any_text(prompt: str) -> None:
    answer = solve(prompt)
    assert answer is None or int(answer) is not None


def test_the_parser_is_quick_on_long_text() -> None:
    assert solve("Question: " + "9" * 1_000_000 + " + 1 = ?\nAnswer:") is None
    assert solve("Question: What is " * 100_000) is None
