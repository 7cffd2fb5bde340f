from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_workshop import Workshop, fake, open_workshop

from pytest_tokenwatt.engine.control import PrivateLoop, parse_reply
from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.errors import EngineError


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        yield made


def test_a_completion_from_synchronous_code(workshop: Workshop) -> None:
    engine = workshop.start(command=fake())
    reply = engine.call(engine.client.complete([1, 2, 3], max_tokens=3, return_token_ids=True))
    assert (reply.text, reply.finish_reason) == (" alpha beta gamma", "length")
    assert (reply.prompt_tokens, reply.output_tokens, reply.token_ids) == (3, 3, (0, 1, 2))
    told = engine.call(engine.client.chat([{"role": "user", "content": "hi"}], max_tokens=2))
    assert (told.text, told.token_ids) == (" alpha beta", None)


def test_the_client_can_be_awaited_on_any_loop(workshop: Workshop) -> None:
    engine = workshop.start(command=fake())

    async def both() -> list[str]:
        replies = await asyncio.gather(*(engine.client.complete("x", max_tokens=1) for _ in range(5)))
        return [reply.text for reply in replies]

    assert asyncio.run(both()) == [" alpha"] * 5
    assert asyncio.run(both()) == [" alpha"] * 5
    assert engine.call(both()) == [" alpha"] * 5


@pytest.mark.asyncio
async def test_the_client_inside_an_async_test(workshop: Workshop) -> None:
    engine = workshop.start(command=fake())
    reply = await engine.client.complete("1, 2, 3,", max_tokens=8, stop=["gamma"])
    assert "gamma" not in reply.text


def test_too_many_requests_are_tried_again_a_bounded_number_of_times(workshop: Workshop) -> None:
    engine = workshop.start(command=fake("--busy", "3"))
    assert engine.call(engine.client.complete("x", max_tokens=1)).text == " alpha"
    engine.stop()
    engine = workshop.start(command=fake("--busy", "99"))
    with pytest.raises(HttpError, match="answered 429: too many requests; the engine turns requests away"):
        engine.call(engine.client.complete("x"))


def test_server_errors_carry_the_servers_message(workshop: Workshop) -> None:
    engine = workshop.start(command=fake("--manners", "error500"))
    with pytest.raises(EngineError, match="answered 500: the engine has a bad day") as caught:
        engine.call(engine.client.complete("x"))
    assert isinstance(caught.value, HttpError)
    assert caught.value.status == 500


def test_a_dead_engine_is_told_in_one_line(workshop: Workshop) -> None:
    engine = workshop.start(command=fake())
    client = engine.client
    engine.stop()
    with pytest.raises(EngineError, match="the engine is stopped"):
        asyncio.run(client.complete("x"))
    assert "the engine is stopped" in (engine.read_metrics().problem or "")


def test_redirects_are_not_followed_with_credentials(workshop: Workshop) -> None:
    with pytest.raises(EngineError, match="not ready after"):
        workshop.start(command=fake("--manners", "redirect"), ready_timeout_s=1)


def test_proxies_do_not_divert_loopback_traffic(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert workshop.start(command=fake()).identity.model_ids == ("tiny",)


def test_the_loop_refuses_to_wait_for_itself() -> None:
    loop = PrivateLoop()

    async def inner() -> None:
        loop.call(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="await instead"):
        loop.call(inner())
    before = threading.active_count()
    loop.close()
    loop.close()
    assert threading.active_count() == before - 1


SECRET = "s3cr3t-value-of-the-key"


def test_a_key_is_sent_and_never_shown(workshop: Workshop) -> None:
    workshop.environ["MY_KEY"] = SECRET
    engine = workshop.start(
        command=fake("--key", SECRET, "--say-env", "MY_KEY"), api_key_env="MY_KEY", ready_timeout_s=9
    )
    target = engine.target(workshop.configuration(command=fake()).workload)
    assert target.headers["Authorization"] == f"Bearer {SECRET}"
    shown = [repr(engine), repr(target), repr(engine.launch["env"]), repr(engine.client), *workshop.news]
    assert not any(SECRET in text for text in shown)


def test_secrets_are_masked_in_errors(workshop: Workshop) -> None:
    workshop.environ |= {"MY_KEY": SECRET, "HF_TOKEN": "hf_abcdefgh", "X": "plain"}
    says = ["--say-env", "MY_KEY", "--say-env", "HF_TOKEN", "--say-env", "X", "--exit-after-s", "0", "--load-s", "60"]
    with pytest.raises(EngineError) as caught:
        workshop.start(command=fake(*says), api_key_env="MY_KEY")
    assert caught.value.tail[-3:] == ("MY_KEY=***", "HF_TOKEN=***", "X=plain")
    assert SECRET not in str(caught.value)


def test_secrets_are_in_no_process_argument(workshop: Workshop) -> None:
    secret = f"only-here-{uuid.uuid4().hex}"
    workshop.environ["MY_KEY"] = secret
    engine = workshop.start(command=fake(), headers_env={"X-Key": "MY_KEY"}, env={"OTHER_TOKEN": "${MY_KEY}"})
    arguments = []
    for folder in Path("/proc").iterdir():
        try:
            arguments.append((folder / "cmdline").read_bytes())
        except OSError:
            continue
    assert not any(secret.encode() in argument for argument in arguments)
    assert engine.launch["env"] == {"OTHER_TOKEN": "***"}


def test_a_wrong_or_missing_key(workshop: Workshop) -> None:
    workshop.environ["MY_KEY"] = "another-one"
    with pytest.raises(EngineError, match="answered 401") as caught:
        workshop.start(command=fake("--key", SECRET), api_key_env="MY_KEY")
    assert caught.value.reason == "engine_refused"
    assert "another-one" not in str(caught.value)
    with pytest.raises(EngineError, match="the variable NOT_SET is not set; export NOT_SET") as caught:
        workshop.start(command=fake(), api_key_env="NOT_SET")
    assert caught.value.reason == "missing_secret"


TLS_FRONT = """
import ssl, sys, http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        payload = b'{"data": [{"id": "tiny"}]}' if self.path == "/v1/models" else b"{}"
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls_is_verified_by_default(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.engine.start.ATTACH_PATIENCE_S", 0.3)
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    request = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request.split(), *files], check=True, capture_output=True)
    port = workshop.free_port()
    command = [sys.executable, "-c", TLS_FRONT, str(port), str(certificate), str(key)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            workshop.wait_for_port(port)
            there = f"https://127.0.0.1:{port}"
            with pytest.raises(EngineError, match=r"name the server's CA in engine.ca_file|certificate"):
                workshop.start(endpoint=there)
            assert workshop.start(endpoint=there, ca_file="cert.pem").identity.model_ids == ("tiny",)
            assert workshop.start(endpoint=there, verify_tls=False).identity.model_ids == ("tiny",)
            with pytest.raises(EngineError, match=r"engine.ca_file .* cannot be used"):
                workshop.start(endpoint=there, ca_file="gone.pem")
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"error": {"message": "EngineCore\nhas died", "code": 500}}, "answered with an error: EngineCore has died"),
        ({"error": "overloaded"}, "answered with an error: overloaded"),
        ({"choices": []}, "the answer is not a completion"),
        (["?"], "the answer is not a completion"),
    ],
)
def test_an_answer_that_is_no_completion_says_what_it_is(told: object, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        parse_reply(told, "http://h/v1/completions")
