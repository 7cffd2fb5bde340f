"""Names that refer to each other: duplicates, roles, ``like``, and what rules point at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pytest_tokenwatt.records import DEFAULT_SCENARIO
from pytest_tokenwatt.spec.builder import KeyPath
from pytest_tokenwatt.spec.document import Role
from pytest_tokenwatt.spec.findings import Findings, descend

_MEAN = "mean"
_REPEATED = ("engine", "model", "workload", "power", "precision")


def check_names(data: Mapping[str, Any], findings: Findings) -> None:
    """Report names that clash or lead nowhere; tolerates blocks of any shape, which are reported elsewhere."""
    _check_unique(data, ("configs",), "key", findings)
    _check_unique(data, ("scenarios",), "name", findings)
    _check_unique(data, ("accuracy",), "name", findings)
    _check_reserved(data, findings)
    _check_unique(data, ("drift", "perplexity"), "name", findings)
    _check_roles(data, findings)
    _check_repeats(data, findings)
    for path in _gate_paths(data):
        _check_unique(data, (*path, "rules"), "name", findings)
        _check_rules(data, path, findings)


def entries(data: Any, path: KeyPath) -> list[tuple[int, Mapping[str, Any]]]:
    """The mappings of a list with their places; empty when there is no list."""
    found = descend(data, path)
    listed = found if isinstance(found, list) else []
    return [(place, entry) for place, entry in enumerate(listed) if isinstance(entry, Mapping)]


def keys_of(data: Mapping[str, Any]) -> list[str]:
    """Keys of the configurations; without ``configs`` every role may become the key."""
    if data.get("configs") is None:
        return list(get_args(Role))
    return [key for _, entry in entries(data, ("configs",)) if isinstance(key := entry.get("key"), str)]


def _check_unique(data: Mapping[str, Any], path: KeyPath, key: str, findings: Findings) -> None:
    seen: dict[str, KeyPath] = {}
    for place, entry in entries(data, path):
        name, here = entry.get(key) or _suite_name(entry), (*path, place, key)
        if not isinstance(name, str):
            continue
        first = seen.setdefault(name, here)
        if first != here:
            findings.add(here, f"{name} is taken, see line {findings.line(first)}", "names must differ")


def _check_reserved(data: Mapping[str, Any], findings: Findings) -> None:
    """The gate ``accuracy[mean]`` is that of all suites together."""
    for place, entry in entries(data, ("accuracy",)):
        if (entry.get("name") or _suite_name(entry)) == _MEAN:
            what = f"{_MEAN} is what the gate of all suites together is called"
            findings.add(("accuracy", place, "name"), what, "give the suite another name")


def _suite_name(entry: Mapping[str, Any]) -> str | None:
    """A suite without a name is called by its file."""
    file = entry.get("suite")
    return file.replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0] if isinstance(file, str) else None


def _check_roles(data: Mapping[str, Any], findings: Findings) -> None:
    first: KeyPath | None = None
    for place, entry in entries(data, ("configs",)):
        if not _is_baseline(entry):
            continue
        here = ("configs", place, "role")
        if first is not None:
            what = f"a second baseline, the first is in line {findings.line(first)}"
            findings.add(here, what, "give one of them the role tuned or other")
        first = first or here


def _is_baseline(entry: Mapping[str, Any]) -> bool:
    repeats = entry.get("role") is None and entry.get("like") is not None
    return (entry.get("role") or entry.get("key")) == "baseline" and not repeats


def _is_absolute(rule: Mapping[str, Any]) -> bool:
    return rule.get("min") is not None or rule.get("max") is not None


def _check_repeats(data: Mapping[str, Any], findings: Findings) -> None:
    keys = keys_of(data)
    for place, entry in entries(data, ("configs",)):
        like, here = entry.get("like"), ("configs", place, "like")
        if like is None:
            continue
        if like not in keys:
            findings.add(here, "names no configuration", _nearest(like, keys))
        elif repeated_entry(data, entry) is None:
            findings.add(here, "leads back to itself", "name a configuration that is no repeat")
        for block in _REPEATED:
            if entry.get(block) is not None:
                what = f"has no place beside like, which repeats {like} exactly"
                findings.add(("configs", place, block), what, "remove one of the two")


def repeated_entry(data: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]] | None:
    """The configuration that ``like`` leads to, with its place; ``None`` when it leads nowhere or in a circle."""
    by_key = {str(known.get("key")): (place, known) for place, known in entries(data, ("configs",))}
    seen: set[str] = set()
    found = None
    like = entry.get("like")
    while isinstance(like, str):
        if like in seen or like not in by_key or like == entry.get("key"):
            return None
        seen.add(like)
        found = by_key[like]
        like = found[1].get("like")
    return found


def _gate_paths(data: Mapping[str, Any]) -> Iterator[KeyPath]:
    yield ("gates",)
    for place, entry in entries(data, ("configs",)):
        if isinstance(entry.get("gates"), Mapping):
            yield ("configs", place, "gates")


def _check_rules(data: Mapping[str, Any], path: KeyPath, findings: Findings) -> None:
    keys = keys_of(data)
    baselines = {str(entry.get("key")) for _, entry in entries(data, ("configs",)) if _is_baseline(entry)}
    scenarios = [entry.get("name") for _, entry in entries(data, ("scenarios",))] or [DEFAULT_SCENARIO]
    for place, rule in entries(data, (*path, "rules")):
        wanted = rule.get("configs")
        for index, key in enumerate(wanted if isinstance(wanted, list) else []):
            if isinstance(key, str) and key not in keys:
                findings.add((*path, "rules", place, "configs", index), "names no configuration", _nearest(key, keys))
        holders = _holders(data, path, wanted)
        if holders is not None and holders.isdisjoint(keys) and not (set(map(str, wanted or ())) - set(keys)):
            what = "holds for no configuration, since it stands in the gates of another one"
            findings.add((*path, "rules", place), what, "move it to the gates above, or remove its configs")
        elif holders and holders <= baselines and not _is_absolute(rule):
            what = "holds for the baseline only, which is compared with nothing"
            findings.add((*path, "rules", place), what, "give min or max, or name a candidate")
        scenario = rule.get("scenario")
        if isinstance(scenario, str) and scenario not in scenarios:
            names = [name for name in scenarios if isinstance(name, str)]
            findings.add((*path, "rules", place, "scenario"), "names no scenario", _nearest(scenario, names))


def _holders(data: Mapping[str, Any], path: KeyPath, wanted: Any) -> set[str] | None:
    """The configurations that a rule is restricted to by its place or its ``configs``; ``None`` without either."""
    listed = {str(key) for key in wanted} if isinstance(wanted, list) and wanted else None
    entry = descend(data, path[:2]) if path[0] == "configs" else None
    if not isinstance(entry, Mapping):
        return listed
    own = {str(entry.get("key"))}
    return own if listed is None else own & listed


def _nearest(name: object, known: list[str]) -> str:
    near = get_close_matches(str(name), known, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(dict.fromkeys(known))}"
