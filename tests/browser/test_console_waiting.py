"""The console's page of open items in a real browser fits a width of 320 px, and its buttons work by keyboard."""

from __future__ import annotations

import pytest

from tests.blackbox.test_console_waiting import filled
from tests.browser.conftest import Desk
from tests.browser.test_console import MADE, WIDE

pytestmark = pytest.mark.browser

CUT = """return [...document.querySelectorAll('.loops button, .choice a')].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.left < 0 || box.right > document.documentElement.clientWidth;
}).length"""


async def test_what_waits_is_decided_with_the_keyboard_at_every_width(desk: Desk) -> None:
    await filled(desk.world, token=None)
    address = desk.world.process.ready_line.split()[-1]
    browser = await desk.browse()
    await browser.resize(320, 900)
    await browser.go(f"{address}/waiting")
    for width, scheme in (
        (320, "light"),
        (390, "dark"),
        (768, "light"),
        (1280, "dark"),
        (1280, "light"),
        (320, "dark"),
    ):
        await browser.resize(width, 900)
        await browser.scheme(scheme)
        await desk.picture(browser, f"waiting-{width}-{scheme}")
        assert await browser.run(WIDE), width
        assert await browser.run(CUT) == 0, width
        assert await browser.run(MADE) == 0
    await browser.run("document.querySelector('.approval .once').focus()")
    await browser.type(".approval .once", "\ue007")  # Enter
    assert "Allowed" in str(await browser.until("return document.querySelector('[role=status]')?.innerText"))
    assert await browser.run("return document.querySelectorAll('.approval').length") == 0
    await browser.reload()
    assert await browser.run("return document.querySelectorAll('[role=status]').length") == 0
    await browser.press(".job .pause")
    assert "Paused: Look" in str(
        await browser.until("return document.querySelector('[role=status]')?.innerText")
    )
