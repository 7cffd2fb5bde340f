"""Stored log-probabilities: what is written is read, and nothing else is."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import drift
from pytest_tokenwatt.store.topk_npz import StoredTopK, read_topk, write_topk

SEQUENCES = (drift.Sequence("a/0", (5, 151_935, 7), 1), drift.Sequence("ü/1", (1, 2), 1))
TOPS = (
    drift.TopK(2, array("i", [9, 4, 3, -1]), array("f", [-0.5, -math.inf, -0.25, math.nan]), array("f", [-0.5, -3.0])),
    drift.TopK(2, array("i", [1, 2]), array("f", [-1.0, -1.5]), array("f", [math.nan])),
)
STORED = StoredTopK(SEQUENCES, TOPS, "ab" * 32, "Qwen/Qwen3", 2, "vllm-0.32.0-1c75e167")


def as_bytes(stored: StoredTopK) -> list[bytes]:
    return [part.tobytes() for top in stored.tops for part in (top.ids, top.logprobs, top.chosen)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "topk.npz"
    write_topk(path, STORED)
    found = read_topk(path)
    assert found.sequences == SEQUENCES
    assert as_bytes(found) == as_bytes(STORED)
    assert replace(found, tops=()) == replace(STORED, tops=())
    assert [each.name for each in tmp_path.iterdir()] == ["topk.npz"]


def test_probes_are_kept_and_older_files_have_none(tmp_path: Path) -> None:
    path = tmp_path / "topk.npz"
    stored = replace(STORED, probes={"Wie viele?\n": (3, 1), "ü": ()})
    write_topk(path, stored)
    assert read_topk(path).probes == stored.probes
    with np.load(path, allow_pickle=False) as columns:
        content = dict(columns)
    meta = json.loads(content["meta"].tobytes())
    del meta["probes"]
    np.savez(path, **{**content, "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)})
    assert read_topk(path).probes == {}


def test_sequences_alone_and_nothing_at_all(tmp_path: Path) -> None:
    path = tmp_path / "topk.npz"
    for stored in (replace(STORED, tops=()), replace(STORED, sequences=(), tops=())):
        write_topk(path, stored)
        assert read_topk(path) == stored


def test_it_is_compact_and_holds_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "topk.npz"
    numbers = np.random.default_rng(1)
    top = drift.TopK(
        20,
        array("i", numbers.integers(0, 150_000, 256 * 20).astype(np.int32).tobytes()),
        array("f", numbers.normal(size=256 * 20).astype(np.float32).tobytes()),
        array("f", numbers.normal(size=256).astype(np.float32).tobytes()),
    )
    sequence = drift.Sequence("s", tuple(range(257)), 1)
    write_topk(path, StoredTopK((sequence,) * 8, (top,) * 8, "", "m", 20, ""))
    assert path.stat().st_size < 8 * 256 * (20 * 8 + 8)
    with np.load(path, allow_pickle=False) as columns:
        assert {str(columns[name].dtype) for name in columns.files} <= {"int32", "int64", "float32", "uint8"}


@pytest.mark.parametrize(
    "wrong",
    [replace(STORED, tops=TOPS[:1]), replace(STORED, k=3)],
)
def test_scores_must_belong_to_the_sequences(tmp_path: Path, wrong: StoredTopK) -> None:
    with pytest.raises(ValueError, match=r"scores"):
        write_topk(tmp_path / "topk.npz", wrong)
    assert not list(tmp_path.iterdir())


def test_an_absent_file_is_told_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.npz: .*No such file.*run the baseline again"):
        read_topk(tmp_path / "absent.npz")


def test_damaged_files_are_told_whatever_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "topk.npz"
    write_topk(path, STORED)
    data = path.read_bytes()
    damaged = [b"", b"PK", b"no zip at all", data[: len(data) // 2], data[:-5]]
    damaged += [data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(0, len(data), 7)]
    told = [outcome(path, each) for each in damaged]
    assert set(told) <= {"same", "told"}  # dates and the like may be damaged without harm
    assert told.count("told") > len(told) // 2


def outcome(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        return "same" if as_bytes(read_topk(path)) == as_bytes(STORED) else "another"
    except UsageError as error:
        return "told" if "run the baseline again" in str(error) else str(error)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("meta", np.frombuffer(b'{"schema": "other/1"}', dtype=np.uint8)),
        ("id_offset", np.array([0, 9, 5])),
        ("id_offset", np.array([1, 3, 5])),
        ("position_offset", np.array([], dtype=np.int64)),
        ("top_ids", np.zeros((3, 5), dtype=np.int32)),
        ("prompt", np.zeros(7, dtype=np.int32)),
    ],
)
def test_files_that_do_not_add_up_are_refused(tmp_path: Path, column: str, value: np.ndarray) -> None:
    path = tmp_path / "topk.npz"
    write_topk(path, STORED)
    with np.load(path) as columns:
        kept = dict(columns)
    np.savez(path, **{**kept, column: value})
    with pytest.raises(UsageError, match="damaged, or no file of tokenwatt-topk/1"):
        read_topk(path)
