"""The web page's panel of open items: the number on its button, the keyboard, all widths, and two tabs."""

from __future__ import annotations

import pytest

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.test_schedules import in_an_hour
from tests.browser.conftest import Desk, heard, say
from tests.browser.test_conversing import WIDE

pytestmark = pytest.mark.browser

COUNT = "return document.getElementById('waits').textContent"
SHOWN = "return [...document.querySelectorAll('#loops .what')].map((one) => one.textContent)"
FOCUS = "return document.activeElement.id"
INSIDE = """const box = document.getElementById('board').getBoundingClientRect();
return box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight
  && [...document.querySelectorAll('header button')].every((one) => one.getBoundingClientRect().right <= innerWidth)"""
NAME = "return document.getElementById('board-button').ariaLabel"


async def test_the_panel_shows_what_waits_at_every_width_and_tabs_agree(desk: Desk) -> None:
    await desk.start()
    world = desk.world
    browser = await desk.opened(desk.link)
    assert await browser.run(COUNT) == ""
    world.model.then(
        reply(tool_use("schedule_create", {"prompt": "Look <b>there</b>", "when": in_an_hour()}))
    )
    world.model.answer("I will.")
    await say(browser, "remind me")
    await heard(browser, "I will.")
    world.model.answer("It is down. I'll look again tomorrow.")
    await say(browser, "is it up?")
    await browser.until(f"{COUNT} === '1'")
    assert await browser.run(NAME) == "Waiting (1)"
    await browser.type("#board-button", "\ue007")  # Enter
    assert await browser.until(
        f"const found = (() => {{ {SHOWN} }})(); return found.length === 2 && found"
    ) == [
        "I'll look again tomorrow.",
        "Look <b>there</b>",
    ]
    for width, scheme in (
        (320, "light"),
        (390, "dark"),
        (768, "light"),
        (1280, "dark"),
        (320, "dark"),
        (1280, "light"),
    ):
        await browser.resize(width, 800)
        await browser.scheme(scheme)
        await desk.picture(browser, f"{width}-{scheme}")
        assert await browser.run(WIDE), width
        assert await browser.run(INSIDE), width
    await browser.type("#board-close", "\ue00c")  # Escape
    assert await browser.run(FOCUS) == "board-button"
    first = await browser.front()
    await browser.show(await browser.tab())
    await browser.go(desk.page)
    await browser.until(f"{COUNT} === '1'")
    await browser.press("#board-button")
    await browser.until(f"const found = (() => {{ {SHOWN} }})(); return found.length === 2")
    await browser.type("#loops .done", "\ue007")  # Enter
    await browser.until(f"const found = (() => {{ {SHOWN} }})(); return found.length === 1")
    assert (
        await browser.run("return document.getElementById('board-told').textContent")
        == "Closed: “I'll look again tomorrow.”"
    )
    assert await browser.run(FOCUS) == "board-close"
    assert await browser.run(COUNT) == ""
    await browser.show(first)
    await browser.press("#board-button")
    await browser.until(f"const found = (() => {{ {SHOWN} }})(); return found.length === 1")
