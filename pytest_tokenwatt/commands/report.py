"""``python -m pytest_tokenwatt report``: one lab report out of stored runs, judged again."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.commands.cli import CommandParser, guarded
from pytest_tokenwatt.commands.stored import RUNS, add_judging_options, allowed, judge_all, show_table, stored_path


def main(argv: Sequence[str]) -> int:
    """Write the report and show its table; returns the exit code of its verdicts (0, 1, 10, 11) or 4 for usage."""
    return guarded(lambda: _report(argv))


def _report(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    from pytest_tokenwatt.replay import open_replay

    lab = open_replay(
        arguments.runs,
        spec=arguments.spec,
        allow=allowed(arguments.allow_diff),
        baselines=arguments.baseline,
        title=arguments.title,
        out=arguments.out,
    )
    finished = judge_all(lab)
    show_table(finished)
    return finished.exit_code


def _parser() -> CommandParser:
    parser = CommandParser("report", "Merge stored runs into one lab report, judge its gates, and show the table.")
    parser.add_argument("runs", nargs="+", type=stored_path, metavar="RUN", help=RUNS)
    parser.add_argument("--title", metavar="TEXT", help="title of the report")
    parser.add_argument(
        "--out", type=stored_path, metavar="PATH", help="run directory (default: a new one in tokenwatt-runs/)"
    )
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        type=stored_path,
        metavar="FILE",
        help="a stored record to compare with; repeatable, several give the spread between runs",
    )
    add_judging_options(parser)
    return parser
