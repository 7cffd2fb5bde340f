"""Python, pytest, and the packages that are needed or add something."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata

from pytest_tokenwatt.commands.doctor.check import Check

_DISTRIBUTION = "pytest-tokenwatt"
_OLDEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9.]+))?\s*(?:;\s*(.*))?")
_FAST = ("uvloop", "httptools")
_EXTRAS = (
    ("HTML report", "report", ("jinja2", "matplotlib")),
    ("async tests", "async", ("pytest-asyncio",)),
)


def check_python(environ: Mapping[str, str]) -> Iterator[Check]:
    """Python itself, then pytest and what else the package requires, then extras."""
    yield _python()
    yield _plugin(environ)
    yield from _required()
    yield from _fast()
    yield from (_extra(*extra) for extra in _EXTRAS)


def _python() -> Check:
    told = f"{platform.python_version()} on {platform.system()}"
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "missing", told, "use Python 3.11 or newer", needed=True)
    if sys.platform.startswith("linux"):
        return Check("python", "ok", told)
    less = "replay, report and compare" if sys.platform == "win32" else "attach, replay and simulate"
    return Check("python", "warning", f"{told}: here only {less} are meant to work", "use Linux to start engines")


def _plugin(environ: Mapping[str, str]) -> Check:
    """Whether pytest finds the plugin by itself."""
    if not any(entry.name == "tokenwatt" for entry in metadata.entry_points(group="pytest11")):
        remedy = "pip install . in its checkout, or pytest -p pytest_tokenwatt.plugin"
        return Check("plugin", "missing", "not installed: pytest does not find it by itself", remedy, needed=True)
    if environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        remedy = "unset it, or pytest -p pytest_tokenwatt.plugin"
        return Check("plugin", "warning", "PYTEST_DISABLE_PLUGIN_AUTOLOAD keeps pytest from loading it", remedy)
    return Check("plugin", "ok", f"pytest-tokenwatt {_version(_DISTRIBUTION) or 'unknown'}")


def _required() -> Iterator[Check]:
    """pytest on a line of its own; of the others those that are not as the package wants them."""
    wanted = dict(_requirements())
    yield _package("pytest", wanted.pop("pytest", None), needed=True)
    checks = [_package(name, oldest, needed=True) for name, oldest in wanted.items() if name not in _FAST]
    bad = [check for check in checks if check.state != "ok"]
    yield from bad
    if checks and not bad:
        yield Check("packages", "ok", ", ".join(f"{check.subject} {check.says}" for check in checks))


def _fast() -> Iterator[Check]:
    for name in _FAST:
        found = _version(name)
        cost = "not installed: the load client is slower" if name == "uvloop" else "not installed: no load can be sent"
        if found is not None:
            yield Check(name, "ok", found)
        elif sys.platform != "win32" or name == "httptools":
            yield Check(name, "missing", cost, f"pip install {name}", needed=name == "httptools")


def _extra(subject: str, extra: str, names: tuple[str, ...]) -> Check:
    absent = [name for name in names if _version(name) is None]
    if absent:
        without = f"{' and '.join(absent)} not installed"
        return Check(subject, "missing", without, f"pip install 'pytest-tokenwatt[{extra}]'")
    return Check(subject, "ok", ", ".join(f"{name} {_version(name)}" for name in names))


def _package(name: str, oldest: str | None, *, needed: bool) -> Check:
    found = _version(name)
    if found is None:
        return Check(name, "missing", "not installed", f"pip install {name}", needed=needed)
    if oldest is not None and _numbers(found) < _numbers(oldest):
        remedy = f"pip install --upgrade {name}"
        return Check(name, "missing", f"{found} is too old, {oldest} is needed", remedy, needed=needed)
    return Check(name, "ok", found)


def _requirements() -> Iterator[tuple[str, str | None]]:
    """What the installed package requires here, extras left out: name and oldest version."""
    try:
        texts = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        texts = ["pytest>=8.4"]
    for text in texts:
        match = _REQUIREMENT.match(text)
        if match and "extra" not in (match[3] or ""):
            yield match[1].lower(), match[2]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, enough to compare releases by."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^0-9.]", version, maxsplit=1)[0]))
