"""Files are whole or absent, and hold no number that JSON does not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.store.atomic import dump_json, write_json, write_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_json_text_reads_back_and_ends_its_line(value: Any) -> None:
    text = dump_json(value)
    assert json.loads(text) == value
    assert text.endswith("\n")


def test_keys_keep_their_order_and_letters_stay_readable() -> None:
    text = dump_json({"z": "median 1,024 · p90", "a": 1}, indent=None)
    assert text == '{"z": "median 1,024 · p90", "a": 1}\n'


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_by_its_place(bad: float, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(ValueError, match=r"report\.json: configs\[1\]\.mbu_pct is not a finite number"):
        write_json(path, {"configs": [{"mbu_pct": 1.0}, {"mbu_pct": bad}]})
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "first, longer")
    write_text(path, "second")
    assert path.read_text(encoding="utf-8") == "second"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_sibling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_tokenwatt.store.atomic.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_bytes_that_are_no_text_stay_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"argument": b"caf\xe9".decode("utf-8", "surrogateescape")})
    assert json.loads(path.read_text(encoding="utf-8")) == {"argument": "caf\udce9"}


def test_others_may_read_a_written_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    expected = path.stat().st_mode
    path.unlink()
    write_text(path, "text")
    assert path.stat().st_mode == expected
