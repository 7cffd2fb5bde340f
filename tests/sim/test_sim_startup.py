"""How large the embedded engine's KV cache is, and what its log says of its start."""

from __future__ import annotations

import subprocess
import sys

import pytest
from served import ROOT, launch, serving

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.sim.options import Options, parse_options
from pytest_tokenwatt.sim.profile import PROFILES
from pytest_tokenwatt.sim.startup import cache_config

GIB = 2**30
MIB = 2**20


def tokens(options: Options) -> int:
    limits = options.profile.limits(options.kv_dtype)
    return limits.blocks * limits.block_size


@pytest.mark.parametrize("name", PROFILES)
def test_the_profiles_own_share_of_the_memory_gives_its_own_pool(name: str) -> None:
    profile = PROFILES[name]

    assert profile.pool_at(profile.startup.gpu_memory_utilization) == pytest.approx(profile.kv_pool_bytes, rel=0.005)


def test_the_pool_is_what_weights_and_the_rest_leave_of_the_share() -> None:
    options = parse_options(["--profile", "h100-qwen3-30b-a3b-fp8", "--gpu-memory-utilization", "0.8"])

    weights = PROFILES["h100-qwen3-30b-a3b-fp8"].weights.stored_bytes
    assert options.profile.kv_pool_bytes == int((0.8 * 79.6 - 1.2 - 0.3 - 0.7) * GIB - weights)
    assert cache_config(options)["gpu_memory_utilization"] == "0.8"


def test_a_given_size_wins_and_fp8_holds_twice_the_tokens() -> None:
    cut = ["--kv-cache-memory-bytes", str(128 * MIB), "--max-model-len", "1024", "--gpu-memory-utilization", "0.9"]
    bf16, fp8 = parse_options(cut), parse_options([*cut, "--kv-cache-dtype", "fp8"])

    assert (tokens(bf16), tokens(fp8)) == (2048, 4096)
    labels = cache_config(fp8)
    assert (labels["kv_cache_memory_bytes"], labels["kv_cache_size_tokens"]) == (str(128 * MIB), "4096")
    assert labels["kv_cache_max_concurrency"] == "4.0"
    assert int(labels["kv_cache_memory_bytes"]) / int(labels["kv_cache_size_tokens"]) == 32_768


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--kv-cache-memory-bytes", "1048576"],
            "--kv-cache-memory-bytes: the KV cache holds 16 tokens, less than one sequence of 4096; raise it, or",
        ),
        (["--kv-cache-memory-bytes", "-5"], "--kv-cache-memory-bytes: the KV cache holds 0 tokens"),
        (["--gpu-memory-utilization", "0.04"], "--gpu-memory-utilization: the KV cache holds 0 tokens"),
        (["--gpu-memory-utilization", "1.2"], "--gpu-memory-utilization: 1.2 is no share of a board's memory; give"),
        (["--max-model-len", "70000"], "--max-model-len: the KV cache holds 32768 tokens, less than one"),
    ],
)
def test_a_pool_that_holds_no_sequence_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_options(arguments)

    assert str(refused.value).startswith(said)


def test_the_refusal_is_one_line_and_exit_code_4() -> None:
    command = [sys.executable, "-m", "pytest_tokenwatt", "simulate", "--kv-cache-memory-bytes", "4096"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)

    assert (ended.returncode, ended.stderr.count("\n")) == (4, 1)


def test_the_log_accounts_for_the_memory_as_a_gpus_does() -> None:
    with serving("--kv-cache-dtype", "fp8", "--seed", "7") as served:
        _, log = served.stop()

    assert "SIMULATED" in log
    assert "LLM engine (v" in log
    assert "dtype=torch.bfloat16" in log
    assert "quantization=None" in log
    assert "kv_cache_dtype=fp8" in log
    assert "Model loading took 0.0950 GiB memory and 0.400000 seconds" in log
    assert "Available KV cache memory: 2.00 GiB" in log
    assert "Graph capturing finished in 2 secs, took 0.02 GiB" in log
    assert "Actual usage is 0.1250 GiB for consumed memory (weights + non-torch), 0.05 GiB for peak activation" in log
    assert "init engine (profile, create kv cache, warmup model) took 0.80 s" in log


def test_a_given_pool_is_not_profiled() -> None:
    served = launch("--kv-cache-memory-bytes", str(64 * MIB), "--max-model-len", "512", "--fault", "exit=3")
    log, _ = served.process.communicate(timeout=20)

    assert "reserved 0.06 GiB memory for KV Cache as specified by kv_cache_memory_bytes" in log
    assert "Actual usage" not in log
    assert "Available KV cache memory" not in log
