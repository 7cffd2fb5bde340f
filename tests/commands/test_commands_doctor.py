"""``doctor``: what it says of a machine that is fine, of one that is not, and of a spec."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from command_servers import call, fake, serving

from pytest_tokenwatt.commands.doctor.check import Check
from pytest_tokenwatt.commands.doctor.gpus import check_gpus
from pytest_tokenwatt.commands.doctor.machine import check_machine
from pytest_tokenwatt.commands.doctor.python import check_python
from pytest_tokenwatt.commands.doctor.sensors import check_sensors
from pytest_tokenwatt.commands.doctor.surroundings import check_surroundings
from pytest_tokenwatt.testing.nvml import FakeNvml

STATES = ("ok ", "warning ", "missing ")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_subject(checks: Iterable[Check]) -> dict[str, Check]:
    return {check.subject: check for check in checks}


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_every_subject_has_one_line_and_the_last_one_concludes(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "doctor")
    *lines, conclusion = done.out.splitlines()
    assert all(line.startswith(STATES) for line in lines)
    told = " ".join(line.split(maxsplit=2)[1] for line in lines)
    for subject in (
        "python",
        "pytest",
        "uvloop",
        "httptools",
        "HTML",
        "cores",
        "real",
        "open",
        "ports",
        "disk",
        "NVML",
    ):
        assert subject in told
    for subject in ("RAPL", "IPMI", "vllm", "docker", "signals", "step"):
        assert subject in told
    assert (done.code, done.err) == (0, "")
    assert conclusion.startswith("ready: all that is needed works")


def test_a_place_that_is_not_writable_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/proc/self")
    done = call(capsys, "doctor")
    assert done.code == 1
    assert done.out.splitlines()[-1] == "not ready: disk"
    assert "not writable; run where you may write, or give --tokenwatt-out" in done.out


def test_python_says_what_keeps_pytest_from_loading_the_plugin() -> None:
    assert by_subject(check_python({}))["plugin"].state == "ok"
    switched_off = by_subject(check_python({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}))["plugin"]
    assert (switched_off.state, switched_off.remedy) == (
        "warning",
        "unset it, or pytest -p pytest_tokenwatt.plugin",
    )


def test_the_machine_has_a_disk_and_ports(place: Path) -> None:
    found = by_subject(check_machine(place))
    assert found["ports"].state in ("ok", "warning")
    assert found["disk"].says.endswith(f"free in {place}")
    assert not found["real time"].needed
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_gpus_with_and_without_trouble(fake_nvml: FakeNvml) -> None:
    (absent,) = check_gpus()
    assert (absent.state, absent.remedy) == ("missing", "in a container, docker run --gpus all")
    quiet, busy, blind = (fake_nvml.add_gpu() for _ in range(3))
    for gpu in (quiet, busy, blind):
        gpu.set_memory(80 << 30, 400 << 20)
        gpu.set_limit(700.0)
    busy.set_memory(80 << 30, 62 << 30)
    busy.set_processes(4711)
    busy.counter_absent()
    blind.fail("nvmlDeviceGetPowerUsage", 3)
    found = by_subject(check_gpus())
    assert found["NVML"].says == "3 GPUs, driver 570.86.15"
    assert (found["GPU 0"].state, found["GPU 0 memory"].state) == ("ok", "ok")
    assert quiet.uuid in found["GPU 0"].says
    assert "without an energy counter" in found["GPU 1"].says
    assert found["GPU 1 memory"].says == "62.0 GiB are in use by process 4711"
    assert "does not tell its power" in found["GPU 2"].says
    assert not any(check.stops for check in found.values())
    assert fake_nvml.users() == 0


def test_a_driver_that_does_not_load_is_named(fake_nvml: FakeNvml) -> None:
    fake_nvml.fail_init(9)
    (found,) = check_gpus()
    assert found.state == "missing"
    assert "installed but not loaded (error 9)" in found.says


def test_sensors_are_tried(place: Path) -> None:
    nothing = by_subject(check_sensors({"PATH": ""}, rapl=place / "none", ipmi=()))
    assert "there is no RAPL package" in nothing["RAPL"].says
    assert nothing["IPMI"].remedy == "install ipmitool or freeipmi"
    package = place / "powercap" / "intel-rapl:0"
    package.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("energy_uj", "5"), ("max_energy_range_uj", "1000")):
        (package / name).write_text(content, encoding="utf-8")
    program(place, "ipmitool")
    device = place / "ipmi0"
    environ = {"PATH": str(place)}
    without = by_subject(check_sensors(environ, rapl=package.parent, ipmi=(device,)))
    assert (without["RAPL"].state, without["RAPL"].says) == ("ok", "package-0")
    assert "no IPMI device" in without["IPMI"].says
    device.touch()
    assert by_subject(check_sensors(environ, ipmi=(device,)))["IPMI"].state == "ok"


def test_surroundings(place: Path) -> None:
    absent = by_subject(check_surroundings({"PATH": ""}))
    assert (absent["vllm"].state, absent["docker"].state) == ("missing", "missing")
    assert "is not set" in absent["step summary"].says
    vllm, _ = program(place, "vllm"), program(place, "docker")
    environ = {"PATH": str(place), "GITHUB_STEP_SUMMARY": str(place / "no" / "such" / "folder")}
    found = by_subject(check_surroundings(environ, socket=place / "docker.sock"))
    assert (found["vllm"].state, found["vllm"].says) == ("ok", str(vllm))
    assert "no daemon" in found["docker"].says
    assert found["step summary"].state == "warning"
    summary = by_subject(check_surroundings({"GITHUB_STEP_SUMMARY": str(place / "summary.md")}))["step summary"]
    assert (summary.state, summary.says) == ("ok", f"written to {place / 'summary.md'}")


def test_an_ignored_interrupt_is_noticed() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = by_subject(check_surroundings({}))["signals"]
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.state == "warning"
    assert found.says.startswith("SIGINT ignored")


def spec(folder: Path, text: str) -> str:
    (folder / "it.yaml").write_text(text, encoding="utf-8")
    return "it.yaml"


def test_a_spec_that_can_be_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate = f'["{sys.executable}", -m, pytest_tokenwatt, simulate, --port, "{{port}}"]'
    done = call(capsys, "doctor", spec(place, f"engine: {{command: {simulate}}}\nslo: {{ttft_p90_ms: 100}}\n"))
    assert done.code == 0
    assert "it.yaml loads, and can be run: baseline" in done.out
    assert done.out.splitlines()[-1].startswith("ready for it.yaml: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engine: {comand: [a]}\n", "it.yaml:1: engine.comand: "),
        ("engine: {command: [no-such-program-here, '{port}']}\n", "no-such-program-here is not on PATH; install"),
        ("engine: {endpoint: 'http://127.0.0.1:1/v1'}\n", "nothing answers at http://127.0.0.1:1/v1; start the server"),
        ("engine: {endpoint: 'http://127.0.0.1:1/v1'}\naccuracy: {name: a, suite: no.jsonl}\n", "there is no file"),
        ("[]", "the file holds a list"),
    ],
)
def test_what_keeps_a_spec_from_running(place: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "doctor", spec(place, text))
    assert done.code == 1
    assert any(line.startswith("missing  spec") and said in line for line in done.out.splitlines()), done.out
    assert done.out.splitlines()[-1] == "not ready: spec"


def test_an_endpoint_that_is_to_come_up_must_be_free(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(fake("--model", "tiny"), place) as url:
        block = f"{{endpoint: {url}/v1, up: [{sys.executable}], down: [{sys.executable}]}}"
        done = call(capsys, "doctor", spec(place, f"engine: {block}\n"))
    assert done.code == 1
    assert f"something answers at {url}/v1 before it is started; stop it" in done.out


@pytest.mark.parametrize("words", [("a.yaml", "b.yaml"), ("--nonsense",)])
def test_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "doctor", *words)
    assert (done.code, done.err.count("\n")) == (4, 1)
    assert "see python -m pytest_tokenwatt doctor --help" in done.err


def test_a_spec_that_is_not_there_is_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "doctor", "absent.yaml")
    assert done.code == 1
    assert "absent.yaml: no such file" in done.out
