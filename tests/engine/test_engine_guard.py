from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from engine_workshop import TAG, Workshop, fake, open_workshop, tagged, wait_for

import pytest_tokenwatt
from pytest_tokenwatt.engine.tree import is_alive


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        yield made


OWNER = str(Path(__file__).with_name("engine_owner.py"))
ROOT = str(Path(pytest_tokenwatt.__file__).parents[1])


class Owner:
    """A process that starts an engine and that a test ends in some rude way."""

    def __init__(self, folder: Path, manner: str, engine: dict[str, Any]) -> None:
        self.folder = folder
        self.story = folder / "story.txt"
        spec = folder / "spec.yaml"
        note = [
            sys.executable,
            "-S",
            "-c",
            "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' ')",
            str(self.story),
        ]
        block = {"command": fake("--stubborn-child"), "stop_timeout_s": 1, "cleanup": [*note, "cleanup"]}
        spec.write_text(json.dumps({"engine": {**block, **engine}}))
        self.tag = f"owner-{os.getpid()}-{time.monotonic_ns()}"
        with (folder / "errors.txt").open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, OWNER, str(spec), manner],
                env={**os.environ, TAG: self.tag, "PYTHONPATH": ROOT},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "errors.txt").read_text()
        return line

    @property
    def told(self) -> list[str]:
        return self.story.read_text().split() if self.story.exists() else []

    def is_clean(self) -> bool:
        """All that it started is gone, and the clean-up has run."""
        return wait_for(lambda: "cleanup" in self.told and not tagged(self.tag))


@contextmanager
def owner(folder: Path, manner: str = "plain", **engine: Any) -> Iterator[Owner]:
    started = Owner(folder, manner, engine)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait(60)
        if started.process.stdout is not None:
            started.process.stdout.close()
        for pid in tagged(started.tag):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_survives_the_death_of_pytest(tmp_path: Path, signum: signal.Signals) -> None:
    with owner(tmp_path) as started:
        port = urlsplit(started.line().split()[1]).port
        assert wait_for(lambda: len(tagged(started.tag)) >= 3)
        lock = Path(tempfile.gettempdir()) / f"tokenwatt-port-{port}.lock"
        assert lock.exists()
        started.process.send_signal(signum)
        started.process.wait(60)
        assert started.is_clean()
        assert wait_for(lambda: not lock.exists())


def test_nothing_survives_a_ctrl_c(tmp_path: Path) -> None:
    with owner(tmp_path) as started:
        assert started.line().startswith("ready")
        # What a terminal does: the whole foreground group gets the signal, not pytest alone.
        os.killpg(started.process.pid, signal.SIGINT)
        assert started.process.wait(60) != 0
        assert started.told == ["cleanup"]
        assert tagged(started.tag) == []


def test_a_ctrl_c_while_the_engine_loads(tmp_path: Path) -> None:
    with owner(tmp_path, command=fake("--load-s", "60", "--stubborn-child")) as started:
        assert wait_for(lambda: len(tagged(started.tag)) >= 3)
        os.killpg(started.process.pid, signal.SIGINT)
        assert started.process.wait(60) != 0
        assert started.told == ["cleanup"]
        assert tagged(started.tag) == []


def test_death_in_the_middle_of_prepare(tmp_path: Path) -> None:
    flag = tmp_path / "preparing"
    wait = [sys.executable, "-S", "-c", f"import time; open({str(flag)!r}, 'w').close(); time.sleep(60)"]
    with owner(tmp_path, prepare=wait) as started:
        assert wait_for(flag.exists)
        started.process.kill()
        started.process.wait(60)
        assert started.is_clean()


def test_a_forked_child_that_holds_the_pipes_does_not_deceive_the_guard(tmp_path: Path) -> None:
    with owner(tmp_path, "forked") as started:
        lines = sorted([started.line(), started.line()])
        child = int(lines[0].split()[1])
        started.process.kill()
        started.process.wait(60)
        assert wait_for(lambda: "cleanup" in started.told and tagged(started.tag) == [child])
        os.kill(child, signal.SIGKILL)


def test_a_second_guard_cleans_up_behind_a_killed_one(workshop: Workshop, tmp_path: Path) -> None:
    flag = tmp_path / "cleaned"
    cleanup = [sys.executable, "-S", "-c", f"open({str(flag)!r}, 'w').close()"]
    engine = workshop.start(command=fake("--stubborn-child", "--ignore-sigterm"), cleanup=cleanup, stop_timeout_s=1)
    assert wait_for(lambda: len(workshop.leftovers) == 2)
    os.kill(guard_of(workshop.leftovers), signal.SIGKILL)
    assert wait_for(lambda: engine.death() is not None)
    assert "its guard process was killed" in (engine.death() or "")
    engine.stop()
    assert flag.exists()
    assert workshop.leftovers == []
    assert "a second one cleaned up behind it" in engine.notes[0]


def test_a_second_guard_finds_what_no_mark_tells_of(workshop: Workshop) -> None:
    engine = workshop.start(command=fake("--bare-child"), stop_timeout_s=1)
    child = int(workshop.log.read_text().split("bare ")[1].split()[0])
    os.kill(guard_of(workshop.leftovers), signal.SIGKILL)
    assert wait_for(lambda: workshop.leftovers == [])
    assert is_alive(child)
    engine.stop()
    assert not is_alive(child)


def test_the_engine_ends_with_its_guard(workshop: Workshop) -> None:
    workshop.start(command=fake())
    os.kill(guard_of(workshop.leftovers), signal.SIGKILL)
    assert wait_for(lambda: workshop.leftovers == [])


def guard_of(pids: list[int]) -> int:
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in parents}
    return next(pid for pid, name in names.items() if name == "tokenwatt-guard")


@pytest.mark.parametrize(("code", "said"), [(7, "died with exit code 7"), (137, "out-of-memory killer")])
def test_death_is_noticed_and_explained(workshop: Workshop, code: int, said: str) -> None:
    engine = workshop.start(command=fake())
    order = json.dumps({"code": code, "last_words": "RuntimeError: no luck"}).encode()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{engine.endpoint.removesuffix('/v1')}/exit", order, timeout=5)
    assert wait_for(lambda: engine.death() is not None)
    death = engine.death() or ""
    assert said in death
    assert death.endswith(f"last log lines: RuntimeError: no luck (log: {workshop.log})")


def test_a_killed_engine_names_the_signal(workshop: Workshop) -> None:
    engine = workshop.start(command=fake())
    os.kill(workshop.leftovers[0], signal.SIGKILL)
    assert wait_for(lambda: engine.death() is not None)
    assert "died with signal SIGKILL (often the kernel's out-of-memory killer" in (engine.death() or "")
    engine.stop()
    assert engine.death() is None


def test_the_guard_loads_the_standard_library_only() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import pytest_tokenwatt.engine.guard; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, ROOT], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) <= {"__main__", "pytest_tokenwatt", "sitecustomize"}
