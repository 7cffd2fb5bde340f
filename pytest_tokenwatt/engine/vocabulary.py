"""Which token ids a prompt may be made of: from the spec, the model's files, or the engine itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tokenwatt.engine.control import ControlClient
from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.modelfiles import model_folders
from pytest_tokenwatt.spec.model import Model

_ASK_TIMEOUT_S = 30.0
_SMALLEST, _LARGEST = 16, 1 << 21
_SPECIAL_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "image_token_id", "video_token_id", "audio_token_id")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token ids below ``size`` (0: unknown) are valid; ``special`` ones have a meaning of their own."""

    size: int = 0
    special: frozenset[int] = frozenset()


def from_files(model: Model, names: tuple[str | None, ...], spec_dir: Path, environ: Mapping[str, str]) -> Vocabulary:
    """What the model's files say. ``names`` are directories (relative to the spec) or hub ids, the first usable wins.

    Files that are absent or unreadable say nothing; ``model.vocab_size`` wins over them.
    """
    folders = model_folders(model.config, names, spec_dir, environ)
    folder = next((found for found in folders if (found / "config.json").is_file()), None)
    config = _load(folder / "config.json") if folder else {}
    size = (
        model.vocab_size or _whole(config.get("vocab_size")) or _whole(_part(config, "text_config").get("vocab_size"))
    )
    return Vocabulary(size or 0, frozenset(_special(folder, config)) if folder else frozenset())


async def ask_size(client: ControlClient) -> int:
    """The vocabulary's size as vLLM tells it by refusing ids beyond it: the smallest refused id. 0 when it cannot tell.

    Only for servers that are known to refuse: others look such an id up, and crash.
    """
    low, high = 0, _SMALLEST
    while await _accepts(client, high - 1):
        low, high = high, high * 2
        if high > _LARGEST:
            return 0
    while low < high - 1 and low > 0:
        middle = (low + high) // 2
        low, high = (middle, high) if await _accepts(client, middle - 1) else (low, middle)
    return low


async def _accepts(client: ControlClient, token: int) -> bool:
    body = {"model": client.model, "prompt": [token], "max_tokens": 1, "temperature": 0}
    try:
        answer = await client.http.post(f"{client.access.endpoint}/completions", body, _ASK_TIMEOUT_S)
    except HttpError:
        return False
    return answer.status == 200


def _special(folder: Path, config: Mapping[str, Any]) -> Iterator[int]:
    for source in (config, _part(config, "text_config"), _load(folder / "generation_config.json")):
        for key in _SPECIAL_KEYS:
            told = source.get(key)
            yield from filter(_is_id, told if isinstance(told, list) else [told])
    added = _part(_load(folder / "tokenizer_config.json"), "added_tokens_decoder")
    yield from (int(token) for token in added if token.isdigit())
    if not added:
        listed = _load(folder / "tokenizer.json").get("added_tokens")
        yield from (entry["id"] for entry in listed or () if isinstance(entry, dict) and _is_id(entry.get("id")))


def _load(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _part(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = mapping.get(key)
    return part if isinstance(part, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
