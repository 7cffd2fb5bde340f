"""The file itself: encodings, broken YAML, duplicates, anchors, bombs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from spec_texts import complaints, load

from pytest_tokenwatt.errors import SpecError
from pytest_tokenwatt.spec.load import load_spec

BASE = "engine: {endpoint: 'http://127.0.0.1:8000/v1'}\n"


def file_complaint(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(path, {})
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "spec.yaml: the file is empty; start with a mapping such as"),
        ("# only a comment\n", "spec.yaml: the file is empty"),
        ("null\n", "spec.yaml: the file is empty"),
        ("- a\n- b\n", "spec.yaml:1: the file holds a list, and a spec is one mapping; start with"),
        ("\njust text\n", "spec.yaml:2: the file holds a single value"),
        (BASE + "name: a\nname: b\n", "spec.yaml:3: name: is written twice, first in line 2; keep one of them"),
        (BASE + "sweep: {growth: 2,\n  growth: 3}\n", "spec.yaml:3: sweep.growth: is written twice, first in line 2"),
        (
            BASE + "sweep:\n\tgrowth: 2\n",
            "spec.yaml:3: is not valid YAML: a tab where YAML wants spaces; indent with spaces",
        ),
        (BASE + "title: a: b\n", "spec.yaml:2: is not valid YAML: mapping values are not allowed"),
        (BASE + "title: 'open\n", "spec.yaml:3: is not valid YAML:"),
        (BASE + "sweep: {growth: ${G}}\n", "spec.yaml:2: is not valid YAML:"),
        (BASE + "title: *nobody\n", "spec.yaml:2: is not valid YAML: found undefined alias"),
        (BASE + "title: a\x01b\n", "spec.yaml:2: is not valid YAML: a control character is not allowed"),
        (BASE + "---\n" + BASE, "spec.yaml:2: a second document starts here; keep one spec a file"),
        (
            BASE + "title: !!python/object/apply:os.system [x]\n",
            "spec.yaml:2: title: the YAML tag !!python/object/apply:os.system is not allowed",
        ),
        (BASE + "title: !mine x\n", "spec.yaml:2: title: the YAML tag !mine is not allowed"),
        (BASE + "sweep: {growth: !!int x}\n", "spec.yaml:2: sweep.growth: is not an int that can be read"),
        (BASE + "? [a, b]\n: c\n", "spec.yaml:2: a key must be a text, not a list or a mapping"),
        (BASE + "<<: 3\n", "spec.yaml:2: <<: must merge a mapping or a list of mappings; write <<: *anchor"),
        (BASE + "x-a: " + "[" * 60 + "]" * 60, "spec.yaml:2: is nested more than 40 levels deep"),
        (BASE + "x-a: &a [*a]\n", "spec.yaml:2: is nested more than 40 levels deep; an alias holds itself?"),
        (BASE + "x-a: &a {<<: *a}\n", "spec.yaml:2: is nested more than 40 levels deep; an alias holds itself?"),
        (BASE + 'title: "\\ud83d"\n', "spec.yaml:2: "),
    ],
)
def test_a_file_that_is_no_spec(text: str, line: str) -> None:
    (found,) = complaints(text)
    assert found.startswith(line)


def test_an_alias_bomb_ends_at_once() -> None:
    levels = [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    began = time.process_time()
    (line,) = complaints(BASE + "x-0: &a0 [lol]\n" + "\n".join(levels) + "\n")
    assert "unfolds to more than 20,000 values" in line
    assert time.process_time() - began < 10


def test_a_merge_bomb_ends_at_once() -> None:
    levels = [f"x-{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    (line,) = complaints(BASE + "x-0: &a0 {b: c}\n" + "\n".join(levels) + "\n")
    assert "unfolds to more than 20,000 values" in line


def test_anchors_and_merge_keys() -> None:
    spec = load(
        "x-window: &window\n  window_s: 30\n  repeats: 4\n"
        "x-more: &more {repeats: 9, warmup_s: 1}\n"
        "x-endpoint: &e http://h:1/v1\n"
        "measurement:\n  <<: [*window, *more]\n  window_s: 60\n"
        "engine: {endpoint: *e}\n"
    )
    assert spec.measurement.window_s == 60
    assert spec.measurement.repeats == 4
    assert spec.measurement.warmup_s == 1
    assert spec.line("measurement", "window_s") == 8
    assert spec.line("measurement", "repeats") == 3
    assert spec.configurations[0].engine.endpoint == "http://h:1/v1"


def test_scalars_are_those_of_yaml_1_2() -> None:
    spec = load(
        "engine:\n  command: [serve, -p, 8000:8000, no, 0x10, 1_000, 2026-11-30, '{port}']\n"
        "title: no\nmeasurement: {window_s: 1e2, repeats: 0o2}\ngates: {kl: {mode: off}, on_inconclusive: skip}\n"
        "configs: [{key: on, label: NO}]\nnot_covered: [y, 'null', 12:30:45]\n"
    )
    assert spec.configurations[0].engine.command == (
        "serve",
        "-p",
        "8000:8000",
        "no",
        "0x10",
        "1_000",
        "2026-11-30",
        "{port}",
    )
    assert (spec.title, spec.measurement.window_s, spec.measurement.repeats) == ("no", 100, 2)
    assert spec.gates.kl.mode == "off"
    assert (spec.configurations[0].key, spec.configurations[0].label) == ("on", "NO")
    assert spec.not_covered == ("y", "null", "12:30:45")


def test_notes_may_stand_in_any_mapping() -> None:
    spec = load(
        "$schema: a\nx-a: ${NOT_SET\nengine: {endpoint: 'http://h/v1', x-b: 1, extra_body: {x-c: 1}}\n"
        "gates: {rules: [{name: a, metric: b, max: 1, x-d: [2]}], x-e: 1}\nslo: {ttft_p99_ms: 1, x-f: 2}\n"
        "profiles: {serve: {x-g: 1}, x-h: 1}\nconfigs: [{key: a, x-i: 1, engine: {x-j: 1}}]\n"
    )
    assert spec.configurations[0].engine.extra_body == {"x-c": 1}
    assert spec.raw["x-a"] == "${NOT_SET"
    assert list(spec.profiles) == ["serve"]


# --- files


def test_a_byte_order_mark_is_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.encode())
    assert load_spec(path, {}).line("engine") == 1


def test_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes((BASE + "title: a\nname: b\n").replace("\n", "\r\n").encode())
    assert load_spec(path, {}).line("name") == 3


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"a: b\nname: \xff\n", ":2: is not UTF-8 text; save the file as UTF-8"),
        (b"\xff\xfea\x00:\x00", ":1: is not UTF-8 text"),
        (b"a: \x00\n", ":1: is not valid YAML: a control character is not allowed"),
        (b"#" * (10 << 20), ": has 10,485,760 bytes, more than a spec can need (1,048,576); is it a spec?"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(data)
    assert file_complaint(path).startswith(f"{path}{complaint}")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text(BASE, encoding="utf-8")
    assert file_complaint(tmp_path) == f"{tmp_path}: is a directory; name a spec file"
    missing = tmp_path / "quickstat.yaml"
    assert file_complaint(missing) == f"{missing}: no such file; did you mean {tmp_path / 'quickstart.yaml'}?"
    assert "there is no directory" in file_complaint(tmp_path / "none" / "a.yaml")
    assert "no such file" in file_complaint(tmp_path / "nothing-like-it.yaml")
    assert "no such file" in file_complaint(Path("a\0b"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec.yaml")
    assert "is not a regular file" in file_complaint(tmp_path / "spec.yaml")


def test_json_with_tabs_and_escaped_characters(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    text = (
        '{\n\t"engine": {\n\t\t"endpoint": "http:\\/\\/h\\/v1"\n\t},\n\t"title": "\\ud83d\\ude80 \\u2014 \\\\ud83d"\n}'
    )
    path.write_text(text, encoding="utf-8")
    spec = load_spec(path, {})
    assert spec.title == "🚀 — \\ud83d"
    assert spec.configurations[0].engine.endpoint == "http://h/v1"
    assert spec.line("engine", "endpoint") == 3
    path.write_text('{"sweep": {"growth": NaN}}', encoding="utf-8")
    assert file_complaint(path).endswith(":1: sweep.growth: must be a number, not the text 'NaN'")


def test_the_path_in_messages_is_the_one_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text("zzz: 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert file_complaint(Path("bad.yaml")).startswith("bad.yaml:1: zzz: unknown key")
