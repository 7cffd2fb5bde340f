"""The JSON Schema describes the same file that the loader accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.spec.document import Document
from pytest_tokenwatt.spec.reader import read_source
from pytest_tokenwatt.spec.schema import json_schema

DATA = Path(__file__).parent / "data"
SPECS = Path(__file__).parents[2] / "specs"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def test_it_is_plain_json_and_describes_every_key(schema: dict[str, Any]) -> None:
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert set(Document.model_fields) <= set(schema["properties"])
    for block in (*schema["$defs"].values(), schema):
        assert block["additionalProperties"] is False
        for name, part in block["properties"].items():
            described = name == "$schema" or "description" in part or "$ref" in json.dumps(part)
            assert described, f"{name} has no description"


@pytest.mark.parametrize(
    "path", [*sorted(DATA.iterdir()), *sorted(SPECS.glob("*.yaml"))], ids=lambda path: str(path.name)
)
def test_it_accepts_the_specs_that_load(path: Path, schema: dict[str, Any]) -> None:
    assert list(errors(read_source(path).raw, schema, schema, "")) == []


@pytest.mark.parametrize(
    "document",
    [
        {"zzz": 1},
        {"engine": {"comand": ["x"]}},
        {"measurement": {"repeats": 0}},
        {"measurement": {"window_s": "x"}},
        {"slo": {"ttft_p99": 3}},
        {"slo": {}},
        {"configs": [{"label": "no key"}]},
        {"configs": [{"key": "a b"}]},
        {"gates": {"kl": {"mode": "of"}}},
        {"engine": {"command": "vllm serve"}},
    ],
)
def test_it_refuses_what_does_not_load(document: dict[str, Any], schema: dict[str, Any]) -> None:
    assert list(errors(document, schema, schema, ""))


@pytest.mark.parametrize(
    "document",
    [{"sweep": {"start_rps": "${RPS:-2}"}}, {"sweep": None}, {"sweep": {"growth": None, "x-why": 1}}, {"$schema": "a"}],
)
def test_variables_nulls_and_notes(document: dict[str, Any], schema: dict[str, Any]) -> None:
    assert list(errors(document, schema, schema, "")) == []


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "null": type(None),
}


def errors(value: Any, shape: dict[str, Any], root: dict[str, Any], at: str) -> Iterator[str]:
    """A validator for the keywords that our schema uses."""
    if "$ref" in shape:
        shape = root["$defs"][shape["$ref"].rsplit("/", 1)[-1]]
    for choice in ("anyOf", "oneOf"):
        if choice in shape and all(list(errors(value, option, root, at)) for option in shape[choice]):
            yield f"{at}: no alternative fits {value!r}"
    kind = shape.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("number", "integer"))):
        yield f"{at}: {value!r} is no {kind}"
        return
    yield from _scalar_errors(value, shape, at)
    if isinstance(value, dict):
        yield from _object_errors(value, shape, root, at)
    for number, item in enumerate(value if isinstance(value, list) else []):
        yield from errors(item, shape.get("items", {}), root, f"{at}[{number}]")


def _scalar_errors(value: Any, shape: dict[str, Any], at: str) -> Iterator[str]:
    if "enum" in shape and value not in shape["enum"]:
        yield f"{at}: {value!r} is not listed"
    if "pattern" in shape and not re.search(shape["pattern"], value):
        yield f"{at}: {value!r} does not match"
    if isinstance(value, list) and len(value) < shape.get("minItems", 0):
        yield f"{at}: too few"
    if isinstance(value, int | float):
        low, above = shape.get("minimum", value), shape.get("exclusiveMinimum", value - 1)
        high, below = shape.get("maximum", value), shape.get("exclusiveMaximum", value + 1)
        if not (low <= value <= high and above < value < below):
            yield f"{at}: {value!r} is out of range"


def _object_errors(value: dict[str, Any], shape: dict[str, Any], root: dict[str, Any], at: str) -> Iterator[str]:
    yield from (f"{at}: {key} is missing" for key in shape.get("required", []) if key not in value)
    if len(value) < shape.get("minProperties", 0):
        yield f"{at}: empty"
    extra = shape.get("additionalProperties", True)
    for key, part in value.items():
        patterns = [inner for pattern, inner in shape.get("patternProperties", {}).items() if re.search(pattern, key)]
        inner = shape.get("properties", {}).get(key) or next(iter(patterns), None if extra is False else extra)
        if inner is None:
            yield f"{at}: {key} is unknown"
        elif isinstance(inner, dict):
            yield from errors(part, inner, root, f"{at}.{key}")
