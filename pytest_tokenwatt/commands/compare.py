"""``python -m pytest_tokenwatt compare A B``: is B as good as A? Table, verdict and exit code, no files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from pytest_tokenwatt.commands.cli import CommandParser, guarded, show
from pytest_tokenwatt.commands.stored import RUNS, add_judging_options, allowed, judge_all, show_table, stored_path

if TYPE_CHECKING:
    from pytest_tokenwatt.campaign.desk import Finished
    from pytest_tokenwatt.records import ConfigRecord
    from pytest_tokenwatt.replay import ReplayLab

NOTHING_COMPARED = 1
_WIDEST = 60
"""Letters of a label that are shown."""
_WORDS = {0: "pass", 1: "fail", 10: "inconclusive", 11: "invalid"}


def main(argv: Sequence[str]) -> int:
    """Judge B against A; returns the exit code of the verdicts (0, 1, 10, 11) or 4 for usage."""
    return guarded(lambda: _compare(argv))


def _compare(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    from pytest_tokenwatt.replay import open_replay

    with tempfile.TemporaryDirectory(prefix="tokenwatt-compare-") as folder:
        lab = open_replay(
            [arguments.baseline, arguments.candidate],
            spec=arguments.spec,
            allow=allowed(arguments.allow_diff),
            title=f"{arguments.candidate.name} against {arguments.baseline.name}",
            out=Path(folder) / "run",
            roles=("baseline", "tuned"),
            keeps=False,
        )
        finished = judge_all(lab)
    for line in _sides(lab):
        show(line)
    show_table(finished)
    code = finished.exit_code if finished.exit_code or _compared(lab) else NOTHING_COMPARED
    show(_verdict(finished, code, compared=_compared(lab)))
    return code


def _parser() -> CommandParser:
    about = "Judge a candidate's record against a baseline's, whatever roles they were recorded in. Writes no file."
    parser = CommandParser("compare", about)
    parser.add_argument("baseline", type=stored_path, metavar="A", help=f"the baseline: {RUNS}")
    parser.add_argument("candidate", type=stored_path, metavar="B", help="the candidate, the same")
    add_judging_options(parser)
    return parser


def _sides(lab: ReplayLab) -> Iterator[str]:
    """Which file is the baseline and which the candidate; and when they were recorded the other way round."""
    from pytest_tokenwatt.campaign.places import recorded_text
    from pytest_tokenwatt.report.text import one_line

    for side, (path, record) in zip(("baseline", "candidate"), lab.sources, strict=True):
        names = [shorten(one_line(text), _WIDEST, placeholder="…") for text in (record.label, *_engine(record))]
        yield f"{side:9}  {path}: {', '.join((*names, recorded_text(record)))}"
    (path, record), (other, candidate) = lab.sources
    if candidate.role == "baseline" and record.role != "baseline":
        told = f"{path} was recorded as {record.role}, {other} as baseline"
        yield f"{told}; `compare {other} {path}` takes them so"


def _engine(record: ConfigRecord) -> Iterator[str]:
    identity = record.identity
    if identity is not None and identity.version:
        yield f"vLLM {identity.version}" if identity.cache_config and not identity.simulated else identity.version


def _compared(lab: ReplayLab) -> bool:
    """Whether any gate that must hold set the two against each other: else a pass would mean nothing."""
    from pytest_tokenwatt.campaign.foreseen import needs_baseline

    return any(gate.mode == "enforce" and needs_baseline(gate) for gate in lab.gates)


def _verdict(finished: Finished, code: int, *, compared: bool) -> str:
    if not compared and code == NOTHING_COMPARED and finished.exit_code == 0:
        return "compare: fail: no gate compares the two; the notes say what the records lack"
    word = _WORDS.get(code, str(code))
    bad = [result.id for result in finished.results if result.verdict.value == word and result.mode == "enforce"]
    return f"compare: {word}{': ' + ', '.join(bad) if bad and code else ''}"
