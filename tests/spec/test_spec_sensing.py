"""Preflight of power sources: what a source needs, and what it would not look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.problems import preflight

ATTACH = "engine: {endpoint: 'http://h/v1'}\n"


def found(folder: Path, power: str, path: str = "/nowhere") -> list[str]:
    (folder / "spec.yaml").write_text(f"{ATTACH}power:\n{power}\n", encoding="utf-8")
    spec = load_spec(folder / "spec.yaml", {})
    lines = [f"{each.severity} {each}" for each in preflight(spec, None, {"PATH": path, "BMC": "secret"})]
    return [line.replace(f"{folder}/", "") for line in lines]


@pytest.mark.parametrize(
    "power",
    [
        "  {source: board, sampling_hz: 1, url: null, verify_tls: false}",
        "  {source: redfish, url: 'https://h', username: u, password_env: BMC}",
        "  {source: redfish, url: 'http://127.0.0.1:1', username: u, password_env: BMC}",
        "  {source: dcgm, urls: ['http://h:9400/metrics'], match: {gpu: '0'}}",
        "  {source: none}",
        "  - {source: board}\n  - {source: rapl}",
    ],
)
def test_nothing_to_say(tmp_path: Path, power: str) -> None:
    assert found(tmp_path, power) == []


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        ("  source: redfish", "error spec.yaml:2: power.url: source redfish needs the address of a BMC"),
        ("  source: dcgm", "error spec.yaml:2: power.urls: source dcgm needs the exporter's address"),
        ("  source: command", "error spec.yaml:2: power.command: source command needs one that prints watts"),
        ("  {source: command, command: [no-such]}", "error spec.yaml:3: power.command: no-such is not on PATH"),
        ("  source: ipmi", "warning spec.yaml:2: power: neither ipmitool nor ipmi-dcmi is on PATH"),
        ("  {source: board, chassis: Self}", "warning spec.yaml:3: power.chassis: source board does not look at it"),
        (
            "  - source: board\n  - {source: redfish, url: 'https://h', username: u}",
            "error spec.yaml:4: power[1].username: there is no password for it; name its variable in password_env",
        ),
        (
            "  {source: redfish, url: 'https://h', password_env: BMC}",
            "error spec.yaml:3: power.password_env: there is no user for it",
        ),
        (
            "  {source: redfish, url: 'http://bmc', username: u, password_env: BMC}",
            "warning spec.yaml:3: power.url: the password would cross the network unencrypted; use https",
        ),
    ],
)
def test_each_is_one_problem_with_its_line(tmp_path: Path, power: str, expected: str) -> None:
    (line,) = found(tmp_path, power)
    assert line.startswith(expected)
    assert "secret" not in line


def test_a_tool_on_the_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "ipmi-dcmi").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "ipmi-dcmi").chmod(0o755)
    assert found(tmp_path, "  source: ipmi", str(tmp_path)) == []
