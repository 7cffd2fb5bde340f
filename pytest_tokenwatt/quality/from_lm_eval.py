"""Sample logs of lm-evaluation-harness (``samples_<task>_<date>.jsonl``): the final prompt and the target of each item.

The log has one line for each filter of a task, so that an item may come several times; it is asked once. A task scored
by likelihood (one request for each option) becomes a multiple-choice item if the prompt shows the options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_tokenwatt.quality.complaints import Complain
from pytest_tokenwatt.quality.from_gsm8k import GOLD_MARK
from pytest_tokenwatt.quality.jsonl import Written, read_rows

_REMEDY = "give the samples_*.jsonl that lm-eval writes with --log_samples"


def read_lm_eval(path: Path, complain: Complain) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The lines of a suite; ids are the log's ``doc_id``."""
    seen: dict[str, int] = {}
    for number, row in read_rows(path, complain):
        item = _item(number, row, complain)
        if item is None:
            continue
        name, content = str(item["id"]), hash(json.dumps(item, sort_keys=True))
        if name not in seen:
            seen[name] = content
            yield number, item
        elif seen[name] != content:
            complain(number, "doc_id", "came before with another prompt or target", "give the log of one task and run")


def _item(number: int, row: Mapping[str, Any], complain: Complain) -> Mapping[str, Any] | None:
    requests = _requests(row.get("arguments"))
    if not requests or row.get("doc_id") is None or row.get("target") is None:
        missing = [key for key in ("doc_id", "target") if row.get(key) is None]
        complain(number, missing[0] if missing else "arguments", "is missing, or not of lm-eval's form", _REMEDY)
        return None
    item = {"id": row["doc_id"], **_asked(requests[0][0]), "answer": _gold(row["target"])}
    options = [request[1].strip() for request in requests if len(request) > 1 and isinstance(request[1], str)]
    if len(options) < 2:
        return item
    flaw = _why_no_choice([request[0] for request in requests], options, row["target"])
    if flaw is not None:
        complain(number, "arguments", flaw, "such a task cannot be asked as text; take its generating variant")
        return None
    return {**item, "choices": options, "answer": _option(row["target"], options)}


def _requests(arguments: Any) -> list[Sequence[Any]]:
    """The arguments of each request of an item, in both forms that lm-eval has written; empty for anything else."""
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    if not isinstance(arguments, list):
        return []
    requests = [list(one.values()) if isinstance(one, Mapping) else one for one in arguments]
    return requests if all(isinstance(one, list) and one for one in requests) else []


def _asked(context: Any) -> Mapping[str, Any]:
    """Prompt or messages: a conversation is written as JSON text, bare or alone in a list."""
    if isinstance(context, list) and len(context) == 1 and isinstance(context[0], str):
        context = context[0]
    if isinstance(context, str) and context.startswith("[{"):
        try:
            messages = json.loads(context)
        except (ValueError, RecursionError):
            return {"prompt": context}
        if all(isinstance(message, dict) and "role" in message for message in messages):
            return {"messages": messages}
    return {"messages" if isinstance(context, list) else "prompt": context}


def _gold(target: Any) -> Any:
    """The target, of a worked solution what stands behind its mark."""
    return target.rpartition(GOLD_MARK)[2].strip() if isinstance(target, str) else target


def _why_no_choice(contexts: Sequence[Any], options: Sequence[str], target: Any) -> str | None:
    if any(context != contexts[0] for context in contexts):
        return "compares prompts, not answers to one prompt"
    hidden = next((option for option in options if option not in str(contexts[0])), None)
    if hidden is not None:
        return f"scores options by likelihood that the prompt does not show ({hidden[:40]!r})"
    return None if _option(target, options) is not None else "has a target that is none of its options"


def _option(target: Any, options: Sequence[str]) -> str | None:
    """The right option; the target is its text or its place from 0."""
    text = target.text if isinstance(target, Written) else str(target).strip()
    if text in options:
        return text
    return options[int(text)] if text.isdecimal() and int(text) < len(options) else None
