"""Chromium as a person has it in front of them, through chromedriver: JSON over HTTP (the W3C's WebDriver protocol)."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SECONDS = 20.0
TRIES = 5
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=900,900",
)
POLLING = """
const asked = arguments, end = performance.now() + 1000;
return (async () => {
  for (;;) {
    const value = await (function () { %s }).apply(null, asked);
    if (value || performance.now() > end) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
})();
"""
"""A script that asks in the page for up to a second, since each question to the driver costs milliseconds."""
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's id in every answer, as the protocol fixes it."""


class Driver:
    """One chromedriver, and the browsers that were opened through it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._browsers: list[Browser] = []
        self._process: asyncio.subprocess.Process
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        port = None
        for _ in range(TRIES):
            if port := await self._start():
                break
        assert port, "chromedriver does not start"
        self._http = aiohttp.ClientSession(f"http://127.0.0.1:{port}")
        return self

    async def _start(self) -> int | None:
        """The port of a driver that listens; None if it has ended instead.

        It lets the system choose a port of IPv4, asks for the same one of IPv6, and ends where somebody has that one.
        """
        assert DRIVER is not None
        self._process = await asyncio.create_subprocess_exec(
            DRIVER,
            "--port=0",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while line := await self._process.stdout.readline():
                if b"successfully on port" in line:
                    return int(line.rstrip(b".\r\n").rpartition(b" ")[2])
        await self._process.communicate()
        return None

    async def __aexit__(self, *_: object) -> None:
        for browser in self._browsers:
            await self.ask("DELETE", f"/session/{browser.id}")
        await self._http.close()
        self._process.terminate()
        await self._process.communicate()

    async def open(self) -> Browser:
        """A browser of somebody else: with a profile of its own."""
        assert CHROMIUM is not None
        profile = self._folder / f"profile{len(self._browsers)}"
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        browser = Browser(self, (await self.ask("POST", "/session", wanted))["sessionId"])
        self._browsers.append(browser)
        return browser

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        payload = {} if body is None and method == "POST" else body
        async with self._http.request(method, path, json=payload) as answer:
            value = (await answer.json())["value"]
        assert answer.status == 200, value
        return value


class Browser:
    """One browser; what it is asked concerns the tab in front."""

    def __init__(self, driver: Driver, id_: str) -> None:
        self._driver = driver
        self.id = id_

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return await self._driver.ask(method, f"/session/{self.id}{path}", body)

    async def go(self, address: str) -> None:
        await self._ask("POST", "/url", {"url": address})

    async def reload(self) -> None:
        await self._ask("POST", "/refresh")

    async def address(self) -> str:
        return str(await self._ask("GET", "/url"))

    async def run(self, script: str, *arguments: Any) -> Any:
        """What a function with this body returns, in the page; a promise is waited for."""
        return await self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    async def until(self, script: str, *arguments: Any, seconds: float = SECONDS) -> Any:
        """Wait until such a function returns something that is true."""
        asks = POLLING % script
        try:
            async with asyncio.timeout(seconds):
                while not (value := await self._settled(asks, *arguments)):
                    pass
        except TimeoutError:
            page = await self.run("return document.body.innerText")
            raise AssertionError(f"the page never came to: {script} {arguments}\n{page}") from None
        return value

    async def _settled(self, script: str, *arguments: Any) -> Any:
        """Return the value of a script, or None if the page was left meanwhile."""
        try:
            return await self.run(script, *arguments)
        except AssertionError as refused:
            if "navigat" not in str(refused):
                raise
            return None

    async def press(self, selector: str) -> None:
        await self._on(selector, "click")

    async def type(self, selector: str, words: str) -> None:
        # ChromeDriver has keys for the first plane of Unicode alone; other characters come as from an input method.
        for first, run in itertools.groupby(words, lambda character: character <= "\uffff"):
            if first:
                await self._on(selector, "value", {"text": "".join(run)})
            else:
                inserts = {"cmd": "Input.insertText", "params": {"text": "".join(run)}}
                await self._ask("POST", "/goog/cdp/execute", inserts)

    async def _on(self, selector: str, action: str, body: Any = None) -> None:
        """Act on an element. An element that the page has drawn anew since it was found is looked up again."""
        for left in reversed(range(TRIES)):
            found = await self._ask("POST", "/element", {"using": "css selector", "value": selector})
            try:
                await self._ask("POST", f"/element/{found[_ELEMENT]}/{action}", body)
                break
            except AssertionError as refused:
                if not left or "stale element" not in str(refused):
                    raise

    async def tabs(self) -> Sequence[str]:
        return [str(tab) for tab in await self._ask("GET", "/window/handles")]

    async def tab(self) -> str:
        """A new tab, in front."""
        tab = str((await self._ask("POST", "/window/new", {"type": "tab"}))["handle"])
        await self.show(tab)
        return tab

    async def front(self) -> str:
        return str(await self._ask("GET", "/window"))

    async def show(self, tab: str) -> None:
        await self._ask("POST", "/window", {"handle": tab})

    async def resize(self, width: int, height: int) -> None:
        await self._ask("POST", "/window/rect", {"width": width, "height": height})

    async def width(self, width: int, height: int = 800) -> None:
        """Show pages as on a screen of this size; a window cannot be as narrow as a telephone."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.send({"cmd": "Emulation.setDeviceMetricsOverride", "params": screen})

    async def scheme(self, name: str) -> None:
        """Show pages as a person sees them whose system is `light` or `dark`."""
        await self.media("prefers-color-scheme", name)

    async def media(self, name: str, value: str) -> None:
        """Show pages as to a person whose system has this preference."""
        media = {"features": [{"name": name, "value": value}]}
        await self.send({"cmd": "Emulation.setEmulatedMedia", "params": media})

    async def send(self, command: Any) -> None:
        """A command of the browser's own protocol."""
        await self._ask("POST", "/goog/cdp/execute", command)

    async def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(await self._ask("GET", "/screenshot")))
