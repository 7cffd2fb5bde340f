"""The real engine: `make test-vllm` installs it, builds its tiny model, and runs this."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "vllm-cpu.yaml"

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one run of the spec through the plugin, in its own process, as a user starts it."""
    out = tmp_path_factory.mktemp("vllm") / "run"
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--tokenwatt-spec={SPEC}",
        f"--tokenwatt-out={out}",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    print(done.stdout[-20_000:], done.stderr[-5_000:])
    return out


@pytest.fixture(scope="module")
def report(run_dir: Path) -> dict[str, Any]:
    """The run's lab report."""
    content: dict[str, Any] = json.loads((run_dir / "report.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("key", ["baseline", "tuned"])
def test_each_configuration_has_goodput_and_an_slo_verdict(report: dict[str, Any], key: str) -> None:
    (config,) = [each for each in report["configs"] if each["key"] == key]
    (slo,) = [each for each in report["gates"] if each["id"] == f"{key}::slo"]
    assert config["goodput_tok_s"] > 0
    assert config["ttft_p99_ms"] > 0
    assert config["slo_pass_count"] == config["repeats"]
    assert slo["verdict"] == "pass"


def test_the_configurations_differ_in_their_cache(report: dict[str, Any]) -> None:
    engines = report["provenance"]["engines"]
    assert engines["baseline"]["fingerprint"] != engines["tuned"]["fingerprint"]
    tokens = {key: int(engine["cache_config"]["kv_cache_size_tokens"]) for key, engine in engines.items()}
    assert tokens["tuned"] == pytest.approx(2 * tokens["baseline"], rel=0.01)


def test_the_goodput_gate_compared_them(report: dict[str, Any]) -> None:
    (goodput,) = [each for each in report["gates"] if each["id"] == "tuned::goodput"]
    assert goodput["verdict"] in {"pass", "fail", "inconclusive"}
    assert goodput["value"] > 0
    assert goodput["error"] is not None


def test_the_report_is_of_a_real_engine(report: dict[str, Any]) -> None:
    assert all(engine["simulated"] is False for engine in report["provenance"]["engines"].values())
    assert report["software"]["engine_version"] == "0.32.0"
    assert not any("imulated" in line for line in report["not_covered"])


@pytest.mark.usefixtures("report")
def test_no_process_is_left(run_dir: Path) -> None:
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(run_dir).encode() in words:
                left.append(entry.name)
    assert left == []
