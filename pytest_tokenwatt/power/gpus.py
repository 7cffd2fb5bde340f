"""The GPUs under test: those that the spec lists, else those that the engine uses, else those that it must use.

Never "all of them" and never the driver's order: a sum over the wrong boards looks like any other figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.board import Board, named
from pytest_tokenwatt.power.visible import Visible, visible_boards

MISMATCH = "gpu_count_mismatch"
_REMEDY = (
    "list the UUIDs in hardware.gpus, or correct model.replicas, tensor_parallel, pipeline_parallel, data_parallel"
)


@dataclass(frozen=True, slots=True)
class GpuQuery:
    """What is known of the engine's GPUs.

    ``listed`` are the UUIDs of ``hardware.gpus``. ``expected`` is replicas × TP × PP × DP. ``environ`` is the
    environment that the engine's processes have. ``pids`` gives the engine's processes as this process sees them
    (``None``: cannot be known).
    """

    listed: tuple[str, ...] | None
    expected: int
    environ: Mapping[str, str]
    pids: Callable[[], frozenset[int] | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The UUIDs of the GPUs under test, how they were found (one phrase) and statements for the report."""

    uuids: tuple[str, ...]
    how: str
    notes: tuple[str, ...] = ()


def choose_gpus(devices: Sequence[Board], query: GpuQuery) -> Choice:
    """The GPUs under test of those that the driver lists.

    Raises ``PowerError``: ``no_power_source`` where the driver lists none, ``gpu_count_mismatch`` where the evidence
    gives another number than ``query.expected``, or none at all.
    """
    if not devices:
        raise PowerError(
            "no_power_source",
            "the NVIDIA driver lists no GPU that this process may read",
            remedy="check nvidia-smi here; for an engine elsewhere use power: {source: dcgm} or {source: redfish}",
        )
    if query.listed is not None:
        return _listed(devices, query.listed)
    return _found(devices, query)


def _listed(devices: Sequence[Board], identifiers: Sequence[str]) -> Choice:
    chosen: list[Board] = []
    for identifier in identifiers:
        fitting = named(devices, identifier) if identifier.strip() else []
        if len(fitting) != 1:
            problem = "fits several GPUs" if fitting else "is no GPU of this machine"
            raise PowerError(
                MISMATCH, f"hardware.gpus: {identifier!r} {problem}", remedy=f"there are {_names(fitting or devices)}"
            )
        chosen.append(fitting[0])
    return _choice(chosen, "listed in hardware.gpus")


def _found(devices: Sequence[Board], query: GpuQuery) -> Choice:
    seen = visible_boards(devices, query.environ)
    engine = query.pids() or frozenset()
    used = [board for board in devices if board.pids and board.pids & engine]
    notes = _remarks(seen, used)
    if used:
        return _sized(used, query.expected, "the GPUs that the engine's processes compute on", notes)
    if seen.boards is not None and seen.variable is not None and not seen.boards:
        raise PowerError(MISMATCH, f"{seen.variable} leaves the engine no GPU", remedy=_REMEDY)
    return _by_number(devices if seen.boards is None else seen.boards, query.expected, seen, notes)


def _by_number(pool: Sequence[Board], expected: int, seen: Visible, notes: tuple[str, ...]) -> Choice:
    """Without the engine's own trace: the boards that it sees, else those that somebody computes on."""
    if len(pool) == expected:
        how = "all GPUs of this machine" if seen.boards is None or seen.variable is None else f"by {seen.variable}"
        return _choice(pool, how, notes)
    busy = [board for board in pool if board.pids]
    if len(busy) == expected:
        how = "the GPUs with compute processes, which are as many as the spec's model needs"
        return _choice(busy, how, (*notes, "whose the compute processes are is unknown"))
    where = f"by {seen.variable}" if seen.boards is not None and seen.variable else "on this machine"
    raise _mismatch(expected, f"{_count(pool)} visible {where}, {len(busy)} with compute processes", notes)


def _sized(used: Sequence[Board], expected: int, how: str, notes: tuple[str, ...]) -> Choice:
    # Several MIG devices may share a board.
    split = len(used) < expected and any(board.mig for board in used)
    if len(used) != expected and not split:
        raise _mismatch(expected, f"the engine's processes compute on {_count(used)} ({_names(used)})", notes)
    return _choice(used, how, notes)


def _remarks(seen: Visible, used: Sequence[Board]) -> tuple[str, ...]:
    """What has to be said when the environment tells nothing, or something else than the processes do."""
    if seen.unclear and not used:
        return (f"{seen.variable} does not tell which GPUs: {seen.unclear}",)
    stray = [board for board in used if seen.boards is not None and board not in seen.boards]
    if stray and seen.variable:
        return (f"the engine's processes compute on {_names(stray)}, which {seen.variable} does not name",)
    return ()


def _choice(boards: Sequence[Board], how: str, notes: tuple[str, ...] = ()) -> Choice:
    unique = tuple(dict.fromkeys(boards))
    parts = tuple(
        f"{board.uuid} is split by MIG: power, energy and throttling are those of the whole board, "
        "with whatever its other instances do"
        for board in unique
        if board.mig
    )
    how = f"{how}; a MIG device counts as its whole board" if parts else how
    return Choice(tuple(board.uuid for board in unique), how, (*notes, *parts))


def _mismatch(expected: int, found: str, notes: tuple[str, ...]) -> PowerError:
    said = "".join(f"; {note}" for note in notes)
    return PowerError(
        MISMATCH, f"the spec's model needs {expected} GPU{'s' * (expected != 1)}, but {found}{said}", remedy=_REMEDY
    )


def _count(boards: Sequence[Board]) -> str:
    return f"{len(boards)} GPU{'s' * (len(boards) != 1)}"


def _names(boards: Sequence[Board]) -> str:
    return ", ".join(f"{board.uuid} ({board.name})" if board.name else board.uuid for board in boards)
