"""Conversions: what a source becomes, what is refused at which line, and files that are whole or absent."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import SpecError, UsageError
from pytest_tokenwatt.quality.convert import UNKNOWN_LICENSE, Conversion, Converted, ReadRows, convert
from pytest_tokenwatt.quality.from_csv import read_csv
from pytest_tokenwatt.quality.from_gsm8k import LICENSE, Gsm8k
from pytest_tokenwatt.quality.from_lm_eval import read_lm_eval
from pytest_tokenwatt.quality.suites import open_suite
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Suite


def number_gold(item: SuiteItem) -> str | None:
    try:
        float(item.answer.replace(",", ""))
    except ValueError:
        return f"the answer {item.answer!r} is no number"
    return None


def any_gold(item: SuiteItem) -> str | None:
    return None


def converted(source: Path, read: ReadRows, **more: Any) -> Converted:
    given: dict[str, Any] = {"scorer": "numeric", "check_gold": number_gold, **more}
    return convert(Conversion("some form", read, source, **given), source.with_name("suite.jsonl"))


def refused(source: Path, read: ReadRows, **more: Any) -> list[str]:
    before = sorted(source.parent.iterdir())
    with pytest.raises(SpecError) as caught:
        converted(source, read, **more)
    assert sorted(source.parent.iterdir()) == before, "nothing is left behind"
    return [str(problem).removeprefix(str(source)) for problem in caught.value.problems]


def items_of(suite: Converted, **given: Any) -> tuple[SuiteItem, ...]:
    return open_suite(suite.path, Suite.model_validate({"suite": "s", "limit": 999, **given}), any_gold).items


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def gsm8k_row(k: int) -> dict[str, str]:
    return {"question": f"What is {k} + 1000?", "answer": f"{k} + 1000 = <<{k}+1000={k + 1000}>>\n#### 1,{k:03}"}


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    return lambda *rows: write_lines(tmp_path / "source.jsonl", *rows)


# GSM8K


def test_gsm8k_gives_question_and_number(source: Callable[..., Path]) -> None:
    suite = converted(source(gsm8k_row(1), gsm8k_row(2)), Gsm8k())
    assert items_of(suite) == (
        SuiteItem("gsm8k-1", "1,001", "Question: What is 1 + 1000?\nAnswer:"),
        SuiteItem("gsm8k-2", "1,002", "Question: What is 2 + 1000?\nAnswer:"),
    )


def test_gsm8k_shots_come_from_the_head_which_is_not_asked(source: Callable[..., Path]) -> None:
    suite = converted(source(*map(gsm8k_row, range(4))), Gsm8k(2))
    first, second = items_of(suite)
    assert (first.id, second.id) == ("gsm8k-3", "gsm8k-4")
    assert first.prompt == (
        "Question: What is 0 + 1000?\nAnswer: 0 + 1000 = <<0+1000=1000>>\n#### 1,000\n\n"
        "Question: What is 1 + 1000?\nAnswer: 1 + 1000 = <<1+1000=1001>>\n#### 1,001\n\n"
        "Question: What is 2 + 1000?\nAnswer:"
    )


def test_gsm8k_shots_may_come_from_the_training_file(source: Callable[..., Path], tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.jsonl", *map(gsm8k_row, range(100, 110)))
    items = items_of(converted(source(*map(gsm8k_row, range(3))), Gsm8k(2, train)))
    assert len(items) == 3
    assert (items[0].prompt or "").startswith("Question: What is 100 + 1000?")
    assert (items[0].prompt or "").count("Question:") == 3


def test_gsm8k_equals_the_composition_at_load(source: Callable[..., Path], tmp_path: Path) -> None:
    rows = [gsm8k_row(k) for k in range(5)]
    suite = converted(source(*rows), Gsm8k(2))
    questions = [
        {"id": f"gsm8k-{k + 1}", "question": row["question"], "solution": row["answer"], "answer": f"1,{k:03}"}
        for k, row in enumerate(rows)
    ]
    path = write_lines(tmp_path / "questions.jsonl", *questions)
    loaded = open_suite(path, Suite.model_validate({"suite": "s", "shots": 2}), any_gold)
    assert loaded.items == items_of(suite)


def test_gsm8k_names_the_line_that_it_cannot_use(source: Callable[..., Path]) -> None:
    whole = {"question": "q", "answer": "the whole solution says 7"}
    words = {"question": "q", "answer": "#### seven"}
    nothing = {"question": "q", "answer": "x ####"}
    problems = refused(source(gsm8k_row(1), whole, {"question": "q"}, words, nothing, "{"), Gsm8k())
    assert [problem.split(";")[0] for problem in problems] == [
        ":2: answer: has no ####, after which GSM8K gives the number",
        ":3: answer: is missing",
        ":4: the answer 'seven' is no number",
        ":5: answer: is empty",
        ":6: is not JSON (Expecting property name enclosed in double quotes, column 2)",
    ]


def test_gsm8k_refuses_too_few_lines_for_its_shots(source: Callable[..., Path], tmp_path: Path) -> None:
    path = source(gsm8k_row(1))
    assert refused(path, Gsm8k(2)) == [": has 1 lines, too few for 2 shots; lower shots"]
    train = write_lines(tmp_path / "train.jsonl", gsm8k_row(1))
    with pytest.raises(SpecError, match=r"train.jsonl: has 1 lines, too few for 2 shots"):
        converted(path, Gsm8k(2, train))
    write_lines(train, "{")
    with pytest.raises(SpecError, match=r"train.jsonl:1: is not JSON"):
        converted(path, Gsm8k(2, train))


# What is written


def test_a_conversion_always_gives_the_same_bytes(source: Callable[..., Path]) -> None:
    path = source(*map(gsm8k_row, range(3)))
    first = converted(path, Gsm8k())
    before = first.path.read_bytes(), first.meta.read_bytes()
    again = converted(path, Gsm8k())
    assert (again.path.read_bytes(), again.meta.read_bytes()) == before
    assert again == first


def test_the_sidecar_says_what_the_suite_is(source: Callable[..., Path], tmp_path: Path) -> None:
    path = source(*map(gsm8k_row, range(3)))
    train = write_lines(tmp_path / "train.jsonl", gsm8k_row(7))
    suite = converted(path, Gsm8k(1, train), license=LICENSE, shots=1, others=(train,))
    assert suite.meta == tmp_path / "suite.meta.json"
    assert json.loads(suite.meta.read_text(encoding="utf-8")) == {
        "schema": "tokenwatt-suite/1",
        "suite": "suite.jsonl",
        "sha256": hashlib.sha256(suite.path.read_bytes()).hexdigest(),
        "items": 3,
        "shots": 1,
        "scorer": "numeric",
        "format": "some form",
        "sources": [
            {"file": "source.jsonl", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
            {"file": "train.jsonl", "sha256": hashlib.sha256(train.read_bytes()).hexdigest()},
        ],
        "license": LICENSE,
    }


def test_the_licence_of_other_sources_is_not_known(source: Callable[..., Path]) -> None:
    suite = converted(source(gsm8k_row(1)), Gsm8k())
    assert json.loads(suite.meta.read_text(encoding="utf-8"))["license"] == UNKNOWN_LICENSE
    assert "not known" in UNKNOWN_LICENSE


def test_a_refused_conversion_leaves_the_old_suite(source: Callable[..., Path]) -> None:
    suite = converted(source(gsm8k_row(1)), Gsm8k())
    before = suite.path.read_bytes()
    assert refused(source(gsm8k_row(1), "{"), Gsm8k())
    assert suite.path.read_bytes() == before


def test_a_file_that_is_not_ours_is_not_overwritten(source: Callable[..., Path], tmp_path: Path) -> None:
    target = tmp_path / "suite.jsonl"
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is there already, and not from here; choose another name, or remove it"):
        converted(source(gsm8k_row(1)), Gsm8k())
    assert target.read_text(encoding="utf-8") == "mine"


def test_the_source_cannot_be_the_target(source: Callable[..., Path]) -> None:
    path = source(gsm8k_row(1))
    conversion = Conversion("f", Gsm8k(), path, "numeric", number_gold)
    with pytest.raises(UsageError, match="is read and cannot be written at once"):
        convert(conversion, path)
    with pytest.raises(UsageError, match="is a directory"):
        convert(conversion, path.parent)
    with pytest.raises(UsageError, match="cannot be written"):
        convert(conversion, path / "suite.jsonl")
    convert(conversion, path.parent / "absent" / "suite.jsonl")
    assert (path.parent / "absent" / "suite.jsonl").is_file()


def test_an_empty_source_gives_no_suite(source: Callable[..., Path]) -> None:
    assert refused(source(), Gsm8k()) == [": gives no items; check the file"]
    assert refused(source().with_name("absent"), Gsm8k()) == [": there is no such file; check the path"]


# lm-eval


def lm_row(doc_id: Any, prompt: Any, target: Any, **more: Any) -> dict[str, Any]:
    arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["Question:"], "temperature": 0.0}}}
    return {"doc_id": doc_id, "doc": {}, "target": target, "arguments": arguments, "resps": [["x"]], **more}


def choice_row(doc_id: int, prompts: list[str], options: list[str], target: str) -> dict[str, Any]:
    pairs = zip(prompts, options, strict=True)
    arguments = {f"gen_args_{k}": {"arg_0": prompt, "arg_1": option} for k, (prompt, option) in enumerate(pairs)}
    return {"doc_id": doc_id, "target": target, "arguments": arguments}


def test_lm_eval_gives_the_final_prompt_and_the_target(source: Callable[..., Path]) -> None:
    path = source(lm_row(0, "Question: a\nAnswer:", "3 + 4 = 7\n#### 7"), lm_row(5, "Question: b\nAnswer:", " 8"))
    assert items_of(converted(path, read_lm_eval)) == (
        SuiteItem("0", "7", "Question: a\nAnswer:"),
        SuiteItem("5", "8", "Question: b\nAnswer:"),
    )


def test_lm_eval_logs_a_line_for_each_filter_and_it_is_asked_once(source: Callable[..., Path]) -> None:
    rows = [lm_row(k, f"p{k}", str(k), filter=name) for name in ("strict-match", "flexible-extract") for k in range(3)]
    assert [item.id for item in items_of(converted(source(*rows), read_lm_eval))] == ["0", "1", "2"]


def test_lm_eval_ids_of_two_runs_clash(source: Callable[..., Path]) -> None:
    assert refused(source(lm_row(0, "p", "1"), lm_row(0, "p", "2")), read_lm_eval) == [
        ":2: doc_id: came before with another prompt or target; give the log of one task and run",
    ]


def test_lm_eval_conversations_become_messages(source: Callable[..., Path]) -> None:
    turns = [{"role": "user", "content": "2 + 2?"}]
    path = source(lm_row(0, [json.dumps(turns)], "4"), lm_row(1, json.dumps(turns), "4"), lm_row(2, turns, "4"))
    assert [item.messages for item in items_of(converted(path, read_lm_eval), api="chat")] == [tuple(turns)] * 3


def test_lm_eval_prompts_that_only_look_like_conversations_stay_prompts(source: Callable[..., Path]) -> None:
    path = source(lm_row(0, "[{x", "4"), lm_row(1, '[{"a": 1}]', "4"))
    assert [item.prompt for item in items_of(converted(path, read_lm_eval))] == ["[{x", '[{"a": 1}]']


def test_lm_eval_wrote_arguments_as_lists_once(source: Callable[..., Path]) -> None:
    row = {"doc_id": 0, "target": 3, "arguments": [["p", {"until": []}]]}
    assert items_of(converted(source(row), read_lm_eval)) == (SuiteItem("0", "3", "p"),)


def test_lm_eval_choices_that_the_prompt_shows_can_be_asked(source: Callable[..., Path]) -> None:
    prompt = "Sky?\nA. blue\nB. red\nAnswer:"
    rows = [choice_row(k, [prompt] * 2, [" A", " B"], target) for k, target in enumerate(["1", "A"])]
    items = items_of(converted(source(*rows), read_lm_eval, check_gold=any_gold))
    assert [(item.prompt, item.choices, item.answer) for item in items] == [
        (prompt, ("A", "B"), "B"),
        (prompt, ("A", "B"), "A"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (choice_row(0, ["Sky?"] * 2, [" blue", " red"], "0"), "scores options by likelihood that the prompt does not"),
        (choice_row(0, ["x", "y"], [" x", " y"], "0"), "compares prompts, not answers to one prompt"),
        (choice_row(0, ["A B"] * 2, [" A", " B"], "2"), "has a target that is none of its options"),
    ],
)
def test_lm_eval_choices_that_cannot_be_asked_are_refused(
    source: Callable[..., Path], row: dict[str, Any], message: str
) -> None:
    (problem,) = refused(source(row), read_lm_eval)
    assert problem.startswith(f":1: arguments: {message}")


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"question": "q", "answer": "a"}, "doc_id"),
        ({"doc_id": 1, "arguments": {"gen_args_0": {"arg_0": "p"}}}, "target"),
        (lm_row(0, "p", "1", arguments={}), "arguments"),
        (lm_row(0, "p", "1", arguments={"gen_args_0": {}}), "arguments"),
        (lm_row(0, "p", "1", arguments="p"), "arguments"),
    ],
)
def test_lm_eval_logs_are_told_from_other_files(source: Callable[..., Path], row: Any, key: str) -> None:
    (problem,) = refused(source(row), read_lm_eval)
    assert problem.startswith(f":1: {key}: is missing, or not of lm-eval's form; give the samples_*.jsonl")


def test_lm_eval_golds_must_be_scorable(source: Callable[..., Path]) -> None:
    assert refused(source(lm_row(0, "p", "yes")), read_lm_eval) == [
        ":1: the answer 'yes' is no number; correct the line, which must suit the scorer numeric",
    ]


# CSV


def test_csv_needs_prompt_and_answer_only(source: Callable[..., Path]) -> None:
    path = source("prompt,answer", "1 + 1 =,2", '"a, b\nand ""c""?",3')
    assert items_of(converted(path, read_csv)) == (
        SuiteItem("1", "2", "1 + 1 ="),
        SuiteItem("2", "3", 'a, b\nand "c"?'),
    )


def test_csv_takes_every_column_of_a_suite(source: Callable[..., Path]) -> None:
    path = source(
        "\ufeffid, answer,prompt,choices,domain,template,x-note",
        "q1,2,p,2|3 | 4,sums,t,hello",
        'q2,2,p,"[""2"", ""a|b""]",,,',
        "q3,2,p,,,,",
        "",
    )
    assert items_of(converted(path, read_csv)) == (
        SuiteItem("q1", "2", "p", None, ("2", "3", "4"), "sums", "t"),
        SuiteItem("q2", "2", "p", None, ("2", "a|b")),
        SuiteItem("q3", "2", "p"),
    )


def test_csv_with_windows_ends_and_a_megabyte_in_a_cell(source: Callable[..., Path]) -> None:
    path, limit = source(f"prompt,answer\r\n{'x' * 2**20},2\r"), csv.field_size_limit()
    assert len(items_of(converted(path, read_csv))[0].prompt or "") == 2**20
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["question,answer"], ":1: prompt: there is no such column; name the columns in the first line, with commas:"),
        (["prompt,answer,domian"], ":1: domian: unknown column; did you mean domain?"),
        (["prompt,answer,"], ":1: a column without name: unknown column; known: prompt, answer"),
        (["prompt,answer,answer"], ":1: answer: is there twice; remove one of the columns"),
        (["prompt,answer", "p"], ':2: has 1 cells less than there are columns; put text with commas in "quotes"'),
        (["prompt,answer", '"a\nb",1', "p,1,2"], ":4: has 1 cells more than there are columns; "),
        (["prompt,answer", ",1"], ":2: prompt: is empty; "),
        (["prompt,answer,id", "p,1, "], ":2: id: is empty; "),
        (["prompt,answer,id", "p,1,a", "p,2,a"], ":3: id: is that of line 2, too; ids must differ"),
        (["prompt,answer,choices", "p,1,[1"], ":2: choices: is no JSON list; separate the options by |"),
        (["prompt,answer,choices", "p,1,1"], ":2: choices: must be a list of at least two texts"),
        (["prompt,answer", "p,one"], ":2: the answer 'one' is no number; "),
        (["prompt,answer", 'p,"1'], ":2: is not CSV (unexpected end of data); "),
        (["prompt,answer"], ": gives no items; check the file"),
        ([], ": gives no items; check the file"),
    ],
)
def test_csv_says_what_is_wrong_where(source: Callable[..., Path], lines: list[str], message: str) -> None:
    (problem,) = refused(source(*lines), read_csv)
    assert problem.startswith(message)


def test_csv_must_be_utf_8(source: Callable[..., Path]) -> None:
    path = source()
    path.write_bytes("prompt,answer\né,1\n".encode("latin-1"))
    assert refused(path, read_csv) == [": is not UTF-8; save it as UTF-8"]
    path.write_bytes("prompt,answer\np,1\n".encode("utf-16"))
    assert refused(path, read_csv) == [": is UTF-16; save it as UTF-8"]
    assert refused(path.with_name("absent"), read_csv) == [": there is no such file; check the path"]


# Anything


READERS: list[ReadRows] = [read_csv, read_lm_eval, Gsm8k(), Gsm8k(1)]
NEAR = st.sampled_from(["prompt,answer,choices", 'p,1,"[', '{"question": "q", "answer": "#### 1"}', "p,1,1|2", "\x00"])
NEAR_LM = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["arg_0", "arg_1"]), inner),
    max_leaves=5,
).map(lambda value: json.dumps({"doc_id": 1, "target": "1", "arguments": value}))


@given(st.sampled_from(READERS), st.lists(st.text(max_size=30) | NEAR | NEAR_LM, max_size=4))
def test_no_source_gives_anything_but_a_suite_or_problems(
    tmp_path_factory: pytest.TempPathFactory, read: ReadRows, lines: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "source.txt"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    try:
        suite = converted(path, read, check_gold=any_gold)
    except SpecError:
        return
    api = "chat" if '"messages"' in suite.path.read_text(encoding="utf-8") else "completions"
    assert len(items_of(suite, api=api)) == suite.items


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_csv_cells_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("prompt", "answer"), *pairs])
    items = items_of(converted(path, read_csv, check_gold=any_gold))
    assert [(item.prompt, item.answer) for item in items] == pairs
