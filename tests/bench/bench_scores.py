"""How fast log-probabilities are read, on one core: positions a second of both routes, and the ratio of the two.

    python tests/bench/bench_scores.py [--k 20] [--tokens 256] [--seconds 2]

A reply is read from its bytes, as it comes from the socket, to the columns that the estimators take.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import sys
import time
from array import array
from collections.abc import Callable

import numpy as np

from pytest_tokenwatt.engine.control import parse_reply
from pytest_tokenwatt.engine.http import Answer
from pytest_tokenwatt.quality.drift.fixed_ids import read_fixed_ids
from pytest_tokenwatt.quality.drift.prompt_scores import read_scores
from pytest_tokenwatt.records import drift

LEAST_PER_S = 20_000
VOCABULARY = 150_000


def sequence_of(tokens: int, rng: np.random.Generator) -> drift.Sequence:
    """A prompt of one token, and ``tokens`` behind it."""
    return drift.Sequence("bench", tuple(rng.integers(0, VOCABULARY, tokens + 1).tolist()), 1)


def json_reply(sequence: drift.Sequence, k: int, rng: np.random.Generator) -> str:
    """As vLLM writes it: what stands there first, then the likeliest, each with its rank and its text."""
    entries: list[dict[str, object] | None] = [None]
    for token in sequence.ids[1:]:
        ids = [token, *rng.choice(VOCABULARY, k, replace=False).tolist()]
        entries.append(
            {
                str(each): {"logprob": -float(rng.random()) - 3.5, "rank": rank, "decoded_token": " word"}
                for rank, each in enumerate(ids)
            }
        )
    choice = {"index": 0, "text": "", "prompt_token_ids": list(sequence.ids), "prompt_logprobs": entries}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": len(sequence.ids)}})


def binary_reply(sequence: drift.Sequence, k: int, rng: np.random.Generator) -> str:
    """As ``/inference/v1/generate`` writes it."""
    buffer = io.BytesIO()
    np.save(buffer, -rng.random((len(sequence.ids) - 1, k + 1), dtype=np.float32) - 3.5, allow_pickle=False)
    told = base64.b64encode(buffer.getvalue()).decode()
    return json.dumps({"choices": [], "prompt_token_ids": list(sequence.ids), "prompt_token_id_logprobs": told})


def rate(read: Callable[[], drift.TopK], seconds: float) -> float:
    """Positions a second of CPU time of this thread, the best of three runs."""
    best = 0.0
    for _ in range(3):
        began_s, positions = time.thread_time(), 0
        while time.thread_time() - began_s < seconds / 3:
            positions += read().positions
        best = max(best, positions / (time.thread_time() - began_s))
    return best


def main() -> int:
    """Measure both and print them; 1 when one is slower than it may be."""
    parser = argparse.ArgumentParser(description="How fast log-probabilities are read.")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    sequence = sequence_of(given.tokens, rng)
    places = given.tokens * given.k
    ids = rng.integers(0, VOCABULARY, places).astype(np.int32)
    base = drift.TopK(
        given.k, array("i", ids.tobytes()), array("f", bytes(4 * places)), array("f", bytes(4 * given.tokens))
    )
    as_json, binary = json_reply(sequence, given.k, rng), binary_reply(sequence, given.k, rng)

    def read_json() -> drift.TopK:
        choice = parse_reply(Answer(200, as_json).json(), "bench").raw["choices"][0]
        return read_scores(choice["prompt_logprobs"], sequence.ids, sequence.prompt, given.k)

    def read_binary() -> drift.TopK:
        return read_fixed_ids(Answer(200, binary).json(), sequence, base, given.k)

    rates = {
        "prompt_logprobs (JSON)": rate(read_json, given.seconds),
        "fixed_ids (binary)": rate(read_binary, given.seconds),
    }
    for name, found in rates.items():
        print(
            f"{name}: {found:,.0f} positions/s at K = {given.k}, {found / LEAST_PER_S:.1f} x the {LEAST_PER_S:,} needed"
        )
    sizes = len(as_json) / given.tokens, len(binary) / given.tokens
    print(f"bytes a position: JSON {sizes[0]:,.0f}, binary {sizes[1]:,.0f}: ratio {sizes[0] / sizes[1]:.1f}")
    return 0 if min(rates.values()) >= LEAST_PER_S else 1


if __name__ == "__main__":
    sys.exit(main())
