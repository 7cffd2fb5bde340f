"""``python -m pytest_tokenwatt schema``: the JSON Schema of a spec, or with ``--report`` of the lab report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pytest_tokenwatt.commands.cli import CommandParser, guarded, show


def main(argv: Sequence[str]) -> int:
    """Print one schema; returns the exit code (4: usage)."""
    return guarded(lambda: _schema(argv))


def _schema(argv: Sequence[str]) -> int:
    parser = CommandParser("schema", "Print the JSON Schema of a spec, for editors.")
    parser.add_argument("--report", action="store_true", help="of the lab report (report.json) instead")
    schema = _of_report() if parser.parse_args(argv).report else _of_spec()
    show(json.dumps(schema, indent=2, ensure_ascii=False))
    return 0


def _of_report() -> dict[str, Any]:
    from pytest_tokenwatt.report.schema import report_schema

    return report_schema()


def _of_spec() -> dict[str, Any]:
    from pytest_tokenwatt.spec.schema import json_schema

    return json_schema()
