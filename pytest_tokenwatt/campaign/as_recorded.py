"""The spec of a replay: the given one or the stored one, as the command line of the live run changed it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_tokenwatt.campaign.baselines import OPTION as BASELINE
from pytest_tokenwatt.campaign.replaying import Merged, replayed_spec
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.spec.model import Spec


def spec_of(given: Spec | None, merged: Merged, path: Path) -> Spec:
    """The spec that was given if it says which configurations there are, else that of the stored runs at ``path``."""
    if given is not None and given.configs is not None:
        return given
    return replayed_spec(merged.raw, given.path if given is not None else path, given)


def adapted(spec: Spec, records: Sequence[ConfigRecord]) -> Spec:
    """``spec`` with the name, the short windows and the endpoints that the records were made under."""
    name = shared(record.provenance.spec_name for record in records)
    if name is not None and spec.raw.get("name") is None:
        spec = spec.model_copy(update={"name": name})
    if any(record.provenance.quick for record in records):
        spec = spec.quick()
    known = {key: url for record in records for key, url in record.provenance.endpoints.items()}
    for key, url in known.items():
        if any(config.key == key for config in spec.configurations):
            spec = spec.with_endpoint(key, url)
    return spec


def compared_with(record: ConfigRecord) -> str | None:
    """The stored baselines that a record's own run compared with, as its command names them; ``None``: with none."""
    command = record.provenance.command
    given = [word.partition("=") for word in command if word.startswith(f"{BASELINE}=")]
    named = [after for word, after in itertools.pairwise(command) if word == BASELINE]
    return ", ".join([*(value for _, _, value in given), *named]) or None


def shared(values: Iterable[Any]) -> Any:
    """The value that all have, else ``None``."""
    found = list(values)
    return found[0] if found and all(value == found[0] for value in found) else None
