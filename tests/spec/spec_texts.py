"""Specs from texts, and the lines that a user reads when one is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_tokenwatt.errors import SpecError
from pytest_tokenwatt.spec.load import build_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.reader import parse_source


def load(text: str, environ: Mapping[str, str] | None = None, name: str = "spec.yaml") -> Spec:
    """The spec of a text; no variables are set unless they are given."""
    return build_spec(parse_source(text, name), Path(name), environ or {})


def complaints(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Every problem of a text, each as its one line, which starts with ``spec.yaml:LINE:``."""
    with pytest.raises(SpecError) as caught:
        load(text, environ)
    lines = [str(problem) for problem in caught.value.problems]
    assert str(caught.value).splitlines() == lines, "a problem is one line"
    return lines
