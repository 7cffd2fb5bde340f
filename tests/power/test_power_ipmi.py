"""DCMI power: both programs, and what comes of everything that they may print instead of watts."""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from source_contexts import context, program, settings

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power import ipmi
from pytest_tokenwatt.power.ipmi import IpmiSource

SECRET = "hunter2-secret"
IPMITOOL = """cat <<'END'

    Instantaneous power reading:                   %s Watts
    Minimum during sampling period:                  2 Watts
    Power reading state is:                   %s

END"""
FREEIPMI = """cat <<'END'
Current Power                        : %s Watts
Minimum Power over sampling duration : 68 watts
Power Measurement                    : %s
END"""
CANNOT_OPEN = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: %s"


def source(folder: Path, tool: str, script: str, **keys: Any) -> IpmiSource:
    program(folder / "bin", tool, script)
    environ = {"PATH": f"{folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin", "BMC_PASSWORD": SECRET}
    return IpmiSource(settings("ipmi", **keys), context(folder, environ))


def refused(source: IpmiSource) -> PowerError:
    with pytest.raises(PowerError) as caught:
        source.open()
    source.close()
    assert caught.value.reason == "no_power_source"
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("tool", "script"), [("ipmitool", IPMITOOL % (214, "activated")), ("ipmi-dcmi", FREEIPMI % (214, "Active"))]
)
def test_both_programs_are_read(tmp_path: Path, tool: str, script: str) -> None:
    node = source(tmp_path, tool, script)
    (info,) = node.open()
    assert info.sensor == "localhost"
    assert node.read()[0].watts == 214.0
    assert tool in node.chosen
    assert node.read_counters() == {}
    node.close()


def test_without_a_program_there_is_no_source(tmp_path: Path) -> None:
    node = IpmiSource(settings("ipmi"), context(tmp_path, {"PATH": str(tmp_path)}))
    assert "neither ipmitool nor ipmi-dcmi is on PATH; install ipmitool" in str(refused(node))


@pytest.mark.parametrize(
    ("tool", "script", "says"),
    [
        ("ipmitool", f"echo '{CANNOT_OPEN % 'Permission denied'}' >&2; exit 1", "may not open /dev/ipmi0; run as root"),
        ("ipmi-dcmi", "echo 'ipmi-dcmi: permission denied' >&2; exit 1", "may not open /dev/ipmi0; run as root"),
        ("ipmitool", f"echo '{CANNOT_OPEN % 'No such file or directory'}' >&2; exit 1", "no IPMI device; load the mod"),
        ("ipmitool", "echo 'Error: Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1", "no session with the"),
        ("ipmi-dcmi", "echo 'ipmi-dcmi: password invalid' >&2; exit 1", "refused the user or the password"),
        ("ipmitool", "echo '    DCMI request failed because: Invalid command (c1)'", "does not offer DCMI"),
        ("ipmitool", IPMITOOL % (100, "deactivated"), "the power reading is not activated"),
        ("ipmi-dcmi", FREEIPMI % (100, "Not Available"), "the power reading is not activated"),
        ("ipmitool", "echo ' Power reading is not activated'", "the power reading is not activated"),
        ("ipmitool", "true", "printed no power reading"),
        ("ipmitool", f"echo {SECRET} >&2; exit 9", "failed (exit status 9)"),
    ],
)
def test_each_failure_has_its_line(tmp_path: Path, tool: str, script: str, says: str) -> None:
    error = refused(source(tmp_path, tool, script))
    assert says in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize("told", ["0", "N/A", "-3"])
def test_zero_watts_is_a_missing_sample(tmp_path: Path, told: str) -> None:
    node = source(tmp_path, "ipmitool", IPMITOOL % (told, "activated"))
    node.open()
    (reading,) = node.read()
    assert reading.watts is None
    assert f"ipmitool says '{told}'" in str(reading.problem)


def test_a_program_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi, "TIMEOUT_S", 0.3)
    assert "ipmitool did not end within 0.3 s" in str(refused(source(tmp_path, "ipmitool", "sleep 60")))


REMOTE = {"host": "bmc.example", "username": "operator", "password_env": "BMC_PASSWORD"}


def test_ipmitool_gets_the_password_by_its_environment(tmp_path: Path) -> None:
    script = 'echo "$*" > args; echo "$IPMI_PASSWORD" > password; ' + IPMITOOL % (300, "activated")
    node = source(tmp_path, "ipmitool", script, **REMOTE)
    node.open()
    assert (tmp_path / "password").read_text().strip() == SECRET
    arguments = (tmp_path / "args").read_text()
    assert "-H bmc.example" in arguments
    assert "-U operator dcmi power reading" in arguments
    assert SECRET not in arguments


def test_freeipmi_gets_the_password_by_a_private_file(tmp_path: Path) -> None:
    script = 'echo "$*" > args; echo "$8" > config; cat "$8" > copy; ' + FREEIPMI % (300, "Active")
    script = script.replace("$8", "${10}")
    node = source(tmp_path, "ipmi-dcmi", script, **REMOTE)
    node.open()
    config = Path((tmp_path / "config").read_text().strip())
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert (tmp_path / "copy").read_text() == f'password "{SECRET}"\n'
    assert SECRET not in (tmp_path / "args").read_text()
    node.close()
    assert not config.exists()


def test_the_password_is_in_no_process_argument_and_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    node = source(tmp_path, "ipmitool", "touch running; while [ ! -e go ]; do sleep 0.01; done; exit 1", **REMOTE)
    errors: list[PowerError] = []
    thread = threading.Thread(target=lambda: errors.append(refused(node)))
    thread.start()
    while not (tmp_path / "running").exists() and thread.is_alive():
        pass
    lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    (tmp_path / "go").touch()
    thread.join()
    assert any(b"dcmi" in line for line in lines)
    assert not any(SECRET.encode() in line for line in lines)
    assert SECRET not in f"{node!r} {node} {errors[0]!r} {errors[0]} {node.chosen} {caplog.text}"


def test_an_unset_password_is_named(tmp_path: Path) -> None:
    node = source(tmp_path, "ipmitool", "true", **(REMOTE | {"password_env": "ABSENT"}))
    assert "the variable ABSENT is not set" in str(refused(node))


def test_a_password_that_freeipmi_cannot_take_is_said(tmp_path: Path) -> None:
    program(tmp_path / "bin", "ipmi-dcmi", "true")
    environ = {"PATH": str(tmp_path / "bin"), "BMC_PASSWORD": 'a"b'}
    error = refused(IpmiSource(settings("ipmi", **REMOTE), context(tmp_path, environ)))
    assert "install ipmitool" in str(error)
    assert 'a"b' not in str(error)
