"""What is wrong with prompts and texts of drift is said before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.drift_plan import problems
from pytest_tokenwatt.spec.load import load_spec

SPEC = """
engine: {endpoint: "http://127.0.0.1:8000/v1", model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
"""
LINE = json.dumps({"id": "1", "prompt": "How many?", "answer": "1"})


def found(tmp_path: Path, blocks: str, prompts: str = LINE, text: bytes = b"a text") -> list[str]:
    (tmp_path / "prompts.jsonl").write_text(prompts, encoding="utf-8")
    (tmp_path / "text.txt").write_bytes(text)
    (tmp_path / "lab.yaml").write_text(SPEC + blocks, encoding="utf-8")
    return [str(problem) for problem in problems(load_spec(tmp_path / "lab.yaml"))]


@pytest.mark.parametrize(
    "blocks", ["drift: {prompts: prompts.jsonl}", "drift: {}\naccuracy: [{suite: prompts.jsonl, max_drop_pts: 1}]"]
)
def test_prompts_of_a_file_and_of_suites_are_read(tmp_path: Path, blocks: str) -> None:
    assert found(tmp_path, blocks) == []
    (broken,) = found(tmp_path, blocks, prompts=f"{LINE}\nnonsense\n")
    assert "prompts.jsonl:2" in broken
    (empty,) = found(tmp_path, blocks, prompts="\n")
    assert "it has no prompt" in empty


def test_a_text_must_be_utf_8(tmp_path: Path) -> None:
    blocks = "drift: {prompts: prompts.jsonl, perplexity: [{name: river, file: text.txt}]}"
    assert found(tmp_path, blocks) == []
    (broken,) = found(tmp_path, blocks, text=b"caf\xe9")
    assert "text.txt" in broken
    assert "give a file in UTF-8" in broken


def test_an_absent_file_is_not_told_twice(tmp_path: Path) -> None:
    assert found(tmp_path, "drift: {prompts: absent.jsonl, perplexity: [{name: river, file: absent.txt}]}") == []
