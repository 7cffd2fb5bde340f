"""What the profiles, the audit and the engine starts behind all phases will do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_tokenwatt.spec.model import Audit, Profile, Spec

_TOKEN_S = 0.03
_PROMPT_TOKENS_S = 10_000.0
_SCORED_TOKENS_S = 2000.0
"""Assumed for decoding, prefill and scoring: nothing says beforehand how fast an engine is."""


def estimated_s(profile: Profile) -> float:
    """Seconds that all repeats of a profile will probably take, their warm-up included."""
    requests = profile.requests + profile.in_flight
    one_s = profile.output_tokens * _TOKEN_S + profile.input_tokens / _PROMPT_TOKENS_S
    return profile.repeats * requests / profile.in_flight * one_s


def described(profiles: Mapping[str, Profile]) -> Iterator[str]:
    """One line a profile."""
    for name, profile in profiles.items():
        flight = "all at once" if profile.concurrency == "all" else f"{profile.in_flight} in flight"
        size = f"{profile.input_tokens} + {profile.output_tokens} tokens"
        pool = f", KV cache of {profile.kv_gib:g} GiB" if profile.kv_gib is not None else ""
        yield f"profile {name}: {profile.repeats} x {profile.requests} requests of {size}, {flight}{pool}"


def audit_s(audit: Audit, spec: Spec) -> float:
    """Seconds that the audit of one configuration will probably take."""
    sizes = [(each.input_tokens, each.output_tokens) for each in spec.profiles.values()] or [(1024, 256)]
    scored = sum(2 * (prompt + output) for prompt, output in sizes) / _SCORED_TOKENS_S
    return audit.picked * (scored + sum(output for _, output in sizes) * _TOKEN_S / 4)
