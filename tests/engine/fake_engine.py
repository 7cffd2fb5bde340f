"""A small OpenAI-compatible server with switchable manners and faults; standard library only, run as a script."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
KNOWN_FIELDS = {"model", "prompt", "messages", "max_tokens", "temperature", "stream", "stream_options", "stop"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--owner", default="fake")
    parser.add_argument("--version", default=None)
    parser.add_argument("--manners", default="", help="comma separated, see the code")
    parser.add_argument("--load-s", type=float, default=0.0, help="seconds before it listens")
    parser.add_argument("--exit-after-s", type=float, default=None)
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--say", action="append", default=[], help="lines for the log")
    parser.add_argument("--say-env", action="append", default=[], help="variables to print")
    parser.add_argument("--flood-mib", type=int, default=0)
    parser.add_argument("--stubborn-child", action="store_true", help="a daemonised grandchild that ignores SIGTERM")
    parser.add_argument("--bare-child", action="store_true", help="a child without any environment; its pid is logged")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--key", default=None)
    parser.add_argument("--busy", type=int, default=0, help="answer 429 to this many POSTs first")
    return parser.parse_args()


OPTIONS = options()
MANNERS = set(OPTIONS.manners.split(",")) - {""}
BUSY = [OPTIONS.busy]
RUNNING = [0]
LOCK = threading.Lock()
SLOT = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if "redirect" in MANNERS:
            self.reply(307, {}, {"Location": "http://127.0.0.1:1/elsewhere"})
        elif path == "/v1/models" and OPTIONS.key and self.headers.get("Authorization") != f"Bearer {OPTIONS.key}":
            self.reply(401, {"error": {"message": f"bad key {self.headers.get('Authorization')}"}})
        elif path == "/v1/models" and "loading" in MANNERS:
            self.reply(503, {"detail": "still loading"})
        elif path == "/v1/models":
            cards = [{"id": name, "owned_by": OPTIONS.owner, "root": f"/models/{name}"} for name in OPTIONS.model]
            self.reply(200, {"object": "list", "data": [{**card, "max_model_len": 512} for card in cards]})
        elif path == "/health" and "unhealthy" in MANNERS:
            self.reply(503, {})
        elif path == "/version" and OPTIONS.version:
            self.reply(200, {"version": OPTIONS.version})
        elif path == "/metrics" and "metrics" in MANNERS:
            cache = 'vllm:cache_config_info{cache_dtype="auto",num_gpu_blocks="77"} 1.0\n'
            self.send(200, f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {RUNNING[0]}\n{cache}")
        else:
            self.reply(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            busy, BUSY[0] = BUSY[0] > 0, BUSY[0] - 1
        if self.path == "/exit":
            say(body["last_words"])
            os._exit(body["code"])
        elif busy:
            self.reply(429, {"error": {"message": "too many requests"}}, {"Retry-After": "0"})
        elif "error500" in MANNERS:
            self.reply(500, {"error": {"message": "the engine has a bad day"}})
        elif "strict" in MANNERS and not set(body) <= KNOWN_FIELDS:
            self.reply(400, {"error": {"message": f"unknown fields {sorted(set(body) - KNOWN_FIELDS)}"}})
        elif self.path == "/tokenize" and "no-tokens" in MANNERS:
            self.reply(200, {"tokens": []})
        elif self.path.endswith("chat/completions") and "no-template" in MANNERS:
            self.reply(400, {"error": {"message": "there is no chat template"}})
        elif self.path == "/tokenize" and "metrics" in MANNERS:
            self.reply(200, {"tokens": [1, 2], "count": 2})
        elif self.path not in ("/v1/completions", "/v1/chat/completions"):
            self.reply(404, {"detail": "Not Found"})
        elif isinstance(body.get("prompt"), list) and "no-ids" in MANNERS:
            self.reply(400, {"error": {"message": "prompt must be a string"}})
        elif isinstance(body.get("prompt"), list) and not body.get("stream") and "overloaded" in MANNERS:
            self.reply(503, {"error": {"message": "no capacity"}})
        elif isinstance(body.get("prompt"), list) and max(body["prompt"]) >= 300:
            self.reply(400, {"error": {"message": "Token id is out of vocabulary"}})
        else:
            self.generate(body, chat=self.path.endswith("chat/completions"))

    def generate(self, body: dict[str, Any], *, chat: bool) -> None:
        prompt = body.get("prompt")
        count = len(prompt) + ("bos" in MANNERS) if isinstance(prompt, list) else 9
        ignores = body.get("ignore_eos") and "eos" not in MANNERS
        wanted = body.get("max_tokens", 16) if ignores else min(body.get("max_tokens", 16), 12)
        words = [f" {WORDS[place % len(WORDS)]}" for place in range(wanted)]
        finish = "length"
        for stop in body.get("stop") or ():
            if "deaf" not in MANNERS and stop in "".join(words):
                words, finish = ["".join(words).partition(stop)[0]], "stop"
        ids = list(range(len(words))) if body.get("return_token_ids") and "plain" not in MANNERS else None
        if body.get("stream") and "one-slot" in MANNERS:
            with SLOT:
                self.stream(body, words, ids, count, chat=chat)
        elif body.get("stream") and "one-stream" in MANNERS and RUNNING[0]:
            self.reply(503, {"error": {"message": "busy with another stream"}})
        elif body.get("stream"):
            self.stream(body, words, ids, count, chat=chat)
        else:
            self.whole(body, words, ids, count, finish, chat=chat)

    def whole(
        self, body: dict[str, Any], words: list[str], ids: list[int] | None, count: int, finish: str, *, chat: bool
    ) -> None:
        prompt = body.get("prompt")
        content = {"message": {"content": "".join(words)}} if chat else {"text": "".join(words)}
        echo = prompt if ids is not None and isinstance(prompt, list) else None
        if ids is not None and "more-ids" in MANNERS:
            ids = [*ids, 1]
        if echo and "other-echo" in MANNERS:
            echo = [7, *echo]
        choice = {**content, "finish_reason": finish, "token_ids": ids, "prompt_token_ids": echo}
        if "plain" not in MANNERS:
            choice |= scores(body, len(words))
        self.reply(200, {"choices": [choice], "usage": usage(count, len(words))})

    def stream(self, body: dict[str, Any], words: list[str], ids: list[int] | None, count: int, *, chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        wants = body.get("stream_options") or {}
        with LOCK:
            RUNNING[0] += 1
        try:
            if chat:
                self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
            for place, word in enumerate(words):
                if "stream-error" in MANNERS and place == 2:
                    self.event({"error": {"message": "engine core is gone", "code": 500}})
                    return
                if "cut" in MANNERS and place == 2:
                    return
                choice: dict[str, Any] = {"index": 0, **({"delta": {"content": word}} if chat else {"text": word})}
                if ids is not None:
                    choice["token_ids"] = [ids[place]]
                running = wants.get("continuous_usage_stats") and not MANNERS & {"plain", "usage-at-end"}
                self.event({"choices": [choice], **({"usage": usage(count, place + 1)} if running else {})})
                time.sleep(0.01 if len(words) > 100 or "eos" in MANNERS else 0.002)
            if wants.get("include_usage") and "no-usage" not in MANNERS and not (chat and "no-chat-usage" in MANNERS):
                self.event({"choices": [], "usage": usage(count, len(words))})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            if "stubborn-work" in MANNERS:
                time.sleep(20)
        finally:
            with LOCK:
                RUNNING[0] -= 1
            self.close_connection = True

    def event(self, told: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(told).encode() + b"\n\n")
        self.wfile.flush()

    def reply(self, status: int, told: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(told), headers)

    def send(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        payload = text.encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(payload))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def usage(prompt: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def scores(body: dict[str, Any], words: int) -> dict[str, Any]:
    """Log-probabilities of the output and of the prompt, as far as they are asked for."""
    told: dict[str, Any] = {}
    if body.get("logprobs") and "no-logprobs" not in MANNERS:
        value = 7.5 if "raw-scores" in MANNERS else -0.5
        told["logprobs"] = {"token_logprobs": [value] * (words - ("few-logprobs" in MANNERS))}
    if body.get("prompt_logprobs") and "no-logprobs" not in MANNERS:
        ids = body["prompt"][: 5 if "few-logprobs" in MANNERS else None]
        shift = 1 if "other-ids" in MANNERS else 0
        scored = {"logprob": None if "raw-scores" in MANNERS else -2.5}
        told["prompt_logprobs"] = [None, *({str(token + shift): scored} for token in ids[1:])]
    return told


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def spawn_stubborn_child() -> None:
    # Two processes deep, in a session of its own, its parent gone: what a plain killpg never reaches.
    sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
    launcher = f"import subprocess,sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)"
    subprocess.run([sys.executable, "-S", "-c", launcher], check=True)


def main() -> None:
    if OPTIONS.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in OPTIONS.say:
        say(line)
    for name in OPTIONS.say_env:
        say(f"{name}={os.environ.get(name)}")
    if OPTIONS.stubborn_child:
        spawn_stubborn_child()
    if OPTIONS.bare_child:
        say(f"bare {subprocess.Popen(['sleep', '120'], env={}, start_new_session=True).pid}")
    for _ in range(OPTIONS.flood_mib):
        sys.stdout.write("x" * (1 << 20) + "\n")
    sys.stdout.flush()
    if OPTIONS.exit_after_s is not None:
        threading.Timer(OPTIONS.exit_after_s, os._exit, [OPTIONS.exit_code]).start()
    time.sleep(OPTIONS.load_s)
    Server((OPTIONS.host, OPTIONS.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
