"""Which files of a model directory hold its weights."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_tokenwatt.geometry.safetensors_header import HeaderUnreadable

SAFETENSORS, TORCH, GGUF = ".safetensors", ".bin", ".gguf"
_KINDS = (SAFETENSORS, TORCH, GGUF)
_NO_WEIGHTS = re.compile(r"^(?:training_args|optimizer|scheduler|scaler|rng_state)|^adapter_")
_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files of one checkpoint, all of one ``kind`` (their suffix)."""

    kind: str
    files: tuple[Path, ...]


def find_weights(places: Sequence[Path]) -> WeightFiles | None:
    """Of the first place that holds any: a directory, or the file itself. Raises ``HeaderUnreadable``.

    Safetensors go before torch files and these before GGUF, as engines choose; with an index the files that it names.
    """
    for place in places:
        found = _at(place)
        if found is not None:
            return found
    return None


def _at(place: Path) -> WeightFiles | None:
    try:
        if place.is_file() and place.suffix in _KINDS:
            return _whole(WeightFiles(place.suffix, _with_shards(place)))
        files = sorted(file for file in place.iterdir() if file.suffix in _KINDS) if place.is_dir() else []
        files = [file for file in files if file.is_file() and not _NO_WEIGHTS.match(file.name)]
    except (OSError, ValueError):
        return None
    for kind in _KINDS:
        of_kind = tuple(file for file in files if file.suffix == kind)
        if of_kind:
            return _whole(WeightFiles(kind, _indexed(place, kind) or of_kind))
    return None


def _with_shards(file: Path) -> tuple[Path, ...]:
    """The file, with the others of its set when it is one of several."""
    if not _SHARD.search(file.name):
        return (file,)
    return tuple(sorted(file.parent.glob(_SHARD.sub("-?????-of-\\1.", file.name))))


def _indexed(folder: Path, kind: str) -> tuple[Path, ...]:
    """The files that an index names; none without an index. All of them must be there."""
    index = next(iter(sorted(folder.glob(f"*{kind}.index.json"))), None)
    if index is None:
        return ()
    try:
        named = {str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HeaderUnreadable(f"{index} cannot be read: {error}") from None
    files = tuple(folder / Path(name).name for name in sorted(named))
    lost = [file.name for file in files if not file.is_file()]
    if lost:
        raise HeaderUnreadable(f"{index} names {len(lost)} files that are not there, such as {lost[0]}")
    return files


def _whole(found: WeightFiles) -> WeightFiles:
    """Check that a set of shards has all of its members, and that there is only one model."""
    totals = {match[1] for match in map(_SHARD.search, (file.name for file in found.files)) if match}
    here = found.files[0].parent
    if len(totals) == 1 and len(found.files) < int(next(iter(totals))):
        raise HeaderUnreadable(f"{here} holds {len(found.files)} of {int(next(iter(totals)))} files of a checkpoint")
    if found.kind == GGUF and len(found.files) > 1 and len(totals) != 1:
        raise HeaderUnreadable(f"{here} holds {len(found.files)} GGUF files: which one is served is not told")
    return found
