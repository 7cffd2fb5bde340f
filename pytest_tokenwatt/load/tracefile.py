"""Request lengths from trace files: our own JSONL, Mooncake's JSONL, and the CSV of Azure's and BurstGPT's traces."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.load.lengths import Tokens

INPUT_NAMES = ("input_tokens", "input_length", "ContextTokens", "Request tokens")
OUTPUT_NAMES = ("output_tokens", "output_length", "GeneratedTokens", "Response tokens")
"""Own JSONL, Mooncake, Azure LLM inference trace, BurstGPT."""


@dataclass(frozen=True, slots=True)
class LengthPairs:
    """Observed (input, output) lengths in tokens; drawn as pairs, so that their correlation stays."""

    inputs: Tokens
    outputs: Tokens

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """``count`` pairs with replacement."""
        picked = (generator.random(count) * len(self.inputs)).astype(np.int64)
        return self.inputs[picked], self.outputs[picked]


def read_pairs(path: Path) -> LengthPairs:
    """Lengths of all usable requests of a trace file, by its suffix ``.csv`` or else JSON lines.

    Requests without input or without output (Azure and BurstGPT hold failed ones) are left out. Raises ``UsageError``
    naming file and line when a line cannot be read, and when nothing is left.
    """
    rows = _csv_rows(path) if path.suffix == ".csv" else _json_rows(path)
    try:
        pairs = [pair for line, row in rows if (pair := _pair(path, line, row)) is not None]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot be read ({error})", where=str(path), remedy="give a UTF-8 trace file") from error
    if not pairs:
        raise UsageError("holds no requests", where=str(path), remedy="give a trace with at least one request")
    lengths = np.array(pairs, dtype=np.int64)
    return LengthPairs(lengths[:, 0].copy(), lengths[:, 1].copy())


def _csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            yield reader.line_num, row


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _json_row(path, number, line)


def _json_row(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(f"is not JSON ({error})", where=f"{path}:{number}", remedy="one object a line") from error
    if not isinstance(row, dict):
        raise UsageError("is not an object", where=f"{path}:{number}", remedy="one object a line")
    return row


def _pair(path: Path, line: int, row: Mapping[str, Any]) -> tuple[int, int] | None:
    tokens = tuple(_tokens(path, line, row, names) for names in (INPUT_NAMES, OUTPUT_NAMES))
    return (tokens[0], tokens[1]) if min(tokens) >= 1 else None


def _tokens(path: Path, line: int, row: Mapping[str, Any], names: tuple[str, ...]) -> int:
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        raise UsageError(f"has none of {', '.join(names)}", where=f"{path}:{line}", remedy=f"give {names[0]}")
    try:
        return int(row[name])
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{name} is {row[name]!r}, not a number of tokens", where=f"{path}:{line}", remedy="correct the line"
        ) from error
