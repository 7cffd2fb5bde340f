"""What ``report`` and ``compare`` share: their options, judging all gates of a replay, and the table."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tokenwatt.commands.cli import CommandParser, show_block
from pytest_tokenwatt.errors import UsageError

if TYPE_CHECKING:
    from pytest_tokenwatt.campaign.desk import Finished
    from pytest_tokenwatt.replay import ReplayLab

RUNS = "a run record, a run directory, a lab report, a submission record, or the result file of another tool"


def stored_path(text: str) -> Path:
    """A path that an argument names. Raises ``argparse.ArgumentTypeError`` for none: ``Path("")`` is the directory."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; name a path")
    return Path(text)


def add_judging_options(parser: CommandParser) -> None:
    """``--spec`` and ``--allow-diff``."""
    parser.add_argument("--spec", type=stored_path, metavar="FILE", help="its limits win over the stored ones")
    parser.add_argument(
        "--allow-diff",
        "--tokenwatt-allow-diff",  # as the reasons of verdicts name it
        action="append",
        default=[],
        metavar="NAME",
        help="compare although the records differ in this (driver, power_limit, …); repeatable",
    )


def allowed(names: Sequence[str]) -> list[str]:
    """The names given to ``--allow-diff``. Raises ``UsageError`` for one that there is not."""
    from pytest_tokenwatt.gates.comparable import allowed_names

    try:
        return sorted(allowed_names(names))
    except UsageError as error:
        raise UsageError(error.what, where="--allow-diff", remedy=error.remedy) from None


def judge_all(lab: ReplayLab) -> Finished:
    """Every gate that the records decide, and the report.

    Raises ``UsageError`` when there is nothing to report, and before anything is judged when it cannot be written.
    """
    for problem in lab.preflight(lab.gates):
        if problem.severity == "error":
            option = (problem.key or problem.path).replace("--tokenwatt-", "--")
            raise UsageError(problem.what, where=option, remedy=problem.remedy)
    for gate in lab.gates:
        lab.judge(gate)
    finished = lab.finish()
    if finished is None:
        raise UsageError("the files hold no measurement", remedy="name a run that measured something")
    return finished


def show_table(finished: Finished) -> None:
    """The table of verdicts for this terminal, with its notes."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    show_block(finished.table(shutil.get_terminal_size().columns, color, sys.stdout.encoding or "utf-8"))
