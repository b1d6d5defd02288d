"""The board of open items in the real process: promises, jobs and questions, and who sees each of them."""

from __future__ import annotations

import asyncio
import re

import aiohttp

from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually
from tests.blackbox.test_retries import with_buttons
from tests.blackbox.test_schedules import in_an_hour, jump
from tests.blackbox.test_web_approvals import Tabs, link, say

BOB = 2002
DAY = 86_400.0


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


async def test_the_board_shows_what_waits_to_whom_it_concerns_until_it_is_closed(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(BOB)]
    world.config["permissions"] = {"ask": ["skills_list"]}
    world.process.faked("--clock", str(world.root / "clock"))
    await world.start("telegram")
    await tell(world, PERSON, "is it up?", reply("The server does not answer. I'll look again tomorrow."))
    quoted = "He wrote:\n\n> I'll look tomorrow.\n\n`I'll look later today.` \"I'll look on Monday.\""
    await tell(world, PERSON, "what did he say?", reply(quoted))
    planned = tool_use("schedule_create", {"prompt": "Look at the server", "when": in_an_hour()})
    before = tool_use("chat_send", {"text": "I'll see to it tomorrow."})
    await tell(world, BOB, "remind me", reply(before, planned), reply("I'll remind you tomorrow."))
    world.telegram.say("/language zh", chat_id=BOB)
    await tell(world, BOB, "现在怎么样？", reply("服务器没有响应，我明天看一下。"))
    world.telegram.say("let me in", chat_id=3003, name="Eve")
    await world.telegram.until(lambda: bool(world.texts(3003)))
    world.model.answer(tool_use("skills_list", {}))
    world.telegram.say("which skills?", chat_id=BOB)
    await eventually(lambda: any("skills_list" in text for text in world.texts(PERSON)))
    await eventually(lambda: any("30 分钟" in text for text in world.texts(BOB)))

    seen = await board(world, BOB)
    assert "等待决定" in seen
    assert "“服务器没有响应，我明天看一下。”" in seen
    assert "skills_list" not in seen  # only operators see this item
    assert "server does not answer" not in seen
    assert "申请使用" not in seen
    (job,) = re.findall(r"/jobs cancel (\w+)", seen)
    everything = await board(world, PERSON)
    assert "/allow telegram:3003" in everything
    assert "“I'll look again tomorrow.”" in everything
    assert "“服务器没有响应，我明天看一下。”" in everything
    assert f"/jobs cancel {job}" in everything
    assert everything.count("/waiting done") == 2
    (question,) = re.findall(r"/approve (\w+)", everything)
    world.model.answer("None.")
    world.telegram.say(f"/approve {question} once")
    await world.telegram.until(lambda: "None." in world.texts(BOB))
    world.telegram.say(f"/jobs cancel {job}")  # a job of another chat, cancelled in a direct chat
    await eventually(lambda: any(f"Job {job}" in text for text in world.texts(PERSON)))

    mine = re.findall(r"“I'll look again tomorrow.”.*/waiting done (\w+)", await board(world, PERSON))[0]
    assert "不再等待" in await board(world, BOB, f"done {mine}")  # an item of another person
    assert "“I'll look again tomorrow.”" in await board(world, PERSON, f"done {mine.lower()}")
    await world.sent()
    await world.process.kill()
    (world.root / "clock").unlink()
    await world.process.start()
    left = await board(world, PERSON)
    assert "我明天看一下" in left
    assert not any(word in left for word in ("look again", job, question, "approve"))
    await eventually((world.root / "clock").exists)
    await jump(world, 15 * DAY)
    assert await board(world, BOB) == "没有等你处理的事。"


async def test_the_page_gets_what_waits_for_its_person_and_nothing_of_others(world: World) -> None:
    await world.start("web", "telegram")
    page = link(world).partition("/open/")[0]
    await tell(world, PERSON, "is it up?", reply("No. I'll look again tomorrow."))
    async with Tabs() as mine, Tabs() as theirs:
        for tabs in (mine, theirs):
            async with tabs.browser.get(page, headers={"Accept": "text/html"}) as answer:
                assert answer.status == 200
        world.model.answer("我明天看一下。")
        await say(mine.browser, page, "看一下", "m1")
        await world.turns(2)
        async with mine.browser.get(f"{page}/api/waiting", headers={"Accept-Language": "zh"}) as answer:
            (loop,) = (await answer.json())["loops"]
        assert (loop["kind"], loop["label"], loop["what"]) == ("promise", "答应过的事", "我明天看一下。")
        assert (loop["conversation"], loop["who"]) == ("first", "")
        assert loop["acts"] == [{"act": "done", "label": "已完成"}]
        await press(theirs.browser, page, "done", loop["id"])
        async with theirs.browser.get(f"{page}/api/waiting") as answer:
            assert (await answer.json())["loops"] == []
        async with mine.browser.get(link(world)) as answer:  # the link makes this browser an operator's
            assert answer.status == 200
        async with mine.browser.get(f"{page}/api/waiting") as answer:
            loops = (await answer.json())["loops"]
        assert [(one["what"], one["conversation"]) for one in loops] == [
            ("I'll look again tomorrow.", None),
            ("我明天看一下。", "first"),
        ]
        await press(mine.browser, page, "done", loop["id"])
        await eventually_left(mine.browser, page, ["I'll look again tomorrow."])
        for choice, of in (("done", "a b"), ("done", ""), ("stats", loop["id"])):
            await press(mine.browser, page, choice, of, 400)


async def press(browser: aiohttp.ClientSession, page: str, choice: str, of: str, status: int = 202) -> None:
    body = {"clientId": "press", "choice": choice, "of": of}
    async with browser.post(f"{page}/api/presses", json=body) as answer:
        assert answer.status == status


async def eventually_left(browser: aiohttp.ClientSession, page: str, words: list[str]) -> None:
    """Wait until the web page's board shows exactly these items."""
    left: list[str] = []
    async with asyncio.timeout(START_SECONDS):
        while left != words:
            async with browser.get(f"{page}/api/waiting") as answer:
                left = [one["what"] for one in (await answer.json())["loops"]]


async def test_a_promise_goes_with_the_answer_that_another_one_replaces(world: World) -> None:
    await world.start("telegram")
    world.model.answer("It is down. I'll look again tomorrow.")
    number = world.telegram.say("is it up?")["message"]["message_id"]
    await world.heard("It is down. I'll look again tomorrow.")
    await world.turns(1)
    await world.sent()
    world.telegram.edit(number, "is it down?")
    await world.telegram.until(lambda: bool(with_buttons(world)))
    (answer,) = with_buttons(world)
    ((button,),) = answer["reply_markup"]["inline_keyboard"]
    world.model.answer("Yes.")
    world.telegram.press(answer["message_id"], button["callback_data"], chat_id=PERSON)
    await world.telegram.until(lambda: world.texts() == ["Yes."])
    await world.turns(2)
    assert "look again" not in await board(world, PERSON)
