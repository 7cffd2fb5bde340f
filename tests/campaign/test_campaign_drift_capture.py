"""A stored capture is the baseline's again, or it is said why it is not; what an interrupted run scored is kept."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.capture import Capture, Corpus, capture_from, drift_file, store_scores
from pytest_tokenwatt.campaign.resume import is_of, is_whole
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.records import Reason, drift

SEQUENCES = (drift.Sequence("a/0", (5, 6, 7, 8), 2), drift.Sequence("b/1", (1, 2, 3), 2))
WINDOWS = (drift.Sequence("river/0", (9, 8, 7), 1),)
PROBES = {"How many?": (5, 6)}
PRINT = "vllm-0.32"


def tops(sequences: tuple[drift.Sequence, ...], k: int = 2) -> tuple[drift.TopK, ...]:
    return tuple(_top(len(each.ids) - each.prompt, k) for each in sequences)


def _top(positions: int, k: int) -> drift.TopK:
    places = positions * k
    return drift.TopK(k, array("i", range(places)), array("f", [-0.5] * places), array("f", [-0.5] * positions))


CAPTURE = Capture(
    SEQUENCES,
    tops(SEQUENCES),
    {"river": Corpus(WINDOWS, tops(WINDOWS)), "gone": Reason("text_too_short", "brief")},
    PROBES,
)


def perplexity(windows: tuple[drift.Sequence, ...]) -> drift.PerplexityRecord:
    return drift.PerplexityRecord("river", drift_sha256(windows), len(windows), 2, (0.5,), 1.6)


RECORD = drift.DriftRecord(
    sha256=drift_sha256(SEQUENCES),
    route="prompt_logprobs",
    k=2,
    sequences=2,
    tokens=3,
    against=None,
    control=None,
    perplexity={
        "river": perplexity(WINDOWS),
        "gone": drift.PerplexityRecord("gone", "", 0, 0, (), None, (Reason("text_too_short", "brief"),)),
    },
)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The file of the sequences; that of the windows is beside it."""
    path = drift_file(tmp_path, "baseline")
    store_scores(path, SEQUENCES, CAPTURE.tops, model="m", fingerprint=PRINT, probes=PROBES)
    store_scores(drift_file(tmp_path, "baseline", "river"), WINDOWS, tops(WINDOWS), model="m", fingerprint=PRINT)
    return path


def test_what_was_stored_is_the_capture(stored: Path) -> None:
    assert capture_from(stored, "baseline", RECORD, PRINT) == CAPTURE
    assert capture_from(stored, "baseline", replace(RECORD, k=-1), PRINT) == CAPTURE


@pytest.mark.parametrize(
    ("record", "fingerprint", "what"),
    [
        (replace(RECORD, sha256="ab"), PRINT, "it has other token ids than the record"),
        (replace(RECORD, k=20), PRINT, "it has 2 log-probabilities a position"),
        (RECORD, "another", "another engine was scored"),
        (replace(RECORD, perplexity={"river": perplexity(SEQUENCES)}), PRINT, "it has other token ids"),
        (replace(RECORD, perplexity={"sea": perplexity(WINDOWS)}), PRINT, "cannot be read"),
    ],
)
def test_another_capture_is_refused(stored: Path, record: drift.DriftRecord, fingerprint: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        capture_from(stored, "baseline", record, fingerprint)


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_damaged_or_absent_file_is_refused(stored: Path, content: bytes) -> None:
    stored.write_bytes(content)
    with pytest.raises(UsageError, match="damaged"):
        capture_from(stored, "baseline", RECORD, PRINT)
    stored.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        capture_from(stored, "baseline", RECORD, PRINT)


def test_scores_that_lack_positions_are_refused(stored: Path) -> None:
    store_scores(stored, SEQUENCES, tops(SEQUENCES[::-1]), model="m", fingerprint=PRINT)
    with pytest.raises(UsageError, match="it lacks scores"):
        capture_from(stored, "baseline", RECORD, PRINT)


def test_a_record_is_kept_when_it_is_whole_and_of_the_same_ids() -> None:
    assert is_of(RECORD, CAPTURE)
    assert not is_of(replace(RECORD, sha256="other"), CAPTURE)
    assert not is_of(replace(RECORD, perplexity={}), CAPTURE)
    assert not is_of(replace(RECORD, perplexity={**RECORD.perplexity, "river": perplexity(SEQUENCES)}), CAPTURE)
    broken = replace(perplexity(WINDOWS), invalid=(Reason("windows_failed", "1 of 1"),))
    assert not is_of(replace(RECORD, perplexity={**RECORD.perplexity, "river": broken}), CAPTURE)
    assert not is_whole(replace(RECORD, invalid=(Reason("interrupted", "before"),)))
