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
    """What to serve and where; ``given`` are the engine's arguments that differ from their defaults, for its log."""

    profile: Profile
    host: str
    port: int
    kv_dtype: str
    seed: int
    slowdown: float
    model: str
    faults: Faults
    given: dict[str, str]


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
        host=arguments.host,
        port=arguments.port,
        kv_dtype=arguments.kv_cache_dtype,
        seed=arguments.seed,
        slowdown=arguments.slowdown,
        model=arguments.served_model_name or profile.model,
        faults=parse_faults(arguments.fault),
        given=given,
    )


def _limited(profile: Profile, arguments: argparse.Namespace) -> Profile:
    limited = profile.limited(max_model_len=arguments.max_model_len, max_num_seqs=arguments.max_num_seqs)
    limits = limited.limits(arguments.kv_cache_dtype)
    if limited.max_num_seqs < 1 or limited.max_model_len < 2:
        raise UsageError("an engine needs one sequence and two tokens", where="simulate", remedy="raise the limit")
    if limited.max_model_len > limits.blocks * limits.block_size:
        raise UsageError(
            f"the KV cache holds {limits.blocks * limits.block_size} tokens, less than one of {limited.max_model_len}",
            where="--max-model-len",
            remedy="lower it",
        )
    return limited


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pytest_tokenwatt simulate", description="Serve the embedded engine (simulated).")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="quickstart", help="what to pretend to be")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", default=None, help="model id in the API (default: the profile's)")
    parser.add_argument("--kv-cache-dtype", choices=("auto", "fp8", "int4"), default="auto")
    parser.add_argument("--max-model-len", type=int, default=None, help="tokens (default: the profile's)")
    parser.add_argument("--max-num-seqs", type=int, default=None, help="sequences at once (default: the profile's)")
    parser.add_argument("--seed", type=int, default=0, help="which random model, and which requests faults hit")
    parser.add_argument("--slowdown", type=float, default=1.0, help="every step takes this many times longer")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE]", help=", ".join(NAMES))
    return parser
