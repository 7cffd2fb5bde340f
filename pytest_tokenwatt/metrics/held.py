"""How much of a closed loop's window its concurrency was held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_tokenwatt.records import RequestRecord, WindowSpan


def held_share(requests: Sequence[RequestRecord], concurrency: int, span: WindowSpan) -> float | None:
    """The share of a span during which exactly ``concurrency`` requests were sent and not ended.

    A request without an end counts as running until the span's end, one that was never sent does not count. ``None``
    of a span without length.
    """
    if span.length_s <= 0:
        return None
    sent = [record for record in requests if record.sent_s is not None]
    starts = np.array([record.sent_s for record in sent], dtype=np.float64)
    ends = np.array([np.inf if record.end_s is None else record.end_s for record in sent], dtype=np.float64)
    edges = np.clip(np.concatenate([starts, ends]), span.start_s, span.end_s)
    order = np.argsort(edges, kind="stable")
    in_flight = np.cumsum(np.repeat([1, -1], len(sent))[order])
    lengths_s = np.diff(edges[order], append=span.end_s)
    return min(1.0, float(lengths_s[in_flight == concurrency].sum()) / span.length_s)
