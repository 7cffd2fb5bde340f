"""Other ways to ask: the chat API, several scenarios in one engine start, attaching to a server that runs already."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from e2e_specs import quick_spec, report_of

RUN = ("--tokenwatt-spec=spec.yaml", "-p", "no:cacheprovider", "-p", "no:asyncio")


@pytest.mark.slow
def test_two_scenarios_over_the_chat_api_share_one_engine_start(pytester: pytest.Pytester) -> None:
    scenarios = [
        {"name": "chat"},
        {"name": "rag", "workload": {"input_tokens": 96, "output_tokens": 4}, "slo": {"e2e_p90_ms": 20_000}},
    ]
    pytester.makefile(".yaml", spec=quick_spec(engine={"api": "chat"}, scenarios=scenarios))
    result = pytester.runpytest(*RUN, "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["spec.yaml::baseline::slo[[]chat] *", "spec.yaml::baseline::slo[[]rag] *"])
    (run,) = pytester.path.glob("tokenwatt-runs/*")
    events = [json.loads(line)["event"] for line in (run / "journal.jsonl").read_text().splitlines()]
    assert events.count("engine_ready") == 1
    stored = json.loads((run / "record-baseline.json").read_text())
    assert {name: each["goodput_tok_s"] > 0 for name, each in stored["scenarios"].items()} == {
        "chat": True,
        "rag": True,
    }


@contextmanager
def served() -> Iterator[str]:
    """An embedded engine that somebody else runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pytest_tokenwatt", "simulate", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        try:
            _await(f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}"
            assert process.poll() is None, "an attached engine is never stopped"
        finally:
            process.terminate()


def _await(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urlopen(url, timeout=2):
                return
        except (URLError, OSError):
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.slow
def test_an_attached_engine_is_measured_with_text_prompts_and_left_running(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", spec=quick_spec(engine={"prompt": "text"}))
    with served() as root:
        result = pytester.runpytest(*RUN, f"--tokenwatt-endpoint={root}", "--tokenwatt-out=runs/a.json")
    result.assert_outcomes(passed=2)
    stored = json.loads((pytester.path / "runs" / "a.json").read_text())
    assert stored["scenarios"]["default"]["goodput_tok_s"] > 0
    assert stored["launch"]["method"] == "attach"


@pytest.mark.slow
def test_the_same_engine_twice_is_invalid_and_a_declared_repeat_is_not(pytester: pytest.Pytester) -> None:
    configs = [
        {"key": "baseline", "role": "baseline"},
        {"key": "tuned", "role": "tuned"},
        {"key": "again", "role": "other", "like": "baseline"},
    ]
    pytester.makefile(".yaml", spec=quick_spec(configs=configs, gates={"goodput": {"min": 0.5}}))
    result = pytester.runpytest(*RUN)
    assert result.ret == 11
    verdicts = {gate["id"]: gate for gate in report_of(pytester.path)["gates"]}
    assert verdicts["tuned::goodput"]["verdict"] == "invalid"
    assert "identical_configs" in json.dumps(verdicts["tuned::goodput"]["reasons"])
    assert verdicts["again::goodput"]["verdict"] == "pass"
