"""The companion command as typed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_tokenwatt", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_schema_prints_the_json_schema_of_a_spec() -> None:
    done = typed("schema")
    assert done.returncode == 0
    assert {"engine", "slo", "configs", "gates"} <= set(json.loads(done.stdout)["properties"])


@pytest.mark.parametrize(("words", "code"), [((), 4), (("nonsense",), 4), (("schema", "x"), 4), (("--help",), 0)])
def test_anything_else_shows_the_usage(words: tuple[str, ...], code: int) -> None:
    done = typed(*words)
    assert done.returncode == code
    assert "usage: python -m pytest_tokenwatt" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
