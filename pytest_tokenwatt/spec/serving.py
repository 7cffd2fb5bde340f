"""The blocks that say what is served and on what: hardware, engine, model, power, load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pytest_tokenwatt.spec.scalars import (
    Argv,
    Block,
    Boolean,
    Command,
    Commands,
    Count,
    Endpoint,
    EnvValue,
    Filled,
    Hertz,
    JsonMapping,
    Logs,
    Positive,
    Text,
    Url,
    Variable,
    env_name,
    one_or_more,
    text_or_mapping,
    whole_number,
    wrong,
)


def _urls(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _workers(value: object) -> object:
    if value == "auto":
        return value
    count = whole_number(value)
    if count < 1:
        raise wrong(f"must be auto or at least 1, not {count}")
    return count


class Hardware(Block):
    """The machine under test; what is not said is found out."""

    adapter: Filled | None = None
    """Vendor of the accelerator, such as nvidia."""
    rated_bw_tbs_per_gpu: Positive | None = None
    """Rated memory bandwidth of one GPU in TB/s; null: looked up."""
    gpus: tuple[Filled, ...] | None = None
    """UUIDs of the GPUs under test; wins over discovery."""
    host: Text | None = None
    """What the report calls the machine."""


class Engine(Block):
    """How the engine is started or reached, and how it is spoken to.

    Exactly one start method after merging: ``command`` (started and guarded by us), ``endpoint`` alone (attach), or
    ``endpoint`` with ``up`` and ``down`` (started by something else that we call).
    """

    command: Command | None = None
    """The engine's command as a list of words; placeholders {port} {model} {run_id} {config} {run_dir} {python}."""
    args: Argv = ()
    """Appended to command; a configuration's args are appended after these."""
    env: dict[Annotated[str, BeforeValidator(env_name)], EnvValue] = Field(default_factory=dict)
    """Added to the inherited environment; null unsets a variable."""
    endpoint: Endpoint | None = None
    """URL of a running engine up to /v1."""
    up: Command | None = None
    """A command that makes the endpoint come up (docker run -d …)."""
    down: Command | None = None
    """Undoes up; run whatever happens."""
    logs: Logs | None = None
    """A command that prints the engine's log, or its file; for an engine that is not started by command."""
    prepare: Commands = ()
    """Commands run before the start, such as setting a power limit."""
    cleanup: Commands = ()
    """Undo prepare; run whatever happens."""
    ready_timeout_s: Positive = 1800
    """How long the engine may take to answer."""
    stop_timeout_s: Positive = 60
    """How long the engine may take to stop before it is killed."""
    name: Filled | None = None
    """The engine's name in reports, such as vLLM."""
    version: Filled | None = None
    """Set: must equal the served version."""
    kernels: Text | None = None
    """Image or kernel set, for reports."""
    model: Filled | None = None
    """The model id that the engine must serve; null: whatever it serves."""
    api: Literal["completions", "chat"] = "completions"
    """Which API carries the load."""
    prompt: Literal["ids", "text"] = "ids"
    """Prompts as token ids, or as text for gateways that refuse ids."""
    ignore_eos: Boolean = True
    """Ask for exactly the planned output length."""
    extra_body: JsonMapping = Field(default_factory=dict)
    """Free-form fields added to every request of the load."""
    api_key_env: Variable | None = None
    """Name of the variable that holds the API key."""
    headers_env: dict[Filled, Variable] = Field(default_factory=dict)
    """Header name: name of the variable that holds its value."""
    ca_file: Filled | None = None
    """CA certificates for TLS, in PEM form."""
    verify_tls: Boolean = True
    """Whether the server's certificate is verified."""
    metrics: Annotated[tuple[Url, ...] | None, BeforeValidator(_urls, json_schema_input_type=list[str] | str)] = None
    """URLs of Prometheus metrics; null: /metrics beside the endpoint."""

    @property
    def method(self) -> Literal["command", "up", "attach"]:
        """How the engine comes to run; meaningful for a configuration's merged engine."""
        if self.command is not None:
            return "command"
        return "attach" if self.up is None else "up"


class Model(Block):
    """The model that is served."""

    name: Filled | None = None
    """The model's name in reports."""
    path: Filled | None = None
    """What {model} stands for in commands: a directory or a hub id; null: engine.model."""
    config: Filled | None = None
    """The model's config.json, for its geometry."""
    weight_dtype: Filled | None = None
    """Storage type of the weights, such as bf16 or fp8."""
    kv_dtype: Filled | None = None
    """Storage type of the KV cache, such as bf16 or fp8."""
    quantization: Text | None = None
    """Quantisation in the report's words."""
    replicas: Count = 1
    """Engines behind the endpoint."""
    tensor_parallel: Count = 1
    """GPUs that share each layer."""
    pipeline_parallel: Count = 1
    """Stages of layers."""
    data_parallel: Count = 1
    """Data-parallel ranks of one engine."""
    expert_parallel: Count | None = None
    """GPUs that share the experts; null: not used or found out."""
    vocab_size: Count | None = None
    """Token ids below this are valid; null: asked for."""
    geometry: JsonMapping = Field(default_factory=dict)
    """Free-form overrides of what config.json says."""


class PowerSource(Block):
    """One place where power is read."""

    source: Literal["board", "redfish", "dcgm", "ipmi", "command", "rapl", "simulated", "none"] = "board"
    """Kind of sensor."""
    sampling_hz: Hertz = 1
    """Samples per second."""
    url: Url | None = None
    """Address of a BMC or an exporter."""
    urls: tuple[Url, ...] = ()
    """Several addresses, one a node."""
    match: Annotated[str | dict[str, Any], BeforeValidator(text_or_mapping)] | None = None
    """Which sensor or series of the source counts."""
    username: Text | None = None
    """User of a BMC."""
    password_env: Variable | None = None
    """Name of the variable that holds the password."""
    ca_file: Filled | None = None
    """CA certificates for TLS, in PEM form."""
    verify_tls: Boolean = True
    """Whether the server's certificate is verified."""
    chassis: Text | None = None
    """Redfish chassis id."""
    host: Text | None = None
    """Host name of a BMC."""
    command: Command | None = None
    """A command that prints watts."""
    field: Text | None = None
    """Field of the command's output."""


Power = Annotated[tuple[PowerSource, ...], one_or_more(PowerSource)]


class Load(Block):
    """How load is generated."""

    workers: Annotated[int | Literal["auto"], BeforeValidator(_workers)] = "auto"
    """Worker processes; auto: by the machine's cores."""
    backend: Literal["process", "ray"] = "process"
    """ray: workers on several machines."""
