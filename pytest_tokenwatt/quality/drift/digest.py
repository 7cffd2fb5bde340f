"""The hash that says whether two records scored the same token ids."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

from pytest_tokenwatt.records import drift


def drift_sha256(sequences: Iterable[drift.Sequence]) -> str:
    """SHA-256 (hex) over the ids and the lengths of the prompts, in order; names do not count."""
    digest = hashlib.sha256()
    for sequence in sequences:
        digest.update(f"{sequence.prompt}/{len(sequence.ids)}:".encode())
        digest.update(array("q", sequence.ids).tobytes())
    return digest.hexdigest()
