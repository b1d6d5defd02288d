"""The web chat in a real browser: texts, buttons and access."""

from __future__ import annotations

import asyncio
import html
import re
import sys
from urllib.parse import quote, urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.testing.anthropic_script import Frame, reply, tool_use
from tests.browser.chromium import Browser
from tests.browser.conftest import BUTTONS, QUESTION, SHOWN, Desk, connected, heard, say

pytestmark = pytest.mark.browser

ALL = ["Allow once", "Deny", "Allow in this chat", "Always, for everybody"]
LANDED = re.compile(r"http://shipmate-[a-z2-7]{16}\.localhost:\d+/")
COUNTED = (
    "return [document.getElementById('waits').innerText, document.querySelectorAll('#loops .mine').length]"
)
OPERATOR = "return fetch('/api/info').then((answer) => answer.json()).then((info) => info.operator)"
OPENED = "return document.body?.innerText.includes('This link was opened before') && document.body.innerText"
"""Script that returns the page's text when the reloaded page says that the link was used."""


async def invited(desk: Desk) -> str:
    """Return a link that `shipmate link` prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", "link", "--dir", str(desk.world.root), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()


async def asked(browser: Browser) -> list[str]:
    """Wait for a question, and return its buttons."""
    await browser.until(QUESTION)
    return [str(one) for one in await browser.run(BUTTONS)]


async def test_it_opens_under_a_name_of_its_own_and_shows_an_answer_while_it_is_written(desk: Desk) -> None:
    gate = asyncio.Event()

    def halved(frames: list[Frame]) -> list[Frame]:
        return [*frames[: len(frames) // 2], gate, *frames[len(frames) // 2 :]]

    words = "A first part that is shown early, and a second one that comes later. " * 2
    desk.world.model.chunk = 4
    await desk.start(streaming={"afterMs": 0})
    browser = await desk.opened(desk.page)
    assert LANDED.fullmatch(await browser.address())
    assert urlsplit(await browser.address()).port == urlsplit(desk.page).port
    await desk.picture(browser, "empty")
    desk.world.model.then(reply(tool_use("chat_send", {"text": words.strip()}), edit=halved), reply())
    await say(browser, "and?")
    await browser.until(f"{SHOWN}.some((one) => one.startsWith('A first part') && one.endsWith(' …'))")
    await desk.picture(browser, "streaming")
    gate.set()
    await heard(browser, words.strip())
    assert await browser.run(SHOWN) == ["and?", words.strip()]
    await browser.go(desk.page)
    await connected(browser)
    assert await browser.run(SHOWN) == ["and?", words.strip()]


async def test_a_link_that_was_opened_leads_to_the_chat_again_and_others_to_what_to_do(desk: Desk) -> None:
    await desk.start()
    first, second = await desk.opened(desk.link), await desk.browse()
    await first.go(desk.link)
    await connected(first)
    assert await first.run(OPERATOR)
    await second.go(desk.link)
    words = str(await second.until(OPENED))
    assert "shipmate link --dir FOLDER" in words
    await desk.picture(second, "opened-before")
    await second.press("a")
    await connected(second)
    assert not await second.run(OPERATOR)


async def test_the_link_makes_one_browser_an_operators_and_others_are_told(desk: Desk) -> None:
    desk.world.config["operators"] = ["telegram:2002"]
    desk.world.config["channels"]["telegram"]["enabled"] = True
    desk.world.config["permissions"] = {"ask": ["skills_list"]}
    desk.world.only("web", "telegram")
    await desk.world.start()
    page = desk.world.process.ready_line.split()[3]
    desk.world.telegram.say("/whoami", chat_id=2002)  # else the bot cannot write to that operator
    await desk.world.telegram.until(lambda: len(desk.world.texts(2002)) == 1)
    browser = await desk.opened(page)
    chat = await browser.front()
    desk.world.model.answer(tool_use("skills_list", {}))
    desk.world.model.answer("Here they are.")
    await say(browser, "which skills?")
    assert await asked(browser) == []
    assert "Only an operator can decide this." in await browser.run(QUESTION)
    await desk.picture(browser, "member")
    await browser.press("#board-button")
    waits = await browser.until("return document.querySelector('#loops .kind')?.innerText")
    assert re.fullmatch(r"Needs a decision · until (\w+ \d+, \d{4}, )?\d+:\d\d\s[AP]M", waits), waits
    assert await browser.run(COUNTED) == ["", 0]
    await browser.press("#board-close")
    # A command that is sent without the page's buttons is refused too.
    await browser.run(
        "return fetch('/api/messages', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
        "body: JSON.stringify({text: '/approve', clientId: 'byhand'})}).then((answer) => answer.status)"
    )
    await heard(browser, "Only an operator can decide this.")
    await browser.tab()
    await browser.go(desk.link)
    assert LANDED.fullmatch(await browser.address())
    await browser.until(QUESTION)
    assert await asked(browser) == ALL
    await browser.until(f"return (() => {{ {COUNTED} }})().join() === '1,1'")
    assert await browser.run("return [document.referrer, history.length]") == ["", 2]
    await browser.show(chat)
    await browser.until(f"{BUTTONS}.length === 4")
    await desk.picture(browser, "operator")
    other = await desk.browse()
    await other.go(desk.link)
    assert "{" not in await other.until(OPENED)
    await desk.picture(other, "told")


async def test_a_question_and_its_buttons_stay_and_one_tab_decides_for_all(desk: Desk) -> None:
    desk.world.config["permissions"] = {"ask": ["skills_list"]}
    await desk.start()
    browser = await desk.opened(desk.link)
    first = await browser.front()
    desk.world.model.answer(tool_use("skills_list", {}))
    desk.world.model.answer("Here they are.")
    await say(browser, "which skills?")
    assert await asked(browser) == ALL
    await desk.world.sent()
    await browser.reload()
    assert await asked(browser) == ALL
    await desk.world.process.kill()
    await browser.until("return document.getElementById('connection').dataset.state === 'lost'")
    await desk.picture(browser, "lost")
    desk.world.config["channels"]["web"]["port"] = urlsplit(desk.page).port
    await desk.world.start()
    await connected(browser)
    assert await asked(browser) == ALL
    await browser.tab()
    await browser.go(desk.page)
    assert await asked(browser) == ALL
    await desk.picture(browser, "asked")
    await browser.press(".choices button")
    for tab in (await browser.front(), first):
        await browser.show(tab)
        await heard(browser, "Here they are.")
        await browser.until(f"{SHOWN}.some((one) => /Allowed by the person who asked, /.test(one))")
        assert await browser.run(BUTTONS) == []
        assert "Allowed by" in (await browser.run(SHOWN))[1]  # the outcome stays at the place of the question
    await desk.picture(browser, "decided")


async def test_no_other_port_is_sent_its_cookie_and_no_other_site_takes_it_away(desk: Desk) -> None:
    seen: list[tuple[str, str]] = []

    async def look(request: web.Request) -> web.Response:
        seen.append((request.headers["Host"], request.headers.get("Cookie", "")))
        to = f'<a id="out" href="{html.escape(request.query.get("to", ""))}">out</a>'
        return web.Response(text=f"<!doctype html>{to}", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", look)
    async with TestServer(app) as elsewhere:
        port = elsewhere.port
        await desk.start()
        browser = await desk.opened(desk.link)
        for host in ("127.0.0.1", "localhost"):
            await browser.go(f"http://{host}:{port}/")
            assert await browser.run("return document.cookie") == ""
        assert [host for host, _ in seen] == [f"127.0.0.1:{port}", f"localhost:{port}"]
        await browser.go(desk.page)
        await connected(browser)
        assert await browser.run("return document.cookie") == ""
        desk.world.model.answer("Hello.")
        await say(browser, "hello")
        await heard(browser, "Hello.")
        new = await invited(desk)
        # A link on that page counts as a link on another site, so the browser first holds its cookie back.
        await browser.go(f"http://127.0.0.1:{port}/?to={quote(new)}")
        await browser.press("#out")
        await connected(browser)
        await browser.until(f"{SHOWN}.length === 2")
        assert await browser.run(OPERATOR)
        async with aiohttp.ClientSession() as session, session.get(new) as answer:
            assert answer.status == 410
        assert not any("shipmate" in cookie for _, cookie in seen)


async def test_a_table_a_question_and_an_answer_stand_below_one_another(desk: Desk) -> None:
    """An ordinary conversation with a table, a question and an answer."""
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.resize(880, 1150)
    desk.world.model.answer(
        "Three things are open for Friday:\n\n| | who | state |\n| --- | --- | --- |\n| release notes | you | draft |\n"
        "| migration test | ops | **green** since 14:10 |\n| 日本語 pages | team | in review |\n\n"
        "You said on Monday that the notes come first."
    )
    await say(browser, "What is still open for the release?")
    await browser.until("return document.querySelectorAll('#messages table td').length === 9")
    desk.world.model.answer(
        tool_use(
            "write_file",
            {"path": "docs/release.md", "content": "# 2.4\n\n- Jobs by time zone\n- Pages in 日本語\n"},
        )
    )
    desk.world.model.answer("Written. Shall I remind you on Thursday at 16:00?")
    await say(browser, "Draft the notes into docs/release.md")
    assert await asked(browser) == ALL
    assert "docs/release.md" in str(await browser.run(QUESTION))
    await desk.picture(browser, "asked")
    await browser.press(".choices button")
    await heard(browser, "Written. Shall I remind you on Thursday at 16:00?")
    assert (desk.world.root / "docs" / "release.md").read_text("utf-8").startswith("# 2.4")
