"""Answers on disk: each as it comes, and an interrupted run goes on behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import Answer
from pytest_tokenwatt.store.answers import AnswerLog, answers_name, read_answers

HEAD = {"config": "tuned", "suite": "arithmetic", "sha256": "ab", "fingerprint": None, "launch": {"args": ["--x"]}}
FIRST, SECOND = ("main", 0, "q1"), ("control", 1, "ü/2")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerLog(path, HEAD, resume=False) as log:
        log.write(FIRST, Answer(" 42\n\u2028 😀", "stop", 3))
        log.write(SECOND, Answer("", "length", 8, reasoning_only=True))
    assert read_answers(path) == {
        FIRST: Answer(" 42\n\u2028 😀", "stop", 3),
        SECOND: Answer("", "length", 8, reasoning_only=True),
    }


def test_a_run_that_goes_on_knows_what_is_there_and_asks_the_failed_ones_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerLog(path, HEAD, resume=True) as log:
        assert log.known == {}
        log.write(FIRST, Answer("1"))
        log.write(SECOND, Answer(None, error="timeout"))
    with path.open("ab") as file:
        file.write(b'{"part": "main", "seed": 0, "id": "q3", "te')  # killed while it wrote
    with AnswerLog(path, HEAD, resume=True) as log:
        assert log.known == {FIRST: Answer("1")}
        log.write(SECOND, Answer("2"))
    assert read_answers(path, HEAD) == {FIRST: Answer("1"), SECOND: Answer("2")}


@pytest.mark.parametrize("change", [{"sha256": "cd"}, {"fingerprint": "other"}, {"launch": {"args": []}}])
def test_answers_of_something_else_do_not_count(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerLog(path, HEAD, resume=False) as log:
        log.write(FIRST, Answer("1"))
    with AnswerLog(path, {**HEAD, **change}, resume=True) as log:
        assert log.known == {}
    assert read_answers(path) == {}


def test_a_new_run_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    for _ in range(2):
        with AnswerLog(path, HEAD, resume=False) as log:
            assert log.known == {}
            log.write(FIRST, Answer("1"))
    assert len(path.read_bytes().splitlines()) == 2


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"answers cannot be stored"):
        AnswerLog(tmp_path / "no" / "answers.jsonl", HEAD, resume=False)


def test_every_pair_has_a_file_of_its_own_in_the_run_directory() -> None:
    pairs = [("a-b", "c"), ("a", "b-c"), ("a", "x"), ("A", "X"), ("a", "sums 1"), ("a", "sums/1"), ("a", "../../etc")]
    names = {pair: answers_name(*pair, pairs) for pair in pairs}
    assert len({name.casefold() for name in names.values()}) == len(pairs)
    assert all(Path(name).name == name and name.startswith("answers-") for name in names.values())
    assert answers_name("tuned", "gsm8k-5shot", [("tuned", "gsm8k-5shot"), *pairs]) == "answers-tuned-gsm8k-5shot.jsonl"
    assert answers_name("a-b", "c", reversed(pairs)) == names["a-b", "c"]
    assert len(answers_name("k" * 300, "s" * 300, [])) < 200


def test_names_that_begin_alike_differ_though_they_are_cut() -> None:
    pairs = [("a", "s" * 300 + "1"), ("a", "s" * 300 + "2")]
    assert answers_name(*pairs[0], pairs) != answers_name(*pairs[1], pairs)


def test_an_answer_that_comes_behind_the_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerLog(path, HEAD, resume=False) as log:
        log.write(FIRST, Answer("1"))
    log.write(SECOND, Answer("2"))
    log.close()
    assert read_answers(path) == {FIRST: Answer("1")}
