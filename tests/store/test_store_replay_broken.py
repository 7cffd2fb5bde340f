"""Whatever a file holds: records and a spec, or one readable line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records.drift import Divergence
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.codec import encode
from pytest_tokenwatt.store.replay.read import read_stored
from pytest_tokenwatt.store.stored_run import StoredRun

REFERENCE = Path(__file__).parent.parent / "report" / "reference"
FILES = sorted(REFERENCE.glob("*.json"))
CONTENTS = [json.loads(path.read_text(encoding="utf-8")) for path in FILES]
ODD: list[Any] = [None, True, -1, 0, 1e308, 2**70, "", "x", "é\n\u2028", [], {}, [None], {"a": None}, [[[1]]], {"": 1}]
Place = tuple[str | int, ...]


def places_of(value: Any, place: Place = ()) -> Iterator[Place]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from places_of(inner, (*place, key))


PLACES = [list(places_of(content)) for content in CONTENTS]
EVERY = [(number, place) for number, places in enumerate(PLACES) for place in places]


def changed(number: int, place: Place, value: Any, *, delete: bool = False) -> Any:
    content = copy.deepcopy(CONTENTS[number])
    target = content
    for key in place[:-1]:
        target = target[key]
    if delete:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return content


def attempt(path: Path) -> tuple[StoredRun | None, UsageError | None]:
    try:
        return read_stored(path), None
    except UsageError as error:
        return None, error


def outcome(path: Path, data: bytes) -> str | None:
    """The message, or ``None`` when the file is read; anything but the one kind of error fails the test."""
    path.write_bytes(data)
    run, error = attempt(path)
    if run is None:
        message = str(error)
        assert "\n" not in message
        assert str(path) in message
        assert error is not None
        assert error.remedy
        return message
    keys = [record.key for record in run.records]
    assert keys
    assert len(set(keys)) == len(keys)
    json.dumps(encode(run.records), allow_nan=False)
    spec = path.with_name("spec.json")
    spec.write_text(json.dumps(run.spec), encoding="utf-8")
    try:
        assert set(keys) <= {each.key for each in load_spec(spec, {}).configurations}
    except UsageError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay") / "file.json"


def test_the_references_are_read(target: Path) -> None:
    assert [outcome(target, path.read_bytes()) for path in FILES] == [None] * 3


@settings(max_examples=250)
@given(place=st.sampled_from(EVERY), value=st.sampled_from(ODD) | st.integers() | st.floats(allow_nan=False))
def test_any_value_anywhere(target: Path, place: tuple[int, Place], value: Any) -> None:
    outcome(target, json.dumps(changed(*place, value)).encode())


@settings(max_examples=150)
@given(place=st.sampled_from(EVERY))
def test_any_key_deleted(target: Path, place: tuple[int, Place]) -> None:
    outcome(target, json.dumps(changed(*place, None, delete=True)).encode())


@settings(max_examples=60)
@given(number=st.integers(0, 2), data=st.data())
def test_any_damaged_bytes(target: Path, number: int, data: st.DataObject) -> None:
    whole = FILES[number].read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    outcome(target, whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is not a JSON file"),
        (b"[]", "holds a list where a mapping is wanted"),
        (b"3", "holds a single value"),
        (b"\xff\xfe{}", "is not UTF-8 text"),
        (b"{}", "holds nothing that can be judged"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": [1e999]}', "a[0]: is no finite number"),
        (b'{"a": "\\ud800"}', "half a character"),
        (b'{"\\ud800": 1}', "half a character"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested more than"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested more than"),
        (b'{"engine": {}, "slo": {}, "workload": {}}', "is a spec, of which nothing was measured"),
        (b'{"schema": "tokenwatt-thing/1"}', "is not known"),
    ],
)
def test_files_of_other_kinds(target: Path, data: bytes, told: str) -> None:
    message = outcome(target, data)
    assert message is not None
    assert told in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        read_stored(tmp_path / "gone.json")


def test_a_missing_figure_is_none_and_no_zero(target: Path) -> None:
    place: Place = ("result", "kl", "kl")
    target.write_text(json.dumps(changed(2, place, None, delete=True)), encoding="utf-8")
    drift = read_stored(target).records[1].drift
    assert drift is not None
    assert isinstance(drift.against, Divergence)
    assert drift.against.kl is None
