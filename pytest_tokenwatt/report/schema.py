"""The JSON Schema of a lab report, which the package publishes beside this module."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

FILE = "lab-report.schema.json"


def report_schema() -> dict[str, Any]:
    """The schema (JSON Schema 2020-12) of ``report.json`` in the version that ``REPORT_SCHEMA`` names.

    A report of this tool has no further keys; of published reports without the key ``schema``, and of submission
    records on their own, it describes what a replay reads. Published files may say more.
    """
    schema: dict[str, Any] = json.loads(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    return schema
