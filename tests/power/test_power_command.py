"""Power from a command: what it prints, and what comes of one that fails, hangs or babbles."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from source_contexts import context, program, settings

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power import command as command_module
from pytest_tokenwatt.power.command import CommandSource


def source(folder: Path, script: str, **keys: Any) -> CommandSource:
    program(folder / "bin", "meter", script)
    environ = {"PATH": os.environ["PATH"], "METER_TOKEN": "hunter2-secret"}
    return CommandSource(settings("command", command=["bin/meter"], **keys), context(folder, environ))


def refused(source: CommandSource) -> PowerError:
    with pytest.raises(PowerError) as caught:
        source.open()
    assert caught.value.reason == "no_power_source"
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


def test_a_number_is_watts(tmp_path: Path) -> None:
    meter = source(tmp_path, "pwd > where; echo ' 431.5 '")
    (info,) = meter.open()
    assert info.sensor == "meter"
    assert meter.read()[0].watts == 431.5
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    assert meter.read_counters() == {}


@pytest.mark.parametrize(
    ("field", "printed"),
    [
        ("watts", '{"watts": 12.5}'),
        ("psu.1.input", '{"psu": [{"input": 1}, {"input": "12.5"}]}'),
        ("0", "[12.5]"),
    ],
)
def test_a_field_of_json_is_watts(tmp_path: Path, field: str, printed: str) -> None:
    meter = source(tmp_path, f"echo '{printed}'", field=field)
    meter.open()
    assert meter.read()[0].watts == 12.5


@pytest.mark.parametrize("printed", ["0", "-5", "nan", "inf", "1e400", "1e308", "1e-310"])
def test_what_is_no_power_is_a_missing_sample(tmp_path: Path, printed: str) -> None:
    meter = source(tmp_path, f"echo {printed}")
    meter.open()
    (reading,) = meter.read()
    assert reading.watts is None
    assert "which is no reading of power" in str(reading.problem)


@pytest.mark.parametrize(
    ("script", "keys", "says"),
    [
        ("echo hunter2-secret >&2; exit 3", {}, "meter failed (exit status 3)"),
        ("kill -9 $$", {}, "meter failed (signal 9)"),
        ("echo 12 watts", {}, "printed '12 watts', which is no number"),
        ("echo 1_000", {}, "printed '1_000', which is no number"),
        ("true", {}, "printed '', which is no number"),
        ("echo 500", {"field": "watts"}, "printed JSON without watts"),
        ("echo oops", {"field": "watts"}, "printed 'oops', which is no JSON"),
        ("""echo '{"watts": {}}'""", {"field": "watts.total"}, "printed JSON without watts.total"),
        ("yes", {}, "printed more than 64 KiB and was killed"),
    ],
)
def test_each_failure_has_its_line(tmp_path: Path, script: str, keys: dict[str, Any], says: str) -> None:
    error = refused(source(tmp_path, script, **keys))
    assert says in str(error)
    assert "hunter2-secret" not in str(error)


def test_a_failure_in_between_is_told_and_passes(tmp_path: Path) -> None:
    meter = source(tmp_path, "cat watts")
    (tmp_path / "watts").write_text("7")
    meter.open()
    (tmp_path / "watts").unlink()
    with pytest.raises(PowerError, match="exit status 1") as caught:
        meter.read()
    assert caught.value.reason == "read_failed"
    (tmp_path / "watts").write_text("8")
    assert meter.read()[0].watts == 8.0


def test_a_hanging_command_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "TIMEOUT_S", 0.5)
    meter = source(tmp_path, "sleep 60 & echo $! > child; wait")
    assert "did not end within 0.5 s and was killed" in str(refused(meter))
    child = int((tmp_path / "child").read_text())
    deadline_s = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_running(child)


def test_a_child_that_keeps_the_output_open_delays_nothing(tmp_path: Path) -> None:
    meter = source(tmp_path, "sleep 60 & echo 5")
    begun_s = time.monotonic()
    meter.open()
    assert time.monotonic() - begun_s < 4


def test_programs_that_cannot_be_run(tmp_path: Path) -> None:
    absent = CommandSource(settings("command", command=["bin/none"]), context(tmp_path))
    assert "there is no program none" in str(refused(absent))
    meter = source(tmp_path, "echo 1")
    (tmp_path / "bin" / "meter").chmod(0o644)
    assert "meter may not be run; make it executable" in str(refused(meter))
    (tmp_path / "bin" / "meter").chmod(0o755)
    (tmp_path / "bin" / "meter").write_bytes(b"\x00\x01")
    assert "meter cannot be started" in str(refused(meter))
    with pytest.raises(PowerError, match=r"power\.command is missing"):
        CommandSource(settings("command"), context(tmp_path))


def is_running(pid: int) -> bool:
    try:
        # An orphan that was killed may wait a moment for its new parent.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
