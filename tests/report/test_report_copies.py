"""Texts never compare a configuration with a copy of itself, whatever stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.promotion import promoted
from pytest_tokenwatt.replay import ReplayLab, open_replay
from pytest_tokenwatt.store.baselines import write_baseline
from pytest_tokenwatt.store.records_json import write_record
from pytest_tokenwatt.store.replay.read import read_stored

REFERENCE = Path(__file__).parent / "reference"


def sentences(lab: ReplayLab) -> dict[str, str]:
    """The summary by the label that each sentence begins with."""
    for gate in lab.gates:
        lab.judge(gate)
    done = lab.finish()
    assert done is not None
    labels = [each["label"] for each in done.report["configs"]]
    places = {label: done.report["summary"].index(f"{label} ") for label in labels}
    ends = {label: min([at for at in places.values() if at > places[label]], default=None) for label in labels}
    return {label: done.report["summary"][places[label] : ends[label]] for label in labels}


def test_only_the_candidate_that_is_the_stored_baseline_has_no_difference_told(tmp_path: Path) -> None:
    _, tuned, other = read_stored(REFERENCE / "lab-moe-kernels.json").records
    for record in (tuned, other):
        write_record(tmp_path / f"record-{record.key}.json", record)
    write_baseline(tmp_path / "main.json", promoted(tuned), {})
    paths = [tmp_path / f"record-{record.key}.json" for record in (tuned, other)]
    told = sentences(open_replay(paths, out=tmp_path / "out", baselines=[tmp_path / "main.json"]))
    assert not {"difference", "accuracy"} & set(told[tuned.label].partition(" has no valid measurement")[0].split())
    assert "accuracy" in told[other.label]


@pytest.mark.parametrize("twin", ["baseline", "tuned"])
def test_the_same_engine_twice_has_no_difference_told(tmp_path: Path, twin: str) -> None:
    records = {each.key: each for each in read_stored(REFERENCE / "lab-moe-kernels.json").records}
    launch = {"command": ["serve", "m"]}
    for key, record in records.items():
        made = replace(record, fingerprint="f" if key in (twin, "other") else key, launch=launch)
        write_record(tmp_path / f"record-{key}.json", made)
    paths = [tmp_path / f"record-{key}.json" for key in records]
    told = sentences(open_replay(paths, out=tmp_path / "out"))
    assert "identical_configs" in told[records["other"].label]
    assert "accuracy" not in told[records["other"].label].partition(" has no valid measurement")[0]
    assert "accuracy" in told[records["tuned"].label]
