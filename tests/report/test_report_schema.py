"""The published schema: reports of every form keep to it, and nothing is written that it does not know."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schema_samples import FORMS, REFERENCE, Report, faults, is_valid, plain, stored, submitted, validator
from submission_samples import BASELINE, TUNED, context_of
from test_report_partial import EMPTY, FAULT, spec_in, without

from pytest_tokenwatt.report.lab import REPORT_SCHEMA, build_report
from pytest_tokenwatt.report.schema import FILE, report_schema

OPTIONAL = (
    *(("submission",), ("*", "again"), ("kl", "decode_route"), ("power", "further"), ("ppl", "*", "missing")),
    *(("gates", "text"), ("gates", "rule"), ("peaks", "seconds"), ("peaks", "longest_gap_s")),
)
"""Keys of a report that another one may lack, by the end of their place."""
NAMED = {
    *("cache_config", "launch", "env", "versions", "load_sha256", "suite_sha256", "drift_sha256", "engines", "spec"),
    *("missing", "minutes", "throttle_counts", "throttle_s", "counts", "by_confidence", "ppl", "sources"),
    *("efficiency", "anchor_efficiency", "speeds", "memories", "peak_memory", "anchor_peak_memory", "profiles"),
    *("budget", "timed_audit", "audit", "slo"),
}
"""What holds values by names that are the user's or the engine's own."""
TWICE = {("load_sha256",), ("suite_sha256",)}
"""What holds such by configuration."""
REFERENCES = [
    REFERENCE / f"{name}.json" for name in ("lab-kv-cache", "lab-moe-kernels", "submission-fp8-chunked-prefill")
]


# --- the schema itself


def test_it_is_a_schema_of_its_dialect() -> None:
    Draft202012Validator.check_schema(report_schema())


def test_it_says_which_version_of_a_report_it_describes() -> None:
    schema = report_schema()
    assert schema["$defs"]["report"]["properties"]["schema"] == {"const": REPORT_SCHEMA}
    assert schema["$id"].endswith(REPORT_SCHEMA.rsplit("/", 1)[-1])


def test_it_lies_in_the_package() -> None:
    assert json.loads(files("pytest_tokenwatt.report").joinpath(FILE).read_text(encoding="utf-8")) == report_schema()


def references_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        for inner in value.values():
            yield from references_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references_of(inner)


def test_every_definition_is_used_and_every_used_one_is_there() -> None:
    schema = report_schema()
    assert {f"#/$defs/{name}" for name in schema["$defs"]} == set(references_of(schema))


# --- reports


@pytest.mark.parametrize("form", FORMS)
def test_reports_keep_to_it(tmp_path: Path, form: str) -> None:
    assert faults(stored(FORMS[form](tmp_path))) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.frozensets(st.sampled_from(sorted(EMPTY))), st.frozensets(st.sampled_from(sorted(EMPTY))), st.booleans())
def test_so_do_those_of_records_that_lack_anything(
    tmp_path: Path, of_baseline: frozenset[str], of_tuned: frozenset[str], broken: bool
) -> None:
    records = (without(BASELINE, of_baseline), without(TUNED, of_tuned, (FAULT,) if broken else ()))
    spec = spec_in(tmp_path, True)
    assert faults(stored(build_report(spec, records, (), context_of(spec, records)))) == []


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_published_files_keep_to_the_form_that_replays_read(path: Path) -> None:
    assert faults(json.loads(path.read_text(encoding="utf-8"))) == []


# --- what it refuses


def shapes(value: Any, place: tuple[str | int, ...] = (), shape: tuple[str, ...] = ()) -> Iterator[Any]:
    """Every key: its place, and its place without indices and names."""
    if isinstance(value, dict) and "spec" not in shape and "launch" not in shape:
        named = any(name in NAMED for name in shape[-1:]) or shape[-2:-1] in TWICE
        for key, inner in value.items():
            here = (*shape, "*" if named else key)
            yield (*place, key), here
            yield from shapes(inner, (*place, key), here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from shapes(inner, (*place, index), shape)


def closed_keys(report: Report) -> list[tuple[str | int, ...]]:
    """One place of every key that a report must have."""
    found: dict[tuple[str, ...], tuple[str | int, ...]] = {}
    for place, shape in shapes(report):
        optional = shape[-2:-1] == ("intervals",) or any(shape[-len(end) :] == end for end in OPTIONAL)
        if shape[-1] != "*" and not optional:
            found.setdefault(shape, place)
    return list(found.values())


def holder_of(report: Any, place: tuple[str | int, ...]) -> Any:
    for step in place[:-1]:
        report = report[step]
    return report


def without_key(report: Report, place: tuple[str | int, ...]) -> Report:
    changed = copy.deepcopy(report)
    del holder_of(changed, place)[place[-1]]
    return changed


@pytest.mark.parametrize(
    ("form", "every"), [(plain, 1), (submitted, 8), pytest.param(submitted, 1, marks=pytest.mark.slow)]
)
def test_a_forgotten_key_is_a_fault(tmp_path: Path, form: Any, every: int) -> None:
    report = stored(form(tmp_path))
    keys = closed_keys(report)[::every]
    assert len(keys) > 60
    assert [place for place in keys if is_valid(without_key(report, place))] == []


def test_an_unknown_key_is_a_fault_wherever_the_keys_are_known(tmp_path: Path) -> None:
    report = stored(submitted(tmp_path))
    open_to_any = []
    for place in dict.fromkeys(place[:-1] for place in closed_keys(report)):
        changed = copy.deepcopy(report)
        holder_of(changed, (*place, ""))["surprise"] = {}
        open_to_any += [place] if is_valid(changed) else []
    assert open_to_any == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("status",), "final"),
        (("published",), "yesterday"),
        (("schema",), "tokenwatt-report/2"),
        (("configs", 0, "role"), "control"),
        (("configs", 0, "goodput_tok_s"), "4572"),
        (("configs", 0, "goodput_tok_s"), -1.0),
        (("configs", 0, "slo_pass_count"), 1.5),
        (("configs", 0, "accuracy", "score"), 101.0),
        (("configs", 0, "validity"), {"valid": False, "reasons": []}),
        (("configs", 0, "validity"), {"valid": True, "reasons": [{"code": "late", "text": "3 s"}]}),
        (("configs", 0, "missing", "speed"), ""),
        (("configs", 0, "intervals", "rate_rps", "bracket"), "half"),
        (("gates", 0, "verdict"), "passed"),
        (("gates", 0, "verdict"), "inconclusive"),
        (("gates", 0, "mode"), "off"),
        (("provenance", "generated"), "2026"),
        (("configs", 1, "submission", "stages", 0, "status"), "skipped"),
        (("configs", 1, "submission", "stages", 0, "reason"), "done things have none"),
        (("configs", 1, "timed_audit", "serve", "status"), "missing"),
        (("configs", 1, "kl", "route"), "guessed"),
    ],
)
def test_a_value_out_of_its_range_is_a_fault(tmp_path: Path, place: tuple[str | int, ...], value: Any) -> None:
    changed = stored(submitted(tmp_path))
    holder_of(changed, place)[place[-1]] = value
    assert faults(changed)


def test_a_report_of_ours_is_not_taken_for_a_published_one(tmp_path: Path) -> None:
    report = stored(plain(tmp_path))
    del report["schema"]
    assert not is_valid(report)


def test_a_fault_is_told_by_its_place(tmp_path: Path) -> None:
    report = stored(submitted(tmp_path))
    report["configs"][1]["submission"]["result"]["kl"]["kl_se"] = "small"
    told = [error.json_path for error in validator().iter_errors(report)]
    assert told == ["$.configs[1].submission.result.kl"]
    assert any("kl_se" in line for line in faults(report))


# --- JSON


@pytest.mark.parametrize("form", FORMS)
def test_a_report_is_json_that_comes_back_as_it_was(tmp_path: Path, form: str) -> None:
    report = FORMS[form](tmp_path)
    text = json.dumps(report, allow_nan=False, ensure_ascii=False)
    assert json.loads(text) == report
    assert json.dumps(json.loads(text), ensure_ascii=False) == text


@pytest.mark.parametrize("form", FORMS)
def test_the_same_records_give_the_same_bytes(tmp_path: Path, form: str) -> None:
    first, second = (json.dumps(FORMS[form](tmp_path)) for _ in range(2))
    assert first == second
