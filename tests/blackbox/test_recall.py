"""Recall of other chats: only current members of a chat find its messages."""

from __future__ import annotations

import json

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, World
from tests.blackbox.test_restart import blocks, killed_in_call

CLUB = "C0CLUB"
LOOKED = {"scope": "mine", "keyword": "鯨"}


def answer(body: Json) -> Reply:
    """Return the model's answer: a search of the person's chats if the message says so."""
    last = json.dumps(body["messages"][-1])
    if "look everywhere" in last and "tool_result" not in last:
        return reply(tool_use("chat_load_history", LOOKED))
    return reply("Noted.")


async def said(world: World, words: str, *, channel: str, user: str) -> str:
    """Send the first message of a conversation, wait for the answer, and return the model's last request."""
    root = await world.slack.say(words, channel=channel, user=user)
    await world.slack.until(lambda: len(world.slack.replies(channel, root)) == 1)
    return json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)


async def test_other_chats_are_searched_for_who_is_in_them_now(world: World) -> None:
    world.slack.add_channel(CLUB, members=[ANN, BOB])
    world.config["channels"]["slack"]["allow"] = [ANN, BOB]
    world.model.script(answer)
    await world.start("slack")
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


async def test_older_messages_stand_before_the_newest_and_go_with_its_turn(world: World) -> None:
    key = f"telegram:chat:{PERSON}"
    line = {
        "v": 1,
        "channel": "telegram",
        "chatId": str(PERSON),
        "chatKey": key,
        "userId": str(PERSON),
        "role": "user",
    }
    folder = world.root / ".ship" / "chats"
    folder.mkdir(parents=True)
    rows = [line | {"ts": 1_700_000_000_000 + n, "text": f"heron {n:03} 鷺"} for n in range(300)]
    (folder / f"{key.replace(':', '%3A')}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    await world.start("telegram")
    world.model.then(reply("Hello."))
    world.telegram.say("hello")
    await world.heard("Hello.")
    for limit in (70, 200, 200):
        world.model.answer(tool_use("chat_load_history", {"limit": limit, "keyword": "heron"}))
    world.telegram.say("which herons?")
    await killed_in_call(world, 5, lambda: world.results_on_disk() >= 3)
    asked = blocks(world.model.bodies[-1])
    said = [block.get("text", "") for message in asked for block in message["content"]]
    before = said[said.index("Hello.") : said.index("which herons?")]
    loaded = [int(one.split()[1]) for one in before if one.startswith("heron")]
    assert loaded == [*range(loaded[0], loaded[0] + 120)], "in order, each once"
    results = [block for message in asked for block in message["content"] if block["type"] == "tool_result"]
    assert [bool(one.get("is_error")) for one in results] == [False, False, True]
    world.model.answer("All of them.")
    await world.start()
    await world.heard("Hello.", "All of them.")
    assert blocks(world.model.bodies[-1]) == asked, "a new process shows them as the one before"
    await world.ask("thanks", 3)
    assert "heron 180" not in json.dumps(world.model.bodies[-1])
