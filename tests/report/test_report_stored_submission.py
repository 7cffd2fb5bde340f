"""A published submission judged again: its stages and its tier are those that it states."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.replay import ReplayLab, open_replay

PUBLISHED = Path(__file__).parent / "reference" / "submission-fp8-chunked-prefill.json"


def stages_of(lab: ReplayLab) -> dict[str, Any]:
    done = lab.finish()
    assert done is not None
    (submission,) = [each["submission"] for each in done.report["configs"] if "submission" in each]
    return {stage["name"]: stage for stage in submission["stages"]}


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str], Path]:
    """The published record whose contract has another status."""

    def write(status: str) -> Path:
        content = json.loads(PUBLISHED.read_text(encoding="utf-8"))
        for stage in content["stages"]:
            stage["status"] = status if stage["name"] == "contract" else stage["status"]
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("status", ["done", "failed"])
def test_a_contract_that_is_only_stated_is_a_stage(tmp_path: Path, changed: Callable[[str], Path], status: str) -> None:
    lab = open_replay([changed(status)], out=tmp_path / "out")
    for gate in lab.gates:
        lab.judge(gate)
    assert stages_of(lab)["contract"]["status"] == status


def test_the_tier_is_told_under_a_spec_without_a_score(tmp_path: Path) -> None:
    spec = tmp_path / "asked.yaml"
    spec.write_text(
        "engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}\n"
        "configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]\n",
        encoding="utf-8",
    )
    lab = open_replay([PUBLISHED], out=tmp_path / "out", spec=spec)
    (mean,) = [lab.judge(gate) for gate in lab.gates if gate.gate == "accuracy[mean]"]
    assert mean.text == "-0.6 pt (5 suites), as stored, tier A"
