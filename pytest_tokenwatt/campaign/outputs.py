"""Outputs of timed requests that are kept for the audit: which ones, and where they wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ErrorClass, LoadPlan, Reason, RequestRecord
from pytest_tokenwatt.records.audit import Served
from pytest_tokenwatt.store.served_npz import read_served

_SPARE = 2
"""Requests kept for each that is looked at: some are cut off when the verdict of their window is certain."""


@dataclass(slots=True)
class OutputShelf:
    """What was served while it was timed, by (configuration, run). ``picked`` outputs a run; 0: none is kept."""

    picked: int = 0
    runs: dict[tuple[str, str], tuple[Served, ...] | Reason] = field(default_factory=dict)

    def of(self, config: str) -> dict[str, tuple[Served, ...] | Reason]:
        """The runs of one configuration."""
        return {run: served for (key, run), served in self.runs.items() if key == config}


def spread(count: int, wanted: int) -> frozenset[int]:
    """``wanted`` of the indices below ``count``, as far apart as they can be; all of them if there are fewer."""
    return frozenset(range(count)) if count <= wanted else frozenset(place * count // wanted for place in range(wanted))


def kept_of_windows(plan: LoadPlan, picked: int) -> frozenset[int]:
    """Requests of a plan's windows that are to be kept; the tail behind them is not part of any verdict."""
    end_s = plan.windows * plan.window_s
    within = sum(1 for offset_s in plan.measured.offset_s if offset_s < end_s)
    return spread(within, _SPARE * picked) if picked else frozenset()


def served_by(
    requests: Iterable[RequestRecord], kept: frozenset[int], picked: int, *, ignore_eos: bool
) -> tuple[Served, ...] | Reason:
    """``picked`` of the kept requests that came to their own end, or why there are none.

    A request whose answer is empty counts: that is what an audit looks for. Fewer than half of ``picked`` speak for
    those that came to their end only.
    """
    ended = [each for each in requests if each.phase == "measured" and each.index in kept and _answered(each)]
    wanted = min(picked, len(kept))
    if not ended or 2 * len(ended) < wanted:
        text = f"{len(ended) or 'none'} of the {wanted} requests that were to be looked at came to their end"
        return Reason("no_outputs", text)
    untold = sum(1 for each in ended if each.prompt_ids is None or (each.ok and each.output_ids is None))
    if untold:
        text = f"the server told no token ids of {untold} of {len(ended)} requests (return_token_ids)"
        return Reason("no_token_ids", text)
    chosen = [ended[place] for place in sorted(spread(len(ended), picked))]
    return tuple(_served(each, ignore_eos) for each in chosen)


def _answered(request: RequestRecord) -> bool:
    return request.ok or request.error is ErrorClass.NO_TOKENS


def _served(request: RequestRecord, ignore_eos: bool) -> Served:
    return Served(
        name=str(request.index),
        prompt=tuple(request.prompt_ids or ()),
        output=tuple(request.output_ids or ()),
        max_tokens=request.planned_output_tokens,
        ignore_eos=ignore_eos,
    )


def run_name(scenario: str | None) -> str:
    """What the audit of goodput windows is called; ``None`` stands for the only scenario."""
    return "goodput" if scenario is None else f"goodput[{scenario}]"


def file_name(config: str, run: str) -> str:
    """``served-<config>-<run>.npz``; no name may hold a plus sign, so that no two pairs give the same file."""
    return f"served-{config}-{run.replace('[', '+').replace(']', '')}.npz"


def recall(shelf: OutputShelf, path: Path, config: str, run: str) -> None:
    """Put what an interrupted run kept on disk back on the shelf, or why it is not there any more."""
    try:
        shelf.runs[config, run] = tuple(read_served(path))
    except UsageError as error:
        shelf.runs[config, run] = Reason("no_outputs", f"the interrupted run's outputs are gone: {error.what}")
