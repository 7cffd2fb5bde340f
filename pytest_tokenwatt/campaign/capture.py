"""What the baseline said of the sequences and windows that candidates are compared on, in memory and in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.records import Reason, drift
from pytest_tokenwatt.store.topk_npz import StoredTopK, read_topk, write_topk

_REMEDY = "score the baseline anew"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The windows of one text with the baseline's scores of them; ``invalid`` says why these are not to be believed."""

    windows: tuple[drift.Sequence, ...]
    tops: tuple[drift.TopK, ...]
    invalid: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Capture:
    """Sequences with the baseline's scores of them; each corpus by its name, or why there are no windows of it.

    ``probes`` are texts with the ids that the baseline's tokenizer makes of them.
    """

    sequences: tuple[drift.Sequence, ...]
    tops: tuple[drift.TopK, ...]
    corpora: Mapping[str, Corpus | Reason] = field(default_factory=dict)
    probes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class CaptureShelf:
    """Holds the baseline's capture for the candidates of the same run; ``why_none`` says why there is none."""

    held: Capture | None = None
    why_none: str = "the baseline was not captured in this run"


def drift_file(directory: Path, key: str, corpus: str | None = None) -> Path:
    """Where the scores of a configuration are: of the sequences, or of a corpus' windows."""
    return directory / (f"drift-{key}.npz" if corpus is None else f"perplexity-{key}-{corpus}.npz")


def store_scores(
    path: Path,
    sequences: tuple[drift.Sequence, ...],
    tops: tuple[drift.TopK, ...],
    *,
    model: str,
    fingerprint: str,
    probes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Write one scoring. Raises ``OSError``."""
    sha256 = drift_sha256(sequences)
    write_topk(path, StoredTopK(sequences, tops, sha256, model, tops[0].k, fingerprint, probes or {}))


def capture_from(path: Path, key: str, record: drift.DriftRecord, fingerprint: str) -> Capture:
    """The capture of configuration ``key`` that ``record`` is of: the file at ``path`` and those of windows beside it.

    Raises ``UsageError`` when one is absent, damaged, or of other token ids, another K or another engine.
    """
    stored = _checked(path, record.sha256, fingerprint)
    if record.k > 0 and stored.k != record.k:
        raise UsageError(f"it has {stored.k} log-probabilities a position", where=str(path), remedy=_REMEDY)
    corpora: dict[str, Corpus | Reason] = {}
    for name, found in record.perplexity.items():
        if not found.sha256:
            corpora[name] = found.invalid[0] if found.invalid else Reason("not_measured", "there are no windows")
            continue
        windows = _checked(drift_file(path.parent, key, name), found.sha256, fingerprint)
        corpora[name] = Corpus(windows.sequences, windows.tops, found.invalid)
    return Capture(stored.sequences, stored.tops, corpora, stored.probes)


def _checked(path: Path, sha256: str, fingerprint: str) -> StoredTopK:
    stored = read_topk(path)
    what = None
    if len(stored.tops) != len(stored.sequences) or not stored.tops or not _complete(stored):
        what = "it lacks scores"
    elif not stored.sha256 == sha256 == drift_sha256(stored.sequences):
        what = "it has other token ids than the record"
    elif stored.fingerprint != fingerprint:
        what = "another engine was scored"
    if what is not None:
        raise UsageError(what, where=str(path), remedy=_REMEDY)
    return stored


def _complete(stored: StoredTopK) -> bool:
    pairs = zip(stored.sequences, stored.tops, strict=True)
    return all(top.positions == len(each.ids) - max(each.prompt, 1) for each, top in pairs)
