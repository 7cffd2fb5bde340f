"""Records come back from their files as they were."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import SCHEMA, ConfigRecord, Contract, ProbeOutcome, Reason, ServedIdentity
from pytest_tokenwatt.store.codec import decode, encode
from pytest_tokenwatt.store.records_json import read_record, read_records, write_record, write_run_record

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Any: st.none() | st.integers() | st.text(max_size=4) | st.lists(st.booleans(), max_size=2),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint, as JSON can carry them."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if arg is types.NoneType else values_of(arg) for arg in args])
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=4), values_of(args[1]), max_size=2)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(cast("type", hint), **{each.name: values_of(hints[each.name]) for each in fields(hint)})
    assert issubclass(hint, Enum)
    return st.sampled_from(list(hint))


records = values_of(ConfigRecord).map(lambda record: replace(record, schema=SCHEMA))


def small_record(key: str = "tuned") -> ConfigRecord:
    return ConfigRecord(
        key=key,
        role="tuned",
        label="vllm-fp8kv",
        like=None,
        identity=ServedIdentity(model_ids=("Qwen3",), version="0.32.0"),
        fingerprint="ab12",
        contract=Contract((ProbeOutcome("stream", True, "pass", "usage arrived"),)),
        scenarios={},
        invalid=(Reason("engine_died", "exit code 137"),),
        not_covered=(),
        launch={"command": ["vllm", "serve"]},
        minutes={"search": 4.5},
    )


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(records)
def test_any_record_survives_its_json(record: ConfigRecord) -> None:
    text = json.dumps(encode(record), allow_nan=False)
    assert decode(ConfigRecord, json.loads(text), unknown=pytest.fail) == record


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "record-tuned.json"
    write_record(path, small_record())
    stored = read_record(path)
    assert stored.record == small_record()
    assert stored.notes == ()
    assert next(iter(json.loads(path.read_text(encoding="utf-8")))) == "schema"


def test_numbers_of_numpy_are_stored_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, replace(small_record(), launch={"n": np.int64(3), "ok": np.bool_(True), "x": np.float32(0.5)}))
    assert read_record(path).record.launch == {"n": 3, "ok": True, "x": 0.5}


def test_a_run_record_holds_one_configuration_or_several(tmp_path: Path) -> None:
    single, several = tmp_path / "single.json", tmp_path / "several.json"
    write_run_record(single, [small_record()])
    write_run_record(several, [small_record("baseline"), small_record()])
    assert read_record(single).record == small_record()
    assert [each.record.key for each in read_records(several)] == ["baseline", "tuned"]
    with pytest.raises(UsageError, match=r"several.json: holds the records of 2 configurations \(baseline, tuned\)"):
        read_record(several)


def changed(path: Path, **changes: Any) -> Path:
    write_record(path, small_record())
    content = json.loads(path.read_text(encoding="utf-8"))
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "gone"}), encoding="utf-8")
    return path


def test_unknown_keys_are_left_out_and_said(tmp_path: Path) -> None:
    identity = {**encode(small_record().identity), "gpu": "H100"}
    stored = read_record(changed(tmp_path / "r.json", energy={"j": 1}, identity=identity))
    assert stored.record == small_record()
    assert stored.notes == ("r.json: unknown key energy left out", "r.json: unknown key identity.gpu left out")


def test_a_key_with_a_default_may_be_absent(tmp_path: Path) -> None:
    assert read_record(changed(tmp_path / "r.json", files="gone")).record.files == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"role": "gone"}, "role: the key is missing"),
        ({"minutes": {"search": "long"}}, "minutes.search: expected float, found 'long'"),
        ({"minutes": {"search": True}}, "minutes.search: expected float, found True"),
        ({"invalid": [{"code": "a"}]}, "invalid[0].text: the key is missing"),
        ({"invalid": {}}, "invalid: expected a list, found {}"),
        ({"scenarios": []}, "scenarios: expected a mapping, found []"),
        ({"schema": "gone"}, "no record: the key schema is missing"),
        ({"schema": "tokenwatt/99"}, "schema 'tokenwatt/99' is not 'tokenwatt/1'"),
        ({"records": 3}, "records: expected a list of records"),
        ({"minutes": {"search": -1}}, "minutes.search: expected a number >= 0, found -1"),
        ({"minutes": {"search": 1e300}}, "minutes.search: is a number beyond all measure"),
        ({"role": "boss"}, "role: expected one of baseline, tuned, other, found 'boss'"),
    ],
)
def test_what_does_not_fit_is_one_line_with_file_and_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = changed(tmp_path / "r.json", **changes)
    with pytest.raises(UsageError) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path}: {message}; ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a JSON file"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[1, 2]", "holds a list where a mapping is wanted"),
        (b'{"schema": NaN}', "NaN is no JSON number"),
    ],
)
def test_files_that_are_no_records_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_record(path)


def test_an_absent_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.json: there is no such file"):
        read_record(tmp_path / "absent.json")
