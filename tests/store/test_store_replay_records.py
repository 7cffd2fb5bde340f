"""Run records and run directories come back as they were written, with a spec that names every configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.records_json import read_records, write_record, write_run_record
from pytest_tokenwatt.store.replay.read import read_stored

SPEC: dict[str, Any] = {
    "name": "two",
    "engine": {"endpoint": "http://127.0.0.1:8000/v1"},
    "slo": {"ttft_p99_ms": 2000},
    "configs": [{"key": "tuned", "role": "tuned"}, {"key": "baseline", "role": "baseline"}],
}
ALONE = {name: block for name, block in SPEC.items() if name != "configs"}


def record_of(key: str, spec: dict[str, Any]) -> ConfigRecord:
    return ConfigRecord(
        key=key,
        role=key,
        label=f"vllm-{key}",
        like=None,
        identity=None,
        fingerprint="ab",
        contract=None,
        scenarios={},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={"search": 1.5},
        spec=spec,
        provenance=Provenance(title="BF16 vs FP8"),
    )


def write_directory(path: Path, *records: ConfigRecord) -> Path:
    path.mkdir()
    for record in records:
        write_record(path / f"record-{record.key}.json", record)
    return path


def keys_of(spec: Any, path: Path) -> list[str]:
    path.write_text(json.dumps(spec), encoding="utf-8")
    return [each.key for each in load_spec(path, {}).configurations]


def test_a_run_directory_is_its_records_in_the_order_of_the_spec(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "run", record_of("baseline", SPEC), record_of("tuned", SPEC))
    run = read_stored(path)
    assert run.kind == "run directory"
    assert run.title == "BF16 vs FP8"
    assert run.notes == ()
    assert run.spec == SPEC
    assert run.records == tuple(
        stored.record for key in ("tuned", "baseline") for stored in read_records(path / f"record-{key}.json")
    )


def test_a_run_record_of_one_configuration_gets_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_run_record(path, [record_of("tuned", ALONE)])
    run = read_stored(path)
    assert run.kind == "run record"
    assert run.spec["configs"] == [{"key": "tuned", "role": "tuned", "label": "vllm-tuned"}]
    assert run.spec["gates"] == {"on_missing_baseline": "record"}
    assert keys_of(run.spec, tmp_path / "spec.json") == ["tuned"]
    assert run.records[0].spec == ALONE


def test_a_run_record_may_hold_several(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_run_record(path, [record_of("baseline", SPEC), record_of("tuned", SPEC)])
    assert [record.key for record in read_stored(path).records] == ["tuned", "baseline"]


def test_a_repeat_names_what_it_repeats_only_where_that_is_there(tmp_path: Path) -> None:
    again = replace(record_of("again", ALONE), role="other", like="baseline")
    both = write_directory(tmp_path / "both", record_of("baseline", ALONE), again)
    entries = {entry["key"]: entry for entry in read_stored(both).spec["configs"]}
    assert entries["again"]["like"] == "baseline"
    assert "like" not in entries["baseline"]
    alone = write_directory(tmp_path / "alone", again)
    assert "like" not in read_stored(alone).spec["configs"][0]


def test_records_of_two_specs_are_said(tmp_path: Path) -> None:
    other = {**SPEC, "slo": {"ttft_p99_ms": 9000}}
    run = read_stored(write_directory(tmp_path / "run", record_of("baseline", SPEC), record_of("tuned", other)))
    assert run.spec == SPEC
    assert run.notes == ("record-tuned.json: made with another spec; that of record-baseline.json is used",)


def test_an_unknown_key_is_a_note(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "run", record_of("tuned", SPEC))
    file = path / "record-tuned.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"novel": 1}), encoding="utf-8")
    assert read_stored(path).notes == ("record-tuned.json: unknown key novel left out",)


def test_two_records_of_one_configuration_are_refused(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "run", record_of("tuned", SPEC))
    write_record(path / "record-copy.json", record_of("tuned", SPEC))
    with pytest.raises(UsageError, match="two records are of the configuration tuned"):
        read_stored(path)


def test_a_record_without_its_spec_is_refused(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "run", record_of("tuned", {}))
    with pytest.raises(UsageError, match="spec: the record of tuned holds no spec"):
        read_stored(path)


def test_an_empty_directory_names_the_runs_below_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name a run directory"):
        read_stored(tmp_path)
    write_directory(tmp_path / "chat", record_of("tuned", SPEC))
    with pytest.raises(UsageError, match="name one of its runs: chat"):
        read_stored(tmp_path)


def test_deleting_any_key_of_a_record_is_one_line_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_run_record(path, [record_of("tuned", SPEC)])
    whole = json.loads(path.read_text())
    for key in whole:
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != key}), encoding="utf-8")
        told = message_of(path)
        assert told is None or key in told
        assert "\n" not in (told or "")


def message_of(path: Path) -> str | None:
    try:
        read_stored(path)
    except UsageError as error:
        return str(error)
    return None


def test_the_directory_of_a_run_that_ended_early_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").touch()
    with pytest.raises(UsageError, match="ended before a configuration was measured; go on with --tokenwatt-resume"):
        read_stored(tmp_path)
