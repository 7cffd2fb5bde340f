"""What a start-up log tells: real ones of the CPU engine and of the embedded one, and the GPU forms of versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from engine_workshop import Workshop, open_workshop
from hypothesis import example, given
from hypothesis import strategies as st

import pytest_tokenwatt
from pytest_tokenwatt.engine.logtail import LogTail
from pytest_tokenwatt.engine.startup_log import Ranks, parse_startup
from pytest_tokenwatt.records.profiles import Startup

LOGS = Path(__file__).with_name("startup_logs")
MIB = 2**20
FIGURES = [field.name for field in fields(Startup) if field.name not in {"missing", "notes", "device", "kernels"}]

# File: what it tells, and the figures that it lacks.
CPU_LACKS = {"weights_gib", "cuda_graph_gib", "activation_gib", "non_torch_gib"}
CORPUS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "vllm-0.6-gpu.log": (
        {
            "weights_gib": 0.2389,
            "kv_cache_gib": 6.27,
            "cuda_graph_gib": 0.19,
            "activation_gib": 0.4711,
            "non_torch_gib": 0.15,
            "max_concurrency_sequences": 89.23,
            "max_concurrency_tokens": 2048,
            "kv_cache_dtype": "auto",
            "vllm_version": "0.6.4",
            "dtype": "torch.float16",
        },
        {"kv_cache_tokens", "kv_bytes_per_token", "load_seconds", "engine_init_seconds"},
    ),
    "vllm-0.7-gpu-tp2.log": (
        {
            "weights_gib": 27.9,
            "kv_cache_gib": 17.6,
            "activation_gib": 0.74,
            "non_torch_gib": 0.46,
            "cuda_graph_gib": 0.0,
            "engine_init_seconds": 4.87,
            "kv_cache_dtype": "fp8",
            "quantization": "fp8",
        },
        {"kv_cache_tokens", "kv_bytes_per_token", "load_seconds"},
    ),
    "vllm-0.9-gpu.log": (
        {
            "weights_gib": 14.9889,
            "kv_cache_gib": 19.37,
            "kv_cache_tokens": 158_656,
            "cuda_graph_gib": 0.62,
            "load_seconds": 3.65217,
            "engine_init_seconds": 46.8,
            "max_concurrency_sequences": 4.84,
            "max_concurrency_tokens": 32_768,
            "speculative_config": "SpeculativeConfig(method='eagle', model='/models/d', num_spec_tokens=3)",
            "quantization": "None",
        },
        {"activation_gib", "non_torch_gib"},
    ),
    "vllm-0.11-gpu-tp2.log": (
        {
            "weights_gib": 148.56,
            "kv_cache_gib": 89.18,
            "kv_cache_tokens": 1_948_128,
            "kv_bytes_per_token": 89.18 * 2**30 / 1_948_128,
            "cuda_graph_gib": 4.74,
            "activation_gib": 11.16,
            "non_torch_gib": 2.76,
            "load_seconds": 99.14002,
            "max_concurrency_sequences": 14.86,
            "kv_cache_dtype": "fp8_e4m3",
            "quantization": "compressed-tensors",
        },
        set(),
    ),
    # With the published figures of one submission.
    "vllm-0.32-gpu.log": (
        {
            "weights_gib": 8.84,
            "kv_cache_gib": 150.14,
            "kv_cache_tokens": 2_186_576,
            "kv_bytes_per_token": 73727.87291882833,
            "cuda_graph_gib": 0.44,
            "activation_gib": 1.20,
            "non_torch_gib": 0.53,
            "load_seconds": 3.352658,
            "engine_init_seconds": 12.35,
            "max_concurrency_sequences": 66.73,
            "max_concurrency_tokens": 32_768,
            "kv_cache_dtype": "fp8",
            "speculative_config": "None",
        },
        set(),
    ),
    "vllm-0.32-gpu-dp2-first-ranks.log": (
        {
            "weights_gib": 58.4,
            "kv_cache_gib": 160.0,
            "kv_cache_tokens": 2 * 873_813,
            "max_concurrency_sequences": 213.34,
            "cuda_graph_gib": 0.0,
            "engine_init_seconds": 14.9,
        },
        {"activation_gib", "non_torch_gib"},
    ),
    "vllm-0.32-cpu-bf16.log": (
        {"kv_cache_tokens": 1024, "max_concurrency_tokens": 768, "kv_cache_dtype": "auto", "vllm_version": "0.32.0"},
        CPU_LACKS | {"kv_cache_gib", "kv_bytes_per_token"},
    ),
    "vllm-0.32-cpu-fp8.log": (
        {"kv_cache_tokens": 2048, "max_concurrency_sequences": 2.67, "kv_cache_dtype": "fp8", "device": "cpu"},
        CPU_LACKS | {"kv_cache_gib", "kv_bytes_per_token"},
    ),
    "vllm-0.32-cpu-fp8-worker.log": (
        {"kv_cache_tokens": 8192, "kv_cache_dtype": "fp8_e5m2", "load_seconds": 0.0},
        CPU_LACKS | {"kv_cache_gib", "kv_bytes_per_token"},
    ),
    "vllm-0.32-cpu-auto.log": (
        {"kv_cache_gib": 1.89, "kv_cache_tokens": 1_977_664, "max_concurrency_sequences": 482.83},
        CPU_LACKS,
    ),
    # Fall-backs, written from the format strings of the versions: GPUs without arithmetic in a format.
    "vllm-0.6-gpu-fp8-weight-only.log": (
        {"weights_gib": 8.4939, "quantization": "compressed-tensors", "kernels": ("weight-only FP8",)},
        {
            *("kv_cache_gib", "kv_cache_tokens", "kv_bytes_per_token", "activation_gib", "non_torch_gib"),
            *("load_seconds", "engine_init_seconds", "max_concurrency_sequences", "max_concurrency_tokens"),
        },
    ),
    "vllm-0.32-gpu-fp8-weight-only.log": (
        {
            "quantization": "fp8",
            "device": "cuda",
            "kernels": ("MarlinFP8ScaledMMLinearKernel", "MARLIN Fp8 MoE backend", "weight-only FP8"),
        },
        {"activation_gib", "non_torch_gib"},
    ),
    "vllm-0.32-gpu-tp2-nvfp4-weight-only.log": (
        {
            "weights_gib": 16.2,
            "kernels": ("MarlinNvFp4LinearKernel", "MARLIN NvFp4 MoE backend", "weight-only FP4"),
        },
        {
            *("kv_cache_gib", "kv_cache_tokens", "kv_bytes_per_token", "activation_gib", "non_torch_gib"),
            *("max_concurrency_sequences", "max_concurrency_tokens"),
        },
    ),
    "embedded-fp8.log": (
        {
            "weights_gib": 0.095,
            "kv_cache_gib": 2.0,
            "kv_bytes_per_token": 32_768,
            "activation_gib": 0.05,
            "non_torch_gib": 0.03,
            "cuda_graph_gib": 0.02,
            "kv_cache_dtype": "fp8",
        },
        set(),
    ),
    "embedded-given.log": (
        {"weights_gib": 0.095, "kv_cache_gib": 0.19, "kv_cache_tokens": 3040, "max_concurrency_tokens": 1024},
        {"activation_gib", "non_torch_gib"},
    ),
}


def lines_of(name: str) -> list[str]:
    return LogTail(LOGS / name, str).whole_lines()


def told(startup: Startup, names: Iterator[str] | dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(startup, name) for name in names}


@pytest.mark.parametrize("name", CORPUS)
def test_each_log_of_the_corpus(name: str) -> None:
    expected, lacking = CORPUS[name]

    startup = parse_startup(lines_of(name))

    assert told(startup, expected) == {
        key: pytest.approx(value) if isinstance(value, float) else value for key, value in expected.items()
    }
    assert startup.missing.keys() == lacking
    assert {figure for figure in FIGURES if getattr(startup, figure) is None} == lacking


def test_every_file_of_the_corpus_is_read() -> None:
    assert {path.name for path in LOGS.iterdir()} == CORPUS.keys()


def test_what_a_cpu_does_not_log_is_said_so() -> None:
    startup = parse_startup(lines_of("vllm-0.32-cpu-bf16.log"))

    assert startup.missing["weights_gib"] == "vLLM on a CPU logs no line about the memory of the weights"
    assert startup.missing["kv_bytes_per_token"] == "the log rounds the size of the KV cache to 0"
    assert startup.notes == ("the time of loading is that of reading the weights alone",)


@pytest.mark.parametrize(("name", "tokens", "bytes_per_token"), [("bf16", "1024", 1024.0), ("fp8", "2048", 512.0)])
def test_labels_give_the_size_that_the_log_rounds(name: str, tokens: str, bytes_per_token: float) -> None:
    labels = {"kv_cache_memory_bytes": "1048576", "kv_cache_size_tokens": tokens, "cache_dtype": "x"}

    startup = parse_startup(lines_of(f"vllm-0.32-cpu-{name}.log"), labels)

    assert startup.kv_cache_gib == 1 / 1024
    assert startup.kv_bytes_per_token == bytes_per_token
    assert startup.kv_cache_dtype != "x"


def test_a_given_pool_is_why_memory_was_not_measured() -> None:
    reason = parse_startup(lines_of("vllm-0.32-gpu-dp2-first-ranks.log")).missing["activation_gib"]

    assert reason == "vLLM does not measure the peak of activations when the size of the KV cache is given"


def test_the_first_ranks_speak_for_the_others_and_a_note_says_it() -> None:
    (note,) = parse_startup(lines_of("vllm-0.32-gpu-dp2-first-ranks.log")).notes

    assert "4 equal workers" in note
    assert "the memory of the weights" in note


def test_a_pipeline_stage_does_not_speak_for_the_others() -> None:
    lines = [
        line.replace("pipeline_parallel_size=1", "pipeline_parallel_size=2") for line in lines_of("vllm-0.9-gpu.log")
    ]

    startup = parse_startup(lines)

    assert startup.weights_gib is None
    assert startup.missing["weights_gib"] == "only 1 of 2 workers, which differ, logged the memory of the weights"
    assert startup.kv_cache_tokens == 158_656


def test_ray_folds_the_lines_of_equal_workers() -> None:
    lines = [
        "Initializing a V1 LLM engine (v0.10) with config: tensor_parallel_size=4, pipeline_parallel_size=1",
        "(RayWorkerWrapper pid=7, ip=h) INFO x Model loading took 10.0 GiB and 2.0 seconds",
        "(RayWorkerWrapper pid=8, ip=h) Model loading took 10.5 GiB and 3.0 seconds [repeated 3x across cluster]",
    ]

    startup = parse_startup(lines)

    assert (startup.weights_gib, startup.load_seconds, startup.notes) == (41.5, 3.0, ())


def test_blocks_of_an_older_version_are_tokens_with_the_labels_block_size() -> None:
    labels = {"block_size": "16", "num_gpu_blocks": "11422"}

    from_log = parse_startup(lines_of("vllm-0.6-gpu.log"), labels)
    from_labels = parse_startup([], labels)

    assert from_log.kv_cache_tokens == from_labels.kv_cache_tokens == 11422 * 16
    assert (len(from_log.notes), len(from_labels.notes)) == (0, 1)


@pytest.mark.parametrize(
    ("line", "kernel"),
    [
        ("Selected CutlassFP8ScaledMMLinearKernel for CompressedTensorsW8A8Fp8", "CutlassFP8ScaledMMLinearKernel"),
        ("Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM", "FlashInferCutlassNvFp4LinearKernel"),
        ("Using NvFp4LinearBackend.MARLIN for NVFP4 GEMM", "NvFp4LinearBackend.MARLIN"),
        ("Using Marlin backend for FP8 MoE", "Marlin backend for FP8 MoE"),
        ("Using 'FLASHINFER_TRTLLM_MXFP4_MXFP8' Mxfp4 MoE backend.", "FLASHINFER_TRTLLM_MXFP4_MXFP8 Mxfp4 MoE backend"),
        ("Using 'MARLIN' MxFp8 MoE backend (user-requested).", "MARLIN MxFp8 MoE backend"),
        ("Using MarlinExperts (weight-only FP4) for AutoRound MXFP4 MoE", "MarlinExperts MXFP4 MoE"),
        ("This device lacks native FP4 compute; using weight-only FP4 via the Marlin kernel, which", "weight-only FP4"),
        (
            "No Mxfp4 MoE backend supports activation=mxfp8 for the deployment configuration. "
            "Falling back to 'MARLIN' with BF16 activations.",
            "MXFP4 experts with BF16 activations",
        ),
        (
            "MXFP8->BF16 load-time dequant complete (64 experts/layer); MoE now runs in BF16 with no per-step dequant.",
            "MXFP8 experts held as BF16",
        ),
    ],
)
def test_what_computes_quantised_layers_is_named(line: str, kernel: str) -> None:
    assert parse_startup([f"(Worker_TP0 pid=7) INFO 11-30 10:00:00 [x.py:1] {line}", line]).kernels == (kernel,)


@pytest.mark.parametrize(
    "line",
    [
        "Using TRITON Unquantized MoE backend out of potential backends: ['TRITON', 'MARLIN Fp8 MoE backend'].",
        "FP8 MoE backend MARLIN does not support the deployment configuration since it is a test.",
        "Tried to force MarlinFP8ScaledMMLinearKernel, but the kernel couldn't be implemented",
    ],
)
def test_what_was_not_chosen_is_not_named(line: str) -> None:
    assert parse_startup([line]).kernels == ()


def test_encoder_graphs_are_graphs_too() -> None:
    lines = [
        "Graph capturing finished in 5 secs, took 0.40 GiB",
        "Encoder graph capturing finished in 3 secs, took 0.10 GiB (4 graphs)",
    ]

    assert parse_startup(lines).cuda_graph_gib == 0.5


def test_the_last_start_in_a_log_counts() -> None:
    first, last = lines_of("vllm-0.11-gpu-tp2.log"), lines_of("vllm-0.9-gpu.log")

    assert parse_startup([*first, *last]) == parse_startup(last)
    assert parse_startup([*last, *first]) == parse_startup(first)


def test_a_log_of_another_start_is_not_believed() -> None:
    startup = parse_startup(lines_of("vllm-0.9-gpu.log"), {"kv_cache_size_tokens": "99", "cache_dtype": "fp8"})

    assert (startup.weights_gib, startup.kv_cache_tokens, startup.kv_cache_dtype) == (None, 99, "fp8")
    assert startup.missing["weights_gib"] == (
        "the log is of another start: its KV cache has 158656 tokens, the engine's 99"
    )


def test_without_a_log_the_labels_tell_the_pool_of_all_workers() -> None:
    labels = {
        "cache_dtype": "fp8",
        "kv_cache_max_concurrency": "2.6666666666666665",
        "kv_cache_memory_bytes": str(MIB),
        "kv_cache_size_tokens": "2048",
        "num_cpu_blocks": "None",
    }

    startup = parse_startup([], labels, ranks=Ranks(tensor=2))

    assert (startup.kv_cache_gib, startup.kv_cache_tokens, startup.kv_bytes_per_token) == (2 / 1024, 2048, 1024)
    assert startup.max_concurrency_sequences == pytest.approx(2.667, rel=1e-3)
    assert startup.max_concurrency_tokens == 768
    assert startup.kv_cache_dtype == "fp8"
    assert startup.missing["weights_gib"].startswith("there is no log of the engine to read")
    assert all("vllm:cache_config_info" in note for note in startup.notes)


def test_a_log_of_something_else_has_one_reason() -> None:
    startup = parse_startup(["Listening on port 30000", "max_total_num_tokens=430913"])

    assert set(startup.missing.values()) == {"the log holds no line of vLLM's start-up"}
    assert startup.missing.keys() == set(FIGURES)


PIECES = sorted({piece for name in CORPUS for line in lines_of(name) for piece in (line, line[:60], line[40:120])})
anything = st.lists(
    st.one_of(st.text(), st.sampled_from(PIECES), st.text("0123456789.,-GiB tokprmcn()=/x:", max_size=60))
)


@given(anything, st.dictionaries(st.sampled_from(["kv_cache_size_tokens", "block_size", "cache_dtype"]), st.text()))
@example(["KV cache size: 9,,,,9999999999999999999 tokens", "# x blocks: -1"], {"block_size": "inf"})
@example(["Initializing an LLM engine (v1) with config: tensor_parallel_size=²,pipeline_parallel_size=0"], {})
def test_any_lines_are_read_without_a_traceback(lines: list[str], labels: dict[str, str]) -> None:
    startup = parse_startup(lines, labels)

    assert {figure for figure in FIGURES if getattr(startup, figure) is None} == startup.missing.keys()


def test_a_huge_log_is_read_at_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    filler = [f"request {number:0100d}" for number in range(50_000)]
    log.write_text("\n".join([*lines_of("vllm-0.9-gpu.log"), *filler, "the end"]))
    tail = LogTail(log, str)

    lines = tail.whole_lines()

    assert len(lines) < len(filler)
    assert parse_startup(lines) == parse_startup(lines_of("vllm-0.9-gpu.log"))
    assert lines[-1] == "the end"
    log.write_text("\n".join(f"{number}" for number in range(100_000)))
    assert tail.whole_lines() == [f"{number}" for number in range(100_000)]


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        made.environ["PYTHONPATH"] = str(Path(pytest_tokenwatt.__file__).parents[1])
        yield made


def test_a_running_engine_tells_its_start_and_one_without_a_log_its_cache(workshop: Workshop) -> None:
    started = workshop.start(
        command=["{python}", "-m", "pytest_tokenwatt", "simulate", "--port", "{port}", "--kv-cache-dtype", "fp8"]
    )
    attached = workshop.start(endpoint=started.endpoint)

    own, foreign = started.startup, attached.startup

    assert (own.missing, own.weights_gib, own.quantization) == ({}, 0.095, "None")
    assert own.kv_bytes_per_token == foreign.kv_bytes_per_token == 32_768
    assert (own.kv_cache_gib, foreign.kv_cache_gib) == (2.0, 2.0)
    assert foreign.missing["weights_gib"] == "there is no log of the engine to read (engine.logs can name one)"
