from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.board import Board
from pytest_tokenwatt.power.gpus import Choice, GpuQuery, choose_gpus

A = Board("GPU-aaaa1111-0000", "H100", "00000000:10:00.0", frozenset())
B = Board("GPU-aabb2222-0000", "H100", "00000000:11:00.0", frozenset())
C = Board("GPU-cccc3333-0000", "H100", "00000000:12:00.0", frozenset())
D = Board("GPU-dddd4444-0000", "H100", "00000000:13:00.0", frozenset())
MACHINE = (A, B, C, D)
ENGINE = 4321
STRANGER = 99


def busy(board: Board, *pids: int) -> Board:
    return replace(board, pids=frozenset(pids))


def choose(
    *boards: Board,
    expected: int = 1,
    listed: tuple[str, ...] | None = None,
    environ: Mapping[str, str] | None = None,
    pids: frozenset[int] | None = frozenset({ENGINE}),
) -> Choice:
    return choose_gpus(boards or MACHINE, GpuQuery(listed, expected, environ or {}, lambda: pids))


def refusal(*boards: Board, expected: int = 1, listed: tuple[str, ...] | None = None, cuda: str | None = None) -> str:
    environ = {} if cuda is None else {"CUDA_VISIBLE_DEVICES": cuda}
    with pytest.raises(PowerError) as caught:
        choose(*boards, expected=expected, listed=listed, environ=environ)
    assert caught.value.reason == "gpu_count_mismatch"
    return str(caught.value)


def test_the_spec_wins_over_everything() -> None:
    choice = choose(
        busy(A, ENGINE), B, C, listed=("GPU-cccc", B.uuid), expected=7, environ={"CUDA_VISIBLE_DEVICES": "0"}
    )
    assert choice == Choice((C.uuid, B.uuid), "listed in hardware.gpus")


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("GPU-9999", f"'GPU-9999' is no GPU of this machine; there are {A.uuid} (H100), {B.uuid} (H100)"),
        ("GPU-aa", f"'GPU-aa' fits several GPUs; there are {A.uuid} (H100), {B.uuid} (H100)"),
        (" ", "' ' is no GPU of this machine"),
    ],
)
def test_a_listed_gpu_that_is_not_one_is_refused_with_those_there_are(identifier: str, words: str) -> None:
    assert words in refusal(listed=(identifier,))


def test_the_engines_processes_tell() -> None:
    choice = choose(busy(A, STRANGER), B, busy(C, STRANGER, ENGINE), D)
    assert choice == Choice((C.uuid,), "the GPUs that the engine's processes compute on")


def test_the_engines_processes_beat_visible_gpus_of_the_right_number() -> None:
    assert choose(A, busy(B, ENGINE), environ={"CUDA_VISIBLE_DEVICES": "1"}).uuids == (B.uuid,)


def test_processes_and_environment_that_disagree_are_both_stated() -> None:
    choice = choose(A, busy(B, ENGINE), environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert choice.uuids == (B.uuid,)
    assert choice.notes == (
        f"the engine's processes compute on {B.uuid} (H100), which CUDA_VISIBLE_DEVICES=0 does not name",
    )


def test_another_number_than_the_model_needs_is_refused_with_both() -> None:
    said = refusal(busy(A, ENGINE), busy(B, ENGINE), C)
    assert f"needs 1 GPU, but the engine's processes compute on 2 GPUs ({A.uuid} (H100), {B.uuid} (H100))" in said
    assert "hardware.gpus" in said
    assert "tensor_parallel" in said


def test_the_environment_tells_when_no_process_can() -> None:
    choice = choose(expected=2, environ={"CUDA_VISIBLE_DEVICES": "3,1"}, pids=None)
    assert choice == Choice((D.uuid, B.uuid), "by CUDA_VISIBLE_DEVICES=3,1")


def test_an_environment_that_hides_all_is_refused() -> None:
    assert "CUDA_VISIBLE_DEVICES=-1 leaves the engine no GPU" in refusal(cuda="-1")


def test_visible_gpus_count_when_their_number_is_right() -> None:
    assert choose(expected=4, pids=None) == Choice(tuple(b.uuid for b in MACHINE), "all GPUs of this machine")


def test_compute_processes_of_unknown_owners_tell_when_their_number_is_right() -> None:
    choice = choose(busy(A, STRANGER), B, busy(C, STRANGER), D, expected=2, pids=None)
    assert choice.uuids == (A.uuid, C.uuid)
    assert "compute processes" in choice.how
    assert choice.notes == ("whose the compute processes are is unknown",)


def test_compute_processes_on_gpus_that_the_engine_does_not_see_do_not_count() -> None:
    choice = choose(busy(A, STRANGER), busy(B, STRANGER), C, environ={"CUDA_VISIBLE_DEVICES": "1,2"}, pids=frozenset())
    assert choice.uuids == (B.uuid,)


def test_nothing_that_tells_is_refused_with_the_numbers() -> None:
    said = refusal(A, busy(B, STRANGER), C, expected=2)
    assert "needs 2 GPUs, but 3 GPUs visible on this machine, 1 with compute processes" in said


def test_an_unclear_index_is_stated() -> None:
    other = replace(D, name="A10")
    said = refusal(A, other, cuda="0")
    assert "CUDA_VISIBLE_DEVICES=0 does not tell which GPUs: the boards differ" in said


def test_an_unclear_index_does_not_matter_where_a_process_tells() -> None:
    other = busy(replace(D, name="A10"), ENGINE)
    assert choose(A, other, environ={"CUDA_VISIBLE_DEVICES": "0"}) == Choice(
        (other.uuid,), "the GPUs that the engine's processes compute on"
    )


@pytest.mark.parametrize("listed", [("MIG-1a",), None])
def test_a_mig_device_counts_as_its_board_and_says_so(listed: tuple[str, ...] | None) -> None:
    split = replace(busy(B, ENGINE), mig=True, mig_uuids=("MIG-1a", "MIG-2b"))
    choice = choose(A, split, listed=listed)
    assert choice.uuids == (split.uuid,)
    assert choice.how.endswith("a MIG device counts as its whole board")
    assert choice.notes == (
        f"{split.uuid} is split by MIG: power, energy and throttling are those of the whole board, "
        "with whatever its other instances do",
    )


def test_replicas_on_mig_devices_of_one_board_are_one_board() -> None:
    split = replace(busy(B, ENGINE), mig=True, mig_uuids=("MIG-1a", "MIG-2b"))
    assert choose(A, split, expected=2).uuids == (split.uuid,)


def test_no_gpu_at_all_is_no_power_source() -> None:
    with pytest.raises(PowerError, match="lists no GPU") as caught:
        choose_gpus((), GpuQuery(None, 1, {}, lambda: None))
    assert caught.value.reason == "no_power_source"
