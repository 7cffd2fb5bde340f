"""Every way in which an engine lets a run down ends in one readable message, no process, and what was measured kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from e2e_specs import SIMULATE, processes_with, quick_spec, report_of

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# The seed decides which requests a fault hits: these let the probes before the load pass, and many of the load fail.
FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "binary missing": (
        {"engine": {"command": ["no-such-engine-binary", "--port", "{port}"]}},
        "usage",
        "no-such-engine-binary",
    ),
    "exits at once": (
        {"engine": {"command": [*SIMULATE, "--fault", "exit=3"]}},
        "invalid",
        "engine_start_failed: *exit code 3*(log: *engine-baseline.log)*",
    ),
    "never ready": (
        {"engine": {"command": [*SIMULATE, "--fault", "never-ready"], "ready_timeout_s": 2}},
        "invalid",
        "engine_start_failed: *2 s*ready_timeout_s*(log: *engine-baseline.log)*",
    ),
    "dies in mid-window": (
        {"engine": {"command": [*SIMULATE, "--fault", "crash-after=3"]}, "measurement": {"window_s": 6}},
        "invalid",
        "engine_died: *exit code 1*",
    ),
    "another model": (
        {"engine": {"command": [*SIMULATE, "--fault", "wrong-model"], "model": "tokenwatt/embedded-tiny"}},
        "invalid",
        "wrong_model: *tokenwatt/embedded-tiny*",
    ),
    "answers 429": (
        {"engine": {"command": [*SIMULATE, "--fault", "http-429=0.3", "--seed", "2"]}},
        "fail",
        "*429*",
    ),
    "answers 500": (
        {"engine": {"command": [*SIMULATE, "--fault", "http-500=0.5"]}},
        "fail",
        "*500*",
    ),
    "cut streams": (
        {"engine": {"command": [*SIMULATE, "--fault", "cut-stream=0.3", "--seed", "3"]}},
        "fail",
        "*stream_truncated*",
    ),
    "error objects in streams": (
        {"engine": {"command": [*SIMULATE, "--fault", "stream-error=0.5"]}},
        "fail",
        "*stream_error*",
    ),
    "beyond max_model_len": (
        {
            "engine": {"command": [*SIMULATE, "--max-model-len", "256"]},
            "workload": {"input_tokens": 300, "output_tokens": 8},
        },
        "invalid",
        "workload_unusable: *300 + 8 tokens*max_model_len 256*",
    ),
}


LONG = ("answers 429", "answers 500", "cut streams", "error objects in streams")
"""Faults whose runs take longest: left to the slow run."""


@linux_only
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in FAULTS]
)
def test_a_fault_ends_in_one_readable_message(pytester: pytest.Pytester, name: str) -> None:
    blocks, verdict, message = FAULTS[name]
    pytester.makefile(".yaml", spec=quick_spec(**blocks))
    result = pytester.runpytest("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")
    output = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in output
    assert "INTERNALERROR" not in output
    if verdict == "usage":
        assert result.ret == 4
        assert message in output
        return
    assert result.ret == {"fail": 1, "invalid": 11}[verdict]
    result.stdout.fnmatch_lines([f"spec.yaml:*baseline slo*{message}"])
    gates = {gate["gate"]: gate for gate in report_of(pytester.path)["gates"]}
    assert gates["slo"]["verdict"] == verdict
    assert gates["slo"]["reasons"]
    _assert_gone(str(pytester.path))


def test_a_refused_connection_names_endpoint_and_remedy(pytester: pytest.Pytester) -> None:
    pytester.makefile(
        ".yaml", spec=quick_spec(engine={"command": None, "endpoint": "http://127.0.0.1:9/v1", "ready_timeout_s": 2})
    )
    result = pytester.runpytest("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["spec.yaml:*baseline slo*127.0.0.1:9*"])


@linux_only
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl-c", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, id="cancelled", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, id="kill", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_leaves_measurements_and_no_process(tmp_path: Path, number: signal.Signals) -> None:
    two: list[dict[str, Any]] = [
        {"key": "baseline", "role": "baseline"},
        {"key": "tuned", "role": "tuned", "engine": {"args": ["--seed", "1"]}},
    ]
    (tmp_path / "spec.yaml").write_text(quick_spec(configs=two, measurement={"window_s": 3}), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as run:
        try:
            _wait_for_second_load(tmp_path)
            os.kill(run.pid, number)
            output, _ = run.communicate(timeout=120)
        finally:
            run.kill()
    (record,) = tmp_path.glob("tokenwatt-runs/*/record-baseline.json")
    stored = json.loads(record.read_text(encoding="utf-8"))
    assert stored["scenarios"]["default"]["goodput_tok_s"] > 0
    _assert_gone(str(tmp_path))
    if number is not signal.SIGKILL:
        assert run.returncode == 2
        assert "Traceback" not in output
        assert report_of(tmp_path)["status"] == "draft"


def _wait_for_second_load(root: Path) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        for journal in root.glob("tokenwatt-runs/*/journal.jsonl"):
            # The last line may be on its way.
            events = [json.loads(line) for line in journal.read_text(encoding="utf-8").split("\n")[:-1]]
            if any(each["event"] == "measurement_started" and each["config"] == "tuned" for each in events):
                time.sleep(1.0)
                return
        time.sleep(0.1)
    raise AssertionError("the second configuration was never measured")


def _assert_gone(word: str) -> None:
    deadline = time.monotonic() + 60
    while list(processes_with(word)):
        assert time.monotonic() < deadline, list(processes_with(word))
        time.sleep(0.1)
