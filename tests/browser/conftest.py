"""A real browser and the real process. `PICTURES=folder` stores a screenshot of each test."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.conftest import World
from tests.browser.chromium import Browser, Chromium, Driver

SHOWN = "return [...document.querySelectorAll('#messages .bubble')].map((one) => one.innerText)"
"""Script that returns the texts of all messages of the page."""
QUESTION = "return document.querySelector('.choices')?.closest('li').innerText"
BUTTONS = "return [...document.querySelectorAll('.choices button')].map((one) => one.textContent)"


class Desk:
    """A Shipmate with its web chat, and browsers that show the chat."""

    def __init__(self, world: World, driver: Driver, name: str) -> None:
        self.world = world
        self.browse = driver.open
        self._name = name

    @property
    def page(self) -> str:
        return self.world.process.ready_line.split()[2]

    @property
    def link(self) -> str:
        return str(re.findall(r"http://\S+/open/\S+", "\n".join(self.world.process.lines))[-1])

    async def start(self, **settings: Any) -> None:
        self.world.only("web")
        self.world.config["channels"]["web"] |= {"port": 0, **settings}
        await self.world.start()

    async def opened(self, address: str) -> Browser:
        """Open a new browser that shows the chat."""
        browser = await self.browse()
        await browser.go(address)
        await connected(browser)
        return browser

    async def picture(self, browser: Browser, name: str) -> None:
        if folder := os.environ.get("PICTURES"):
            await browser.picture(Path(folder) / f"{self._name}-{name}.png")


async def connected(browser: Browser) -> None:
    await browser.until("return document.getElementById('connection')?.dataset.state === 'open'")


async def say(browser: Browser, words: str) -> None:
    """Type a text and press Enter."""
    await browser.type("#text", f"{words}\n")


async def heard(browser: Browser, words: str) -> None:
    """Wait until the page shows a message with exactly this text."""
    await browser.until(f"{SHOWN}.includes(arguments[0])", words)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    process = Chromium(tmp_path_factory.mktemp("profile"))
    yield process
    process.close()


@pytest.fixture
async def desk(tmp_path: Path, chromium: Chromium, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    async with World(tmp_path) as world, Driver(chromium) as driver:
        yield Desk(world, driver, request.node.name.removeprefix("test_"))
