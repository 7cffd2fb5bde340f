"""Which prompts drift takes, and how another tokenizer is found out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pytest_tokenwatt.campaign.drift_prompts import drift_prompts, probe_texts, tokenised, tokenizer_fault
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import SuiteItem
from pytest_tokenwatt.spec.load import load_spec

SPEC = """
engine: {endpoint: "http://127.0.0.1:8000/v1", model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
"""


def lines(path: Path, name: str, count: int) -> None:
    items = [{"id": f"{name}{number}", "prompt": f"{name} {number}?", "answer": "1"} for number in range(count)]
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")


def ids(tmp_path: Path, blocks: str, most: int) -> list[str]:
    lines(tmp_path / "long.jsonl", "l", 9)
    lines(tmp_path / "short.jsonl", "s", 2)
    (tmp_path / "lab.yaml").write_text(SPEC + blocks, encoding="utf-8")
    return [item.id for item in drift_prompts(load_spec(tmp_path / "lab.yaml"), most)]


def test_without_a_file_suites_take_turns(tmp_path: Path) -> None:
    blocks = "drift: {}\naccuracy: [{suite: long.jsonl, limit: 3}, {suite: short.jsonl}]"
    assert ids(tmp_path, blocks, 7) == ["l0", "s0", "l1", "s1", "l2", "l3", "l4"]
    assert len(ids(tmp_path, blocks, 99)) == 11


def test_a_file_is_taken_alone(tmp_path: Path) -> None:
    blocks = "drift: {prompts: short.jsonl}\naccuracy: [{suite: long.jsonl}]"
    assert ids(tmp_path, blocks, 7) == ["s0", "s1"]


def test_probes_are_beginnings_of_prompts() -> None:
    chat = SuiteItem("c", "", messages=({"role": "user", "content": "one"}, {"role": "user", "content": "two"}))
    long = [SuiteItem(str(number), "", prompt=f"{number}" + "x" * 1000) for number in range(20)]
    assert probe_texts([chat, chat, SuiteItem("e", "", prompt="")]) == ["one\ntwo"]
    assert [len(text) for text in probe_texts(long)] == [400] * 8


def test_another_tokenizer_is_told_by_an_example() -> None:
    fault, unchecked = tokenizer_fault({"a text": (1, 2), "b": (3,)}, {"a text": (1, 9), "b": (3,)})
    assert unchecked is None
    assert fault is not None
    assert fault.code == "other_tokenizer"
    assert "1 of 2 prompts have other token ids than the baseline's, such as 'a text'" in fault.text
    assert tokenizer_fault({"b": (3,)}, {"b": (3,)}) == (None, None)


def test_a_server_that_does_not_tokenise_is_not_checked_and_it_is_said() -> None:
    async def absent(_text: str) -> tuple[int, ...]:
        raise EngineError("engine_http_error", "404")

    assert asyncio.run(tokenised(absent, ["a"])) == {}
    assert tokenizer_fault({"a": (1,)}, {})[1] == (
        "whether it has the baseline's tokenizer is not checked: the server has no /tokenize"
    )
    assert "the baseline has no /tokenize" in (tokenizer_fault({}, {})[1] or "")
