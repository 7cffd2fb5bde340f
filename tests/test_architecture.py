"""The shape of the code: who may import whom, and what an idle pytest run loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "pytest_tokenwatt"
ROOT = "pytest_tokenwatt"
ENGINE_ROOM = {"engine", "load", "power", "quality", "store", "sim", "metrics", "gates", "report"}
BELOW_LAB = {"geometry", "spec", "values", "exposition", "arithmetic", "records", "errors"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "records": {"errors"},
    "exposition": set(),
    "arithmetic": {"records", "errors"},
    "values": {"records", "errors"},
    "spec": {"records", "errors"},
    "geometry": {"spec", "records", "errors"},
    **dict.fromkeys(ENGINE_ROOM, BELOW_LAB),
    "gates": BELOW_LAB | {"metrics"},
    "quality": BELOW_LAB | {"metrics"},
    "campaign": BELOW_LAB | ENGINE_ROOM,
    "lab": BELOW_LAB | ENGINE_ROOM | {"campaign"},
    "replay": BELOW_LAB | ENGINE_ROOM | {"campaign"},
    "plugin": BELOW_LAB | ENGINE_ROOM | {"campaign", "lab", "replay"},
    "testing": BELOW_LAB | ENGINE_ROOM | {"campaign", "lab", "plugin"},
    "commands": BELOW_LAB | ENGINE_ROOM | {"campaign", "lab", "replay"},
    "__main__": {"commands", "quality", "sim"} | BELOW_LAB,
    "__init__": BELOW_LAB | {"plugin"},
}
PYTEST_IMPORTERS = {"plugin", "testing"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == ROOT else (module,)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_matrix(path: Path) -> None:
    own = layer(path)
    assert own in MAY_IMPORT, f"{own} has no place in the matrix"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == ROOT and len(parts) > 1 and parts[1] in MAY_IMPORT:
            assert parts[1] in MAY_IMPORT[own] | {own}, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_plugin_knows_pytest(path: Path) -> None:
    names = {name.split(".")[0] for name in imported(path)}
    if layer(path) not in PYTEST_IMPORTERS:
        assert names.isdisjoint({"pytest", "_pytest", "pluggy"})


def loaded_modules(*pytest_args: str, cwd: Path) -> set[str]:
    code = (
        "import sys, pytest\n"
        f"rc = pytest.main({list(pytest_args)!r})\n"
        "print('MODULES', rc, ' '.join(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True, timeout=60)
    line = next(line for line in done.stdout.splitlines() if line.startswith("MODULES"))
    return set(line.split()[2:])


def test_a_run_without_our_options_loads_only_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_ok():\n    pass\n", encoding="utf-8")
    common = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist", "-p", "no:timeout", "test_plain.py")
    quiet = (*common, "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:metadata")
    with_us = loaded_modules(*quiet, cwd=tmp_path)
    without_us = loaded_modules(*quiet, "-p", "no:tokenwatt", cwd=tmp_path)
    ours = {name for name in with_us - without_us if not name.startswith(ROOT)}
    assert f"{ROOT}.plugin" in with_us
    assert {name.split(".")[0] for name in ours} <= set(sys.stdlib_module_names)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["test_plain.py"]
