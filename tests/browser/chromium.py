"""Controls Chromium through chromedriver, with JSON over HTTP (the WebDriver protocol of the W3C)."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

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
"""Script that polls inside the page for up to 1 s, because each call of the driver costs milliseconds."""
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of an element's id in each response, as the protocol defines it."""


class Chromium:
    """One chromedriver with one Chromium process. All tests of a process share them, because the start takes seconds."""

    def __init__(self, profile: Path) -> None:
        assert DRIVER is not None
        assert CHROMIUM is not None
        assert any(self._start(DRIVER) for _ in range(TRIES)), "chromedriver does not start"
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        found = self.ask(
            "POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        )
        self.session = f"{self.address}/session/{found['sessionId']}"
        debugger = found["capabilities"]["goog:chromeOptions"]["debuggerAddress"]
        with urlopen(f"http://{debugger}/json/version", timeout=SECONDS) as answer:
            # At this address the browser accepts commands of the DevTools protocol.
            self.socket = str(json.load(answer)["webSocketDebuggerUrl"])

    def _start(self, driver: str) -> bool:
        """Start a driver; return True if it listens. The driver chooses an IPv4 port and needs the same IPv6 port. The driver
        ends if another program uses the IPv6 port.
        """
        self._process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"successfully on port" in line:
                port = line.rstrip(b".\r\n").rpartition(b" ")[2].decode()
                self.address = f"http://127.0.0.1:{port}"
                return True
        self._process.wait()
        return False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = Request(self.address + path, json.dumps(body).encode() if body else None, method=method)
        with urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]

    def close(self) -> None:
        self.ask("DELETE", self.session.removeprefix(self.address))
        self._process.terminate()
        self._process.communicate()


class Driver:
    """The browsers of one test. Each is a context of one Chromium, with its own cookies and storage."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._contexts: list[str] = []
        self._front = ""
        """Handle of the tab that the driver's commands concern."""
        self._numbers = itertools.count(1)
        self._http: aiohttp.ClientSession
        self._socket: aiohttp.ClientWebSocketResponse

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(self._chromium.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        for context in self._contexts:
            await self.command("Target.disposeBrowserContext", browserContextId=context)
        await self._socket.close()
        await self._http.close()

    async def open(self) -> Browser:
        """Open a browser of another person, without cookies."""
        context = (await self.command("Target.createBrowserContext"))["browserContextId"]
        self._contexts.append(context)
        return Browser(self, context, await self.tab(context, newWindow=True, width=900, height=900))

    async def tab(self, context: str, **window: Any) -> str:
        made = await self.command(
            "Target.createTarget", url="about:blank", browserContextId=context, **window
        )
        return str(made["targetId"])

    async def tabs(self, context: str) -> list[str]:
        found = (await self.command("Target.getTargets"))["targetInfos"]
        mine = [one["targetId"] for one in found if one["browserContextId"] == context]
        return [tab for tab in await self.ask("", "GET", "/window/handles") if tab in mine]

    async def command(self, method: str, **params: Any) -> Any:
        """Send a command of the DevTools protocol to the whole browser, and return the result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(SECONDS):
            while (answer := await self._socket.receive_json()).get("id") != number:
                pass
        assert "error" not in answer, answer
        return answer["result"]

    async def ask(self, tab: str, method: str, path: str, body: Any = None) -> Any:
        if tab and tab != self._front:
            await self.ask("", "POST", "/window", {"handle": tab})
            self._front = tab
        payload = {} if body is None and method == "POST" else body
        async with self._http.request(method, self._chromium.session + path, json=payload) as answer:
            value = (await answer.json())["value"]
        assert answer.status == 200, value
        return value


class Browser:
    """One browser. Calls apply to the tab in front."""

    def __init__(self, driver: Driver, context: str, tab: str) -> None:
        self._driver = driver
        self._context = context
        self._tab = tab

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return await self._driver.ask(self._tab, method, path, body)

    async def go(self, address: str) -> None:
        await self._ask("POST", "/url", {"url": address})

    async def reload(self) -> None:
        await self._ask("POST", "/refresh")

    async def address(self) -> str:
        return str(await self._ask("GET", "/url"))

    async def run(self, script: str, *arguments: Any) -> Any:
        """Run a function with this body in the page, and return its result. A promise is awaited."""
        return await self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    async def until(self, script: str, *arguments: Any, seconds: float = SECONDS) -> Any:
        """Wait until a function with this body returns a true value."""
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
        # ChromeDriver has keys only for the first Unicode plane. Other characters are inserted as by an input method.
        for first, run in itertools.groupby(words, lambda character: character <= "\uffff"):
            if first:
                await self._on(selector, "value", {"text": "".join(run)})
            else:
                inserts = {"cmd": "Input.insertText", "params": {"text": "".join(run)}}
                await self._ask("POST", "/goog/cdp/execute", inserts)

    async def _on(self, selector: str, action: str, body: Any = None) -> None:
        """Act on an element. If the page has replaced the element, find it again."""
        for left in reversed(range(TRIES)):
            found = await self._ask("POST", "/element", {"using": "css selector", "value": selector})
            try:
                await self._ask("POST", f"/element/{found[_ELEMENT]}/{action}", body)
                break
            except AssertionError as refused:
                if not left or "stale element" not in str(refused):
                    raise

    async def tabs(self) -> Sequence[str]:
        return await self._driver.tabs(self._context)

    async def tab(self) -> str:
        """Open a new tab in front."""
        await self.show(await self._driver.tab(self._context))
        return self._tab

    async def front(self) -> str:
        return self._tab

    async def show(self, tab: str) -> None:
        self._tab = tab
        await self.send({"cmd": "Page.bringToFront", "params": {}})

    async def resize(self, width: int, height: int) -> None:
        await self._ask("POST", "/window/rect", {"width": width, "height": height})

    async def width(self, width: int, height: int = 800) -> None:
        """Show pages as on a screen of this size. A window itself cannot be as narrow as a phone."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.send({"cmd": "Emulation.setDeviceMetricsOverride", "params": screen})

    async def scheme(self, name: str) -> None:
        """Show pages in the colour scheme `light` or `dark`."""
        await self.media("prefers-color-scheme", name)

    async def media(self, name: str, value: str) -> None:
        """Show pages with this preference of the operating system."""
        media = {"features": [{"name": name, "value": value}]}
        await self.send({"cmd": "Emulation.setEmulatedMedia", "params": media})

    async def permit_clipboard(self) -> None:
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        await self._driver.command(
            "Browser.grantPermissions", permissions=permissions, browserContextId=self._context
        )

    async def send(self, command: Any) -> None:
        """Send a command of the DevTools protocol to the tab."""
        await self._ask("POST", "/goog/cdp/execute", command)

    async def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(await self._ask("GET", "/screenshot")))
