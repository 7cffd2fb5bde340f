"""The shipped specs of the embedded engine, whole: the one passes, the other fails by what it lowered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.plugin.verdicts import INCONCLUSIVE

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def run(name: str, out: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "pytest", f"--tokenwatt-spec=specs/{name}", f"--tokenwatt-out={out}"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )
    print(done.stdout[-20_000:])
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return done.returncode, report


def test_the_quickstart_passes_and_carries_every_figure(tmp_path: Path) -> None:
    code, report = run("quickstart.yaml", tmp_path / "run")
    verdicts = {gate["id"]: gate["verdict"] for gate in report["gates"]}
    # How much faster the candidate is may be left open by a machine that does other things.
    unsettled = verdicts.pop("tuned::goodput") == "inconclusive"
    assert code == (INCONCLUSIVE if unsettled else 0)
    assert set(verdicts.values()) == {"pass", "-"}
    for entry in report["configs"]:
        assert entry["throttle_counts"] is not None
        assert 0 < entry["mbu_pct"] < 100
        for figure in ("goodput_tok_s", "node_power_kw", "tokens_per_joule", "energy_j", "idle_power_w"):
            assert entry[figure] > 0, figure
        assert entry["accuracy"]["score"] > 90
    assert 0 < report["configs"][1]["kl"]["kl"] < 0.001


def test_a_four_bit_cache_fails_its_accuracy_gate(tmp_path: Path) -> None:
    code, report = run("quickstart-regression.yaml", tmp_path / "run")
    assert code == 1
    failed = {gate["id"] for gate in report["gates"] if gate["verdict"] == "fail"}
    assert failed == {"tuned::accuracy[arithmetic]", "tuned::kl"}
    assert [gate["id"] for gate in report["gates"] if gate["verdict"] == "invalid"] == []
    accuracy = next(entry for entry in report["configs"] if entry["key"] == "tuned")["accuracy"]
    assert accuracy["delta_pts"] < -5
    assert "failed the accuracy" in report["summary"]
