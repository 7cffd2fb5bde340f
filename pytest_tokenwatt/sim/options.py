"""The command line of the embedded engine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.sim.faults import NAMES, Faults, parse_faults
from pytest_tokenwatt.sim.profile import PROFILES, Profile


@dataclass(frozen=True, slots=True)
class Options:
    """What to serve and where; ``given`` are the engine's arguments that differ from their defaults, for its log.

    ``gpu_memory_utilization`` is ``None`` when the size of the KV cache was given instead.
    """

    profile: Profile
    gpu_memory_utilization: float | None
    host: str
    port: int
    kv_dtype: str
    seed: int
    slowdown: float
    model: str
    faults: Faults
    given: dict[str, str]
    scale_out: bool = False
    trace_replay: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where="simulate", remedy="see simulate --help")


def parse_options(argv: Sequence[str]) -> Options:
    """Options from the command line. Raises ``UsageError``."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    given = {name: str(value) for name, value in vars(arguments).items() if value != parser.get_default(name)}
    if arguments.slowdown <= 0:
        raise UsageError(f"{arguments.slowdown} is no factor", where="--slowdown", remedy="give a number above 0")
    profile = _limited(PROFILES[arguments.profile], arguments)
    return Options(
        profile=profile,
        gpu_memory_utilization=_utilization(profile, arguments),
        host=arguments.host,
        port=arguments.port,
        kv_dtype=arguments.kv_cache_dtype,
        seed=arguments.seed,
        slowdown=arguments.slowdown,
        model=arguments.served_model_name or profile.model,
        faults=parse_faults(arguments.fault),
        given=given,
        scale_out=arguments.enable_scale_out,
        trace_replay=arguments.enable_trace_replay,
    )


def _utilization(profile: Profile, arguments: argparse.Namespace) -> float | None:
    """As with vLLM, a size of the KV cache wins over a share of the memory."""
    if arguments.kv_cache_memory_bytes is not None:
        return None
    asked: float | None = arguments.gpu_memory_utilization
    return profile.startup.gpu_memory_utilization if asked is None else asked


def _limited(profile: Profile, arguments: argparse.Namespace) -> Profile:
    limited = profile.limited(
        max_model_len=arguments.max_model_len,
        max_num_seqs=arguments.max_num_seqs,
        kv_pool_bytes=_pool_bytes(profile, arguments),
    )
    if limited.max_num_seqs < 1 or limited.max_model_len < 2:
        raise UsageError("an engine needs one sequence and two tokens", where="simulate", remedy="raise the limit")
    limits = limited.limits(arguments.kv_cache_dtype)
    tokens = max(0, limits.blocks * limits.block_size)
    if limited.max_model_len > tokens:
        raise UsageError(
            f"the KV cache holds {tokens} tokens, less than one sequence of {limited.max_model_len}",
            where=_pool_flag(arguments) or "--max-model-len",
            remedy="raise it, or lower --max-model-len" if _pool_flag(arguments) else "lower it",
        )
    return limited


def _pool_bytes(profile: Profile, arguments: argparse.Namespace) -> int | None:
    """What was asked for; ``None`` for the profile's own."""
    if arguments.kv_cache_memory_bytes is not None:
        return int(arguments.kv_cache_memory_bytes)
    share: float | None = arguments.gpu_memory_utilization
    if share is None:
        return None
    if not 0 < share <= 1:
        raise UsageError(
            f"{share:g} is no share of a board's memory",
            where="--gpu-memory-utilization",
            remedy="give a number above 0, at most 1",
        )
    return profile.pool_at(share)


def _pool_flag(arguments: argparse.Namespace) -> str | None:
    if arguments.kv_cache_memory_bytes is not None:
        return "--kv-cache-memory-bytes"
    return None if arguments.gpu_memory_utilization is None else "--gpu-memory-utilization"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pytest_tokenwatt simulate", description="Serve the embedded engine (simulated).")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="quickstart", help="what to pretend to be")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default=None, help="model id in the API (default: the profile's)")
    parser.add_argument("--kv-cache-dtype", choices=("auto", "fp8", "int4"), default="auto")
    parser.add_argument("--kv-cache-memory-bytes", type=int, default=None, help="size of the KV cache")
    parser.add_argument(
        "--gpu-memory-utilization", type=float, default=None, help="share of the board's memory for all (0 to 1)"
    )
    parser.add_argument("--max-model-len", type=int, default=None, help="tokens (default: the profile's)")
    parser.add_argument("--max-num-seqs", type=int, default=None, help="sequences at once (default: the profile's)")
    parser.add_argument("--seed", type=int, default=0, help="which random model, and which requests faults hit")
    parser.add_argument("--enable-scale-out", action="store_true", help="score given ids at /inference/v1/generate")
    parser.add_argument("--enable-trace-replay", action="store_true", help="decode given ids there")
    parser.add_argument("--slowdown", type=float, default=1.0, help="every step takes this many times longer")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE]", help=", ".join(NAMES))
    return parser
