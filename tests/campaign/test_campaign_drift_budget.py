"""The time budget ends scoring, however long an engine takes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_tokenwatt.campaign.drift import measure_drift
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.journal import Journal
from pytest_tokenwatt.store.rundir import RunDirectory

SPEC = """
engine: {endpoint: "http://127.0.0.1:8000/v1", model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
drift: {prompts: prompts.jsonl}
"""


class Hangs:
    async def complete(self, *_given: Any, **_named: Any) -> None:
        await asyncio.sleep(60)


def test_an_engine_that_hangs_is_left_when_the_time_is_used_up(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"id": "1", "prompt": "How many?", "answer": "1"}', encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    spec, run_dir = load_spec(tmp_path / "spec.yaml"), RunDirectory(tmp_path / "run")
    identity = SimpleNamespace(max_model_len=64)
    engine = SimpleNamespace(identity=identity, client=Hangs(), call=asyncio.run, death=lambda: None)
    began_s = time.monotonic()
    with Journal(run_dir.file("journal.jsonl")) as journal:
        deadline = Deadline(1.0, began_s + 0.2)
        session = Session(spec, run_dir, journal, "r1", 7, deadline, os.environ, lambda _: None, Shelf(spec))
        with pytest.raises(LoadError, match="time budget of 1 minutes is used up") as caught:
            measure_drift(spec.configurations[0], cast("RunningEngine", engine), session)
    assert caught.value.reason == "time_budget"
    assert time.monotonic() - began_s < 20
