"""What can be made to go wrong with the embedded engine, by ``--fault NAME`` or ``--fault NAME=VALUE``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from pytest_tokenwatt.errors import UsageError


@dataclass(frozen=True, slots=True)
class Faults:
    """Everything off by default. Shares are of the requests, 0 to 1; seconds count from when the engine is ready.

    ``slow_start`` delays readiness by seconds, ``never_ready`` for ever, ``exit`` ends the start-up with that code.
    ``crash_after`` ends the process with code 1, ``stall`` stops all steps. ``stream_error`` puts an error object into
    a stream, ``cut_stream`` closes it early, ``http_429`` and ``http_500`` refuse; a 429 asks to come back after
    ``retry_after`` whole seconds. ``null_content`` and ``reasoning_only`` answer a chat with null as its content, the
    latter with the text as its reasoning; ``no_finish_reason`` does not say why a reply ended. ``wrong_model`` serves
    another model id, ``canned`` answers everybody the same. ``throttle`` is a factor, 1 or more: the board runs hot,
    says so, and every step takes that much longer. ``power_counter_frozen`` keeps the energy counter at its first
    reading, ``power_zero`` lets the power sensor answer 0.
    """

    slow_start: float = 0.0
    never_ready: bool = False
    exit: int | None = None
    crash_after: float | None = None
    stall: float | None = None
    stream_error: float = 0.0
    cut_stream: float = 0.0
    http_429: float = 0.0
    http_500: float = 0.0
    retry_after: int = 1
    null_content: float = 0.0
    reasoning_only: float = 0.0
    no_finish_reason: float = 0.0
    wrong_model: bool = False
    canned: bool = False
    throttle: float = 1.0
    power_counter_frozen: bool = False
    power_zero: bool = False


_FLAGS = {"never-ready", "wrong-model", "canned", "power-counter-frozen", "power-zero"}
_REFUSALS = {"http-429", "http-500"}
_BAD_REPLIES = {"stream-error", "cut-stream", "null-content", "reasoning-only", "no-finish-reason"}
_SHARES = _REFUSALS | _BAD_REPLIES
_WHOLE = {"exit", "retry-after"}
_RANGES = {
    **dict.fromkeys(("slow-start", "crash-after", "stall"), (0.0, float("inf"))),
    "exit": (float("-inf"), float("inf")),
    "retry-after": (0, 600),
    "throttle": (1.0, 100.0),
}
_EXPECTED = {
    **dict.fromkeys(_FLAGS, "{} alone"),
    **dict.fromkeys(_SHARES, "{}=SHARE with a share from 0 to 1"),
    "exit": "{}=CODE",
    "retry-after": "{}=SECONDS with a whole number from 0 to 600",
    "throttle": "{}=FACTOR with a factor from 1 to 100",
}
NAMES = tuple(field.name.replace("_", "-") for field in fields(Faults))


def parse_faults(texts: Iterable[str]) -> Faults:
    """Faults from the command line; a share without a value means every request. Raises ``UsageError``."""
    values = dict(_parse(text) for text in texts)
    return Faults(**values)  # type: ignore[arg-type]


def _parse(text: str) -> tuple[str, bool | int | float]:
    name, _, value = text.partition("=")
    if name not in NAMES:
        raise UsageError(f"unknown fault '{name}'", where="--fault", remedy=f"choose from {', '.join(NAMES)}")
    try:
        return name.replace("-", "_"), _value(name, value)
    except ValueError:
        raise UsageError(f"'{text}' has no usable value", where="--fault", remedy=_expected(name)) from None


def _value(name: str, value: str) -> bool | int | float:
    if name in _FLAGS:
        if value:
            raise ValueError(value)
        return True
    if not value and name in _SHARES:
        return 1.0
    number = int(value) if name in _WHOLE else float(value)
    least, most = _RANGES.get(name, (0.0, 1.0))
    if not least <= number <= most:
        raise ValueError(value)
    return number


def _expected(name: str) -> str:
    return f"write {_EXPECTED.get(name, '{}=SECONDS').format(name)}"
