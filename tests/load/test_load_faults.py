"""What can happen to a run: a dead engine, a dead worker, a dead coordinator, no ports, no target."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

import pytest
from closed_loads import Patience, closed, of_phase
from load_processes import children, gone
from load_server import LoadServer, Reply, Watch, after, all_ended, good, serving, small_plan, stalls

from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.load import crew, open_stretch
from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.records import (
    Decision,
    ErrorClass,
    InFlight,
    RequestProgress,
    Target,
    WindowSpan,
)

HERE = Path(__file__).parent


def test_refused_connections_are_failures_with_the_address(tmp_path: Path) -> None:
    with serving(LoadServer()) as server:
        closed = server.endpoint
    with LoadGenerator(Target(closed, "m", vocab_size=50), 1, lambda: None, tmp_path / "load.log") as generator:
        run = generator.run(small_plan([4] * 5, window_s=0.2), Watch(all_ended(5)))
    assert {record.error for record in run.requests} == {ErrorClass.CONNECT}
    assert all(closed.removeprefix("http://").removesuffix("/v1") in str(r.error_message) for r in run.requests)
    assert all(record.sent_s is None and record.first_token_s is None for record in run.requests)


def test_a_dead_engine_stops_the_run(tmp_path: Path) -> None:
    with serving(LoadServer(stalls)) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        alive = lambda: "exit code 1" if len(server.requests) > 5 else None  # noqa: E731
        with LoadGenerator(target, 1, alive, tmp_path / "load.log") as generator:
            run = generator.run(small_plan([4] * 2000, window_s=30), Watch(after(60)))
    assert run.stop == "engine_died"
    assert {record.error for record in run.requests} == {ErrorClass.ABORTED}


def test_an_engine_that_is_dead_in_the_warm_up_leaves_no_window(tmp_path: Path) -> None:
    with serving(LoadServer()) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, lambda: "exit code 1", tmp_path / "load.log") as generator:
            run = generator.run(small_plan([4], warmup_s=20), Watch(after(60)))
    assert (run.stop, run.spans, run.warm_level) == ("engine_died", (), False)


def test_a_watch_that_never_stops_meets_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_stretch, "DEADLINE_MARGIN_S", 1.0)
    with serving(LoadServer(stalls)) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
            started_s = monotonic()
            run = generator.run(small_plan([4] * 5, window_s=0.2, timeout_s=0.5), Watch(after(10**6)))
    assert run.stop == "deadline"
    assert monotonic() - started_s < 15
    assert {record.error for record in run.requests} == {ErrorClass.TIMEOUT}


def test_requests_that_a_late_worker_did_not_send_are_recorded(tmp_path: Path) -> None:
    before = children()
    frozen: list[float] = []
    with serving(LoadServer()) as server:

        def strike() -> None:
            for pid in children() - before:
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(0.8, os.kill, (pid, signal.SIGCONT)).start()
            frozen.append(monotonic())

        def alive() -> str | None:
            return "exit code 1" if frozen and monotonic() > frozen[0] + 0.3 else None

        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, alive, tmp_path / "load.log") as generator:
            run = generator.run(small_plan([4] * 4000, window_s=30, gap_s=0.01), Striking(strike))
    start_s = run.spans[0].start_s
    due = [k for k in range(4000) if start_s + 0.01 * k < run.ended_s]
    assert [record.index for record in run.requests] == due
    late = [record for record in run.requests if record.sent_s is None or record.sent_s > record.scheduled_s + 0.3]
    assert late
    assert all(record.error is ErrorClass.ABORTED for record in run.requests if record.sent_s is None)


class Striking:
    """A watch that does something to the run once it is under way."""

    def __init__(self, strike: object) -> None:
        self._strike = strike

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        return True

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        self._strike()  # type: ignore[operator]
        return Decision()


def test_a_killed_worker_is_named_and_the_others_stop(tmp_path: Path) -> None:
    before = children()
    log = tmp_path / "load.log"
    with serving(LoadServer()) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 2, lambda: None, log) as generator:
            workers: set[int] = set()

            def strike() -> None:
                workers.update(children() - before)
                os.kill(max(workers), signal.SIGKILL)

            with pytest.raises(LoadError, match=r"load worker \d \(pid \d+\) ended with exit code -9") as caught:
                generator.run(small_plan([4] * 500, window_s=8), Striking(strike))
            assert caught.value.reason == "load_worker_died"
            assert str(log) in str(caught.value)
            assert all(gone(pid) for pid in workers)
            again = generator.run(small_plan([4] * 5, key=3), Watch(all_ended(5)))
            assert all(record.ok for record in again.requests)


def test_a_silent_worker_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "GOODBYE_S", 0.2)
    before = children()
    with serving(LoadServer()) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:

            def strike() -> None:
                monkeypatch.setattr(crew, "SILENCE_S", 1.5)
                for pid in children() - before:
                    os.kill(pid, signal.SIGSTOP)

            with pytest.raises(LoadError, match=r"load worker 0 \(pid \d+\) has not reported for 1.5 s") as caught:
                generator.run(small_plan([4] * 500, window_s=8), Striking(strike))
    assert caught.value.reason == "load_worker_hung"
    assert children() <= before


def test_an_interrupt_ends_the_workers(tmp_path: Path) -> None:
    before = children()
    with serving(LoadServer(stalls)) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:

            def strike() -> None:
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                generator.run(small_plan([4] * 500, window_s=8), Striking(strike))
            assert children() <= before


def test_workers_end_with_their_coordinator(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[3])
        from load_server import Watch, after, small_plan
        from pytest_tokenwatt.load.generator import LoadGenerator
        from pytest_tokenwatt.records import Target

        def say(now_s, spans, requests):
            if not Path(sys.argv[2]).exists():
                children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
                Path(sys.argv[2] + ".part").write_text(children)
                os.rename(sys.argv[2] + ".part", sys.argv[2])
            return False

        with LoadGenerator(Target(sys.argv[1], "m", vocab_size=50), 1, lambda: None, Path(sys.argv[2] + ".log")) as g:
            g.run(small_plan([4] * 2000, window_s=30), Watch(say))
        """
    )
    note = tmp_path / "children"
    with serving(LoadServer(stalls)) as server:
        command = [sys.executable, "-c", script, server.endpoint, str(note), str(HERE)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as process:
            deadline_s = monotonic() + 60
            while not note.exists() and monotonic() < deadline_s:
                sleep(0.05)
            sleep(0.2)
            process.kill()
        workers = [int(pid) for pid in note.read_text().split()]
        assert workers
        assert all(gone(pid) for pid in workers)


@pytest.mark.slow
def test_running_out_of_files_has_its_own_class(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import json, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        from load_server import Watch, all_ended, small_plan
        from pytest_tokenwatt.load.generator import LoadGenerator
        from pytest_tokenwatt.records import Target

        with LoadGenerator(Target(sys.argv[1], "m", vocab_size=50), 1, lambda: None, Path(sys.argv[3])) as g:
            run = g.run(small_plan([4] * 80, gap_s=0.005, timeout_s=1.5), Watch(all_ended(80)))
        print(json.dumps([[record.error, record.error_message] for record in run.requests]))
        """
    )
    with serving(LoadServer(stalls)) as server:
        command = ["sh", "-c", 'ulimit -n 50; exec "$0" "$@"', sys.executable, "-c", script]
        said = subprocess.run(
            [*command, server.endpoint, str(HERE), str(tmp_path / "load.log")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    errors = dict(json.loads(said))
    assert set(errors) == {"timeout", "ports_exhausted"}
    assert "Too many open files" in errors["ports_exhausted"]


@pytest.mark.parametrize(
    ("target", "reason", "text"),
    [
        (Target("ftp://x/v1", "m", vocab_size=50), "bad_endpoint", "not an http or https URL"),
        (Target("http://no-such-host.invalid/v1", "m", vocab_size=50), "bad_endpoint", "the host is unknown"),
        (Target("http://127.0.0.1:1/v1", "m"), "bad_target", "leaves none to draw prompts from"),
        (Target("http://127.0.0.1:1/v1", "m", content_file="/nowhere.txt"), "bad_target", "cannot be read"),
        (Target("https://127.0.0.1:1/v1", "m", vocab_size=9, ca_file="/nowhere.pem"), "bad_ca_file", "No such file"),
    ],
)
def test_a_target_that_cannot_work_is_one_line(target: Target, reason: str, text: str, tmp_path: Path) -> None:
    with (
        LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator,
        pytest.raises(LoadError) as caught,
    ):
        generator.run(small_plan([4]), Watch(all_ended(1)))
    assert caught.value.reason == reason
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_secrets_reach_the_server_and_nothing_else(tmp_path: Path) -> None:
    secret = "sk-very-secret"
    before = children()
    log = tmp_path / "load.log"
    with serving(LoadServer()) as server:
        target = Target(
            server.endpoint, "m", vocab_size=50, headers={"Authorization": f"Bearer {secret}", "Host": "evil"}
        )
        with LoadGenerator(target, 1, lambda: None, log) as generator:
            run = generator.run(small_plan([4] * 3, window_s=0.1), Watch(all_ended(3)))
            (worker,) = children() - before
            known = Path(f"/proc/{worker}/cmdline").read_bytes() + Path(f"/proc/{worker}/environ").read_bytes()
        assert server.requests[0].headers["authorization"] == f"Bearer {secret}"
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
    assert secret.encode() not in known
    assert secret not in log.read_text() + repr(run) + repr(target)


def test_a_server_that_repeats_the_key_in_its_error_does_not_leak_it(tmp_path: Path) -> None:
    async def echoes(reply: Reply) -> None:
        key = reply.request.headers["authorization"]
        reply.plain("401 Unauthorized", json.dumps({"error": {"message": f"bad key {key}"}}).encode())

    with serving(LoadServer(echoes)) as server:
        target = Target(server.endpoint, "m", vocab_size=50, headers={"Authorization": "Bearer sk-very-secret"})
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
            run = generator.run(small_plan([4] * 3, window_s=0.1), Watch(all_ended(3)))
    assert [record.error_message for record in run.requests] == ["HTTP 401: bad key ***"] * 3


def test_a_stream_that_ends_well_but_later_than_the_timeout_has_failed(tmp_path: Path) -> None:
    async def late(reply: Reply) -> None:
        await reply.sleep(0.1)
        await good(reply)

    with serving(LoadServer(late)) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
            run = generator.run(small_plan([4] * 8, window_s=0.2, timeout_s=0.05), Watch(all_ended(8)))
    assert {record.error for record in run.requests} == {ErrorClass.TIMEOUT}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def run_tls(certificate: tuple[Path, Path], log: Path, *, verify: bool, ca: bool) -> ErrorClass | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with serving(LoadServer(), tls=context) as server:
        target = Target(
            f"https://localhost:{server.port}/v1", "m", vocab_size=50, verify_tls=verify,
            ca_file=str(certificate[0]) if ca else None,
        )  # fmt: skip
        with LoadGenerator(target, 1, lambda: None, log) as generator:
            run = generator.run(small_plan([4] * 5, window_s=0.1, timeout_s=8), Watch(all_ended(5)))
        assert len({record.error for record in run.requests}) == 1
        assert bool(server.requests) is (run.requests[0].error is None)
    return run.requests[0].error


def test_tls_is_verified_before_anything_is_sent(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    assert run_tls(certificate, tmp_path / "a.log", verify=True, ca=False) is ErrorClass.CONNECT


def test_tls_trusts_the_given_ca(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    assert run_tls(certificate, tmp_path / "a.log", verify=True, ca=True) is None


def test_a_closed_loop_goes_over_tls(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with serving(LoadServer(), tls=context) as server:
        target = Target(f"https://localhost:{server.port}/v1", "m", vocab_size=50, ca_file=str(certificate[0]))
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
            run = generator.run_closed(closed(2, 0, 6), Patience())
    assert [record.ok for record in of_phase(run, "measured")] == [True] * 6


def test_tls_verification_can_be_switched_off(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    assert run_tls(certificate, tmp_path / "a.log", verify=False, ca=False) is None


def test_text_prompts_for_gateways_and_chat(tmp_path: Path) -> None:
    content = tmp_path / "content.txt"
    content.write_text("All happy families are alike. " * 50)
    with serving(LoadServer()) as server:
        for target in (
            Target(server.endpoint, "m", prompt="text"),
            Target(server.endpoint, "m", api="chat", extra_body={"return_token_ids": None, "top_k": 1}),
            Target(server.endpoint, "m", content_file=str(content)),
        ):
            with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
                generator.run(small_plan([4] * 2, window_s=0.1), Watch(all_ended(2)))
    text, chat, passages = server.requests[0:2], server.requests[2:4], server.requests[4:6]
    assert all(len(request.body["prompt"].split()) == 8 for request in text)
    assert all(request.path == "/v1/chat/completions" for request in chat)
    assert all(request.body["messages"][0]["role"] == "user" for request in chat)
    assert all("return_token_ids" not in request.body and request.body["top_k"] == 1 for request in chat)
    assert all("famil" in request.body["prompt"] or "happy" in request.body["prompt"] for request in passages)
    assert len({json.dumps(request.body) for request in server.requests}) == 6
