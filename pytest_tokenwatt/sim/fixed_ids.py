"""``/inference/v1/generate`` as vLLM's scale-out endpoint answers it: scores of given ids in binary, and trace replay.

Nothing else of that endpoint is there. What is replayed is scored as it stands, since the embedded engine decodes and
prefills by the same numbers.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.sim.api import MAX_LOGPROBS, ApiError, Served, check_model, prompt_ids
from pytest_tokenwatt.sim.lm import LanguageModel, contexts_of, log_softmax
from pytest_tokenwatt.sim.output import TokenLogprob
from pytest_tokenwatt.sim.skill import Skill

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_PADDING = -1


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """The endpoint. ``score_ids`` gives log-probabilities of rows of ids from a place on, ``score`` the likeliest."""

    served: Served
    enabled: bool
    trace_replay: bool
    score_ids: Callable[[Sequence[int], Rows, int], Scores]
    score: Callable[[Sequence[int], int], list[TokenLogprob]]

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request; takes as long as scoring does. Raises ``ApiError``."""
        if not self.enabled:
            text = "Scale-out endpoints are disabled. Restart the server with --enable-scale-out."
            raise ApiError(403, "PermissionDeniedError", text)
        check_model(body, self.served)
        prompt = prompt_ids({"prompt": body.get("token_ids")}, self.served, chat=False)
        sampling = body.get("sampling_params")
        if not isinstance(sampling, dict):
            raise _bad("sampling_params: an object is required", "sampling_params")
        reply: dict[str, Any] = {
            "usage": {"prompt_tokens": len(prompt)},
            "prompt_token_ids": prompt if body.get("return_token_ids") else None,
            "prompt_token_id_logprobs": None,
        }
        rows, trace = sampling.get("prompt_logprob_token_ids"), sampling.get("trace_decode_token_ids")
        if rows is not None:
            reply["prompt_token_id_logprobs"] = self._scored(prompt, rows, sampling.get("prompt_logprob_start") or 0)
        if trace is not None:
            return reply | {"choices": [self._replayed(prompt, trace)]}
        return reply | {"choices": [{"index": 0, "token_ids": [], "finish_reason": "length", "logprobs": None}]}

    def _scored(self, prompt: Sequence[int], rows: Any, start: int) -> str:
        key = "prompt_logprob_token_ids"
        if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
            raise _bad(f"{key} must be a non-empty integer array of shape [num_rows, num_ids].", key)
        width = max(map(len, rows))
        if width > MAX_LOGPROBS:
            text = f"Requested {width} token ids per row in {key}, which is greater than max allowed: {MAX_LOGPROBS}."
            raise _bad(text, key)
        if len(rows) != len(prompt) - 1 - start:
            raise _bad(f"{key} has {len(rows)} rows, but the prompt has {len(prompt) - 1 - start} scored rows", key)
        table = np.array([row + [_PADDING] * (width - len(row)) for row in rows], dtype=np.int64)
        if not _PADDING <= table.min() <= table.max() < self.served.tokenizer.vocab_size:
            raise _bad(f"{key} contain out-of-vocab token ids (-1 pads a row).", key)
        return _in_base64(self.score_ids(prompt, table, start))

    def _replayed(self, prompt: Sequence[int], trace: Any) -> dict[str, Any]:
        key = "trace_decode_token_ids"
        if not self.trace_replay:
            raise _bad(f"{key} is set but trace replay is not enabled. Start with --enable-trace-replay.", key)
        if not isinstance(trace, list) or not trace:
            raise _bad(f"{key} must be a non-empty list.", key)
        kept = trace[: max(1, self.served.max_model_len - len(prompt))]
        scored = self.score([*prompt, *kept], 1)[len(prompt) - 1 :]
        content = [{"token_id": each.token, "logprob": each.logprob, "rank": each.rank} for each in scored]
        return {"index": 0, "token_ids": kept, "finish_reason": "length", "logprobs": {"content": content}}


def score_ids(model: LanguageModel, skill: Skill, prompt: Sequence[int], rows: Rows, start: int) -> Scores:
    """Log-probabilities, as ``rows`` is shaped, of its ids as predictions of ``prompt[start + 1:]``; −inf for −1."""
    logits = model.logits(contexts_of(prompt)[start + 1 : start + 1 + len(rows)])
    skill.steer(logits, prompt, start + 1)
    found = np.take_along_axis(log_softmax(logits), np.maximum(rows, 0), axis=1)
    return np.where(rows >= 0, found, -np.inf).astype(np.float32)


def _in_base64(scores: Scores) -> str:
    buffer = io.BytesIO()
    np.save(buffer, scores, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _bad(message: str, param: str) -> ApiError:
    return ApiError(400, "BadRequestError", message, param)
