"""Finds and reads a model's ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_tokenwatt.geometry.keys import GeometryUnknown

_TEXT_MODELS = ("thinker_config", "text_config", "llm_config", "language_config")
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")


def find_config(places: Sequence[Path]) -> Path | None:
    """The first ``config.json`` that exists; places are such files or model directories."""
    return next((file for file in map(_config_file, places) if file is not None), None)


def read_config(file: Path) -> dict[str, Any]:
    """A ``config.json``, with ModelOpt's separate file of its quantisation beside it. Raises ``GeometryUnknown``."""
    config = _load(file)
    beside = file.with_name("hf_quant_config.json")
    if "quantization_config" not in config and beside.is_file():
        config["quantization_config"] = {"quant_method": "modelopt", **_load(beside)}
    return config


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is set, with the settings of a nested language model over those around it."""
    flat = {name: value for name, value in config.items() if value is not None}
    for name in _TEXT_MODELS:
        inner = flat.pop(name, None)
        if isinstance(inner, Mapping):
            flat |= flattened(inner)
    return flat


def _config_file(place: Path) -> Path | None:
    try:
        file = place / "config.json" if place.is_dir() else place
        return file if file.is_file() and file.suffix not in _WEIGHTS else None
    except (OSError, ValueError):
        return None


def _load(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise GeometryUnknown(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise GeometryUnknown(f"{file} holds no mapping")
    return content
