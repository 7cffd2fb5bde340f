"""Requests of the OpenAI API as the embedded engine understands them, and the errors it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.sim.tokenizer import Tokenizer

MAX_LOGPROBS = 20
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "echo": (False,),
    "suffix": ("",),
}


class ApiError(Exception):
    """An HTTP error reply in vLLM's form."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param
        self.headers = headers
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the reply."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}


@dataclass(frozen=True, slots=True)
class Served:
    """What requests are checked against."""

    model: str
    max_model_len: int
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One checked request; ``max_tokens`` is already cut to what the context length leaves."""

    chat: bool
    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int | None
    stop: tuple[str, ...]
    stop_ids: frozenset[int]
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    logprobs: int | None
    prompt_logprobs: int | None
    tokens_as_ids: bool


def parse_generation(body: Mapping[str, Any], served: Served, *, chat: bool) -> GenerationRequest:
    """Check the body of a completions or chat request. Raises ``ApiError`` as vLLM would answer it."""
    check_model(body, served)
    _check_neutral(body)
    prompt = prompt_ids(body, served, chat=chat)
    options = _mapping(body, "stream_options")
    stream = _flag(body, "stream")
    request = GenerationRequest(
        chat=chat,
        prompt=tuple(prompt),
        max_tokens=_max_tokens(body, len(prompt), served, chat=chat),
        temperature=_number(body, "temperature", 1.0, float, least=0),
        seed=_number(body, "seed", None, int),
        stop=_stop(body),
        stop_ids=frozenset(_list_of(body, "stop_token_ids", int)),
        ignore_eos=_flag(body, "ignore_eos"),
        stream=stream,
        include_usage=_flag(options, "include_usage"),
        continuous_usage=_flag(options, "include_usage") and _flag(options, "continuous_usage_stats"),
        return_token_ids=_flag(body, "return_token_ids"),
        logprobs=_logprobs(body, chat=chat),
        prompt_logprobs=_count(body, "prompt_logprobs"),
        tokens_as_ids=_flag(body, "return_tokens_as_token_ids"),
    )
    if stream and request.prompt_logprobs is not None:
        raise _bad("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    return request


def check_model(body: Mapping[str, Any], served: Served) -> None:
    """Raise a 404 when the body names a model that is not served; naming none is fine."""
    model = body.get("model")
    if model is not None and model != served.model:
        text = f"The model `{model}` does not exist. Valid aliases: {served.model}"
        raise ApiError(404, "NotFoundError", text, "model")


def prompt_ids(body: Mapping[str, Any], served: Served, *, chat: bool) -> list[int]:
    """The prompt as ids: from ``messages`` or from ``prompt``, which is text or ids. Raises ``ApiError``."""
    ids = _chat_ids(body, served) if chat else _prompt_ids(body.get("prompt"), served)
    if not ids:
        raise _bad("You must pass at least one prompt", "prompt")
    if len(ids) >= served.max_model_len:
        limit = f"This model's maximum context length is {served.max_model_len} tokens."
        raise _bad(
            f"{limit} However, your prompt contains {len(ids)} input tokens, which exceeds this limit even without any "
            f"output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={len(ids)})",
            "input_tokens",
        )
    return ids


def _chat_ids(body: Mapping[str, Any], served: Served) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("messages: a list with at least one message is required", "messages")
    return served.tokenizer.encode_chat([_message(message) for message in messages])


def _message(message: Any) -> Mapping[str, str]:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str) or not isinstance(message.get("role"), str):
        raise _bad("messages: every message needs a role and a text as content", "messages")
    return {"role": message["role"], "content": content}


def _prompt_ids(prompt: Any, served: Served) -> list[int]:
    if isinstance(prompt, str):
        return served.tokenizer.encode(prompt)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        return _prompt_ids(prompt[0], served)
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise _bad("prompt: one text or one list of token ids is required", "prompt")
    if prompt and not 0 <= min(prompt) <= max(prompt) < served.tokenizer.vocab_size:
        worst = next(token for token in prompt if not 0 <= token < served.tokenizer.vocab_size)
        raise _bad(f"Token id {worst} is out of vocabulary", "prompt")
    return prompt


def _max_tokens(body: Mapping[str, Any], prompt_tokens: int, served: Served, *, chat: bool) -> int:
    """vLLM does not refuse prompt + max_tokens beyond the context length: it ends the output there."""
    room = served.max_model_len - prompt_tokens
    asked = body.get("max_completion_tokens") if chat else None
    wanted = asked if asked is not None else body.get("max_tokens")
    if wanted is None:
        return room if chat else min(16, room)
    if type(wanted) is not int or wanted < 1:
        raise _bad(f"max_tokens must be at least 1, got {wanted}.", "max_tokens")
    return min(wanted, room)


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = (stop,) if isinstance(stop, str) else tuple(_list_of(body, "stop", str))
    if "" in stops:
        raise _bad("stop cannot contain an empty string.", "stop")
    return stops


def _logprobs(body: Mapping[str, Any], *, chat: bool) -> int | None:
    if not chat:
        return _count(body, "logprobs")
    return (_count(body, "top_logprobs") or 0) if _flag(body, "logprobs") else None


def _count(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if type(value) is not int or value < 0 or value > MAX_LOGPROBS:
        what = key.replace("_", " ")
        raise _bad(f"Requested {what} of {value}, which is greater than max allowed: {MAX_LOGPROBS}", key)
    return value


def _check_neutral(body: Mapping[str, Any]) -> None:
    for key, neutral in _NEUTRAL.items():
        value = body.get(key)
        if value is not None and value not in neutral:
            raise _bad(f"the embedded engine samples by temperature and seed only, not with {key}={value!r}", key)


def _number(
    body: Mapping[str, Any], key: str, default: float | None, kind: Callable[[Any], Any], least: float | None = None
) -> Any:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (least is not None and value < least):
        raise _bad(f"{key}: {value!r} is not usable", key)
    return kind(value)


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise _bad(f"{key}: true or false is required", key)
    return bool(value)


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    if value is not None and not isinstance(value, dict):
        raise _bad(f"{key}: an object is required", key)
    return value or {}


def _list_of(body: Mapping[str, Any], key: str, kind: type) -> Sequence[Any]:
    value = body.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(entry, kind) for entry in value):
        raise _bad(f"{key}: a list of {kind.__name__} is required", key)
    return value


def _bad(message: str, param: str) -> ApiError:
    return ApiError(400, "BadRequestError", message, param)
