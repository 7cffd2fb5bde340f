"""Finds out which tool wrote a result, and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.stored_run import StoredRun
from pytest_tokenwatt.store.tools.aiperf import is_aiperf, read_aiperf
from pytest_tokenwatt.store.tools.guidellm import is_guidellm, read_guidellm
from pytest_tokenwatt.store.tools.recorded import stored_run
from pytest_tokenwatt.store.tools.vllm_bench import is_vllm_bench, read_vllm_bench

_READERS = (
    (is_vllm_bench, read_vllm_bench),
    (is_guidellm, read_guidellm),
    (is_aiperf, read_aiperf),
)


def read_tool_result(content: Mapping[str, Any], path: Path) -> StoredRun | None:
    """The result of ``vllm bench serve``, guidellm or aiperf as one configuration, named by its file.

    ``content`` is what the JSON file ``path`` holds, numbers finite. ``None``: no result of these tools. Raises
    ``UsageError`` naming the file and the key when a value is missing without which nothing can be said, or is of
    another type.
    """
    for recognises, read in _READERS:
        if recognises(content):
            return stored_run(read(Fields(str(path), content)), path)
    return None
