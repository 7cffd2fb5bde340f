"""Replays of published reports: what is stored is shown, what is not says so, and nothing is made up."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from leaf_differences import differences
from schema_samples import REFERENCE, faults

from pytest_tokenwatt.replay import open_replay
from pytest_tokenwatt.report.html.material import Material
from pytest_tokenwatt.report.html.render import render_html
from pytest_tokenwatt.report.markdown import render_markdown
from pytest_tokenwatt.report.stored_reasons import NOBODY_TOLD

FILES = sorted(each.stem for each in REFERENCE.glob("*.json"))
LAB, SUBMISSION = "lab-kv-cache", "submission-fp8-chunked-prefill"


@cache
def replayed(name: str, folder: Path) -> dict[str, Any]:
    lab = open_replay([REFERENCE / f"{name}.json"], out=folder)
    for gate in lab.gates:
        lab.judge(gate)
    done = lab.finish()
    assert done is not None
    report: dict[str, Any] = json.loads(json.dumps(done.report, allow_nan=False))
    return report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("foreign")


def explained(value: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Every reason of the report: its path, the block that it is in, and what it says."""
    if isinstance(value, Mapping):
        for name, why in (value.get("missing") or {}).items():
            yield name, value, why
        for key, inner in value.items():
            yield from explained(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from explained(inner, path)


def at(block: Any, path: str) -> Any:
    for key in path.split("."):
        block = block.get(key, "absent") if isinstance(block, Mapping) else "absent"
    return block


@pytest.mark.parametrize("name", FILES)
def test_only_what_is_null_has_a_reason_and_it_is_not_of_a_run(name: str, folder: Path) -> None:
    report = replayed(name, folder)
    found = list(explained(report["configs"]))
    assert [path for path, block, _ in found if at(block, path) not in (None, "absent", {"status": "missing"})] == []
    assert [(path, why) for path, _, why in found if why in NOBODY_TOLD or not why] == []
    assert faults(report) == []


def test_latencies_and_power_without_a_rate_are_shown(folder: Path) -> None:
    stored = json.loads((REFERENCE / f"{LAB}.json").read_text(encoding="utf-8"))["configs"]
    for before, after in zip(stored, replayed(LAB, folder)["configs"], strict=True):
        for name in ("ttft_p99_ms", "tpot_p99_ms", "node_power_kw", "goodput_tok_s", "mbu_pct", "throttle_counts"):
            assert after[name] == before[name]
            assert name not in after["missing"]
        assert list(after["intervals"]) == ["rate_rps"]


def test_how_something_was_scored_or_read_is_unknown_and_not_zero(folder: Path) -> None:
    baseline, tuned = (entry["kl"] for entry in replayed(SUBMISSION, folder)["configs"])
    for name in ("route", "k", "decode_tokens"):
        assert (tuned[name], tuned["missing"][name]) == (None, "not stored")
        assert baseline[name] is None
    assert (tuned["sequences"], tuned["tokens"], baseline["sequences"]) == (256, 62197, None)
    power = replayed(LAB, folder)["configs"][0]["power"][0]
    assert [power[name] for name in ("ticks", "missed", "failed")] == [None, None, None]
    assert replayed(LAB, folder)["configs"][0]["throttle_samples"] is None


def test_an_error_that_is_not_stored_is_no_interval(folder: Path) -> None:
    assert replayed(SUBMISSION, folder)["configs"][1]["intervals"] == {}


@pytest.mark.parametrize("name", FILES)
def test_what_replays_of_replays_find_is_the_same(name: str, folder: Path, tmp_path: Path) -> None:
    """Unknown stays unknown, and an error without a field still counts as 0."""
    first = replayed(name, folder)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(first), encoding="utf-8")
    lab = open_replay([path], out=tmp_path / "out")
    verdicts = {f"{gate.config}::{gate.gate}": lab.judge(gate).verdict for gate in lab.gates}
    found = {f"{gate['config']}::{gate['gate']}": gate["verdict"] for gate in first["gates"]}
    assert verdicts == found
    done = lab.finish()
    assert done is not None
    assert differences(first["configs"], json.loads(json.dumps(done.report))["configs"]) == []


def text_of(page: str) -> str:
    bare = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", page, flags=re.S)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", bare)))


@pytest.mark.parametrize("name", FILES)
def test_no_words_are_empty_or_made_up(name: str, folder: Path) -> None:
    report = replayed(name, folder)
    page = render_html(report, Material())
    for text in (text_of(page), render_markdown(report)):
        for wrong in ("± 0.0 %", " n 0 ", "0 of 1", "was not measured", "no_token_counts", "no rate was confirmed"):
            assert wrong not in text
        assert not re.search(r"\[([\d.]+), \1\]", text)
    assert not re.search(r"<tr>\s*(<th[^>]*>[^<]*</th>)\s*</tr>", page), "a table with nothing but names"
