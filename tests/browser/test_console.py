"""The console in a real browser: every page at the width of a phone and of a desk, with words that would like to be markup."""

from __future__ import annotations

import asyncio

import pytest

from bot.testing.anthropic_script import tool_use
from tests.browser.chromium import SECONDS
from tests.browser.conftest import Desk
from tests.browser.test_words import SCRIPTS

pytestmark = pytest.mark.browser

EVIL = "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'> \u202eelpmaxe\u202c"
PATHS = (
    "/",
    "/conversations",
    "/costs",
    "/costs?by=chat",
    "/costs?by=person",
    "/errors?level=warn",
    "/waiting",
    "/configuration",
)
WIDE = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
GROUND = "return getComputedStyle(document.body).backgroundColor"
STATUS = "return performance.getEntriesByType('navigation')[0].responseStatus"
MADE = "return document.querySelectorAll('main :is(script, img, svg, iframe)').length + (window.hit ?? 0)"


async def filled(desk: Desk, address: str) -> None:
    """Something is said, fails and is being done."""
    world = desk.world
    world.telegram.say(EVIL, name="Ann")
    world.model.answer(f"I leave that alone: {EVIL}\n\n" + "\n".join(words for words, _ in SCRIPTS))
    await world.turns(1)
    world.telegram.say("And now?", chat_id=2003, name="渡辺 さん")
    world.model.answer(tool_use("read_artifact", {"id": "none"}))
    world.model.answer("Nothing there.")
    await world.turns(2)
    world.telegram.say("Which skills?", chat_id=2002, name="Bob")
    world.model.answer(tool_use("skills_list", {}))
    await world.telegram.until(lambda: bool(world.texts(2002)))
    world.telegram.say("let me in", chat_id=3003, name="محمد <b>Ali</b> 👩‍👩‍👧")
    await world.telegram.until(lambda: bool(world.texts(3003)))
    async with asyncio.timeout(SECONDS):
        while ">$0.00<" in await _text(desk, f"{address}/costs"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # sums are counted each ten seconds


async def _text(desk: Desk, address: str) -> str:
    async with desk.world.session.get(address) as answer:
        return await answer.text()


@pytest.mark.parametrize("width", [390, 1280])
async def test_every_page_fits_and_what_others_wrote_stays_words(desk: Desk, width: int) -> None:
    desk.world.only("telegram")
    desk.world.config["dashboard"] = {"enabled": True, "port": 0}
    desk.world.config["channels"]["telegram"]["allow"] += ["2002", "2003"]
    desk.world.config["permissions"] = {"ask": ["skills_list"]}
    desk.world.config["operators"] = ["telegram:1001"]
    await desk.world.start()
    address = desk.world.process.ready_line.split()[-1]
    await filled(desk, address)
    browser = await desk.browse()
    await browser.resize(width, 1130)
    for at, path in enumerate(PATHS):
        await browser.go(address + path)
        await desk.picture(browser, f"{width}-{at}")
        assert await browser.run("return document.title") != "", path
        assert await browser.run(STATUS) == 200, path
        assert await browser.run(WIDE), path
        assert await browser.run(MADE) == 0, path
    await browser.scheme("dark")
    await browser.go(f"{address}/conversations/telegram:chat:1001")
    await desk.picture(browser, f"{width}-said")
    said = str(await browser.run("return document.querySelector('.said').innerText"))
    assert "<script>window.hit = 1</script>" in said
    assert "\u202e" not in said
    assert await browser.run(WIDE)
    assert await browser.run(MADE) == 0
    assert await browser.run(GROUND) == "rgb(15, 23, 28)"
    await browser.press(".said li a")
    await desk.picture(browser, f"{width}-turn")
    assert "turn_end" in str(await browser.run("return document.querySelector('table').innerText"))
    assert await browser.run(WIDE)
    await browser.scheme("light")
    assert await browser.run(GROUND) == "rgb(243, 246, 248)"
