"""Whether two configurations are the same engine twice, so that comparing them compares nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Reason

_PRECISION = frozenset({"dtype", "quantization", "kv_cache_dtype", "cache_dtype", "load_format", "revision"})
"""Arguments of an engine that decide with which numbers it computes."""
LAUNCH_KEYS = ("command", "args", "up", "env", "image_digest", "kernels")


def identical_twin(candidate: ConfigRecord, records: Sequence[ConfigRecord]) -> Reason | None:
    """The reason ``identical_configs`` when an earlier record has the same fingerprint and an equal launch.

    The baseline comes before all others, wherever the spec lists it. Declared repeats (``like``) are exempt, and
    records without fingerprints are not judged on it.
    """
    if candidate.fingerprint is None or candidate.like is not None:
        return None
    for other in sorted(records, key=lambda record: record.role != "baseline"):
        if other.key == candidate.key:
            return None
        if other.like is None and _same(candidate, other):
            text = f"{candidate.key} and {other.key} were started alike and serve the same configuration"
            return Reason("identical_configs", f"{text}; change one of them, or say like: {other.key}")
    return None


def _same(one: ConfigRecord, other: ConfigRecord) -> bool:
    launches = all(one.launch.get(key) == other.launch.get(key) for key in LAUNCH_KEYS)
    return one.fingerprint == other.fingerprint and launches


def separate_starts(one: ConfigRecord, other: ConfigRecord) -> bool:
    """Whether two records are of two engine starts: not when both only attached to the same endpoint."""
    starts = [record.launch for record in (one, other)]
    attached = all(not launch.get("command") and not launch.get("up") for launch in starts)
    return not (attached and starts[0].get("endpoint") and starts[0].get("endpoint") == starts[1].get("endpoint"))


def same_numbers(one: ConfigRecord, other: ConfigRecord) -> bool:
    """Whether two engines are known to have the same weights and KV cache type, as they and their launches tell."""
    told = [_numbers(record) for record in (one, other)]
    return told[0] is not None and told[0] == told[1]


def _numbers(record: ConfigRecord) -> tuple[Any, ...] | None:
    """Weights, KV cache type and arguments about precision; ``None`` where the engine does not tell the first two."""
    identity = record.identity
    if identity is None or not identity.root or not identity.cache_config.get("cache_dtype"):
        return None
    args = {name.rpartition(".")[2]: value for name, value in sorted(identity.start_args.items())}
    precise = {name: value for name, value in args.items() if name in _PRECISION}
    return identity.root, identity.cache_config["cache_dtype"], precise, dict(_asked(record.launch))


def _asked(launch: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options about precision among the words of a launch."""
    words = [str(word) for name in ("command", "args", "up") for word in launch.get(name) or ()]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        name = option.lstrip("-").replace("-", "_")
        if option.startswith("-") and (name in _PRECISION or option == "-q"):
            yield name, value if equals else following
