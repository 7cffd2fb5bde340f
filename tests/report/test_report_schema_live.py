"""Real runs on the embedded engine: the report keeps to the schema, and a replay of the run says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from schema_samples import faults

from pytest_tokenwatt.arithmetic import generate
from pytest_tokenwatt.replay import open_replay

pytestmark = pytest.mark.slow

SERVE = {"concurrency": 4, "input_tokens": 48, "output_tokens": 24, "requests": 8, "repeats": 2}
SPEC: dict[str, Any] = {
    "engine": {
        "command": ["{python}", "-m", "pytest_tokenwatt", "simulate", "--port", "{port}"],
        "ready_timeout_s": 20,
        "stop_timeout_s": 5,
    },
    "configs": [
        {"key": "baseline", "role": "baseline"},
        {"key": "tuned", "role": "tuned", "engine": {"args": ["--kv-cache-dtype", "fp8"]}, "precision": "W16A16KV8"},
    ],
    "slo": {"ttft_p90_ms": 3000, "tpot_p90_ms": 200},
    "workload": {"input_tokens": 32, "output_tokens": 8},
    "measurement": {"warmup_s": 0.3, "warmup_max_s": 1, "window_s": 1.5, "search_window_s": 1, "repeats": 2},
    "sweep": {"rates": [15]},
    "profiles": {"serve": SERVE, "interactive": {**SERVE, "concurrency": 1, "requests": 2}},
    "accuracy": {"name": "sums", "suite": "sums.jsonl", "max_drop_pts": 20, "max_tokens": 16, "control": True},
    "drift": {"sequences": 16, "tokens": 16},
    "audit": {"picked": 4},
    "budget": {"factor": 1.02},
    "score": {},
    "fleet": {"cards": 8},
    "power": {"source": "simulated", "sampling_hz": 10},
}
PLAIN = {name: SPEC[name] for name in ("engine", "configs", "slo", "workload", "measurement", "sweep")}
TWICE = {
    **PLAIN,
    "configs": [*PLAIN["configs"], {"key": "again", "role": "other", "like": "baseline"}],
    "scenarios": [{"name": "chat"}, {"name": "rag", "workload": {"input_tokens": 64}}],
}
VOLATILE = ("replayed",)
"""What a replay says of itself."""


def run(folder: Path, spec: dict[str, Any]) -> Path:
    """The run directory of a spec, in a pytest of its own."""
    lines = [json.dumps({"id": item.id, "prompt": item.prompt, "answer": item.answer}) for item in generate(24)]
    (folder / "sums.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "lab.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tokenwatt-spec=lab.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    print(done.stdout[-8000:], done.stderr[-2000:])
    (path,) = folder.glob("tokenwatt-runs/*/")
    return path


def replayed(run_dir: Path, out: Path) -> bytes:
    lab = open_replay([run_dir], out=out)
    for gate in lab.gates:
        lab.judge(gate)
    assert lab.finish() is not None
    return (out / "report.json").read_bytes()


@pytest.mark.parametrize("spec", [SPEC, PLAIN, TWICE], ids=["whole", "plain", "scenarios"])
def test_a_live_report_and_its_replay_keep_to_the_schema(tmp_path: Path, spec: dict[str, Any]) -> None:
    run_dir = run(tmp_path, spec)
    live = json.loads((run_dir / "report.json").read_text(encoding="utf-8"))
    assert faults(live) == []
    first, second = (replayed(run_dir, tmp_path / name) for name in ("first", "second"))
    assert first == second
    again = json.loads(first)
    assert faults(again) == []
    assert {**again, **{key: live[key] for key in VOLATILE}} == live
