"""Specs of seconds on the embedded engine, and what a run left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

SPECS = Path(__file__).resolve().parents[2] / "specs"
EASY_SLO = {"ttft_p90_ms": 20_000, "tpot_p90_ms": 2000}
"""Bounds that a machine busy with other things keeps, too; what its client may be late grows with the first."""
SIMULATE = ["{python}", "-m", "pytest_tokenwatt", "simulate", "--port", "{port}"]


def quick_spec(*arguments: str, configs: list[dict[str, Any]] | None = None, **blocks: Any) -> str:
    """A spec of one fixed rate, two windows of a second and a half; ``arguments`` go to the embedded engine."""
    spec: dict[str, Any] = {
        "engine": {"command": [*SIMULATE, *arguments], "ready_timeout_s": 60, "stop_timeout_s": 5},
        "configs": configs or [{"key": "baseline", "role": "baseline"}],
        "slo": EASY_SLO,
        "workload": {"input_tokens": 32, "output_tokens": 8},
        "measurement": {
            "warmup_s": 0.3,
            "warmup_max_s": 1,
            "window_s": 1.5,
            "search_window_s": 1,
            "repeats": 2,
            "request_timeout_s": 20,
        },
        "sweep": {"rates": [15]},
    }
    for name, block in blocks.items():
        spec[name] = {**spec[name], **block} if isinstance(spec.get(name), dict) and isinstance(block, dict) else block
    return yaml.safe_dump(spec, sort_keys=False)


def eased(name: str, root: Path) -> Path:
    """A shipped spec in ``root`` whose gates on time cannot turn by what else the machine does; the others stay."""
    spec = yaml.safe_load((SPECS / name).read_text(encoding="utf-8"))
    spec["accuracy"]["suite"] = str(SPECS / spec["accuracy"]["suite"])
    spec["slo"] = EASY_SLO
    spec["gates"] |= {"speed": {"min": 0.3, "max_error": 10.0}, "goodput": {"min": 0.3}}
    path = root / name
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return path


def report_of(root: Path) -> dict[str, Any]:
    """The report of the only run below ``root``."""
    (path,) = root.glob("tokenwatt-runs/*/report.json")
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


def processes_with(word: str) -> Iterator[str]:
    """Command lines of living processes that contain ``word``."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if word in line:
                yield line
