"""The JSON Schema of a spec, for editors; the checks that need the whole file stay with ``load_spec``."""

from __future__ import annotations

from typing import Any

from pytest_tokenwatt.spec.document import Document

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL = {"type": "null"}
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_EXPANDABLE = ("number", "integer", "boolean")


def json_schema() -> dict[str, Any]:
    """The schema of a spec file: every key with its description and default.

    As in the file, ``null`` stands for the default, ``${VAR}`` may stand for a number or a boolean, and ``x-*`` and
    ``$schema`` may stand in any block.
    """
    generated = Document.model_json_schema(mode="validation")
    definitions = {name: _block(block) for name, block in generated.pop("$defs").items()}
    schema = {"$schema": _DIALECT, **_block(generated), "title": "pytest-tokenwatt spec", "$defs": definitions}
    schema["properties"]["name"].pop("default")  # the file's name, which no schema can say
    return schema


def _block(block: dict[str, Any]) -> dict[str, Any]:
    required = block.get("required", [])
    properties = {name: _property(part, name in required) for name, part in block.get("properties", {}).items()}
    notes = {"$schema": {"type": "string"}}
    return {**block, "properties": {**properties, **notes}, "patternProperties": {"^x-": {}}}


def _property(part: dict[str, Any], required: bool) -> dict[str, Any]:
    kept = {key: part[key] for key in ("description", "default") if isinstance(part.get(key), str | int | float)}
    shape = {key: value for key, value in part.items() if key not in ("description", "default", "title")}
    options = _options(shape)
    if not required and _NULL not in options:
        options = [*options, _NULL]
    return {**kept, **(options[0] if len(options) == 1 else {"anyOf": options})}


def _options(shape: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a shape; a variable may stand wherever a number or a boolean may."""
    listed = shape.get("anyOf") or shape.get("oneOf") or [shape]
    options = [_with_items(option) for option in listed]
    if any(option.get("type") in _EXPANDABLE for option in options) and {"type": "string"} not in options:
        options.append(_VARIABLE)
    return options


def _with_items(shape: dict[str, Any]) -> dict[str, Any]:
    items = shape.get("items")
    if not isinstance(items, dict):
        return shape
    options = _options(items)
    return {**shape, "items": options[0] if len(options) == 1 else {"anyOf": options}}
