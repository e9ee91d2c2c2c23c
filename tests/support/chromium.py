"""A page in a headless Chromium, driven by the DevTools protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"),
)


class Page:
    """One page. `evaluate` is all that is needed."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self._numbers = itertools.count(1)
        self._session: str | None = None

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited. Raises `AssertionError`."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = await self._command("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true; the test's timeout is the limit."""
        polling = f"const look = () => ({script}) ? done() : setTimeout(look, 5); look();"
        await self.evaluate(f"new Promise(done => {{ {polling} }})")

    async def size(self, width: int, height: int) -> None:
        """Give the window this size, in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._command("Emulation.setDeviceMetricsOverride", **metrics)

    async def screenshot(self, path: Path, width: int, height: int) -> None:
        """A picture of the page in a window of this size, as a PNG."""
        await self.size(width, height)
        taken = await self._command("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(taken["data"]))

    async def open(self, url: str) -> None:
        """Load this URL."""
        target = await self._command("Target.createTarget", url="about:blank")
        attached = await self._command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        navigated = await self._command("Page.navigate", url=url)
        assert "errorText" not in navigated, navigated["errorText"]
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def _command(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        request: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        await self._devtools.send(json.dumps(request))
        while (answer := json.loads(await self._devtools.recv())).get("id") != number:
            pass  # events
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result


@asynccontextmanager
async def page(url: str, directory: Path) -> AsyncIterator[Page]:
    """A browser with this page; `directory` is for its files."""
    assert CHROMIUM is not None
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, *_ARGUMENTS, f"--user-data-dir={directory}"),
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    try:
        port_file = directory / "DevToolsActivePort"
        while not (port_file.exists() and len(port_file.read_text().splitlines()) == 2):
            assert process.returncode is None, "the browser has ended"
            await asyncio.sleep(0.02)
        port, path = port_file.read_text().splitlines()
        async with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as devtools:
            opened = Page(devtools)
            await opened.open(url)
            yield opened
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
