"""Loads a spec file into a ``Spec``, or says everything that is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_tokenwatt.errors import SpecError
from pytest_tokenwatt.spec.document import Document
from pytest_tokenwatt.spec.findings import Findings
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.naming import check_names
from pytest_tokenwatt.spec.reader import Source, read_source
from pytest_tokenwatt.spec.resolve import checked, configurations
from pytest_tokenwatt.spec.variables import expand, without_notes


def load_spec(path: Path, environ: Mapping[str, str] | None = None) -> Spec:
    """Load and check a spec; variables come from ``environ`` (default: the process's environment).

    Files that the spec names are not looked at (see ``problems.preflight``). Raises ``SpecError`` with all problems.
    """
    return build_spec(read_source(path), path, os.environ if environ is None else environ)


def build_spec(source: Source, path: Path, environ: Mapping[str, str]) -> Spec:
    """Check a source that was read and make the spec of it. Raises ``SpecError`` with all problems."""
    expansion = expand(source.raw, environ)
    findings = Findings(source, expansion.data)
    for place, what, remedy in expansion.failures:
        findings.unreadable(place, what, remedy)
    document = checked(Document, expansion.data, findings)
    check_names(expansion.data, findings)
    configs = configurations(expansion.data, without_notes(source.raw), findings)
    if document is None or findings.problems:
        raise SpecError(findings.problems)
    fields = {name: getattr(document, name) for name in Document.model_fields}
    if "name" not in document.model_fields_set:
        fields["name"] = _file_name(path)
    fields["gates"] = document.gates.model_copy(
        update={"on_missing_baseline": configs[0].gates.on_missing_baseline} if document.configs is None else {}
    )
    return Spec.model_construct(**fields, path=path, raw=source.raw, lines=source.lines, configurations=configs)


def _file_name(path: Path) -> str:
    """The file's name, fit for a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.") or "tokenwatt"
