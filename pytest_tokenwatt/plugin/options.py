"""The options ``--tokenwatt-*``, their ini keys ``tokenwatt_*``, and what they say once read."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest

ROLES = ("baseline", "tuned", "other")
REPORTS = (".json", ".html", ".md")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: ``ini`` is the type of its ini key, which also says whether it can be repeated."""

    name: str
    metavar: str
    ini: Literal["paths", "path", "args", "bool", "string"]
    help: str

    @property
    def flag(self) -> str:
        """The option as typed."""
        return f"--tokenwatt-{self.name}"

    @property
    def dest(self) -> str:
        """Name of the attribute and of the ini key."""
        return f"tokenwatt_{self.name.replace('-', '_')}"

    @property
    def repeatable(self) -> bool:
        """Whether it collects several values."""
        return self.ini in {"paths", "args"}


OPTIONS = (
    Option("spec", "FILE", "paths", "run this spec: each of its gates becomes a test item (repeatable)"),
    Option("config", "KEY", "args", "only the gates of this configuration (repeatable)"),
    Option("endpoint", "[KEY=]URL", "args", "attach to this endpoint instead of what the spec says (repeatable)"),
    Option("label", "TEXT", "string", "for a spec without configs: the name of this run in reports"),
    Option("role", "ROLE", "string", f"for a spec without configs: what this run is ({', '.join(ROLES)})"),
    Option("out", "PATH", "path", "run directory; a.json writes the run record there and the directory a/ beside it"),
    Option("plan", "", "bool", "print what would be started and measured, and for how long; start nothing"),
    Option("max-minutes", "N", "string", "refuse an estimate above it; behind it the remaining gates are inconclusive"),
    Option("replay", "FILE", "paths", "judge stored records, a run directory or a report; no engine (repeatable)"),
    Option("resume", "DIR", "path", "continue the run that was interrupted in DIR; empty or absent: start there"),
    Option("baseline", "FILE", "paths", "stored record to compare with; several give the spread (repeatable)"),
    Option("save-baseline", "[KEY=]FILE", "args", "store a record to compare with, after a complete, passing run"),
    Option("allow-diff", "NAME", "args", "compare records although they differ in this, as in driver (repeatable)"),
    Option("report", "FILE", "paths", "an extra copy of the lab report: .json, .html or .md (repeatable)"),
    Option("title", "TEXT", "string", "title of the lab report"),
    Option("quick", "", "bool", "short windows and few repeats, to try a spec: the report is a draft"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What command line and ini file ask for; paths are absolute."""

    configs: tuple[str, ...]
    endpoints: tuple[str, ...]
    label: str | None
    role: str | None
    out: Path | None
    resume: bool
    plan: bool
    max_minutes: float | None
    reports: tuple[Path, ...]
    title: str | None
    quick: bool
    replays: tuple[Path, ...] = ()
    baselines: tuple[Path, ...] = ()
    save_baselines: tuple[str, ...] = ()
    allow: frozenset[str] = frozenset()


def add_options(parser: pytest.Parser) -> None:
    """Declare all options and their ini keys."""
    group = parser.getgroup("tokenwatt", "LLM serving gates (pytest-tokenwatt), by a spec or by --tokenwatt-replay")
    for option in OPTIONS:
        group.addoption(option.flag, dest=option.dest, help=option.help, **_argument(option))
        ini = "paths" if option.ini == "path" else option.ini
        parser.addini(option.dest, option.help, type=ini, default=False if ini == "bool" else None)


def _argument(option: Option) -> dict[str, Any]:
    if option.ini == "bool":
        return {"action": "store_true", "default": False}
    settings: dict[str, Any] = {"metavar": option.metavar, "action": "append" if option.repeatable else "store"}
    if option.name == "role":
        settings["choices"] = ROLES
    if option.name == "max-minutes":
        settings["type"] = _minutes
    return settings


def spec_paths(config: pytest.Config, namespace: argparse.Namespace | None = None) -> tuple[Path, ...]:
    """The specs of ``--tokenwatt-spec``, else of the ini key; ``namespace`` while the command line is half read."""
    return _paths(config, "tokenwatt_spec", namespace)


def read_settings(config: pytest.Config) -> Settings:
    """All options but the specs. Raises ``pytest.UsageError`` for what cannot be meant."""
    out, resume = _paths(config, "tokenwatt_out"), _paths(config, "tokenwatt_resume")
    if out and resume:
        raise pytest.UsageError("--tokenwatt-resume names the run directory already; leave out --tokenwatt-out")
    return Settings(
        configs=_texts(config, "tokenwatt_config"),
        endpoints=_texts(config, "tokenwatt_endpoint"),
        label=_text(config, "tokenwatt_label"),
        role=_role(config),
        out=(*out, *resume, None)[0],
        resume=bool(resume),
        plan=plan_only(config),
        max_minutes=_max_minutes(config),
        reports=_reports(config),
        title=_text(config, "tokenwatt_title"),
        quick=_flag(config, "tokenwatt_quick"),
        replays=replay_paths(config),
        baselines=_paths(config, "tokenwatt_baseline"),
        save_baselines=_texts(config, "tokenwatt_save_baseline"),
        allow=frozenset(_texts(config, "tokenwatt_allow_diff")),
    )


def refuse_unclear(config: pytest.Config) -> None:
    """Raises ``pytest.UsageError`` for values that are empty, and for a place that is named twice.

    ``Path("")`` would be the current directory, and of two places the first would silently be none.
    """
    problems = [line for option in OPTIONS for line in _unclear(config, option)]
    if problems:
        raise pytest.UsageError(*problems)


def _unclear(config: pytest.Config, option: Option) -> Iterator[str]:
    typed = config.getoption(option.dest)
    if option.ini not in {"paths", "path", "args"} or typed is None:
        return
    if any(not text.strip() for text in ([typed] if isinstance(typed, str) else typed)):
        yield f"{option.flag} is empty; write {option.flag}={option.metavar} or leave it out"
    places = list(dict.fromkeys(_typed(config, option))) if option.ini == "path" else []
    if len(places) > 1:
        yield f"{option.flag} is given twice, as {' and as '.join(places)}; one run has one place: leave one out"


def _typed(config: pytest.Config, option: Option) -> Iterator[str]:
    """The values on the command line itself; they may win over those of an ini file's ``addopts``."""
    words = [str(word) for word in config.invocation_params.args]
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == option.flag:
            yield value if equals else following


def replay_paths(config: pytest.Config) -> tuple[Path, ...]:
    """The files and directories of ``--tokenwatt-replay``."""
    return _paths(config, "tokenwatt_replay")


def plan_only(config: pytest.Config) -> bool:
    """Whether ``--tokenwatt-plan`` is set."""
    return _flag(config, "tokenwatt_plan")


def _texts(config: pytest.Config, dest: str) -> tuple[str, ...]:
    return tuple(config.getoption(dest) or config.getini(dest) or ())


def _text(config: pytest.Config, dest: str) -> str | None:
    return config.getoption(dest) or config.getini(dest) or None


def _flag(config: pytest.Config, dest: str) -> bool:
    return bool(config.getoption(dest) or config.getini(dest))


def _paths(config: pytest.Config, dest: str, namespace: argparse.Namespace | None = None) -> tuple[Path, ...]:
    typed = getattr(namespace, dest, None) if namespace is not None else config.getoption(dest)
    if not typed:
        return tuple(config.getini(dest) or ())
    given = [typed] if isinstance(typed, str) else typed
    return tuple(config.invocation_params.dir / Path(each).expanduser() for each in given)


def _role(config: pytest.Config) -> str | None:
    role = _text(config, "tokenwatt_role")
    if role is not None and role not in ROLES:
        raise pytest.UsageError(f"tokenwatt_role: {role!r} is none of {', '.join(ROLES)}")
    return role


def _max_minutes(config: pytest.Config) -> float | None:
    value = config.getoption("tokenwatt_max_minutes") or config.getini("tokenwatt_max_minutes")
    if not value:
        return None
    try:
        return _minutes(value)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"tokenwatt_max_minutes: {error}") from None


def _minutes(text: str | float) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes above 0")
    return minutes


def _reports(config: pytest.Config) -> tuple[Path, ...]:
    reports = _paths(config, "tokenwatt_report")
    problems = list(_report_problems(reports))
    if problems:
        raise pytest.UsageError(*problems)
    return reports


def _report_problems(reports: tuple[Path, ...]) -> Iterator[str]:
    for path in reports:
        if path.suffix == ".html":
            yield from _page_problems(path)
        elif path.suffix not in REPORTS:
            yield f"--tokenwatt-report={path}: unknown kind of report; use one of {', '.join(REPORTS)}"


def _page_problems(path: Path) -> Iterator[str]:
    """A page that cannot be made is said at once, not behind the last measurement."""
    absent = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if absent:
        remedy = "pip install 'pytest-tokenwatt[report]'"
        yield f"--tokenwatt-report={path}: a page needs {' and '.join(absent)}; {remedy}"
