"""``init``: a spec out of a running server, or a template; it loads, plans and runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_servers import EMBEDDED, call, fake, serving
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.commands.init.server import parallel_sizes
from pytest_tokenwatt.commands.init.yaml_text import comment, file_name, scalar
from pytest_tokenwatt.engine.processes import behind_port
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.reader import parse_source
from pytest_tokenwatt.spec.variables import expand
from pytest_tokenwatt.testing.nvml import FakeNvml

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(EMBEDDED, tmp_path_factory.mktemp("embedded")) as url:
        yield url


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], folder: Path, command: tuple[str, ...], *words: str) -> Spec:
    with serving(command, folder) as url:
        done = call(capsys, "init", "--endpoint", url, "--out", "asked.yaml", *words)
    assert done.code == 0, done.err
    return load_spec(folder / "asked.yaml")


def test_the_embedded_engine_gives_a_spec_that_plans_without_an_error(
    embedded: str, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, "init", "--endpoint", embedded)
    assert (done.code, done.err) == (0, f"asking {embedded}/v1\n")
    assert done.out.splitlines()[-1] == "next: pytest --tokenwatt-spec=tokenwatt.yaml --tokenwatt-plan"
    spec = load_spec(Path("tokenwatt.yaml"))
    assert (spec.engine.endpoint, spec.engine.model) == (f"{embedded}/v1", "tokenwatt/embedded-tiny")
    assert spec.model.vocab_size == 512
    assert [source.source for source in spec.power] == ["simulated"]
    text = Path("tokenwatt.yaml").read_text(encoding="utf-8")
    for said in ("SIMULATED", "max_model_len 4096", "kv_cache_size_tokens 32768", "all 16 probes"):
        assert said in text
    planned = pytester.runpytest("--tokenwatt-spec=tokenwatt.yaml", "--tokenwatt-plan", "-p", "no:asyncio")
    assert planned.ret == 0
    planned.stdout.fnmatch_lines(["*attached at http://127.0.0.1:*", "*nothing was started*"])
    planned.stdout.no_fnmatch_line("*problems*")


def test_the_spec_of_the_embedded_engine_runs(
    embedded: str, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "init", "--endpoint", embedded).code == 0
    spec = Path("tokenwatt.yaml")
    text = spec.read_text(encoding="utf-8")
    for slow, fast in (
        ("warmup_s: 45 ", "warmup_max_s: 1\n  warmup_s: 0.3 "),
        ("search_window_s: 60 ", "search_window_s: 1 "),
        ("window_s: 120 ", "window_s: 2 "),
        ("start_rps: 2 ", "rates: [20] "),
        ("p99_ms: 2000", "p90_ms: 5000"),
        ("p99_ms: 50\n", "p90_ms: 500\n"),
        ("sampling_hz: 1}", "sampling_hz: 20}"),
        ("median: 512, p90: 1536", "median: 32, p90: 64"),
        ("median: 128, p90: 384", "median: 8, p90: 16"),
    ):
        assert slow in text
        text = text.replace(slow, fast)
    spec.write_text(text, encoding="utf-8")
    run = pytester.runpytest("--tokenwatt-spec=tokenwatt.yaml", "-p", "no:asyncio")
    run.assert_outcomes(passed=3)


def test_a_file_that_exists_is_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "tokenwatt.yaml").write_text("mine", encoding="utf-8")
    done = call(capsys, "init")
    assert (done.code, done.out) == (4, "")
    assert "tokenwatt.yaml: exists, and is not overwritten; name another with --out" in done.err
    assert (place / "tokenwatt.yaml").read_text(encoding="utf-8") == "mine"


def test_without_a_server_it_is_a_template_for_vllm_serve(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = pytester.path
    monkeypatch.setenv("PATH", str(place))
    done = call(capsys, "init", "--out", "new/it.yaml", "--model", "org/Some-Model")
    assert done.code == 0
    assert "vllm is not on PATH; install vllm" in done.err
    spec = load_spec(place / "new" / "it.yaml")
    assert spec.engine.command is not None
    assert spec.engine.command[:3] == ("vllm", "serve", "{model}")
    assert (spec.engine.model, [each.role for each in spec.configurations]) == ("org/Some-Model", ["baseline", "tuned"])
    program = place / "vllm"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    planned = pytester.runpytest("--tokenwatt-spec=new/it.yaml", "--tokenwatt-plan", "-p", "no:asyncio")
    assert planned.ret == 0


def test_gpus_of_this_machine_are_named_and_read(
    fake_nvml: FakeNvml, embedded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_memory(80 << 30, 0)
    gpu.set_limit(700.0)
    assert call(capsys, "init").code == 0
    text = Path("tokenwatt.yaml").read_text(encoding="utf-8")
    assert f"# {gpu.uuid}: NVIDIA H100 80GB HBM3, 80 GiB, 300 W now, limit 700 W" in text
    assert [source.source for source in load_spec(Path("tokenwatt.yaml")).power] == ["board"]


def test_the_gpus_that_a_server_computes_on_are_counted(
    fake_nvml: FakeNvml, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    boards = [fake_nvml.add_gpu() for _ in range(3)]
    with serving(fake("--model", "tiny"), place) as url:
        pids = behind_port("127.0.0.1", int(url.rpartition(":")[2])) or frozenset()
        for board in boards[:2]:
            board.set_processes(*pids)
        assert call(capsys, "init", "--endpoint", url).code == 0
    text = Path("tokenwatt.yaml").read_text(encoding="utf-8")
    assert text.count("(the server's): NVIDIA H100 80GB HBM3, 80 GiB, 300 W now, limit 700 W") == 2
    spec = load_spec(Path("tokenwatt.yaml"))
    assert (spec.model.tensor_parallel, [source.source for source in spec.power]) == (2, ["board"])


def test_a_gateway_without_token_ids_gets_text_prompts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = asked(capsys, place, fake("--model", "tiny", "--manners", "no-ids"))
    assert spec.engine.prompt == "text"
    assert "REQUIRED" not in (place / "asked.yaml").read_text(encoding="utf-8")


def test_a_server_that_refuses_unknown_fields_is_asked_plainly(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = asked(capsys, place, fake("--model", "tiny", "--manners", "strict"))
    assert not spec.engine.ignore_eos
    assert spec.engine.extra_body == {"return_token_ids": None, "stream_options": {"include_usage": True}}


def test_what_cannot_be_helped_is_said_in_the_spec(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = asked(capsys, place, fake("--model", "tiny", "--manners", "no-usage,usage-at-end"))
    assert (spec.engine.api, spec.engine.extra_body) == ("completions", {})
    assert "stream_usage: REQUIRED and wrong" in (place / "asked.yaml").read_text(encoding="utf-8")


def test_one_of_several_models_must_be_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(fake("--model", "one", "--model", "two"), place) as url:
        unclear = call(capsys, "init", "--endpoint", url)
        assert unclear.code == 4
        assert "serves one, two" in unclear.err
        assert "--model ID" in unclear.err
        assert call(capsys, "init", "--endpoint", url, "--model", "two").code == 0
    assert load_spec(Path("tokenwatt.yaml")).engine.model == "two"
    assert "It also serves one." in Path("tokenwatt.yaml").read_text(encoding="utf-8")


def test_a_server_of_something_else_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(fake("--manners", "redirect"), place) as url:
        done = call(capsys, "init", "--endpoint", url)
    assert done.code == 4
    assert done.err.splitlines()[0] == f"asking {url}/v1"
    assert done.err.splitlines()[1].startswith("no answer of an OpenAI-compatible server: ")
    assert done.err.endswith("; check the URL, or wait until the server is ready\n")


def test_a_key_is_named_by_its_variable_and_never_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "hush-4711")
    with serving(fake("--model", "tiny", "--key", "hush-4711"), place) as url:
        refused = call(capsys, "init", "--endpoint", url)
        assert refused.code == 4
        assert "--api-key-env" in refused.err
        done = call(capsys, "init", "--endpoint", url, "--api-key-env", "ENGINE_KEY")
    assert done.code == 0
    text = Path("tokenwatt.yaml").read_text(encoding="utf-8")
    assert "api_key_env: ENGINE_KEY" in text
    assert "hush-4711" not in text + done.out + done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--endpoint", "nonsense"), "--endpoint: "),
        (
            ("--endpoint", "http://127.0.0.1:1"),
            "--endpoint: nothing listens at http://127.0.0.1:1/v1; start the server",
        ),
        (("--endpoint", "http://user:hush@127.0.0.1:1/v1"), "--endpoint: has a user or password in the URL"),
        (("--endpoint", "http://127.0.0.1:1", "--api-key-env", "not a name"), "--api-key-env: "),
        (("--api-key-env", "KEY"), "add --endpoint URL"),
        (("--out", "."), "is a directory"),
        (("--out", "occupied/x.yaml"), "occupied"),
        (("--nonsense",), "see python -m pytest_tokenwatt init --help"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    place: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "occupied").write_text("", encoding="utf-8")
    done = call(capsys, "init", *words)
    assert done.code == 4
    assert said in done.err
    assert "hush" not in done.err
    assert done.err.count("\n") == 1
    assert list(place.glob("*.yaml")) == []


@given(st.text())
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    source = parse_source(f"key: {scalar(text)}\nlist: [{scalar(text)}, {scalar({text: text})}]\n", "spec")
    assert not source.problems
    assert expand(source.raw, {}).data["key"] == text


@pytest.mark.parametrize(
    ("start_args", "fingerprint", "sizes"),
    [
        ({}, "vllm-0.32.0-1c75e167", {}),
        ({}, "vllm-0.32.0-tp4-pp2-dp8-ep-1c75e167", {"tensor_parallel": 4, "pipeline_parallel": 2, "data_parallel": 8}),
        ({"parallel_config.tensor_parallel_size": "2"}, "vllm-0.32.0-tp4-1c75e167", {"tensor_parallel": 2}),
        ({"tensor_parallel_size": "1"}, "", {}),
        ({}, "tp9", {}),
    ],
)
def test_how_many_gpus_share_the_model(start_args: dict[str, str], fingerprint: str, sizes: dict[str, int]) -> None:
    assert dict(parallel_sizes(start_args, fingerprint)) == sizes


def test_a_lone_surrogate_becomes_a_sign_that_can_be_written() -> None:
    assert scalar("a\ud800") == '"a\ufffd"'


@given(st.text(min_size=1), st.sampled_from(["# ", "  # "]))
def test_no_text_breaks_out_of_a_comment(text: str, lead: str) -> None:
    lines = list(comment(text, lead=lead, hanging="  "))
    assert all(line.lstrip().startswith("#") and len(line.splitlines()) == 1 for line in lines)


@given(st.text())
def test_any_model_gives_a_file_name(text: str) -> None:
    assert parse_source(f"name: {scalar(file_name(text))}", "spec").raw["name"] == file_name(text)
    assert file_name(text) not in (".", "..")
    assert "/" not in file_name(text)
