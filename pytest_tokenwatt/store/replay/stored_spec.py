"""The spec of a lab report: the one that it stores, completed by what else it says of limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tokenwatt.store.replay.asked import missing_blocks
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.named import config_entry, role_of, with_entries
from pytest_tokenwatt.store.rundir import file_part

SUITE = "accuracy"
"""What a suite is called that has no name anywhere."""
_SOURCES = {"board": "board", "cpu": "rapl"}
"""Kinds of power that a spec can ask for without saying more."""
_CACHE = "KV "


def report_spec(report: Fields) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A spec mapping with every block that the report has figures of, and notes on what contradicts itself."""
    written = report.block("spec")
    spec: dict[str, Any] = dict(written.data)
    notes = [*_strictest(spec, written.block("slo"), report.block("slo")), *_accuracy(spec, report)]
    if not written.text("name"):
        spec["name"] = file_part(report.text("id") or "report")
    if written.data.get("power") is None:
        source = _SOURCES.get(report.block("power").text("kind") or "")
        spec.update({"power": {"source": source}} if source else {})
    if written.data.get("measurement") is None and report.count("runs"):
        spec["measurement"] = {"repeats": report.count("runs")}
    if written.data.get("fleet") is None and report.block("fleet").count("cards"):
        spec["fleet"] = {"cards": report.block("fleet").count("cards")}
    spec.update(missing_blocks(spec, report.rows("configs")))
    return with_entries(spec, [_entry(row) for row in report.rows("configs")]), tuple(notes)


def _strictest(spec: dict[str, Any], written: Fields, told: Fields) -> Iterator[str]:
    """Put the bounds of both into the spec, the lower one where they differ."""
    bounds, published = written.numbers(), told.numbers()
    slo = {**published, **bounds}
    for name in bounds.keys() & published.keys():
        if bounds[name] != published[name]:
            slo[name] = min(bounds[name], published[name])
            yield f"slo.{name}: {published[name]:g} in the report, {bounds[name]:g} in its spec; the stricter counts"
    if slo:
        spec["slo"] = slo


def _accuracy(spec: dict[str, Any], report: Fields) -> Iterator[str]:
    """Suites of the spec with the report's threshold where that is stricter; else suites made of the report's."""
    published = [row for row in report.rows("accuracy") if row.text("suite")]
    asked = report.block("spec").rows("accuracy")
    if not asked:
        suites = [_suite(row) for row in published] or ([{"suite": SUITE}] if _scored(report) else [])
        spec.update({"accuracy": suites} if suites else {})
        return
    if len(asked) != 1 or len(published) != 1:
        return
    own, told = asked[0].number("max_drop_pts"), published[0].number("threshold_pts")
    suite = dict(asked[0].data)
    if told is not None and (own is None or told < own):
        suite["max_drop_pts"] = told
        if own is not None:
            yield f"accuracy: {told:g} pt allowed in the report, {own:g} in its spec; the stricter counts"
    spec["accuracy"] = suite


def _suite(row: Fields) -> dict[str, Any]:
    """A suite as a spec names it; the file itself is not needed to judge its scores again."""
    name, threshold = row.wanted("suite"), row.number("threshold_pts")
    limit, seeds = row.count("n"), row.count("seeds")
    return {
        "suite": name,
        "name": name,
        **({} if threshold is None else {"max_drop_pts": threshold}),
        **({"limit": limit} if limit else {}),
        **({"seeds": seeds} if seeds else {}),
    }


def _scored(report: Fields) -> bool:
    """Whether any configuration has a score or a difference."""
    entries = [entry for config in report.rows("configs") for entry in config.rows("accuracy")]
    return any(entry.number(name) is not None for entry in entries for name in ("score", "delta_pts"))


def _entry(row: Fields) -> dict[str, Any]:
    key, like = row.wanted("key"), row.text("like")
    entry = config_entry(key, role_of(key, row.text("role"), like), row.text("label") or key, like)
    cache = kv_cache(row)
    return {**entry, "model": {"kv_dtype": cache.lower()}} if cache and like is None else entry


def kv_cache(row: Fields) -> str | None:
    """The type of the KV cache that the engine's line names: ``vLLM 0.31.0 · KV FP8``."""
    parts = [part.strip() for part in (row.text("engine") or "").split("·")]
    return next((part.removeprefix(_CACHE).strip() for part in parts if part.startswith(_CACHE)), None) or None


def suite_titles(spec: Mapping[str, Any]) -> list[str]:
    """What the suites of a spec mapping are called in gates."""
    block = spec.get("accuracy")
    suites = block if isinstance(block, list) else [block] if isinstance(block, Mapping) else []
    return [title for suite in suites if isinstance(suite, Mapping) and (title := _title(suite))]


def _title(suite: Mapping[str, Any]) -> str | None:
    name, file = suite.get("name"), suite.get("suite")
    if name is not None:
        return str(name)
    if not isinstance(file, str) or not file:
        return None
    stem = file.replace("\\", "/").rsplit("/", 1)[-1]
    return stem.split(".", 1)[0] or stem
