"""The embedded engine's log on stdout, line by line as vLLM writes its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from pytest_tokenwatt.sim.options import Options

_GIB = 2**30
LOG = logging.getLogger("pytest_tokenwatt.sim")


def open_log() -> None:
    """Send the engine's log to stdout in vLLM's format."""
    handler = logging.StreamHandler(sys.stdout)
    pattern = "(%(role)s pid=%(process)d) %(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s"
    handler.setFormatter(logging.Formatter(pattern, datefmt="%m-%d %H:%M:%S", defaults={"role": "APIServer"}))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


def log_loading(options: Options, version: str) -> None:
    """What an engine says while it loads: version, arguments, weights, KV cache."""
    profile, limits = options.profile, options.profile.limits(options.kv_dtype)
    tokens = limits.blocks * limits.block_size
    engine = {"role": "EngineCore"}
    LOG.info("tokenwatt embedded engine %s: SIMULATED, profile %s, no model is loaded", version, profile.name)
    LOG.info("non-default args: %s", options.given)
    LOG.info("Using max model len %d", profile.max_model_len)
    LOG.info(
        "Model loading took %.2f GiB memory and 0.000000 seconds", profile.weights.stored_bytes / _GIB, extra=engine
    )
    LOG.info("Available KV cache memory: %.2f GiB", profile.kv_pool_bytes / _GIB, extra=engine)
    LOG.info(
        "GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx",
        f"{tokens:,}",
        f"{profile.max_model_len:,}",
        tokens / profile.max_model_len,
        extra=engine,
    )


def cache_config(options: Options) -> Mapping[str, str]:
    """The labels of ``vllm:cache_config_info``."""
    profile, limits = options.profile, options.profile.limits(options.kv_dtype)
    tokens = limits.blocks * limits.block_size
    return {
        "block_size": str(limits.block_size),
        "cache_dtype": options.kv_dtype,
        "enable_prefix_caching": "False",
        "engine": "0",
        "gpu_memory_utilization": "0.92",
        "kv_cache_max_concurrency": str(tokens / profile.max_model_len),
        "kv_cache_memory_bytes": str(profile.kv_pool_bytes),
        "kv_cache_size_tokens": str(tokens),
        "num_gpu_blocks": str(limits.blocks),
    }
