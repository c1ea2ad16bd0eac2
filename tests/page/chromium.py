"""A real Chromium, driven over its own protocol: what a page shows, asks for and complains of."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse

PROGRAM: Final = shutil.which("chromium") or shutil.which("google-chrome")
MISSING: Final = "no chromium is installed: apt-get install chromium"
OPTIONS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--remote-debugging-port=0", "about:blank",
)  # fmt: skip


class Browser:
    """One tab."""

    def __init__(self, channel: ClientWebSocketResponse) -> None:
        self._channel, self._number = channel, 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.asked: list[str] = []
        """Addresses that the page asked for."""
        self.faults: list[str] = []
        """Exceptions, dialogs, and what the browser complained of."""

    async def listen(self) -> None:
        async for message in self._channel:
            found = json.loads(message.data)
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
                continue
            name, given = found["method"], found["params"]
            if name == "Network.requestWillBeSent":
                self.asked.append(given["request"]["url"])
            elif name == "Page.javascriptDialogOpening":
                self.faults.append(f"dialog: {given['message']}")
            elif name == "Runtime.exceptionThrown":
                self.faults.append(str(given["exceptionDetails"]))
            elif name == "Log.entryAdded" and given["entry"]["level"] == "error":
                self.faults.append(given["entry"]["text"])

    async def tell(self, method: str, **given: Any) -> Any:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._channel.send_json({"id": self._number, "method": method, "params": given})
        found = await answer
        assert "error" not in found, found
        return found["result"]

    async def evaluate(self, script: str) -> Any:
        found = await self.tell(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Waits until a script gives something that is true."""
        while not (found := await self.evaluate(script)):
            await asyncio.sleep(0.05)
        return found

    async def open(
        self, url: str, width: int = 1280, height: int = 800, scheme: str = "dark"
    ) -> None:
        await self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        await self.tell("Emulation.setEmulatedMedia",
                        features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
        await self.tell("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && !!document.querySelector('.card')")

    async def mouse(self, kind: str, x: float, y: float, **given: Any) -> None:
        await self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, **given)

    async def picture(self, path: Path) -> None:
        shot = await self.tell("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def opened() -> AsyncIterator[Browser]:
    assert PROGRAM is not None, MISSING
    folder = tempfile.mkdtemp(prefix="hwpage")
    process = await asyncio.create_subprocess_exec(
        PROGRAM, f"--user-data-dir={folder}", *OPTIONS, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        place = Path(folder) / "DevToolsActivePort"
        while not place.exists() or not place.read_text().strip():
            await asyncio.sleep(0.05)
        port = place.read_text().split()[0]
        async with ClientSession() as session:
            async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                url = (await answer.json())["webSocketDebuggerUrl"]
            async with session.ws_connect(url, max_msg_size=0) as channel:
                browser = Browser(channel)
                listener = asyncio.create_task(browser.listen())
                for name in ("Page", "Runtime", "Network", "Log"):
                    await browser.tell(f"{name}.enable")
                yield browser
                listener.cancel()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
