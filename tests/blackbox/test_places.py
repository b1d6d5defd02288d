"""A platform sends repeated and partial updates, reports threads late, and deletes chats."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bot.testing.telegram import refusal
from bot.words import say
from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, World, eventually

GROUP, TOPIC = -1009, 7
PASTE = [f"part {number} ".ljust(4_096, "x") for number in (1, 2, 3)] + ["part 4 of it"]
APART = 1.2
"""Seconds between two parts of a paste."""


def said(body: Any) -> list[str]:
    """Return the texts of each message of a person."""
    words = [one["content"] for one in body["messages"] if one["role"] == "user"]
    return [block["text"] for content in words for block in content if block.get("type") == "text"]


def slack_room(world: World, channel: str) -> str:
    """Create a Slack channel. Ann and Bob have access, Eve has not."""
    world.config["channels"]["slack"]["allow"] = [ANN, BOB]
    return world.slack.add_channel(channel, members=[ANN, BOB, "U0EVE"])


async def test_an_update_that_comes_twice_at_once_is_one_and_a_paste_in_parts_is_one_question(
    world: World,
) -> None:
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.model.script(lambda body: f"answer {sum('part' in one for one in said(body))}")
    world.telegram.repeat(world.telegram.say("part twice"))
    await world.start("telegram")
    await world.heard("answer 1")
    assert json.dumps(world.model.bodies).count("part twice") == 1
    loop = asyncio.get_running_loop()
    for words in PASTE:
        world.telegram.say(words, chat_id=2001)
        due = loop.time() + APART
        await eventually(lambda due=due: loop.time() >= due)  # type: ignore[misc]
    await world.heard("answer 4", chat_id=2001)
    # The last part of this long text is full too, and a turn runs. Shipmate waits for further parts, and the whole text joins
    # the turn.
    gate = asyncio.Event()

    async def held(body: Any) -> str:
        await gate.wait()
        return f"answer {sum('part' in one for one in said(body))}"

    world.model.script(held)
    asked = len(world.model.bodies)
    for words in ("begin with this", *PASTE[:3]):
        world.telegram.say(words, chat_id=2002)
        due = loop.time() + APART / 4
        await eventually(lambda due=due: loop.time() >= due)  # type: ignore[misc]
    await world.model.until(lambda: len(world.model.bodies) == asked + 2)
    gate.set()
    await world.heard("answer 3", chat_id=2002)


async def test_what_is_said_in_a_thread_before_its_mention_is_heard_of_is_answered(world: World) -> None:
    slack, other = world.slack, slack_room(world, "C0OTHER")
    await world.start("slack")
    begun = await slack.say("not for the bot", channel=ROOM, user=BOB)
    await slack.say("nor is this", channel=ROOM, user=BOB, thread_ts=begun)
    root = await slack.say("<@U0SHIP> open this", channel=other, user=ANN, told=())
    for who in ("Ann", "Bob", "Eve"):
        await slack.say(f"what {who} adds", channel=other, user=f"U0{who.upper()}", thread_ts=root)
    await slack.tell(other, root)
    await slack.until(lambda: any("Bob" in one.text for one in slack.replies(other, root)))
    await world.turns(2)
    asked = json.dumps([said(body) for body in world.model.bodies])
    assert "what Ann adds" in asked
    assert "what Eve adds" not in asked
    await slack.say("<@U0SHIP> look here", channel=ROOM, user=ANN, thread_ts=begun)
    await slack.until(lambda: bool(slack.replies(ROOM, begun)))
    await world.turns(3)
    assert [one.text for one in slack.replies(ROOM, begun)] == ["echo: look here"]


async def test_a_chat_that_refused_an_answer_hears_of_it_next_time_and_operators_at_once(
    world: World,
) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.telegram.chat(PERSON)
    await world.start("telegram")
    world.telegram.fail("sendMessage", **refusal(403, "Forbidden: chat not found"))
    world.telegram.say("first", chat_id=2001)
    await world.telegram.until(lambda: bool(world.texts()))
    assert "chat not found" in world.texts()[0]
    await world.turns(1)
    world.telegram.say("second", chat_id=2001)
    lost = say("delivery.missed", which="“echo: first”")
    await world.heard(f"{lost}\n\necho: second", chat_id=2001)
    await world.turns(2)
    world.telegram.say("third", chat_id=2001)
    await world.heard(f"{lost}\n\necho: second", "echo: third", chat_id=2001)
    assert len(world.texts()) == 1


async def test_an_answer_for_a_topic_that_is_gone_comes_in_its_chat(world: World) -> None:
    world.config["channels"]["telegram"]["allow"] = [str(GROUP), str(PERSON)]
    await world.start("telegram")
    chat = world.telegram.chat(GROUP)
    for count, why in enumerate(("", "TOPIC_DELETED", "TOPIC_CLOSED"), 1):
        world.telegram.topic(GROUP, TOPIC + count)
        if why:
            world.telegram.fail("sendMessage", **refusal(400, f"Bad Request: {why}"))
        world.telegram.say(f"@shipmate_bot hello {count}", chat_id=GROUP, thread_id=TOPIC + count)
        del chat.topics[TOPIC + count]
        await world.telegram.until(lambda count=count: len(world.texts(GROUP)) == count)  # type: ignore[misc]
    assert world.texts(GROUP) == ["echo: hello 1", "echo: hello 2", "echo: hello 3"]
    assert {one.thread_id for one in world.telegram.visible(GROUP)} == {None}
