"""The spec that ``init`` writes: commented, and complete enough to run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_tokenwatt.commands.boards import Boards, Gpu
from pytest_tokenwatt.commands.init.server import Server
from pytest_tokenwatt.commands.init.yaml_text import comment, file_name, joined, scalar

EXAMPLE_MODEL = "Qwen/Qwen3-8B"
_SHORT_CONTEXT = 8192
"""Below it, chat-mix-v1 (input p90 4,096 tokens) would mostly be cut short."""
_CACHE_FACTS = ("cache_dtype", "kv_cache_size_tokens", "block_size", "num_gpu_blocks", "enable_prefix_caching")

_TRAILER = """\
# The promise: ttft, tpot, itl or e2e at any percentile, in milliseconds. Goodput is what keeps it.
slo:
  ttft_p99_ms: 2000
  tpot_p99_ms: 50

workload:
{workload}

measurement:
  warmup_s: 45                      # at least; longer, up to 120 s, until the requests in flight are level
  search_window_s: 60               # one window of the search
  window_s: 120                     # one confirming window
  repeats: 2                        # confirming windows; all must keep the promise

sweep:
  start_rps: 2                      # the first rate; doubled until a window fails, then the bracket is halved
  growth: 2
  bisect_steps: 3

{power}

# The quality of the answers needs a suite, as `python -m pytest_tokenwatt suite gsm8k ...` makes it:
# accuracy: {{name: gsm8k-5shot, suite: suites/gsm8k-200.jsonl, scorer: numeric, max_drop_pts: 1.0, limit: 200}}
# drift: {{sequences: 256, tokens: 256, max_nats_per_token: 0.02}}     # KL divergence, on the suite's prompts

gates:
{gates}
"""

_GATES_ALONE = """\
  slo: {at_rps: null}               # a number: this rate must keep the promise, and no highest one is searched
  goodput: {min_tok_s: null}        # tokens per second of requests that kept the promise; null: no limit
  rules:                            # anything measured, or any metric of the server
    - {name: ttft-p50, metric: ttft_p50_ms, max: 2000}"""

_GATES_COMPARED = """\
  goodput: {min: 0.95}              # ratio to the baseline
  rules:                            # anything measured, or any metric of the server
    - {name: ttft-p50, metric: ttft_p50_ms, max_ratio: 1.10, configs: [tuned]}"""

_COMPARE_SERVERS = """\
# Two configurations are compared by two running servers …
# configs:
#   - {{key: baseline, role: baseline}}
#   - {{key: tuned, role: tuned, engine: {{endpoint: "http://127.0.0.1:8001/v1"}}}}
# … or one after the other, with the same server restarted in between:
#   pytest --tokenwatt-spec={path} --tokenwatt-role=baseline --tokenwatt-out=runs/a.json
#   pytest --tokenwatt-spec={path} --tokenwatt-role=tuned --tokenwatt-out=runs/b.json
#   python -m pytest_tokenwatt compare runs/a.json runs/b.json"""

_TEMPLATE_ENGINE = """\
engine:                             # we start it, guard it, and take its whole process tree down again
  command: [vllm, serve, "{{model}}", --host, 127.0.0.1, --port, "{{port}}"]
  args: []                          # appended; a configuration's own args come after these
  name: vLLM
  model: {model}     # yours: a hub id or a directory, and what must be among the served models
  # In place of command and args, a container:
  # endpoint: http://127.0.0.1:8000/v1
  # up: [docker, run, -d, --name, "tw-{{run_id}}", --gpus, all, --ipc, host, -p, "127.0.0.1:8000:8000",
  #      "vllm/vllm-openai:v0.32.0", --model, "{{model}}"]      # a configuration then repeats the whole list
  # down: [docker, rm, -f, "tw-{{run_id}}"]
  # logs: [docker, logs, -f, "tw-{{run_id}}"]

model:
  path: null                        # what {{model}} stands for; null: engine.model
  tensor_parallel: 1                # and add --tensor-parallel-size to args

configs:                            # one engine start each; mappings merge, args append
  - {{key: baseline, role: baseline, label: default}}
  - {{key: tuned, role: tuned, label: fp8-kv, engine: {{args: [--kv-cache-dtype, fp8]}}, model: {{kv_dtype: fp8}}}}
"""


@dataclass(frozen=True, slots=True)
class Occasion:
    """When and where the spec is written: its file as the user named it, the date, and this machine's GPUs."""

    path: Path
    date: str
    boards: Boards
    here: bool
    """Whether the engine runs on this machine, so that its GPUs are the engine's."""


def server_spec(server: Server, occasion: Occasion) -> str:
    """A spec that attaches to a server that was asked."""
    path = shlex.quote(str(occasion.path))
    return joined(
        [
            *_head(f"Written by init on {occasion.date}, by asking {server.endpoint}.", path),
            *_told(server),
            "",
            f"name: {scalar(file_name(server.model))}",
            f"title: {scalar(f'{server.model} at {server.endpoint}')}",
            "",
            *_hardware(occasion, server.pids),
            "",
            *_engine(server),
            "",
            *_model(server, occasion),
            "",
            *_COMPARE_SERVERS.format(path=path).splitlines(),
            "",
            *_TRAILER.format(
                workload="\n".join(_workload(server.identity.max_model_len)),
                power="\n".join(_power(occasion, simulated=server.identity.simulated)),
                gates=_GATES_ALONE,
            ).splitlines(),
        ]
    )


def template_spec(model: str | None, occasion: Occasion) -> str:
    """A spec that starts ``vllm serve`` twice, to be edited: nothing was asked but this machine's driver."""
    path = shlex.quote(str(occasion.path))
    chosen = model or EXAMPLE_MODEL
    trailer = _TRAILER.format(
        workload="\n".join(_workload(None)), power="\n".join(_power(occasion, simulated=False)), gates=_GATES_COMPARED
    )
    return joined(
        [
            *_head(f"Written by init on {occasion.date}: BF16 against FP8 KV cache with vllm serve. Edit it.", path),
            "",
            f"name: {scalar(file_name(chosen))}",
            f"title: {scalar(f'{chosen}: BF16 vs FP8 KV cache')}",
            "",
            *_hardware(occasion, None),
            "",
            *_TEMPLATE_ENGINE.format(model=scalar(chosen)).splitlines(),
            "",
            *trailer.splitlines(),
        ]
    )


def _head(what: str, path: str) -> Iterator[str]:
    yield from comment(what)
    yield "#"
    for option, about in (
        (" --tokenwatt-plan", "what would run, and how long; starts nothing"),
        (" --tokenwatt-quick", "a first look: short windows, a draft report"),
        ("", "the measurement"),
    ):
        yield f"#   {f'pytest --tokenwatt-spec={path}{option}':<70} # {about}"
    yield "#"
    yield '# What is left out has its default; `null` means "find out" or "the default".'


def _told(server: Server) -> Iterator[str]:
    """What the server said of itself, and what it does not offer."""
    identity = server.identity
    told = [
        f"version {identity.version}" if identity.version else "no version",
        f"max_model_len {identity.max_model_len}" if identity.max_model_len else "no context length",
        *(f"{name} {identity.cache_config[name]}" for name in _CACHE_FACTS if name in identity.cache_config),
    ]
    yield "#"
    yield from comment(f"It told: {', '.join(told)}.", hanging="  ")
    if identity.simulated:
        yield "# It is the embedded engine: SIMULATED, the figures are those of a step-time model."
    others = [name for name in identity.model_ids if name != server.model]
    if others:
        yield from comment(f"It also serves {', '.join(others)}.", hanging="  ")
    lacking = [probe for probe in server.contract.probes if probe.state != "pass"]
    if not lacking:
        yield f"# It answered all {len(server.contract.probes)} probes of the contract."
    for probe in lacking:
        lost = f"; without it: {probe.cost}" if probe.cost else ""
        word = "REQUIRED and " if probe.required else ""
        yield from comment(f"{probe.name}: {word}{probe.state}: {probe.detail}{lost}", lead="#   ", hanging="  ")


def _hardware(occasion: Occasion, pids: frozenset[int] | None) -> Iterator[str]:
    yield "hardware:"
    yield "  gpus: null                        # UUIDs of the GPUs under test; null: those that the engine uses"
    yield "  host: null                        # what the report calls the machine"
    if not occasion.here:
        yield "  # The server is on another machine: its GPUs cannot be asked from here."
        return
    if not occasion.boards.gpus:
        yield from comment(f"no GPU: {occasion.boards.trouble or 'the driver lists none'}", lead="  # ", hanging="  ")
    for gpu in occasion.boards.gpus:
        used = " (the server's)" if _uses(gpu, pids) else ""
        yield from comment(f"{gpu.uuid}{used}: {gpu}", lead="  # ", hanging="  ")


def _uses(gpu: Gpu, pids: frozenset[int] | None) -> bool:
    return bool(gpu.pids and pids and gpu.pids & pids)


def _engine(server: Server) -> Iterator[str]:
    yield "engine:"
    yield f"  endpoint: {scalar(server.endpoint)}"
    if server.name:
        yield f"  name: {scalar(server.name)}"
    if server.identity.version:
        yield from comment(
            f"version: {server.identity.version!r} was served; set it, and another is an error", lead="  # "
        )
    yield f"  model: {scalar(server.model)}"
    yield from (f"  {key}: {scalar(value)}" for key, value in server.settings.items())


def _model(server: Server, occasion: Occasion) -> Iterator[str]:
    yield "model:"
    yield f"  name: {scalar(server.model.rstrip('/').rpartition('/')[2] or server.model)}"
    yield "  weight_dtype: null                # bf16, fp8, …; null: from the model's config.json, where it is found"
    yield from (f"  {key}: {size}" for key, size in server.parallel.items())
    used = sum(_uses(gpu, server.pids) for gpu in occasion.boards.gpus) if occasion.here else 0
    if used > 1 and not server.parallel:
        yield f"  tensor_parallel: {used}                # it computes on so many GPUs; or replicas, …"
    if server.vocabulary_size:
        yield f"  vocab_size: {server.vocabulary_size}"


def _workload(max_model_len: int | None) -> Iterator[str]:
    if max_model_len is None or max_model_len >= _SHORT_CONTEXT:
        yield "  trace: chat-mix-v1                # lengths: input median 1,024 p90 4,096; output median 256 p90 1,024"
        yield "  max_output_tokens: 2048           # cuts the tail, so that a window is not ruled by one endless answer"
        return
    part = max(max_model_len // 32, 1)
    yield f"  input_tokens: {{median: {4 * part}, p90: {12 * part}}}     # lognormal, to fit {max_model_len} tokens"
    yield f"  output_tokens: {{median: {part}, p90: {3 * part}}}"
    yield f"  max_output_tokens: {8 * part}"


def _power(occasion: Occasion, *, simulated: bool) -> Iterator[str]:
    yield "# Where power is read: board (NVML), dcgm, redfish, ipmi, rapl or command; or a list of them."
    if simulated:
        yield "power: {source: simulated, sampling_hz: 1}"
    elif occasion.here and occasion.boards.gpus:
        yield "power: {source: board, sampling_hz: 1}"
    else:
        yield "# power: {source: board, sampling_hz: 1}"
        yield '# power: {source: dcgm, urls: ["http://gpu-node:9400/metrics"]}'
