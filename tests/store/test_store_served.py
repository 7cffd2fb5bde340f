"""Stored outputs of timed runs: what is written is read, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records.audit import Served
from pytest_tokenwatt.store.served_npz import read_served, write_served

SERVED = (
    Served("serve-r0/3", (5, 151_935, 7), (1, 2, 2), 3, True),
    Served("serve-r0/ü", (1, 2), (), 256, False),
    Served("", (0,), (2**31 - 1,), 1, True),
)

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=20).map(tuple)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "served.npz"
    write_served(path, SERVED)
    assert read_served(path) == SERVED
    assert [each.name for each in tmp_path.iterdir()] == ["served.npz"]
    write_served(path, ())
    assert read_served(path) == ()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.builds(Served, st.text(), IDS, IDS, st.integers(1, 2**20), st.booleans()), max_size=5))
def test_whatever_is_written_is_read(tmp_path: Path, served: list[Served]) -> None:
    write_served(tmp_path / "any.npz", served)
    assert read_served(tmp_path / "any.npz") == tuple(served)


def test_it_is_compact_and_holds_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "served.npz"
    numbers = np.random.default_rng(1)
    prompts = numbers.integers(0, 150_000, (24, 8192)).tolist()
    write_served(
        path, [Served(str(at), tuple(prompt), tuple(prompt[:512]), 512, True) for at, prompt in enumerate(prompts)]
    )
    assert path.stat().st_size < 24 * (8192 + 512) * 4
    with np.load(path, allow_pickle=False) as columns:
        assert {str(columns[name].dtype) for name in columns.files} <= {"int32", "int64", "bool", "uint8"}


def test_an_id_that_is_none_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        write_served(tmp_path / "served.npz", [Served("a", (2**31,), (), 1, True)])
    assert not list(tmp_path.iterdir())


def test_an_absent_file_is_told_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.npz: .*No such file.*time the configuration anew"):
        read_served(tmp_path / "absent.npz")


def test_damaged_files_are_told_whatever_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "served.npz"
    write_served(path, SERVED)
    data = path.read_bytes()
    damaged = [b"", b"PK", b"no zip at all", data[: len(data) // 2], data[:-5]]
    damaged += [data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(0, len(data), 7)]
    told = [outcome(path, each) for each in damaged]
    assert set(told) <= {"same", "told"}  # dates and the like may be damaged without harm
    assert told.count("told") > len(told) // 2


def outcome(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        return "same" if read_served(path) == SERVED else "another"
    except UsageError as error:
        line = str(error)
        return "told" if "time the configuration anew" in line and "\n" not in line else line


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("meta", np.frombuffer(b'{"schema": "other/1"}', dtype=np.uint8)),
        ("meta", np.frombuffer(b"[]", dtype=np.uint8)),
        ("names", np.frombuffer(b'["one"]', dtype=np.uint8)),
        ("prompt_offset", np.array([0, 9, 5, 6])),
        ("prompt_offset", np.array([1, 3, 5, 6])),
        ("output_offset", np.array([], dtype=np.int64)),
        ("max_tokens", np.zeros(7, dtype=np.int64)),
    ],
)
def test_files_that_do_not_add_up_are_refused(tmp_path: Path, column: str, value: np.ndarray) -> None:
    path = tmp_path / "served.npz"
    write_served(path, SERVED)
    with np.load(path) as columns:
        kept = dict(columns)
    np.savez(path, **{**kept, column: value})
    with pytest.raises(UsageError, match="damaged, or no file of tokenwatt-served/1"):
        read_served(path)
