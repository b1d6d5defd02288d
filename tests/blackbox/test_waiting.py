"""The board of open items in the real process: people, jobs and questions, and who sees each."""

from __future__ import annotations

import asyncio
import re

import aiohttp

from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually
from tests.blackbox.test_schedules import in_an_hour
from tests.blackbox.test_web_approvals import Tabs, link, say

BOB = 2002


async def board(world: World, person: int, args: str = "") -> str:
    """Send the command, and return its answer."""
    before = len(world.texts(person))
    world.telegram.say(f"/waiting {args}".strip(), chat_id=person)
    await world.telegram.until(lambda: len(world.texts(person)) > before)
    return world.texts(person)[before]


async def tell(world: World, person: int, words: str, *answers: Reply) -> None:
    """Send a message to which the model gives the next answer, and return the bot's text."""
    before = len(world.texts(person))
    world.model.then(*answers)
    world.telegram.say(words, chat_id=person)
    await world.telegram.until(lambda: len(world.texts(person)) > before)


async def test_the_board_shows_what_waits_to_whom_it_concerns_until_it_is_decided(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(BOB)]
    world.config["permissions"] = {"ask": ["skills_list"]}
    await world.start("telegram")
    await tell(world, PERSON, "hello", reply("Hello."))
    planned = tool_use("schedule_create", {"prompt": "Look at the server", "when": in_an_hour()})
    await tell(world, BOB, "remind me", reply(planned), reply("I'll remind you."))
    world.telegram.say("/language zh", chat_id=BOB)
    world.telegram.say("let me in", chat_id=3003, name="Eve")
    await world.telegram.until(lambda: bool(world.texts(3003)))
    world.model.answer(tool_use("skills_list", {}))
    world.telegram.say("which skills?", chat_id=BOB)
    await eventually(lambda: any("skills_list" in text for text in world.texts(PERSON)))
    await eventually(lambda: any("30 分钟" in text for text in world.texts(BOB)))

    seen = await board(world, BOB)
    assert "等待决定" in seen
    assert "skills_list" not in seen  # only operators see this item
    assert "申请使用" not in seen
    (job,) = re.findall(r"/jobs cancel (\w+)", seen)
    everything = await board(world, PERSON)
    assert "/allow telegram:3003" in everything
    assert f"/jobs cancel {job}" in everything
    (question,) = re.findall(r"/approve (\w+)", everything)
    world.model.answer("None.")
    world.telegram.say(f"/approve {question} once")
    await world.telegram.until(lambda: "None." in world.texts(BOB))
    world.telegram.say(f"/jobs cancel {job}")  # a job of another chat, cancelled in a direct chat
    await eventually(lambda: any(f"Job {job}" in text for text in world.texts(PERSON)))

    await world.sent()
    await world.process.kill()
    await world.process.start()
    left = await board(world, PERSON)
    assert "/allow telegram:3003" in left
    assert not any(word in left for word in (job, question, "approve"))
    assert await board(world, BOB) == "没有等你处理的事。"


async def test_the_page_gets_what_waits_for_its_person_and_nothing_of_others(world: World) -> None:
    await world.start("web", "telegram")
    page = link(world).partition("/open/")[0]
    planned = tool_use("schedule_create", {"prompt": "Look", "when": in_an_hour()})
    await tell(world, PERSON, "remind me", reply(planned), reply("I will."))
    async with Tabs() as mine, Tabs() as theirs:
        for tabs in (mine, theirs):
            async with tabs.browser.get(page, headers={"Accept": "text/html"}) as answer:
                assert answer.status == 200
        world.model.then(reply(planned), reply("好。"))
        await say(mine.browser, page, "提醒我", "m1")
        await world.turns(2)
        async with mine.browser.get(f"{page}/api/waiting", headers={"Accept-Language": "zh"}) as answer:
            (loop,) = (await answer.json())["loops"]
        assert (loop["kind"], loop["label"], loop["what"]) == ("job", "定时任务", "Look")
        assert (loop["conversation"], loop["who"]) == ("first", "")
        assert [one["act"] for one in loop["acts"]] == ["pause", "cancel"]
        await press(theirs.browser, page, "cancel", loop["id"])
        async with theirs.browser.get(f"{page}/api/waiting") as answer:
            assert (await answer.json())["loops"] == []
        async with mine.browser.get(link(world)) as answer:  # the link makes this browser an operator's
            assert answer.status == 200
        async with mine.browser.get(f"{page}/api/waiting") as answer:
            loops = (await answer.json())["loops"]
        assert {one["conversation"] for one in loops} == {None, "first"}
        await press(mine.browser, page, "cancel", loop["id"])
        await eventually_left(mine.browser, page, 1)
        for choice, of in (("cancel", "a b"), ("cancel", ""), ("stats", loop["id"])):
            await press(mine.browser, page, choice, of, 400)


async def press(browser: aiohttp.ClientSession, page: str, choice: str, of: str, status: int = 202) -> None:
    body = {"clientId": "press", "choice": choice, "of": of}
    async with browser.post(f"{page}/api/presses", json=body) as answer:
        assert answer.status == status


async def eventually_left(browser: aiohttp.ClientSession, page: str, count: int) -> None:
    """Wait until the web page's board shows this many items."""
    left = -1
    async with asyncio.timeout(START_SECONDS):
        while left != count:
            async with browser.get(f"{page}/api/waiting") as answer:
                left = len((await answer.json())["loops"])
