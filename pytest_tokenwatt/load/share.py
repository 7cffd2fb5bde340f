"""Shares a token count out over chunks whose own counts are unknown."""

from __future__ import annotations


def equal_share(tokens: int, chunks: int) -> list[int]:
    """``tokens`` over ``chunks`` as evenly as integers allow; the sum is exact.

    With as many tokens as chunks or more, each gets at least one. With fewer, some get none, but the
    first and (from two tokens on) the last do, so that first-token and last-token instants stay where the text was.
    """
    if tokens >= chunks:
        edges = [-(-index * tokens // chunks) for index in range(chunks + 1)]
        return [edges[index + 1] - edges[index] for index in range(chunks)]
    shares = [0] * chunks
    for index in range(tokens):
        shares[round(index * (chunks - 1) / max(1, tokens - 1))] = 1
    return shares
