"""Reads the usual token event without parsing it; most events of a stream differ in their ids alone.

The searched keys begin with an unescaped quote and end behind a colon: they cannot occur inside a JSON string, where
each quote has a backslash before it. Whatever does not look exactly as expected is left to the parser.
"""

from __future__ import annotations

_GOES_ON = b'"finish_reason":null'
_IDS = b'"token_ids":['


def glance(data: bytes) -> int | None:
    """The number of token ids of an event of a stream that goes on; ``None`` when it must be parsed.

    Leaves out usage, which the caller reads from the last event if no later one brings it.
    """
    at = data.rfind(_IDS)
    if at < 0 or data.rfind(_GOES_ON, 0, at) < 0:
        return None
    start = at + len(_IDS)
    ids = data[start : data.find(b"]", start)]
    if ids.isdigit():
        return 1
    return ids.count(b",") + 1 if ids.replace(b",", b"").isdigit() else None
