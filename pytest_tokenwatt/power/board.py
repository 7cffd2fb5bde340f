"""One GPU board as the driver lists it: what the choice of the GPUs under test goes by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Board:
    """``pids`` are the processes with a compute context on it, in the driver's PID namespace (``None``: not told).

    ``mig`` says whether the board is split into MIG devices, ``mig_uuids`` which ones this process can see.
    """

    uuid: str
    name: str | None = None
    bus_id: str | None = None
    pids: frozenset[int] | None = None
    mig: bool = False
    mig_uuids: tuple[str, ...] = ()


def named(boards: Iterable[Board], identifier: str) -> list[Board]:
    """The boards that a full or abbreviated UUID fits; that of a MIG device stands for the board that it is a part of.

    ``GPU-<uuid>``, ``MIG-<uuid>`` and the older ``MIG-GPU-<uuid of the board>/<GPU instance>/<compute instance>``.
    """
    wanted = identifier.casefold()
    if wanted.startswith("mig-gpu-"):
        wanted = wanted.removeprefix("mig-").partition("/")[0]
    return [board for board in boards if any(uuid.casefold().startswith(wanted) for uuid in _uuids(board))]


def _uuids(board: Board) -> tuple[str, ...]:
    return (board.uuid, *board.mig_uuids)
