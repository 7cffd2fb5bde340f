from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.engine import startargs
from pytest_tokenwatt.engine.access import Access, normalise
from pytest_tokenwatt.engine.guard_plan import GuardPlan
from pytest_tokenwatt.engine.identity import check_version, fingerprint
from pytest_tokenwatt.engine.logtail import LogTail
from pytest_tokenwatt.engine.placeholders import fill, uses
from pytest_tokenwatt.engine.ports import claim_free_port, claim_port, is_free
from pytest_tokenwatt.engine.remedies import ending, find_cause
from pytest_tokenwatt.engine.scrub import Scrubber, is_telling
from pytest_tokenwatt.engine.sse import EventReader
from pytest_tokenwatt.engine.vocabulary import from_files
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import ServedIdentity
from pytest_tokenwatt.spec.model import Model

VALUES = {"port": "81", "config": "tuned"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--port={port}", "--port=81"),
        ('{"a": 1, "b": {"c": []}}', '{"a": 1, "b": {"c": []}}'),
        ("{} { port } {.State}", "{} { port } {.State}"),
        ("${port} {{port}} {port}{config}", "${port} {port} 81tuned"),
        ("", ""),
    ],
)
def test_only_known_placeholders_are_replaced(text: str, filled: str) -> None:
    assert fill(text, VALUES, "engine.command") == filled


def test_unknown_placeholders_are_named() -> None:
    with pytest.raises(
        EngineError, match=r"engine.up: unknown placeholder \{prot\}; did you mean \{port\}\? known are"
    ):
        fill("{prot}", VALUES, "engine.up")
    with pytest.raises(EngineError, match=r"\{model\} has no value here; set model.path or engine.model"):
        fill("{model}", VALUES, "engine.command")
    assert uses("port", ["a", "--port={port}"])
    assert not uses("port", ["{{port}}", "${port}"])


@given(st.text())
def test_any_text_is_filled_or_refused(text: str) -> None:
    with suppress(EngineError):
        assert len(fill(text, VALUES, "engine.command")) <= 2 * len(text)


def test_a_port_is_claimed_by_one_run_only(tmp_path: Path) -> None:
    claim = claim_free_port(tmp_path)
    assert claim_port(claim.port, tmp_path) is None
    with socket.socket() as server:
        server.bind(("127.0.0.1", claim.port))
        server.listen()
        assert not is_free(claim.port)
    claim.release()
    claim.release()
    again = claim_port(claim.port, tmp_path)
    assert again is not None
    again.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "nvidia-smi"),
        (
            "ValueError: Free memory on device (3/79 GiB) is less than desired GPU memory utilization (0.9)",
            "nvidia-smi",
        ),
        ("Value error, User-specified max_model_len (99999) is greater than the derived max_model_len", "lower"),
        ("OSError: [Errno 98] Address already in use", "{port}"),
        ("api_server.py: error: unrecognized arguments: --kv-cash-dtype", "--help"),
        ("OSError: nope/m is not a local folder and is not a valid model identifier", "model.path"),
        ("OSError: /m does not appear to have a file named config.json", "model.path"),
        ("ModuleNotFoundError: No module named 'vllm'", "full path"),
        ("/bin/sh: 1: vllm: command not found", "check the path"),
        ("PermissionError: [Errno 13] Permission denied: '/dev/nvidia0'", "give this user access"),
        ("ImportError: libcudart.so.13: cannot open shared object file", "LD_LIBRARY_PATH"),
        ("importlib.metadata.PackageNotFoundError: No package metadata was found for vllm", "python -m"),
    ],
)
def test_frequent_causes_have_a_remedy(line: str, remedy: str) -> None:
    wrapper = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    noise = "WARNING 11-30 Found ulimit; this can cause fd limit errors like `OSError: Permission denied`"
    origin = "(Worker pid=4710) ERROR 11-30 14:38:37 [multiproc_executor.py:953] "
    code = ["raise HFValidationError(", 'File "/usr/lib/no such file or directory.py", line 3']
    cause = find_cause([noise, "INFO starting", *code, origin + line, "something else", wrapper])
    assert cause is not None
    assert cause.line == line
    assert remedy in (cause.remedy or "")


def test_the_last_exception_is_named_when_the_cause_is_unknown() -> None:
    lines = ["ValueError: one", "KeyError: 'two'", "RuntimeError: see root cause above"]
    cause = find_cause(lines)
    assert cause is not None
    assert (cause.line, cause.remedy) == ("KeyError: 'two'", None)
    assert find_cause(["all is well"]) is None


def test_the_causes_of_pydantics_errors_are_on_the_next_line() -> None:
    cause = find_cause(
        ["pydantic_core.ValidationError: 1 validation error for ModelConfig", "Value error, a is not b [x]"]
    )
    assert cause is not None
    assert cause.line == "Value error, a is not b [x]"


def test_exit_codes_in_words() -> None:
    assert ending(3) == "exit code 3"
    assert ending(-9).startswith("signal SIGKILL (often the kernel's out-of-memory killer")
    assert "out-of-memory killer" in ending(137)
    assert ending(127) == "exit code 127 (the shell did not find the command)"
    assert ending(-64) == "signal SIGRTMAX"
    assert ending(255) == "exit code 255"


def test_log_lines_are_made_readable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"old\n\x1b[32mgreen\x1b[0m s3cret99\r\n10%\r50%\r100%\n\xff\xfe\x00\n\n" + b"y" * 999 + b"\n  last\t line \n"
    )
    tail = LogTail(log, Scrubber({"K": "s3cret99"}, ["K"]), offset=4)
    lines = tail.lines(10)
    assert lines[:2] == ("green ***", "100%")
    assert len(lines[-2]) == 300
    assert (lines[-1], tail.last()) == ("last  line", "last  line")
    assert len(max(tail.whole_lines(), key=len)) == 999
    assert LogTail(tmp_path / "absent", str).lines(3) == ()
    assert LogTail(None, str).last() is None


@given(st.binary())
def test_any_bytes_make_a_readable_log(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    log = tmp_path_factory.getbasetemp() / "bytes.log"
    log.write_bytes(raw)
    assert all(line.isprintable() and line for line in LogTail(log, str).lines(50))


def test_secrets_are_masked_longest_first() -> None:
    scrub = Scrubber(
        {"A": "abc", "B": "abcdef", "MY_API_KEY": "longer-secret", "N_TOKENS": "123456"}, ["A", "B", "GONE"]
    )
    assert scrub("abcdef abc longer-secret 123456") == "*** *** *** 123456"
    assert scrub.mapping({"HF_TOKEN": "x", "MAX_TOKENS": "5", "P": "see abc"}) == {
        "HF_TOKEN": "***",
        "MAX_TOKENS": "5",
        "P": "see ***",
    }


@pytest.mark.parametrize("name", ["api-key", "API_KEY", "hf_token", "OPENAI_APIKEY", "DB_PASSWORD", "client_secret"])
def test_names_that_tell_of_secrets(name: str) -> None:
    assert is_telling(name)


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_num_batched_tokens", "tokenizer", "tokenizer_mode", "port", "keyword"]
)
def test_names_that_do_not(name: str) -> None:
    assert not is_telling(name)


LOGGED = (
    "(APIServer pid=64) INFO 11-30 14:39:53 [api_utils.py:286] non-default args: {'model_tag': '/m', 'port': 18431, "
    "'enforce_eager': True, 'hf_overrides': {'a': [1, 2]}, 'compilation_config': {'mode': <Mode.NONE: 0>, 'x': (1,)}, "
    "'api_key': ['k'], 'served_model_name': ['it\\'s, {odd}']}"
)


def test_start_up_arguments_from_the_log() -> None:
    assert startargs.from_log(["other", LOGGED]) == {
        "api_key": "***",
        "compilation_config": "{'mode': <Mode.NONE: 0>, 'x': (1,)}",
        "enforce_eager": "true",
        "hf_overrides": '{"a": [1, 2]}',
        "model_tag": "/m",
        "port": "18431",
        "served_model_name": '["it\'s, {odd}"]',
    }
    assert startargs.from_log(["non-default args: {", "nothing"]) == {}


@given(st.text())
def test_any_logged_arguments_are_read_without_a_traceback(text: str) -> None:
    assert isinstance(startargs.from_log([f"non-default args: {{{text}}}"]), dict)


def test_start_up_arguments_from_the_server() -> None:
    told = {"vllm_config": {"cache_config": {"cache_dtype": "fp8", "nested": {}}, "seed": 1, "instance_id": "x"}}
    assert startargs.from_server_info(told) == {"cache_config.cache_dtype": "fp8", "seed": "1"}
    assert startargs.from_server_info({"vllm_config": "text"}) == {}
    assert startargs.from_server_info(None) == {}


def identity(**changes: object) -> ServedIdentity:
    told = {"version": "1", "root": "/m", "cache_config": {"cache_dtype": "auto", "num_gpu_blocks": "77"}}
    return ServedIdentity(model_ids=("m",), **{**told, **changes})  # type: ignore[arg-type]


def test_the_fingerprint_covers_what_is_served_and_how() -> None:
    same = fingerprint(identity())
    assert same is not None
    assert fingerprint(identity(start_args={"port": "1", "host": "h", "served_model_name": "x"})) == same
    assert fingerprint(identity(cache_config={"cache_dtype": "auto", "num_gpu_blocks": "99"})) == same
    different = [
        identity(version="2"),
        identity(root="/n"),
        identity(cache_config={"cache_dtype": "fp8"}),
        identity(start_args={"max_num_seqs": "8"}),
    ]
    assert len({fingerprint(one) for one in different} | {same}) == 5


def test_an_engine_that_tells_nothing_has_no_fingerprint() -> None:
    assert fingerprint(identity(cache_config={})) is None


def test_versions() -> None:
    check_version(None, None, "here")
    check_version("0.32.0", "0.32.0+cpu", "here")
    check_version("0.32.0+cpu", "0.32.0+cpu", "here")
    for wanted, served in (("0.32", "0.32.0"), ("0.32.0+cu129", "0.32.0+cpu"), ("0.32.0", None)):
        with pytest.raises(EngineError):
            check_version(wanted, served, "here")


@pytest.mark.parametrize(
    ("written", "endpoint"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("https://gw/openai/v1", "https://gw/openai/v1"),
    ],
)
def test_endpoints_are_normalised(written: str, endpoint: str) -> None:
    assert normalise(written) == endpoint


def test_credentials_stay_with_their_origin() -> None:
    access = Access("https://h/v1", {"Authorization": "Bearer x"})
    assert access.headers_for("https://h:443/metrics") == {"Authorization": "Bearer x"}
    for other in ("http://h/metrics", "https://h:8443/metrics", "https://g/metrics"):
        assert access.headers_for(other) == {}
    assert (access.root, access.port, access.host) == ("https://h", 443, "h")
    assert "Bearer" not in repr(access)


def chunked(raw: bytes, cuts: list[int]) -> list[str]:
    reader, events, start = EventReader(), [], 0
    for cut in [*sorted(cuts), len(raw)]:
        events += reader.feed(raw[start:cut])
        start = max(start, cut)
    return events


STREAM = ': hello\r\ndata: {"a": "é"}\r\n\r\nevent: x\ndata: one\ndata:two\n\n\n\ndata: [DONE]\n\n'.encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_do_not_depend_on_how_the_stream_is_cut(cuts: list[int]) -> None:
    assert chunked(STREAM, cuts) == ['{"a": "é"}', "one\ntwo", "[DONE]"]


@given(st.binary())
def test_any_stream_is_read_without_a_traceback(raw: bytes) -> None:
    assert all(chunked(raw, [3, 7]))


def test_a_plan_travels_unchanged() -> None:
    plan = GuardPlan(
        parent=1,
        mark="m",
        cwd="/",
        start_timeout_s=1.5,
        stop_timeout_s=2,
        env={"A": "ü", "B": b"\xff".decode(errors="surrogateescape")},
        engine=("e", "f"),
        up=(("u",),),
        cleanup=(("c", "d"), ("e",)),
    )
    assert GuardPlan.from_line(plan.to_line()) == plan
    assert "ü" not in repr(plan)


def test_the_vocabulary_from_the_models_files(tmp_path: Path) -> None:
    assert from_files(Model(), ("org/none", None), tmp_path, {"HF_HOME": str(tmp_path)}).size == 0
    snapshot = tmp_path / "hub" / "models--org--m" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"text_config": {"vocab_size": 99, "eos_token_id": 5}}')
    (snapshot / "tokenizer.json").write_text('{"added_tokens": [{"id": 98}, {"id": "x"}, 7]}')
    (tmp_path / "hub" / "models--org--m" / "refs").mkdir()
    (tmp_path / "hub" / "models--org--m" / "refs" / "main").write_text("abc\n")
    found = from_files(Model(), ("org/m",), tmp_path, {"HF_HOME": str(tmp_path)})
    assert (found.size, found.special) == (99, frozenset({5, 98}))
    assert from_files(Model(vocab_size=50), ("org/m",), tmp_path, {"HF_HOME": str(tmp_path)}).size == 50
    (snapshot / "config.json").write_text("{broken")
    assert from_files(Model(), ("org/m",), tmp_path, {"HF_HOME": str(tmp_path)}).size == 0
