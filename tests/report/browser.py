"""A real headless Chromium, driven over its debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 30.0
ANSWER_S = 30.0


def chromium() -> str | None:
    """The browser's program: ``CHROMIUM`` names one, else the first usual name that is installed."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Tab:
    """A page under test, and everything that it said or asked for."""

    socket: aiohttp.ClientWebSocketResponse
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _number: int = 0

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are noted."""
        self._number += 1
        await self.socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            message = await self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    async def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        await self.call("Page.navigate", url=path.as_uri())
        while (await self._next()).get("method") != "Page.loadEventFired":
            pass
        await self.evaluate("document.fonts.ready.then(() => true)")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    async def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """The window, and the colours that the reader prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", media="", features=[scheme])

    async def screenshot(self, *, whole: bool = True) -> bytes:
        """The page as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    async def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        printed = await self.call(
            "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True, preferCSSPageSize=True
        )
        return base64.b64decode(printed["data"])

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await self.socket.receive(timeout=ANSWER_S)).data)
        params = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(params["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
        return message


class Browser:
    """Starts Chromium with a profile of its own, and ends it."""

    def __init__(self, program: str) -> None:
        self._program = program

    async def __aenter__(self) -> Tab:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-port=0",
            "--hide-scrollbars",
        ]
        arguments += ["--no-first-run", "--disable-background-networking", f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            [self._program, *arguments, "about:blank"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        port = await self._port(Path(self._profile.name) / "DevToolsActivePort")
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [each for each in await answer.json() if each["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        tab = Tab(self._socket)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.call(f"{domain}.enable")
        return tab

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        await self._session.close()
        self._process.terminate()
        self._process.wait(START_S)
        self._profile.cleanup()

    async def _port(self, place: Path) -> int:
        for _ in range(int(START_S / 0.1)):
            if place.exists() and (lines := place.read_text(encoding="ascii").splitlines()):
                return int(lines[0])
            await asyncio.sleep(0.1)
        self._process.kill()
        raise TimeoutError("the browser does not tell its port")


def with_tab(program: str, use: Callable[[Tab], Any]) -> Any:
    """What ``use`` makes of a fresh browser's page."""

    async def run() -> Any:
        async with Browser(program) as tab:
            return await use(tab)

    return asyncio.run(run())
