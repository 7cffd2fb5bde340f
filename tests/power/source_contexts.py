"""Settings and contexts for the sources of power, as a spec and an engine would give them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.sources import SourceContext
from pytest_tokenwatt.spec.serving import PowerSource


def settings(source: str, **keys: Any) -> PowerSource:
    return PowerSource.model_validate({"source": source, **keys})


def context(
    spec_dir: Path,
    environ: Mapping[str, str] | None = None,
    *,
    root: str = "http://127.0.0.1:9",
    listed: tuple[str, ...] | None = None,
    expected: int = 1,
) -> SourceContext:
    gpus = GpuQuery(listed=listed, expected=expected, environ={}, pids=lambda: None)
    return SourceContext(environ=environ or {}, spec_dir=spec_dir, endpoint_root=root, simulated=False, gpus=gpus)


class Pages:
    """A web server of pages by path; ``None`` is a 404, and a number that status."""

    def __init__(self) -> None:
        self.pages: dict[str, str | int | None] = {}
        self.url = ""


@contextmanager
def serving() -> Iterator[Pages]:
    pages = Pages()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.pages.get(self.path)
            status = 404 if page is None else page if isinstance(page, int) else 200
            body = page.encode() if isinstance(page, str) else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pages.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield pages
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
