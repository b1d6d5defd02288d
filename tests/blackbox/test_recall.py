"""What is found of other chats, through the whole pipeline: by who is in them at that moment, and by nobody else."""

from __future__ import annotations

import json

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import ANN, BOB, ROOM, World

CLUB = "C0CLUB"
LOOKED = {"scope": "mine", "keyword": "鯨"}


def answer(body: Json) -> Reply:
    """Looks in all chats where it is told to."""
    last = json.dumps(body["messages"][-1])
    if "look everywhere" in last and "tool_result" not in last:
        return reply(tool_use("chat_load_history", LOOKED))
    return reply("Noted.")


async def said(world: World, words: str, *, channel: str, user: str) -> str:
    """Say something that opens a conversation and wait for the answer; what the model was sent last."""
    root = await world.slack.say(words, channel=channel, user=user)
    await world.slack.until(lambda: len(world.slack.replies(channel, root)) == 1)
    return json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)


async def test_other_chats_are_searched_for_who_is_in_them_now(world: World) -> None:
    world.only("slack")
    world.slack.add_channel(CLUB, members=[ANN, BOB])
    world.config["channels"]["slack"]["allow"] = [ANN, BOB]
    world.model.script(answer)
    await world.start()
    ann, bob = world.slack.add_im(ANN), world.slack.add_im(BOB)
    await said(world, "<@U0SHIP> the club's 鯨 is blue", channel=CLUB, user=ANN)
    await said(world, "my own 鯨 is red", channel=ann, user=ANN)
    await said(world, "Bob's own 鯨 is green", channel=bob, user=BOB)

    seen = await said(world, "look everywhere", channel=ann, user=ANN)
    assert ("blue" in seen, "red" in seen, "green" in seen) == (True, True, False)
    seen = await said(world, "<@U0SHIP> look everywhere", channel=ROOM, user=ANN)
    assert ("blue" in seen, "red" in seen, "green" in seen) == (True, False, False), "others read along"
    seen = await said(world, "look everywhere", channel=bob, user=BOB)
    assert ("blue" in seen, "red" in seen, "green" in seen) == (True, False, True)

    world.slack.world.rooms[CLUB].members.discard(BOB)
    seen = await said(world, "look everywhere once more", channel=bob, user=BOB)
    assert ("blue" in seen, "red" in seen) == (False, False), "who has left is shown nothing of it"
