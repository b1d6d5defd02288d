"""Messages in quick succession are one question, also if the process is killed between them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import ANN, PERSON, ROOM, World, eventually

LINES = ("first line", "第二行", "and the third")


def said(body: Any) -> list[str]:
    """Return the last block of each message of a person."""
    return [one["content"][-1].get("text", "") for one in body["messages"] if one["role"] == "user"]


async def taken_in(world: World, count: int) -> None:
    await eventually(lambda: sum(one["kind"] == "inbound" for one in world.log()) == count)


class Side:
    """A person who writes in one conversation on one platform."""

    def __init__(self, world: World, channel: str) -> None:
        self.world, self.slack = world, channel == "slack"
        self.root: str | None = None
        self.last: Any = None
        """Telegram update of the last message."""
        world.only(channel)

    async def say(self, words: str) -> None:
        slack = self.world.slack
        if not self.slack:
            self.last = self.world.telegram.say(words)
        elif self.root is None:
            self.root = await slack.say(f"<@U0SHIP> {words}", channel=ROOM, user=ANN)
        else:
            await slack.say(words, channel=ROOM, user=ANN, thread_ts=self.root)

    def heard(self) -> list[str]:
        if self.slack:
            return [one.text for one in self.world.slack.replies(ROOM, self.root)]
        return self.world.texts()

    def seen(self) -> list[str]:
        """Return the messages with the reaction that marks a message as seen."""
        if self.slack:
            posts = self.world.slack.world.rooms[ROOM].posts.values()
            return [one.text for one in posts if [each["name"] for each in one.reactions] == ["eyes"]]
        chat = self.world.telegram.chats[PERSON]
        return [
            chat.messages[number]["text"]
            for (number, _), signs in sorted(chat.reactions.items())
            if signs == ("👀",)
        ]

    async def until(self, count: int) -> list[str]:
        server = self.world.slack if self.slack else self.world.telegram
        await server.until(lambda: len(self.heard()) >= count)
        return self.heard()


@pytest.fixture(params=["telegram", "slack"])
def side(world: World, request: pytest.FixtureRequest) -> Side:
    return Side(world, request.param)


class Held:
    """A model that answers with the question when the test allows it."""

    def __init__(self, world: World) -> None:
        self.gate = asyncio.Event()
        world.model.script(self.answer)

    async def answer(self, body: Any) -> str:
        await self.gate.wait()
        return f"answer to {len(said(body))} lines"


async def test_three_lines_in_a_row_get_one_answer(world: World, side: Side) -> None:
    held = Held(world)
    await world.start()
    for count, words in enumerate(LINES, 1):
        await side.say(words)
        await world.model.until(lambda count=count: len(world.model.bodies) == count)  # type: ignore[misc]
    assert said(world.model.bodies[-1]) == list(LINES)
    await eventually(lambda: side.seen() == list(LINES[1:]))
    held.gate.set()
    assert await side.until(1) == ["answer to 3 lines"]
    await world.turns(1)
    await side.say("and later")
    assert (await side.until(2))[1:] == ["answer to 4 lines"]
    await eventually(lambda: sum(line["role"] == "assistant" for line in world.archive()) == 2)


async def test_a_fourth_line_waits_for_the_next_step_and_none_is_lost(world: World, side: Side) -> None:
    held = Held(world)
    await world.start()
    for count, words in enumerate(LINES, 1):
        await side.say(words)
        await world.model.until(lambda count=count: len(world.model.bodies) == count)  # type: ignore[misc]
    await side.say("the fourth")
    await taken_in(world, 4)
    held.gate.set()
    assert await side.until(2) == ["answer to 3 lines", "answer to 4 lines"]


async def test_killed_between_the_lines_it_answers_all_of_them_once(world: World, side: Side) -> None:
    held = Held(world)
    await world.start()
    await side.say(LINES[0])
    await world.model.until(lambda: len(world.model.bodies) == 1)
    await side.say(LINES[1])
    await world.model.until(lambda: len(world.model.bodies) == 2)
    # Telegram sends the message again, because it was not confirmed.
    await eventually(lambda: world.recorded("第二行"))
    await world.process.kill()
    await world.start()
    held.gate.set()
    assert await side.until(1) == ["answer to 2 lines"]
    await world.turns(1)
    assert "第二行" in json.dumps(world.model.bodies[-1], ensure_ascii=False)
    await world.process.stop()
    assert side.heard() == ["answer to 2 lines"]


async def test_after_a_tool_with_effects_the_call_that_runs_is_left_alone(world: World, side: Side) -> None:
    world.config["permissions"] = {"allow": ["write_file"]}
    gate = asyncio.Event()

    async def works(body: Any) -> Any:
        if len(world.model.bodies) == 1:
            return reply(tool_use("write_file", {"path": "a.txt", "content": "a"}))
        await gate.wait()
        words = f"answer to {sum(bool(one) for one in said(body))} lines"
        return reply(tool_use("chat_send", {"text": words})) if side.slack else words

    world.model.script(works)
    await world.start()
    await side.say(LINES[0])
    await world.model.until(lambda: len(world.model.bodies) == 2)
    await side.say(LINES[1])
    await taken_in(world, 2)
    gate.set()
    assert len(await side.until(2)) == 2
    assert len(world.model.bodies) == 3, "the call for the first line was not given up"


async def test_an_edit_while_nothing_is_seen_leaves_one_answer(world: World) -> None:
    held = Held(world)
    await world.start("slack")
    root = await world.slack.say("tell me of Bonn", channel="D0ANN", user=ANN)
    await world.model.until(lambda: len(world.model.bodies) == 1)
    await world.slack.edit("D0ANN", root, "tell me of Berlin")
    await world.model.until(lambda: len(world.model.bodies) == 2)
    held.gate.set()
    await world.slack.until(lambda: bool(world.slack.replies("D0ANN", root)))
    await world.turns(1)
    assert said(world.model.bodies[-1])[-1] == "tell me of Berlin"
    assert len(world.slack.replies("D0ANN", root)) == 1


async def test_an_edit_after_the_answer_is_known_to_the_model_from_the_next_message_on(
    world: World, side: Side
) -> None:
    world.model.script(lambda body: f"answer {len(said(body))}")
    await world.start()
    await side.say("the meeting is on Monday")
    await side.until(1)
    await world.turns(1)
    if side.slack:
        assert side.root is not None
        await world.slack.edit(ROOM, side.root, "<@U0SHIP> the meeting is on 火曜日")
    else:
        world.telegram.edit(side.last["message"]["message_id"], "the meeting is on 火曜日")
    await taken_in(world, 2)
    await side.say("when is it?")
    assert len(await side.until(2)) == 2, "the edit has no answer of its own"
    asked = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    assert "on 火曜日" in asked
    assert "as its author has edited it since" in asked
    await world.turns(2)
    await side.say("thanks")
    await side.until(3)
    assert json.dumps(world.model.bodies[-1], ensure_ascii=False).count("on 火曜日") == 1
