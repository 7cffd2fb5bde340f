"""``python -m pytest_tokenwatt suite``: suites out of GSM8K, lm-eval's logs, CSV, or sums made up here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pytest_tokenwatt.arithmetic import OPERATIONS, generate
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.complaints import Complain
from pytest_tokenwatt.quality.convert import Conversion, as_row, convert
from pytest_tokenwatt.quality.from_csv import COLUMNS, read_csv
from pytest_tokenwatt.quality.from_gsm8k import LICENSE, Gsm8k
from pytest_tokenwatt.quality.from_lm_eval import read_lm_eval
from pytest_tokenwatt.quality.scorers import find_scorer

USAGE_ERROR = 4
_FREE = "arithmetic: made by pytest-tokenwatt; free of rights"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=self.prog, remedy=f"see {self.prog} --help")


def main(argv: Sequence[str]) -> int:
    """Write one suite and say so in one line; returns the exit code (4: usage, or a source that cannot be used)."""
    try:
        arguments = _parser().parse_args(argv)
        conversion = _conversion(arguments)
        converted = convert(conversion, arguments.target)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE_ERROR
    sys.stdout.write(
        f"{converted.path}: {converted.items} items, sha256 {converted.sha256[:12]}, {converted.meta.name} beside it;"
        f" {conversion.license}\n"
    )
    return 0


def _conversion(arguments: argparse.Namespace) -> Conversion:
    form = arguments.form
    scorer = find_scorer(arguments.scorer)
    make = partial(Conversion, form, scorer=arguments.scorer, check_gold=scorer.check_gold)
    if form == "arithmetic":
        return make(partial(_sums, arguments), None, license=_FREE, shots=0)
    if form == "gsm8k":
        if arguments.examples is not None and not arguments.shots:
            raise UsageError("needs --shots", where="--examples", remedy="say how many, such as --shots 5")
        others = () if arguments.examples is None else (arguments.examples,)
        read = Gsm8k(arguments.shots, arguments.examples)
        return make(read, arguments.source, license=LICENSE, shots=arguments.shots, others=others)
    return make(read_csv if form == "csv" else read_lm_eval, arguments.source)


def _sums(arguments: argparse.Namespace, _path: Path, _complain: Complain) -> Iterator[tuple[int, Mapping[str, Any]]]:
    operations = arguments.operation or OPERATIONS
    for number, item in enumerate(generate(arguments.count, arguments.seed, operations), start=1):
        yield number, as_row(item)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pytest_tokenwatt suite", description="Write a suite file. Nothing is downloaded.")
    forms = parser.add_subparsers(dest="form", required=True, metavar="FORM")
    gsm8k = _form(forms, "gsm8k", "original GSM8K JSONL")
    gsm8k.add_argument("--shots", type=_count, default=0, help="worked examples before each question (default 0)")
    where = "take them from here, such as train.jsonl (default: SOURCE's first lines)"
    gsm8k.add_argument("--examples", type=Path, metavar="FILE", help=where)
    gsm8k.set_defaults(scorer="numeric")
    for name, about in (("lm-eval", "samples_*.jsonl of lm-eval"), ("csv", f"columns {', '.join(COLUMNS)}")):
        form = _form(forms, name, about)
        form.add_argument("--scorer", default="numeric", help="must be able to read the answers (default numeric)")
    sums = _form(forms, "arithmetic", "sums made up here, all different", source=False)
    sums.add_argument("--count", type=_count, default=200, help="items (default 200)")
    sums.add_argument("--seed", type=int, default=0, help="which sums (default 0)")
    sums.add_argument("--operation", action="append", choices=OPERATIONS, help="only these (repeatable)")
    sums.set_defaults(scorer="numeric")
    return parser


def _form(forms: Any, name: str, about: str, *, source: bool = True) -> argparse.ArgumentParser:
    form: argparse.ArgumentParser = forms.add_parser(name, help=about, description=f"A suite from {about}.")
    if source:
        form.add_argument("source", type=Path, metavar="SOURCE")
    form.add_argument("target", type=Path, metavar="SUITE.jsonl")
    return form


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:20]} is no whole number from 0")
    return int(text)
