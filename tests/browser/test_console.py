"""All pages of the console in a real browser, in the widths of a phone and a desktop, with texts that look like
markup.
"""

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
    "/?still",
    "/conversations",
    "/conversations?q=leave",
    "/conversations/telegram:chat:1001",
    "/conversations/telegram:chat:1001?q=leave",
    "/costs",
    "/costs?by=chat",
    "/costs?by=person",
    "/charts",
    "/charts?span=month",
    "/slow",
    "/errors?level=warn",
    "/waiting",
    "/configuration",
)
WIDE = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
CUT_OFF = """
return [...document.querySelectorAll('a, button, input, select, summary, meter')].filter((one) => {
  const { left, right, width } = one.getBoundingClientRect();
  return !one.matches('.skip, [type=hidden]') && (width < 1 || left < 0 || right > innerWidth + 1
    || one.matches('button, select, nav a') && one.scrollWidth > Math.ceil(width) + 1);
}).map((one) => one.outerHTML.slice(0, 200));
"""
"""Script that returns controls outside of the window, and controls that are too small for their text."""
GROUND = "return getComputedStyle(document.body).backgroundColor"
STATUS = "return performance.getEntriesByType('navigation')[0].responseStatus"
MADE = "return document.querySelectorAll('main :is(script, img, iframe)').length + (window.hit ?? 0)"


async def filled(desk: Desk, address: str) -> None:
    """Create conversations, a failed tool call, and an open question."""
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
            await asyncio.sleep(0.05)  # the sums are updated every ten seconds


async def _text(desk: Desk, address: str) -> str:
    async with desk.world.session.get(address) as answer:
        return await answer.text()


async def test_every_page_fits_in_both_languages_and_what_others_wrote_stays_words(desk: Desk) -> None:
    desk.world.only("telegram")
    desk.world.config["dashboard"] = {"enabled": True, "port": 0}
    desk.world.config["channels"]["telegram"]["allow"] += ["2002", "2003"]
    desk.world.config["permissions"] = {"ask": ["skills_list"]}
    desk.world.config["operators"] = ["telegram:1001"]
    await desk.world.start()
    address = desk.world.process.ready_line.split()[-1]
    await filled(desk, address)
    browser = await desk.browse()
    await browser.send({"cmd": "Network.enable", "params": {}})
    for language in ("en", "zh-CN"):
        headers = {"headers": {"Accept-Language": language}}
        await browser.send({"cmd": "Network.setExtraHTTPHeaders", "params": headers})
        for path in PATHS:
            await browser.go(address + path)
            named = path.strip("/").translate(str.maketrans("/?=:&", "-----")) or "now"
            assert await browser.run("return document.documentElement.lang") == language[:2], path
            assert await browser.run(STATUS) == 200, path
            assert await browser.run(MADE) == 0, path
            for width in (320, 390, 768, 1280):
                await browser.resize(width, 900)
                assert await browser.run(WIDE), (path, width, language)
                assert await browser.run(CUT_OFF) == [], (path, width, language)
                await desk.picture(browser, f"{named}-{width}-{language}")
    await browser.scheme("dark")
    for width in (320, 1280):
        await browser.resize(width, 900)
        for path in ("/?still", "/conversations?q=leave", "/errors?level=warn"):
            await browser.go(address + path)
            await desk.picture(browser, f"{path.strip('/?')[:5]}-{width}-dark")
    await browser.go(f"{address}/conversations")
    await browser.type("[type=search]", "leave\n")
    await browser.until("return location.search.includes('q=leave')")
    await browser.press("tbody .found")
    await browser.until("return location.pathname.endsWith('1001')")
    await browser.press("a[href^='?before']")
    await browser.until("return location.search.includes('before') && document.readyState === 'complete'")
    said = str(await browser.run("return document.querySelector('.said').innerText"))
    assert "<script>window.hit = 1</script>" in said
    assert "\u202e" not in said
    assert await browser.run(WIDE)
    assert await browser.run(MADE) == 0
    assert await browser.run(GROUND) == "rgb(15, 23, 28)"
    await browser.press(".said li a")
    await browser.until("return document.querySelector('.waterfall') && document.readyState === 'complete'")
    assert await browser.run(WIDE)
    await browser.scheme("light")
    assert await browser.run(GROUND) == "rgb(243, 246, 248)"
