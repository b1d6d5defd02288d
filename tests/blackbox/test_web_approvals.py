"""Questions in the web chat: buttons for people who may decide, reloads, restarts, and several tabs."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any, Self

import aiohttp
import pytest

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import World
from tests.contracts.web_rig import Stream

ALL = ["once", "chat", "always", "deny"]


class Tabs(AsyncExitStack):
    """The open pages of one browser."""

    def __init__(self) -> None:
        super().__init__()
        self.browser = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Self:
        await self.enter_async_context(self.browser)
        return await super().__aenter__()

    async def open(self, page: str) -> Stream:
        return Stream(await self.enter_async_context(self.browser.get(f"{page}/api/events")))


async def until_question(stream: Stream) -> dict[str, Any]:
    """Return the question as a page gets it, from the history or as an event."""
    while True:
        name, data = await stream.next()
        for message in data["messages"] if name == "history" else [data]:
            if message.get("approval"):
                return dict(message)


async def until_ended(stream: Stream, message_id: str) -> str:
    while True:
        name, data = await stream.next()
        if name == "message" and data["id"] == message_id and not data["approval"]:
            return str(data["text"])


async def press(session: aiohttp.ClientSession, page: str, choice: str, of: str) -> None:
    body = {"clientId": f"{choice}-{of}", "choice": choice, "of": of}
    async with session.post(f"{page}/api/presses", json=body) as answer:
        assert answer.status == 202


async def say(session: aiohttp.ClientSession, page: str, words: str, key: str) -> None:
    async with session.post(f"{page}/api/messages", json={"text": words, "clientId": key}) as answer:
        assert answer.status == 202


def link(world: World) -> str:
    return str(re.findall(r"http://\S+/open/\S+", "\n".join(world.process.lines))[0])


@pytest.mark.parametrize("killed", [False, True], ids=["reloaded", "killed"])
async def test_an_operator_decides_in_any_tab_over_a_reload_or_a_kill_and_all_see_it(
    world: World, killed: bool
) -> None:
    world.config["permissions"] = {"ask": ["skills_list"]}
    await world.start("web")
    page = world.process.ready_line.split()[2]
    async with Tabs() as tabs:
        session = tabs.browser
        async with session.get(link(world)) as answer:
            assert answer.status == 200
        world.model.answer(tool_use("skills_list", {}))
        world.model.answer("Here they are.")
        first = await tabs.open(page)
        await say(session, page, "which skills?", "m1")
        asked = await until_question(first)
        assert asked["choices"] == ALL
        await world.sent()
        if killed:
            await world.process.kill()
            await world.start()
            page = world.process.ready_line.split()[2]
            first = await tabs.open(page)
            assert (await until_question(first))["id"] == asked["id"]
        second = await tabs.open(page)
        again = await until_question(second)
        assert (again["id"], again["choices"], again["text"]) == (asked["id"], ALL, asked["text"])
        await press(session, page, "once", again["approval"])
        said = ""
        for tab in (first, second):
            said = await until_ended(tab, asked["id"])
            assert re.search(r"\n✅ Allowed by the person who asked, \d\d:\d\d UTC\.$", said)
        await world.turns(1)
        for _ in range(2):
            # The outcome replaces the question, and the press adds no message.
            _, history = await (await tabs.open(page)).next()
            shown = [one["text"] for one in history["messages"]]
            assert shown == ["which skills?", said, "Here they are."]
            assert [one["choices"] for one in history["messages"] if "approval" in one] == [[]]
            await world.sent()
            await world.process.kill()
            await world.start()
            page = world.process.ready_line.split()[2]


async def test_who_may_not_decide_sees_no_buttons_until_the_link_is_opened(world: World) -> None:
    world.config["operators"] = ["telegram:2002"]
    world.config["permissions"] = {"ask": ["skills_list"]}
    await world.start("web", "telegram")
    page = world.process.ready_line.split()[3]
    await world.ask("/whoami", 1, chat_id=2002)
    async with Tabs() as tabs:
        session = tabs.browser
        world.model.answer(tool_use("skills_list", {}))
        world.model.answer("Here they are.")
        tab = await tabs.open(page)
        await say(session, page, "which skills?", "m1")
        asked = await until_question(tab)
        assert asked["choices"] == []
        assert "skills_list" not in asked["text"]
        # The operator's direct chat gets the buttons and the outcome too.
        await world.telegram.until(lambda: len(world.texts(2002)) == 2)
        async with session.get(link(world)) as answer:
            assert answer.status == 200
        name, _ = await tab.next()
        while name != "reload":
            name, _ = await tab.next()
        fresh = await tabs.open(page)
        now = await until_question(fresh)
        assert now["choices"] == ALL
        assert "skills_list" in now["text"]
        await press(session, page, "deny", asked["approval"])
        assert "⛔ Denied by the person who asked" in await until_ended(fresh, asked["id"])
        await world.telegram.until(lambda: "⛔ Denied by the person who asked" in world.texts(2002)[1])
        shown = world.telegram.chats[2002].messages
        assert not any("reply_markup" in one for one in shown.values()), json.dumps(list(shown.values()))[
            :500
        ]
        async with asyncio.timeout(90):
            await world.turns(1)


async def test_who_becomes_an_operator_sees_all_of_a_long_call_and_may_allow_it_for_longer(
    world: World,
) -> None:
    world.config["operators"] = ["telegram:2002"]
    await world.start("web", "telegram")
    page = world.process.ready_line.split()[3]
    await world.ask("/whoami", 1, chat_id=2002)
    content = "\n".join(f"line {number} of the plan" for number in range(200))
    async with Tabs() as tabs:
        session = tabs.browser
        world.model.answer(tool_use("write_file", {"path": "plan.md", "content": content}))
        world.model.answer("It is written.")
        tab = await tabs.open(page)
        await say(session, page, "write the plan", "m1")
        asked = await until_question(tab)
        assert "line 40 of the plan" not in asked["text"]
        async with session.get(link(world)) as answer:
            assert answer.status == 200
        fresh = await tabs.open(page)
        now = await until_question(fresh)
        assert content.replace("\n", "\n  ") in now["text"]
        assert now["choices"] == ALL
        await say(session, page, f"/approve {asked['approval']} chat", "m2")
        assert "✅ Allowed" in await until_ended(fresh, asked["id"])
        await world.turns(1)
    assert (world.root / "plan.md").read_text(encoding="utf-8") == content
