"""The hash that says whether two records asked the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Suite


def asked_sha256(items: Iterable[SuiteItem], settings: Suite) -> str:
    """SHA-256 (hex) over what is asked and how it is scored, in order.

    Of an item: id, prompt or messages with their examples, gold and choices. Of the suite: API, scorer, longest answer,
    stops, sampling and ``extra_body``. Names, limits, domains, the number of seeds and the concurrency do not count.
    """
    digest = hashlib.sha256(_canonical(_manner(settings)))
    for item in items:
        digest.update(_canonical([item.id, item.prompt, item.messages, item.answer, list(item.choices)]))
    return digest.hexdigest()


def _manner(settings: Suite) -> Mapping[str, Any]:
    return {
        "api": settings.api,
        "scorer": settings.scorer,
        "max_tokens": settings.max_tokens,
        "stop": list(settings.stop),
        "sampling": {key: _plain(value) for key, value in settings.sampling.model_dump().items()},
        "extra_body": settings.extra_body,
    }


def _plain(number: float | None) -> float | None:
    """One form for 1 and 1.0: a default is an integer where the same value from a file is not."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n"
