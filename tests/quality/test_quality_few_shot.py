"""Worked examples: composed as text and as turns, taken from the head of a suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.errors import SpecError
from pytest_tokenwatt.quality.few_shot import Example, as_prefix, as_prompt, as_turns
from pytest_tokenwatt.quality.suites import LoadedSuite, iter_items, open_suite
from pytest_tokenwatt.spec.quality import Suite

EXAMPLES = (Example("1 + 1?", "One more than one is 2.\n#### 2"), Example(" 2 + 2?\n", "#### 4 "))
TEXT = "Question: 1 + 1?\nAnswer: One more than one is 2.\n#### 2\n\nQuestion: 2 + 2?\nAnswer: #### 4\n\n"


def lines(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"q{k}", "question": f"{k} + {k}?", "solution": f"#### {2 * k}", "answer": 2 * k} for k in range(count)
    ]


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(**given: Any) -> Suite:
    return Suite.model_validate({"suite": "s.jsonl", **given})


def opened(path: Path, **given: Any) -> LoadedSuite:
    return open_suite(path, settings(**given), lambda item: None)


def test_a_prompt_has_its_examples_before_it_and_ends_where_the_answer_begins() -> None:
    assert as_prefix(EXAMPLES) == TEXT
    assert as_prompt(EXAMPLES, "3 + 3?") == TEXT + "Question: 3 + 3?\nAnswer:"
    assert as_prompt((), "3 + 3?") == "Question: 3 + 3?\nAnswer:"


def test_turns_alternate_and_end_with_the_question() -> None:
    turns = as_turns(EXAMPLES, "3 + 3?")
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert [turn["content"] for turn in turns[2:]] == ["2 + 2?", "#### 4", "3 + 3?"]


def test_the_first_lines_become_examples_and_are_not_asked(tmp_path: Path) -> None:
    loaded = opened(written(tmp_path, lines(5)), shots=2, limit=2)
    assert [item.id for item in loaded.items] == ["q2", "q3"]
    assert loaded.available == 3
    assert loaded.prefix == ("Question: 0 + 0?\nAnswer: #### 0\n\nQuestion: 1 + 1?\nAnswer: #### 2\n\n")
    assert loaded.items[0].prompt == loaded.prefix + "Question: 2 + 2?\nAnswer:"
    assert [item.id for item in iter_items(loaded.path, settings(shots=2))] == ["q2", "q3", "q4"]


def test_for_chat_they_become_turns(tmp_path: Path) -> None:
    item = opened(written(tmp_path, lines(3)), shots=1, api="chat").items[0]
    assert item.prompt is None
    assert item.messages == as_turns((Example("0 + 0?", "#### 0"),), "1 + 1?")


@pytest.mark.parametrize("shots", [None, 0])
def test_without_shots_a_question_is_asked_alone(tmp_path: Path, shots: int | None) -> None:
    loaded = opened(written(tmp_path, lines(2)), shots=shots)
    assert loaded.items[0].prompt == "Question: 0 + 0?\nAnswer:"
    assert loaded.prefix == ""


def test_shots_of_prompts_that_are_whole_only_inform(tmp_path: Path) -> None:
    path = written(tmp_path, [{"id": "a", "prompt": TEXT + "Question: x\nAnswer:", "answer": "1"}])
    assert opened(path, shots=2).items == opened(path).items
    assert opened(path, shots=2).sha256 == opened(path).sha256


def test_the_examples_are_part_of_the_hash(tmp_path: Path) -> None:
    rows = lines(4)
    before = opened(written(tmp_path, rows), shots=1, limit=1)
    rows[0]["solution"] = "Count. #### 0"
    after = opened(written(tmp_path, rows), shots=1, limit=1)
    assert [item.id for item in before.items] == [item.id for item in after.items]
    assert before.sha256 != after.sha256


def test_an_example_needs_its_solution_and_others_do_not(tmp_path: Path) -> None:
    rows = lines(3)
    del rows[2]["solution"]
    assert len(opened(written(tmp_path, rows), shots=2).items) == 1
    del rows[1]["solution"]
    with pytest.raises(SpecError, match=r":2: solution: is missing, and shots makes the first 2 lines examples; add"):
        opened(written(tmp_path, rows), shots=2)


def test_examples_that_leave_nothing_to_ask_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="holds no items beside the 2 that shots takes as examples"):
        opened(written(tmp_path, lines(2)), shots=3)


def test_questions_and_prompts_do_not_mix(tmp_path: Path) -> None:
    path = written(tmp_path, [*lines(1), {"id": "a", "prompt": "p", "answer": "1"}])
    with pytest.raises(SpecError, match=":2: has prompt, and the lines before it have question; use one form"):
        opened(path)


def test_an_example_must_not_repeat_an_id_either(tmp_path: Path) -> None:
    rows = lines(3)
    rows[2]["id"] = "q0"
    with pytest.raises(SpecError, match=":3: id: is that of line 1, too"):
        opened(written(tmp_path, rows), shots=1)
