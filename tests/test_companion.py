"""The companion command as typed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from pytest_tokenwatt.__main__ import SUBCOMMANDS, main


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_tokenwatt", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_schema_prints_the_json_schema_of_a_spec() -> None:
    done = typed("schema")
    assert done.returncode == 0
    assert {"engine", "slo", "configs", "gates"} <= set(json.loads(done.stdout)["properties"])


def test_schema_prints_the_json_schema_of_the_lab_report() -> None:
    done = typed("schema", "--report")
    assert done.returncode == 0
    assert json.loads(done.stdout)["$id"].startswith("urn:pytest-tokenwatt:lab-report:")


@pytest.mark.parametrize(("words", "code"), [((), 4), (("nonsense",), 4), (("--help",), 0), (("-h",), 0)])
def test_anything_else_shows_the_usage(words: tuple[str, ...], code: int) -> None:
    done = typed(*words)
    assert done.returncode == code
    assert "usage: python -m pytest_tokenwatt" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_misspelt_subcommand_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docter"]) == 4
    assert "there is no subcommand docter; did you mean doctor?" in capsys.readouterr().err


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help_and_one_line_for_a_wrong_argument(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert "usage: " in capsys.readouterr().out
    assert main([name, "--no-such-option"]) == 4
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_every_subcommand_is_in_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    usage = capsys.readouterr().out
    assert all(f"\n  {name} " in usage for name in SUBCOMMANDS)


def test_the_script_is_the_module() -> None:
    (script,) = entry_points(group="console_scripts", name="pytest-tokenwatt")
    assert script.load() is main


def test_a_reader_that_has_gone_is_no_error() -> None:
    command = f"{sys.executable} -m pytest_tokenwatt schema | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


@pytest.mark.parametrize("name", ["doctor", "schema", "compare"])
def test_help_loads_nothing_heavy(name: str) -> None:
    code = (
        "import sys\nfrom pytest_tokenwatt.__main__ import main\n"
        f"try:\n    main([{name!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'scipy', 'aiohttp', 'pydantic', 'rich', 'pytest'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
