"""Which boards a CUDA process sees, by the variables in its environment.

The forms are those of the CUDA Programming Guide's chapter on environment variables: indices, full or abbreviated
GPU UUIDs, MIG devices; an invalid entry ends the list. CUDA's indices follow ``CUDA_DEVICE_ORDER``, never NVML's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pytest_tokenwatt.power.board import Board, named

DEVICES = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"

# The driver reads an index as C's strtol does: leading digits count, what follows them does not.
_INDEX = re.compile(r"\s*\+?(\d+)")


@dataclass(frozen=True, slots=True)
class Visible:
    """The boards that a process sees, in CUDA's order when a list gave it.

    ``boards`` is ``None`` when the variables do not tell, and ``unclear`` then says why. ``variable`` is the setting
    that restricted them (``None``: nothing did). ``mig`` says whether MIG devices were named.
    """

    boards: tuple[Board, ...] | None
    variable: str | None = None
    unclear: str | None = None
    mig: bool = False


def visible_boards(boards: Sequence[Board], environ: Mapping[str, str]) -> Visible:
    """The boards that a process with this environment sees."""
    inside = _in_container(boards, environ)
    setting = environ.get(DEVICES)
    if setting is None:
        return inside
    variable = f"{DEVICES}={setting}"
    entries = [entry.strip() for entry in setting.split(",")]
    pool = boards if inside.boards is None else inside.boards
    if entries[0].casefold().startswith("mig-"):
        return Visible(_mig(pool, entries[0]), variable, mig=True)
    if entries[0].casefold().startswith("gpu-"):
        return Visible(_by_uuid(pool, entries), variable)
    return _by_index(pool, entries, environ, variable)


def _by_uuid(boards: Sequence[Board], entries: Sequence[str]) -> tuple[Board, ...]:
    found: list[Board] = []
    for entry in entries:
        fitting = named(boards, entry) if entry.casefold().startswith("gpu-") else []
        if len(fitting) != 1:
            break
        found.append(fitting[0])
    return _unless_repeated(found)


def _mig(boards: Sequence[Board], entry: str) -> tuple[Board, ...]:
    """The board of the first MIG device: CUDA enumerates a single one."""
    fitting = named(boards, entry)
    return tuple(fitting) if len(fitting) == 1 else ()


def _by_index(boards: Sequence[Board], entries: Sequence[str], environ: Mapping[str, str], variable: str) -> Visible:
    indices = _indices(entries)
    unclear = _order_unclear(boards, environ)
    if indices and len(boards) > 1 and any(board.mig for board in boards):
        return Visible(None, variable, "a board in MIG mode shifts CUDA's indices")
    valid = list(takewhile(lambda index: index < len(boards), indices))
    # All of them are all of them, in whatever order.
    if valid and unclear and len(set(valid)) < len(boards):
        return Visible(None, variable, unclear)
    return Visible(_unless_repeated([_by_bus(boards)[index] for index in valid]), variable)


def _indices(entries: Sequence[str]) -> list[int]:
    """The indices before the first entry that is none, or negative."""
    matches = takewhile(lambda match: match is not None, map(_INDEX.match, entries))
    return [int(match[1]) for match in matches if match]


def _order_unclear(boards: Sequence[Board], environ: Mapping[str, str]) -> str | None:
    """Why an index cannot be turned into a board, if it cannot."""
    if any(board.bus_id is None for board in boards):
        return "the driver does not tell the boards' bus ids"
    if environ.get(ORDER, "").strip().upper() == "PCI_BUS_ID":
        return None
    if len({board.name for board in boards}) > 1:
        return f"the boards differ and {ORDER} is not PCI_BUS_ID, so CUDA orders them by its own idea of speed"
    return None


def _by_bus(boards: Sequence[Board]) -> list[Board]:
    return sorted(boards, key=lambda board: (board.bus_id or "").casefold())


def _unless_repeated(boards: Sequence[Board]) -> tuple[Board, ...]:
    """A list that names a device twice leaves CUDA with none."""
    return tuple(boards) if len(set(boards)) == len(boards) else ()


def _in_container(boards: Sequence[Board], environ: Mapping[str, str]) -> Visible:
    """What NVIDIA's container runtime let in; ``all``, ``none`` and ``void`` restrict nothing that can be told here.

    UUIDs that are not here belong to another machine, and indices count the host's boards: they mean something only
    where more boards are seen than they name, that is from outside of the container.
    """
    setting = environ.get(CONTAINER, "")
    entries = [entry.strip() for entry in setting.split(",") if entry.strip()]
    if all(entry.isdecimal() for entry in entries) and len(entries) < len(boards):
        order = _by_bus(boards)
        found = [[order[int(entry)]] if int(entry) < len(order) else [] for entry in entries]
    else:
        found = [named(boards, entry) if "-" in entry else [] for entry in entries]
    if not found or any(len(fitting) != 1 for fitting in found):
        return Visible(tuple(boards))
    unique = tuple(dict.fromkeys(fitting[0] for fitting in found))
    return Visible(unique, f"{CONTAINER}={setting}", mig="mig-" in setting.casefold())
