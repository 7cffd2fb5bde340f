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


_ENGINE = {"role": "EngineCore"}


def log_loading(options: Options, version: str) -> None:
    """What an engine says while it loads, in the words of vLLM on one GPU; the figures are the profile's."""
    profile = options.profile
    LOG.info("tokenwatt embedded engine %s: SIMULATED, profile %s, no model is loaded", version, profile.name)
    LOG.info("non-default args: %s", options.given)
    LOG.info("Using max model len %d", profile.max_model_len)
    if options.kv_dtype != "auto":
        LOG.info("Using %s data type to store kv cache. It reduces the GPU memory footprint", options.kv_dtype)
    LOG.info("Initializing a V1 LLM engine (v%s) with config: %s", version, _config(options), extra=_ENGINE)
    LOG.info(
        "Model loading took %.4f GiB memory and %.6f seconds",
        profile.weights.stored_bytes / _GIB,
        profile.startup.load_s,
        extra=_ENGINE,
    )
    _log_pool(options)
    _log_end(options)


def _config(options: Options) -> str:
    profile = options.profile
    return (
        f"model={profile.model!r}, speculative_config=None, tokenizer={profile.model!r}, dtype=torch.bfloat16, "
        f"max_seq_len={profile.max_model_len}, load_format=dummy, tensor_parallel_size=1, pipeline_parallel_size=1, "
        f"data_parallel_size=1, quantization={profile.startup.quantization}, enforce_eager=False, "
        f"kv_cache_dtype={options.kv_dtype}, device_config=cuda, seed={options.seed}, "
        f"served_model_name={options.model}, enable_prefix_caching=False, enable_chunked_prefill=True"
    )


def _log_pool(options: Options) -> None:
    profile, limits = options.profile, options.profile.limits(options.kv_dtype)
    tokens = limits.blocks * limits.block_size
    pool_gib = profile.kv_pool_bytes / _GIB
    if options.gpu_memory_utilization is None:
        LOG.info(
            "Initial free memory %.2f GiB, reserved %.2f GiB memory for KV Cache as specified by "
            "kv_cache_memory_bytes config and skipped memory profiling.",
            profile.board.memory_gib,
            pool_gib,
            extra=_ENGINE,
        )
    else:
        LOG.info("Available KV cache memory: %.2f GiB", pool_gib, extra=_ENGINE)
    LOG.info(
        "GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx",
        f"{tokens:,}",
        f"{profile.max_model_len:,}",
        tokens / profile.max_model_len,
        extra=_ENGINE,
    )


def _log_end(options: Options) -> None:
    """Graphs and the end of initialisation; memory is accounted for only where it was profiled."""
    startup, memory_gib = options.profile.startup, options.profile.board.memory_gib
    LOG.info("Graph capturing finished in 2 secs, took %.2f GiB", startup.cuda_graph_gib, extra=_ENGINE)
    share = options.gpu_memory_utilization
    if share is not None:
        LOG.info(
            "Free memory on device (%.2f/%.2f GiB) on startup. Desired GPU memory utilization is (%s, %.2f GiB). "
            "Actual usage is %.4f GiB for consumed memory (weights + non-torch), %.2f GiB for peak activation, and "
            "%.2f GiB for CUDAGraph memory. Current kv cache memory in use is %.2f GiB.",
            memory_gib,
            memory_gib,
            share,
            share * memory_gib,
            options.profile.weights.stored_bytes / _GIB + startup.non_torch_gib,
            startup.activation_gib,
            startup.cuda_graph_gib,
            options.profile.kv_pool_bytes / _GIB,
            extra=_ENGINE,
        )
    LOG.info("init engine (profile, create kv cache, warmup model) took %.2f s", startup.init_s, extra=_ENGINE)


def cache_config(options: Options) -> Mapping[str, str]:
    """The labels of ``vllm:cache_config_info``."""
    profile, limits = options.profile, options.profile.limits(options.kv_dtype)
    tokens = limits.blocks * limits.block_size
    return {
        "block_size": str(limits.block_size),
        "cache_dtype": options.kv_dtype,
        "enable_prefix_caching": "False",
        "engine": "0",
        "gpu_memory_utilization": str(options.gpu_memory_utilization or profile.startup.gpu_memory_utilization),
        "kv_cache_max_concurrency": str(tokens / profile.max_model_len),
        "kv_cache_memory_bytes": str(profile.kv_pool_bytes),
        "kv_cache_size_tokens": str(tokens),
        "num_gpu_blocks": str(limits.blocks),
    }
