from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_workshop import FAKE, Workshop, open_workshop, wait_for

from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.engine.ports import claim_free_port
from pytest_tokenwatt.errors import EngineError


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        yield made


class Container:
    """An engine that is started and stopped by commands, as with docker: ``up`` leaves it running in the background."""

    def __init__(self, folder: Path) -> None:
        claim = claim_free_port()
        claim.release()
        self.port = claim.port
        self.story = folder / "story.txt"
        self.pid = folder / "pid.txt"

    def note(self, word: str, then: str = "pass") -> list[str]:
        code = f"open({str(self.story)!r}, 'a').write({word + ' '!r}); print('{word} speaks', flush=True); {then}"
        return [sys.executable, "-S", "-c", code]

    def up(self, then: str = "pass", *options: str) -> list[str]:
        server = [sys.executable, FAKE, "--port", str(self.port), "--model", "tiny", *options]
        start = f"import subprocess; p = subprocess.Popen({server!r}, start_new_session=True)"
        return self.note("up", f"{start}; open({str(self.pid)!r}, 'w').write(str(p.pid)); {then}")

    def down(self, then: str = "pass") -> list[str]:
        return self.note("down", f"import os; os.kill(int(open({str(self.pid)!r}).read()), 15); {then}")

    def engine(self, **changes: Any) -> dict[str, Any]:
        block = {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "prepare": [self.note("prepare-a"), self.note("prepare-b")],
            "up": self.up(),
            "down": self.down(),
            "cleanup": self.note("cleanup"),
        }
        return {**block, **changes}

    @property
    def told(self) -> list[str]:
        return self.story.read_text().split() if self.story.exists() else []


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def failure(workshop: Workshop, **engine: Any) -> EngineError:
    with pytest.raises(EngineError) as caught:
        workshop.start(**engine)
    assert workshop.leftovers == []
    return caught.value


def test_an_engine_that_commands_bring_up_and_down(workshop: Workshop, container: Container) -> None:
    engine = workshop.start(**container.engine())
    assert engine.identity.model_ids == ("tiny",)
    assert container.told == ["prepare-a", "prepare-b", "up"]
    assert engine.death() is None
    engine.stop()
    assert container.told == ["prepare-a", "prepare-b", "up", "down", "cleanup"]
    assert answers("127.0.0.1", container.port) is False
    assert engine.notes == ()
    text = workshop.log.read_text()
    assert "up speaks" in text
    assert "cleanup speaks" in text
    assert engine.launch["method"] == "up"


def test_up_that_fails_half_way_is_undone(workshop: Workshop, container: Container) -> None:
    error = failure(workshop, **container.engine(up=container.up("raise SystemExit(3)")))
    assert error.reason == "engine_start_failed"
    assert "was not started: up" in str(error)
    assert "failed with exit code 3" in str(error)
    assert container.told == ["prepare-a", "prepare-b", "up", "down", "cleanup"]


def test_prepare_that_fails_is_cleaned_up(workshop: Workshop, container: Container) -> None:
    bad = container.note("prepare", "import sys; sys.exit('nvidia-smi: Permission denied')")
    error = failure(workshop, **container.engine(prepare=bad))
    assert "was not started: prepare" in str(error)
    assert "nvidia-smi: Permission denied; give this user access" in str(error)
    assert container.told == ["prepare", "down", "cleanup"]


@pytest.mark.slow
def test_up_that_never_ends_is_bounded(workshop: Workshop, container: Container) -> None:
    started = time.monotonic()
    error = failure(workshop, **container.engine(up=container.up("import time; time.sleep(99)")), ready_timeout_s=3)
    assert time.monotonic() - started < 30
    assert "did not end within 3 s" in str(error)
    assert container.told[-2:] == ["down", "cleanup"]


def test_up_that_leaves_nothing_behind_it(workshop: Workshop, container: Container) -> None:
    error = failure(
        workshop, **container.engine(up=container.note("up"), down=container.note("down")), ready_timeout_s=1
    )
    assert "baseline is not ready after 1 s" in str(error)
    assert container.told[-2:] == ["down", "cleanup"]


def test_nothing_may_answer_before_up(workshop: Workshop, container: Container) -> None:
    first = workshop.start(**container.engine())
    error = failure_with_first_running(workshop, container)
    assert error.reason == "endpoint_in_use"
    assert "down" not in container.told
    first.stop()


def failure_with_first_running(workshop: Workshop, container: Container) -> EngineError:
    with pytest.raises(EngineError) as caught:
        workshop.start(**container.engine())
    return caught.value


def test_another_model_behind_the_endpoint(workshop: Workshop, container: Container) -> None:
    error = failure(workshop, **container.engine(model="large"))
    assert error.reason == "wrong_model"
    assert container.told[-2:] == ["down", "cleanup"]


def test_a_failing_down_is_told_and_the_rest_is_still_done(workshop: Workshop, container: Container) -> None:
    engine = workshop.start(**container.engine(down=container.note("down", "raise SystemExit(5)")))
    engine.stop()
    assert any("down" in note and "ended with exit code 5" in note for note in engine.notes)
    assert container.told[-1] == "cleanup"
    assert workshop.leftovers == []


def test_logs_are_followed_from_a_command(workshop: Workshop, container: Container, tmp_path: Path) -> None:
    source = tmp_path / "container.log"
    source.write_text("non-default args: {'port': 1, 'kv_cache_dtype': 'fp8'}\n")
    engine = workshop.start(**container.engine(logs=["tail", "-n", "+1", "-F", str(source)]))
    with source.open("a") as log:
        log.write("a later line\n")
    assert wait_for(lambda: "a later line" in workshop.log.read_text())
    engine.stop()
    assert workshop.leftovers == []


def test_logs_are_read_from_a_file(workshop: Workshop, container: Container, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("INFO non-default args: {'port': 1, 'kv_cache_dtype': 'fp8'}\n")
    engine = workshop.start(**container.engine(logs="server.log"))
    assert engine.log == tmp_path / "server.log"
    assert engine.identity.start_args == {"kv_cache_dtype": "fp8", "port": "1"}
    assert engine.fingerprint is not None


def test_attaching_leaves_the_server_alone(workshop: Workshop, container: Container) -> None:
    owner = workshop.start(**container.engine())
    attached = workshop.start(endpoint=f"http://127.0.0.1:{container.port}/v1/")
    assert attached.endpoint == owner.endpoint
    assert attached.log is None
    assert attached.death() is None
    attached.stop()
    assert owner.death() is None
    owner.stop()
    again = workshop.start(**container.engine())
    attached = workshop.start(endpoint=f"http://127.0.0.1:{container.port}")
    again.stop()
    assert "refuses connections" in (attached.death() or "")


def test_attaching_to_nothing(workshop: Workshop, container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.engine.start.ATTACH_PATIENCE_S", 0.5)
    error = failure(workshop, endpoint=f"http://127.0.0.1:{container.port}")
    assert "Connection refused; start the engine first, or check engine.endpoint" in str(error)
    assert not (workshop.folder / "run").exists()
