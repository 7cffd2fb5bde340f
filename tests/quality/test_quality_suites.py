"""Suite files: what is read, what is refused and where, and how little of a file is kept."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import SpecError
from pytest_tokenwatt.quality.jsonl import MAX_LINE_BYTES
from pytest_tokenwatt.quality.suites import LoadedSuite, iter_items, open_suite
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Sampling, Suite

GOOD: dict[str, Any] = {"id": "a", "prompt": "1 + 1 =", "answer": "2"}


def any_gold(item: SuiteItem) -> str | None:
    return None


def only_digits(item: SuiteItem) -> str | None:
    return None if item.answer.isdigit() else f"the answer {item.answer!r} is no number"


def settings(**given: Any) -> Suite:
    return Suite.model_validate({"suite": "s.jsonl", **given})


@pytest.fixture
def suite_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines: objects as JSON, text and bytes as they are."""

    def write(*lines: Any, end: bytes = b"\n") -> Path:
        path = tmp_path / "s.jsonl"
        path.write_bytes(b"".join(as_bytes(line) + end for line in lines))
        return path

    return write


def as_bytes(line: Any) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def opened(path: Path, **given: Any) -> LoadedSuite:
    return open_suite(path, settings(**given), any_gold)


def refused(path: Path, check: Callable[[SuiteItem], str | None] = any_gold, **given: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        open_suite(path, settings(**given), check)
    return [str(problem).removeprefix(str(path)) for problem in caught.value.problems]


def test_a_line_gives_all_that_an_item_has(suite_file: Callable[..., Path]) -> None:
    line = GOOD | {"choices": ["2", "3"], "domain": "sums", "template": "t", "x-source": {"page": 3}}
    loaded = opened(suite_file(line))
    assert loaded.items == (SuiteItem("a", "2", "1 + 1 =", None, ("2", "3"), "sums", "t"),)
    assert loaded.domains == {"a": "sums"}
    assert loaded.available == 1
    assert loaded.prefix == ""


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n \t\r\n"])
def test_line_ends_and_blank_lines_do_not_matter(suite_file: Callable[..., Path], end: bytes) -> None:
    path = suite_file(GOOD, GOOD | {"id": "b"}, end=end)
    assert [item.id for item in opened(path).items] == ["a", "b"]


def test_a_byte_order_mark_is_passed_over(suite_file: Callable[..., Path]) -> None:
    assert opened(suite_file(b"\xef\xbb\xbf" + as_bytes(GOOD))).items[0].id == "a"


def test_the_last_line_needs_no_end(suite_file: Callable[..., Path]) -> None:
    assert len(opened(suite_file(GOOD, GOOD | {"id": "b"}, end=b"\n")).items) == 2
    assert len(opened(suite_file(GOOD, end=b"")).items) == 1


def test_numbers_count_as_they_are_written(suite_file: Callable[..., Path]) -> None:
    path = suite_file(
        '{"id": 7, "prompt": "p", "answer": 72.50, "choices": [1, 2.50]}',
        '{"id": 8, "prompt": "p", "answer": 0.12345678901234567890123}',
        '{"id": 9, "prompt": "p", "answer": 123456789012345678901234567890}',
    )
    items = opened(path).items
    assert [item.id for item in items] == ["7", "8", "9"]
    assert [item.answer for item in items] == ["72.50", "0.12345678901234567890123", "123456789012345678901234567890"]
    assert items[0].choices == ("1", "2.50")


def test_a_line_of_a_megabyte_is_accepted(suite_file: Callable[..., Path]) -> None:
    path = suite_file(GOOD | {"prompt": "x" * 2**20})
    assert len(opened(path).items[0].prompt or "") == 2**20


def test_messages_are_kept_as_they_are_for_chat(suite_file: Callable[..., Path]) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    item = opened(suite_file({"id": "a", "messages": turns, "answer": "x"}), api="chat").items[0]
    assert item.messages == tuple(turns)
    assert item.prompt is None


def test_a_prompt_becomes_the_one_turn_of_a_chat(suite_file: Callable[..., Path]) -> None:
    item = opened(suite_file(GOOD), api="chat").items[0]
    assert item.messages == ({"role": "user", "content": "1 + 1 ="},)
    assert item.prompt is None


def test_the_first_items_up_to_the_limit_are_asked(suite_file: Callable[..., Path]) -> None:
    path = suite_file(*(GOOD | {"id": str(k)} for k in range(5)))
    loaded = opened(path, limit=3)
    assert [item.id for item in loaded.items] == ["0", "1", "2"]
    assert loaded.available == 5
    assert loaded.notes == ()
    assert [item.id for item in iter_items(path, settings(limit=3))] == ["0", "1", "2", "3", "4"]


def test_fewer_items_than_the_limit_are_fine_and_said(suite_file: Callable[..., Path]) -> None:
    assert opened(suite_file(GOOD), limit=9).notes == ("s has fewer items (1) than its limit of 9: all are asked",)


def test_a_domain_that_the_limit_leaves_out_is_said(suite_file: Callable[..., Path]) -> None:
    lines = [GOOD | {"id": str(k), "domain": "art" if k < 3 else "law"} for k in range(6)]
    (note,) = opened(suite_file(*lines), limit=2).notes
    assert note == "the first 2 of 6 items of s are asked, and none of them is of the domain law"
    assert opened(suite_file(*lines), limit=4).notes == ()


LINES = {
    "broken": ('{"id": "a", ', ":1: is not JSON (Expecting property name enclosed in double quotes, column 13); "),
    "two values": ('{"id": "a"} {}', ":1: is not JSON (Extra data, column 13); "),
    "list": ("[]", ":1: is no JSON object, but a list; write one JSON object a line"),
    "number": ("7", ":1: is no JSON object, but a value; "),
    "nan": ('{"id": "a", "prompt": "p", "answer": NaN}', ":1: is not JSON (NaN is no JSON number); "),
    "huge": ('{"id": "a", "prompt": "p", "answer": 1.5e999}', ":1: is not JSON (1.5e999 is too large a number); "),
    "digits": ('{"id": ' + "1" * 5000 + "}", ":1: is not JSON (Exceeds the limit (4300 digits)"),
    "deep": ("[" * 200_000, ":1: is nested too deeply; "),
    "latin-1": (b'{"id": "\xe9"}', ":1: is not UTF-8 (byte 9); save the file as UTF-8"),
    "no id": ({"prompt": "p", "answer": "1"}, ":1: id: is missing; add id"),
    "null id": (GOOD | {"id": None}, ":1: id: is missing; add id"),
    "id is a list": (GOOD | {"id": ["a"]}, ":1: id: must be text, not a list of 1; "),
    "id is true": (GOOD | {"id": True}, ":1: id: must be text, not true; "),
    "empty id": (GOOD | {"id": " "}, ":1: id: is empty; "),
    "no answer": ({"id": "a", "prompt": "p"}, ":1: answer: is missing; add answer"),
    "answer is an object": (GOOD | {"answer": {}}, ":1: answer: must be text, not an object; "),
    "empty answer": (GOOD | {"answer": ""}, ":1: answer: is empty; "),
    "no prompt": ({"id": "a", "answer": "1"}, ":1: has neither prompt nor messages; add what is asked"),
    "empty prompt": (GOOD | {"prompt": "\n"}, ":1: prompt: is empty; "),
    "prompt is a number": (GOOD | {"prompt": 3}, ":1: prompt: must be text, not a number; "),
    "both": (GOOD | {"messages": [{"role": "user", "content": "x"}]}, ":1: has both prompt and messages; "),
    "unknown key": (GOOD | {"promt": "p"}, ":1: promt: unknown key; did you mean prompt?"),
    "stray key": (GOOD | {"zzz\n": 1}, ":1: 'zzz\\n': unknown key; known: id, prompt, messages, "),
    "solution": (GOOD | {"solution": "s"}, ":1: solution: has no place without a question; "),
    "half a character": (GOOD | {"prompt": "\ud800"}, ":1: prompt: holds half of a surrogate pair"),
    "one choice": (GOOD | {"choices": ["2"]}, ":1: choices: must be a list of at least two texts, not a list of 1; "),
    "choices are text": (GOOD | {"choices": "2|3"}, ":1: choices: must be a list of at least two texts, not text; "),
    "choice is null": (GOOD | {"choices": ["2", None]}, ":1: choices: must be text, not null; "),
    "same choices": (GOOD | {"choices": ["2", 2]}, ":1: choices: has an option twice; "),
    "domain is a list": (GOOD | {"domain": ["x"]}, ":1: domain: must be text, not a list of 1; "),
}


@pytest.mark.parametrize("case", LINES)
def test_a_bad_line_is_one_message_with_its_place(suite_file: Callable[..., Path], case: str) -> None:
    line, message = LINES[case]
    (problem,) = refused(suite_file(line))
    assert problem.startswith(message)
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages: is empty"),
        ("Hi", "messages: must be a list of messages, not text"),
        (["Hi"], "messages: must be a list of messages, not a list of 1"),
        ([{"content": "Hi"}], "messages: has a message without role"),
        ([{"role": "user", "content": ""}], "messages: is empty"),
        ([{"role": "user"}], "messages: is empty"),
        ([{"role": "user", "content": {"text": "Hi"}}], "messages: content must be text or a list of parts"),
        ([{"role": "user", "content": [{"text": "\udc00"}]}], "messages: holds half of a surrogate pair"),
    ],
)
def test_a_bad_conversation_is_one_message(suite_file: Callable[..., Path], messages: Any, message: str) -> None:
    (problem,) = refused(suite_file({"id": "a", "messages": messages, "answer": "x"}), api="chat")
    assert problem.startswith(f":1: {message}")


def test_messages_need_the_chat_api(suite_file: Callable[..., Path]) -> None:
    line = {"id": "a", "messages": [{"role": "user", "content": "Hi"}], "answer": "x"}
    assert refused(suite_file(line)) == [
        ":1: messages: is for chat, and the suite asks completions; set api: chat",
    ]


def test_an_id_may_stand_once_in_the_whole_file(suite_file: Callable[..., Path]) -> None:
    lines = [GOOD | {"id": name} for name in (1, "x", "1", "y", 1)]
    assert refused(suite_file(*lines), limit=1) == [
        ":3: id: is that of line 1, too; ids must differ",
        ":5: id: is that of line 3, too; ids must differ",
    ]


def test_golds_are_checked_where_they_are_asked(suite_file: Callable[..., Path]) -> None:
    path = suite_file(GOOD, GOOD | {"id": "b", "answer": "two"}, GOOD | {"id": "c", "answer": "three"})
    assert refused(path, only_digits, limit=2) == [
        ":2: the answer 'two' is no number; correct it, or choose the scorer that reads it",
    ]
    assert len(open_suite(path, settings(limit=1), only_digits).items) == 1


def test_a_scorer_that_fails_on_a_gold_is_a_problem_of_that_line(suite_file: Callable[..., Path]) -> None:
    def fails(item: SuiteItem) -> str | None:
        return f"{int(item.answer):d}" and None

    assert refused(suite_file(GOOD, GOOD | {"id": "b", "answer": "two"}), fails) == [
        ":2: the scorer failed on its gold: ValueError: invalid literal for int() with base 10: 'two'; mend the scorer",
    ]


def test_a_line_is_checked_even_where_it_is_not_asked(suite_file: Callable[..., Path]) -> None:
    assert refused(suite_file(GOOD, {"id": "b", "answer": "1"}), limit=1)[0].startswith(":2: has neither prompt")


def test_all_problems_come_at_once_by_line_but_not_a_flood(suite_file: Callable[..., Path]) -> None:
    problems = refused(suite_file(GOOD, *({"id": "a", "answer": "1"} for _ in range(50)), "{"))
    assert len(problems) == 21
    assert [problem.split(":")[1] for problem in problems[:3]] == ["2", "3", "4"]
    assert problems[-1] == ": 31 more problems; correct these first"


def test_a_file_with_flaws_is_a_usage_error_with_one_line_each(suite_file: Callable[..., Path]) -> None:
    path = suite_file("{", "[]")
    with pytest.raises(SpecError) as caught:
        opened(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{path}:1: is not JSON")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_holds_no_items(suite_file: Callable[..., Path], content: bytes) -> None:
    assert refused(suite_file(content, end=b"")) == [": holds no items; give it at least one more line"]


def test_files_that_are_none(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent.jsonl") == [": there is no such file; check the path"]
    assert refused(tmp_path) == [": is a directory; check the path"]
    assert refused(tmp_path / ("n" * 300))[0].startswith(": ")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe) == [": is not a regular file; check the path"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}".encode("utf-16"), ": is UTF-16; save it as UTF-8"),
        (b"\x1f\x8b\x08\x00", ": is compressed (gzip); unpack it"),
    ],
)
def test_what_is_no_utf_8_is_named(suite_file: Callable[..., Path], content: bytes, message: str) -> None:
    assert refused(suite_file(content)) == [message]


def test_a_line_without_end_does_not_fill_the_memory(suite_file: Callable[..., Path]) -> None:
    path = suite_file(b"x" * (2 * MAX_LINE_BYTES + 5), GOOD)
    assert refused(path) == [":1: is longer than 16 MiB; write one JSON object a line"]


def test_a_large_file_is_read_without_being_kept(tmp_path: Path) -> None:
    path, filler = tmp_path / "s.jsonl", "x" * 2_000
    with path.open("w", encoding="utf-8") as file:
        for number in range(25_000):
            file.write(f'{{"id": {number}, "prompt": "{filler}", "answer": "{number}"}}\n')
    assert path.stat().st_size > 50e6
    tracemalloc.start()
    try:
        loaded = opened(path, limit=10)
        items = sum(1 for _ in iter_items(path, settings()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(loaded.items), loaded.available, items) == (10, 25_000, 25_000)
    assert peak < 10e6


def test_iterating_stops_at_the_first_bad_line(suite_file: Callable[..., Path]) -> None:
    found = iter_items(suite_file(GOOD, "{", GOOD), settings())
    assert next(found).id == "a"
    with pytest.raises(SpecError, match=":2: is not JSON"):
        next(found)


@pytest.mark.parametrize(
    "change",
    [
        {"api": "chat"},
        {"scorer": "exact"},
        {"max_tokens": 385},
        {"stop": ["\n"]},
        {"sampling": {"temperature": 0.7}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"limit": 1},
    ],
)
def test_the_hash_changes_with_what_is_asked(suite_file: Callable[..., Path], change: dict[str, Any]) -> None:
    path = suite_file(GOOD, GOOD | {"id": "b"})
    assert opened(path, **change).sha256 != opened(path).sha256


@pytest.mark.parametrize("key", ["id", "prompt", "answer"])
def test_the_hash_changes_with_the_items(suite_file: Callable[..., Path], key: str) -> None:
    assert opened(suite_file(GOOD)).sha256 != opened(suite_file(GOOD | {key: "3"})).sha256


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"max_drop_pts": 3},
        {"min_score": 50},
        {"seeds": 3},
        {"concurrency": 1},
        {"control": True},
        {"limit": 7},
        {"sampling": {"temperature": 0.0, "top_p": 1.0}},
    ],
)
def test_the_hash_ignores_limits_and_labels(suite_file: Callable[..., Path], change: dict[str, Any]) -> None:
    path = suite_file(GOOD)
    assert opened(path, **change).sha256 == opened(path).sha256


def test_the_hash_does_not_depend_on_the_file_but_on_what_it_says(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"id":"a","prompt":"p","answer":"1","domain":"x"}\n', encoding="utf-8")
    second.write_text('\n{"answer": "1", "id": "a", "prompt": "p", "x-note": 1}\r\n', encoding="utf-8")
    assert opened(first).sha256 == opened(second).sha256


def test_the_hash_of_a_stored_baseline_stays(suite_file: Callable[..., Path]) -> None:
    path = suite_file({"id": "a", "prompt": "p", "answer": "1"})
    assert opened(path).sha256 == "c90a94228c42a0b823e8d764d438410cdc5312067d10158f1c24cd5aac9504fb"


def test_the_hash_knows_every_sampling_field(suite_file: Callable[..., Path]) -> None:
    path, seen = suite_file(GOOD), set()
    for name in Sampling.model_fields:
        seen.add(opened(path, sampling={name: 0.5 if name not in ("seed", "top_k") else 5}).sha256)
    assert len(seen) == len(Sampling.model_fields)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KNOWN_KEYS = st.sampled_from(["id", "prompt", "messages", "question", "solution", "answer", "choices", "domain", "x-a"])
NEAR_LINES = st.dictionaries(KNOWN_KEYS | st.text(max_size=6), JSON_VALUES, max_size=7).map(json.dumps).map(str.encode)


@given(st.lists(st.binary(max_size=60) | NEAR_LINES | st.just(as_bytes(GOOD)), max_size=6), st.sampled_from([0, 1, 2]))
def test_no_file_gives_anything_but_items_or_problems(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], shots: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_bytes(b"\n".join(lines))
    for api in ("completions", "chat"):
        try:
            loaded = opened(path, api=api, shots=shots)
        except SpecError:
            continue
        assert loaded.items
        assert all((item.prompt is None) != (item.messages is None) for item in loaded.items)
        assert list(iter_items(path, settings(api=api, shots=shots)))[: len(loaded.items)] == list(loaded.items)


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)


@given(st.lists(st.builds(SuiteItem, id=TEXTS, answer=TEXTS, prompt=TEXTS), min_size=1, unique_by=lambda item: item.id))
def test_items_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, items: list[SuiteItem]) -> None:
    path = tmp_path_factory.getbasetemp() / "round.jsonl"
    lines = ({"id": item.id, "prompt": item.prompt, "answer": item.answer} for item in items)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8", newline="")
    assert opened(path).items == tuple(items)
