from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.power.board import Board
from pytest_tokenwatt.power.visible import visible_boards

A = Board("GPU-aaaa1111-d72c-4106-c12f-20bd9faed9f6", "H100", "00000000:3B:00.0")
B = Board("GPU-bbbb2222-d72c-4106-c12f-20bd9faed9f6", "H100", "00000000:18:00.0")
C = Board("GPU-bbcc3333-d72c-4106-c12f-20bd9faed9f6", "H100", "00000000:9A:00.0")
HERE = (A, B, C)
"""In the driver's order, which is not that of the bus: there it is B, A, C."""
BY_BUS = (B, A, C)
OTHER = Board("GPU-dddd4444-d72c-4106-c12f-20bd9faed9f6", "A10", "00000000:01:00.0")
SPLIT = Board(
    "GPU-eeee5555-d72c-4106-c12f-20bd9faed9f6", "H100", "00000000:C1:00.0", mig=True, mig_uuids=("MIG-1a2b", "MIG-1c3d")
)


def seen(setting: str | None, *boards: Board, order: str | None = None) -> tuple[Board, ...] | None:
    environ = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    if order is not None:
        environ["CUDA_DEVICE_ORDER"] = order
    return visible_boards(boards or HERE, environ).boards


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, HERE),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("none", ()),
        ("0", (B,)),
        ("1", (A,)),
        ("2,1", (C, A)),
        (" 2 , 0 ", (C, B)),
        ("0,2,-1,1", (B, C)),
        ("0,7,1", (B,)),
        ("7", ()),
        ("0,x,1", (B,)),
        ("0,", (B,)),
        (",0", ()),
        ("1,1", ()),
        ("0,1,0", ()),
        ("1abc", (A,)),
        ("0,GPU-aaaa", (B,)),
        ("GPU-aaaa1111-d72c-4106-c12f-20bd9faed9f6", (A,)),
        ("GPU-aaaa", (A,)),
        ("GPU-bbc,GPU-a", (C, A)),
        ("GPU-bb", ()),
        ("GPU-a,GPU-bb,GPU-bbc", (A,)),
        ("GPU-a,GPU-ffff,GPU-bbc", (A,)),
        ("GPU-a,0,GPU-bbc", (A,)),
        ("GPU-a,GPU-aaaa", ()),
        ("gpu-AAAA", (A,)),
    ],
)
def test_the_documented_forms(setting: str | None, expected: tuple[Board, ...]) -> None:
    assert seen(setting) == expected


def test_indices_follow_the_bus_when_asked_to_or_when_the_boards_are_alike() -> None:
    assert seen("0", A, OTHER, order="PCI_BUS_ID") == (OTHER,)
    assert seen("0", A, B) == (B,)
    assert seen("0", A, B, order="FASTEST_FIRST") == (B,)


def test_an_index_among_different_boards_tells_nothing() -> None:
    found = visible_boards((A, OTHER), {"CUDA_VISIBLE_DEVICES": "0"})
    assert found.boards is None
    assert "CUDA_DEVICE_ORDER is not PCI_BUS_ID" in (found.unclear or "")


def test_all_indices_are_all_boards_in_whatever_order() -> None:
    assert set(seen("1,0", A, OTHER) or ()) == {A, OTHER}
    assert seen("0", OTHER) == (OTHER,)


def test_an_index_without_bus_ids_tells_nothing() -> None:
    assert seen("0", A, Board("GPU-f", "H100")) is None


@pytest.mark.parametrize(
    "setting", ["MIG-1a2b", "MIG-1c3d", "MIG-1A", "MIG-GPU-eeee5555-d72c-4106-c12f-20bd9faed9f6/1/2"]
)
def test_a_mig_device_is_its_board(setting: str) -> None:
    found = visible_boards((A, SPLIT), {"CUDA_VISIBLE_DEVICES": setting})
    assert found.boards == (SPLIT,)
    assert found.mig


def test_cuda_sees_one_mig_device_only() -> None:
    assert seen("MIG-1a2b,MIG-1c3d", A, SPLIT) == (SPLIT,)


@pytest.mark.parametrize("setting", ["MIG-9999", "MIG-1", "MIG-GPU-ffff/1/0"])
def test_an_unknown_or_ambiguous_mig_device_is_nothing(setting: str) -> None:
    two = Board("GPU-ffaa", "H100", "00000000:D1:00.0", mig=True, mig_uuids=("MIG-1f00",))
    assert seen(setting, A, SPLIT, two) == ()


def test_a_board_in_mig_mode_makes_indices_unclear() -> None:
    assert seen("1", A, SPLIT, order="PCI_BUS_ID") is None
    assert seen("-1", A, SPLIT) == ()


def test_a_container_restricts_by_uuid_and_cuda_counts_within() -> None:
    environ = {"NVIDIA_VISIBLE_DEVICES": f"{A.uuid},{C.uuid}", "CUDA_VISIBLE_DEVICES": "1"}
    assert visible_boards(HERE, environ).boards == (C,)
    assert visible_boards(HERE, {"NVIDIA_VISIBLE_DEVICES": C.uuid}).boards == (C,)


def test_a_containers_indices_count_the_hosts_boards() -> None:
    assert visible_boards(HERE, {"NVIDIA_VISIBLE_DEVICES": "1,2"}).boards == (A, C)
    assert visible_boards((A,), {"NVIDIA_VISIBLE_DEVICES": "3"}).boards == (A,)


@pytest.mark.parametrize("setting", ["all", "none", "void", "", "GPU-of-another-machine", "9"])
def test_a_containers_other_settings_restrict_nothing(setting: str) -> None:
    found = visible_boards(HERE, {"NVIDIA_VISIBLE_DEVICES": setting})
    assert (found.boards, found.variable) == (HERE, None)


ENTRIES = st.one_of(st.integers(-2, 5).map(str), st.sampled_from([b.uuid for b in HERE]), st.text(max_size=6))


@given(st.lists(ENTRIES, max_size=6).map(",".join))
def test_whatever_is_set_gives_distinct_boards_of_this_machine(setting: str) -> None:
    found = seen(setting)
    assert found is not None
    assert len(set(found)) == len(found)
    assert set(found) <= set(HERE)


@given(st.permutations(range(3)), st.integers(1, 3))
def test_valid_indices_and_their_uuids_say_the_same(order: list[int], count: int) -> None:
    chosen = [BY_BUS[index] for index in order[:count]]
    by_index = seen(",".join(str(index) for index in order[:count]))
    assert by_index == seen(",".join(board.uuid for board in chosen)) == tuple(chosen)
