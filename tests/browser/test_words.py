"""Texts of people in a real browser: markup has no effect, and all scripts are readable."""

from __future__ import annotations

from typing import Any

import pytest

from bot.testing.anthropic_script import reply
from tests.browser.conftest import SHOWN, Desk, connected, heard, say

pytestmark = pytest.mark.browser

EVIL = """<script>window.hit = 1</script><img src=x onerror="window.hit = 2"><svg onload="window.hit = 3">

[press](javascript:window.hit=4) [press](JaVaScRiPt:window.hit=5) [press](data:text/html,<script>1</script>) ![x](https://evil.example/pixel.png)

[https://good.example/login](https://evil.example/a) [good.example](https://evil.example/b) [all of it](https://good.example@evil.example/c) [look](https://аpple.example/)

[safe\u202eelpmaxe.live\u202c](https://evil.example/d) `<b>code</b>` <iframe src="https://evil.example/"></iframe>"""
SCRIPTS = [
    ("مرحبا بالعالم، هذا سطر طويل.", "rtl"),
    ("שלום עולם, זו שורה.", "rtl"),
    ("你好,世界。今天天气怎么样?", "ltr"),
    ("こんにちは、世界。", "ltr"),
    ("안녕하세요 세계 👩‍👩‍👧 🇩🇪", "ltr"),
]
LINKS = "return [...document.querySelectorAll('.assistant a')].map((one) => [one.href, one.textContent, one.nextSibling?.textContent ?? '', one.rel])"


async def test_what_a_message_holds_stays_words(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    desk.world.model.then(reply(EVIL))
    await say(browser, "<script>window.hit = 6</script> <b>hello</b>")
    await browser.until(f"{SHOWN}.length === 2")
    await browser.until("return document.querySelector('.assistant code')")
    await desk.picture(browser, "inert")
    assert await browser.run("return window.hit ?? null") is None
    made = "return document.querySelectorAll('#messages .bubble :is(script, img, svg, iframe, b)').length"
    assert await browser.run(made) == 0
    assert (await browser.run(SHOWN))[0] == "<script>window.hit = 6</script> <b>hello</b>"
    links: list[list[Any]] = await browser.run(LINKS)
    assert [(words, after.split(" ")[1:2]) for _, words, after, _ in links] == [
        ("x", []),
        ("https://good.example/login", ["(evil.example)"]),
        ("good.example", ["(evil.example)"]),
        ("all of it", ["(evil.example)"]),
        ("look", ["(xn--pple-43d.example)"]),
        ("safeelpmaxe.live", ["(evil.example)"]),
        ("https://evil.example/", []),
    ]
    for address, _, _, rel in links:
        assert address.startswith("https://")
        assert "noopener" in rel
    loaded = "return performance.getEntriesByType('resource').map((one) => one.name).filter((one) => !one.startsWith(location.origin))"
    assert await browser.run(loaded) == []
    # The page's policy forbids making markup from text.
    markup = "try { document.body.innerHTML = '<b>x</b>' } catch (failure) { return failure.name }"
    assert await browser.run(markup) == "TypeError"
    await browser.reload()
    await connected(browser)
    assert await browser.run(f"{made} + (window.hit ?? 0)") == 0


async def test_every_script_is_shown_in_its_own_direction(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.page)
    for at, (words, _) in enumerate(SCRIPTS, 1):
        desk.world.model.then(reply(words))
        await say(browser, words)
        await browser.until(f"{SHOWN}.length === arguments[0]", at * 2)
    await desk.picture(browser, "scripts")
    assert await browser.run(SHOWN) == [words for words, _ in SCRIPTS for _ in range(2)]
    directions = "return [...document.querySelectorAll('#messages .bubble')].map((one) => getComputedStyle(one.querySelector('p') ?? one).direction)"
    assert await browser.run(directions) == [direction for _, direction in SCRIPTS for _ in range(2)]
    wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert await browser.run(wide)


async def test_a_wrong_token_is_told_and_the_right_one_opens_the_page(desk: Desk) -> None:
    await desk.start(token="the right words")
    browser = await desk.browse()
    await browser.go(desk.page)
    await browser.until("return document.getElementById('login').open")
    for wrong in ("wrong", "the right word"):
        await browser.type("#token", wrong)
        await browser.press("#login-form button")
        await browser.until(
            "return document.getElementById('login-error').textContent === \"That's not the token.\""
        )
        await browser.run("document.getElementById('token').value = ''")
    await desk.picture(browser, "wrong")
    assert await browser.run(SHOWN) == []
    await browser.type("#token", "the right words\n")
    await connected(browser)
    desk.world.model.answer("Here.")
    await say(browser, "there?")
    await heard(browser, "Here.")
    assert not await browser.run("return document.getElementById('login').open")
