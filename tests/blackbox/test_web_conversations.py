"""Several conversations of one web user: separate, listed, searched, renamed and erased."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from bot.testing.anthropic_script import Answer, reply, tool_use
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_personal_data import command, holds
from tests.blackbox.test_retention import passed
from tests.blackbox.test_schedules import in_an_hour, jump
from tests.blackbox.test_web_approvals import link
from tests.contracts.web_rig import Stream

SECRET = "tulips 郁金香"

CLIENT_IDS = itertools.count()


class Person:
    """A browser with cookies of its own."""

    def __init__(self, world: World, http: aiohttp.ClientSession, kept: AsyncExitStack) -> None:
        self._world, self._http, self._kept = world, http, kept

    @property
    def page(self) -> str:
        return self._world.process.ready_line.split()[2]

    async def open(self, conversation: str = "first") -> Stream:
        path = f"{self.page}/api/events?conversation={conversation}"
        stream = Stream(await self._kept.enter_async_context(self._http.get(path)))
        name, _ = await stream.next()
        assert name == "history"
        return stream

    async def say(self, words: str, conversation: str = "first", answer: str = "") -> None:
        """Send a message, and wait for the answer if one is given."""
        stream = await self.open(conversation)
        body = {"text": words, "clientId": f"m{next(CLIENT_IDS)}", "conversation": conversation}
        async with self._http.post(f"{self.page}/api/messages", json=body) as answered:
            assert answered.status == 202
        if answer:
            await until(
                stream, lambda data: data.get("role") == "assistant" and answer in data.get("text", "")
            )

    async def operate(self) -> None:
        async with self._http.get(link(self._world)) as answer:
            assert answer.status == 200

    async def shown(self, conversation: str) -> list[Any]:
        path = f"{self.page}/api/events?conversation={conversation}"
        async with self._http.get(path) as opened:
            _, history = await Stream(opened).next()
        return list(history["messages"])

    async def listed(self, **asked: str) -> list[Any]:
        async with self._http.get(f"{self.page}/api/conversations", params=asked) as answer:
            assert answer.status == 200
            return list((await answer.json())["conversations"])

    async def titles(self, **asked: str) -> list[str]:
        return [one["title"] for one in await self.listed(**asked)]

    async def rename(self, conversation: str, title: str) -> int:
        path = f"{self.page}/api/conversations/{conversation}"
        async with self._http.post(path, json={"title": title}) as answer:
            return answer.status


async def until(stream: Stream, told: Callable[[Any], bool]) -> None:
    """Wait for an event of a page."""
    seen = list[Any]()
    try:
        async with asyncio.timeout(90):
            while not seen or not isinstance(seen[-1], dict) or not told(seen[-1]):
                seen.append((await stream.next())[1])
    except TimeoutError:
        raise AssertionError(seen) from None


@asynccontextmanager
async def person(world: World) -> AsyncIterator[Person]:
    async with (
        AsyncExitStack() as kept,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        one = Person(world, http, kept)
        await (await http.get(f"{one.page}/api/info")).read()
        yield one


async def test_conversations_are_apart_listed_searched_and_renamed_over_a_kill(world: World) -> None:
    world.model.script(lambda body: "Zürich, in spring." if "garden" in str(body["messages"][-1]) else "well")
    await world.start("web")
    async with person(world) as one, person(world) as other:
        assert await one.listed() == []
        await one.say("Where is the best garden?", answer="Zürich")
        first = await one.open()
        await one.say("/model", "b-2", answer="claude")
        await one.say("预算表怎么做\n请说明", "b-2", answer="well")
        assert "garden" not in str(world.model.bodies[-1]["messages"]), "nothing of the other conversation"
        assert await one.titles() == ["预算表怎么做 请说明", "Where is the best garden?"]
        # An open page of another conversation learns of the answer.
        await until(first, lambda data: (data.get("id"), data.get("role")) == ("b-2", "assistant"))
        for asked, found in (
            ("预算", ["预算表怎么做 请说明"]),
            ("BEST where", ["Where is the best garden?"]),
            ("zürich SPRING", ["Where is the best garden?"]),
            ("best 预算", []),
            ("user", []),
            ("%", []),
        ):
            assert await one.titles(q=asked) == found, asked
        assert [one["id"] for one in await one.listed(before="b-2")] == ["first"]
        assert await one.rename("b-2", " Budget\n2027 ") == 200
        await until(first, lambda data: data.get("title") == "Budget 2027")
        assert [await one.rename(name, "x") for name in ("never-said", "a:b")] == [404, 400]
        assert await other.listed() == []
        assert await other.rename("b-2", "mine") == 404
        await world.process.kill()
        await world.start()
        assert await one.titles(q="2027") == ["Budget 2027"]
        assert await one.titles(q="预算表") == ["Budget 2027"], "what was said is still found"
        assert await one.rename("b-2", "") == 200
        assert await one.titles() == ["预算表怎么做 请说明", "Where is the best garden?"]
        # The first conversation is not the newest. `/new` in it affects only this conversation.
        await one.say("/new", answer="New conversation")
        await one.say("go on", "b-2", answer="well")
        assert "预算" in str(world.model.bodies[-1]["messages"])


def working(body: Any) -> Answer | str:
    """Return the model's answer: it loads skills, plans a job or searches the history, as the message says."""
    last = body["messages"][-1]["content"]
    if any(block["type"] == "tool_result" for block in last):
        return f"Found: {json.dumps(last, ensure_ascii=False)}" if SECRET in str(body) else "It is done."
    for words, name, given in (
        ("skills", "skills_list", {}),
        ("remind", "schedule_create", {"prompt": "Water them.", "when": in_an_hour()}),
        ("history", "chat_load_history", {"keyword": "郁金香"}),
    ):
        if words in last[-1]["text"]:
            return reply(tool_use(name, given))
    return "Watered." if "Water them." in last[-1]["text"] else "well"


async def test_stops_jobs_history_and_erasure_know_the_conversations_of_a_person(world: World) -> None:
    world.config["permissions"] = {"ask": ["skills_list"]}
    world.model.script(working)
    clock = world.root / "clock"
    world.process.faked("--clock", str(clock))
    await world.start("web")
    await eventually(clock.exists)
    async with person(world) as one, person(world) as other:
        await one.say(f"I like {SECRET}", answer="well")
        await one.say("my history?", "b", answer="Found: ")
        await other.say("my history?", "b", answer="It is done.")
        assert SECRET not in str(world.model.bodies[-1]), "nobody else's history"
        await one.operate()
        await one.say("which skills?", "c", answer="skills")
        assert any(said.get("approval") for said in await one.shown("c"))
        await one.say("/stop", answer="othing")
        assert any(said.get("approval") for said in await one.shown("c")), (
            "stopped in its own conversation only"
        )
        await one.say("/stop", "c", answer="topped")
        assert not any(said.get("approval") for said in await one.shown("c"))
        await one.say("remind me", "d", answer="It is done.")
        planned = await one.open("d")
        await jump(world)
        await until(planned, lambda data: data.get("text") == "Watered.")
        assert await one.rename("d", f"About {SECRET}") == 200
        await world.sent()
        user = next(line["userId"] for line in world.archive() if SECRET in line["text"])
        assert holds(world.root, SECRET) != []
        assert await world.process.stop() == 0
        code, out = await command(world.root, "export", f"web:{user}")
        assert code == 0
        assert f"About {SECRET}" in out
        code, out = await command(world.root, "erase", "--yes", f"web:{user}")
        assert code == 0, out
        assert holds(world.root, SECRET) == []
        clock.unlink(missing_ok=True)
        await world.start()
        assert await one.listed() == []
        assert await other.titles() == ["my history?"]


async def test_a_name_goes_with_the_last_message_of_its_conversation(world: World) -> None:
    world.config["history"] = {"keepDays": {"*": 1}}
    world.process.faked("--clock", str(world.root / "clock"))
    world.model.script(lambda _: "well")
    await world.start("web")
    await eventually((world.root / "clock").exists)
    async with person(world) as one:
        await one.say("hello", "b", answer="well")
        assert await one.rename("b", SECRET) == 200
        await world.turns(1)
        await world.sent()
        await passed(world, 2)
        await eventually(lambda: not world.recorded(SECRET))
        assert await one.listed() == []
    assert await world.process.stop() == 0
    assert holds(world.root, SECRET) == []
