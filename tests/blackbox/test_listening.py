"""Groups on Slack and Telegram: the messages that the bot reads, and its silence if nobody addresses it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, START_SECONDS, World, eventually

GROUP = -100500
ME = "<@U0SHIP>"


def said(body: dict[str, Any]) -> str:
    """Return the newest user text of a request."""
    return str([one for one in body["messages"] if one["role"] == "user"][-1]["content"][-1]["text"])


def answers(body: dict[str, Any]) -> str:
    """Return the model's answer: silence if the prompt allows silence and nobody asks about the ship."""
    last = [one for one in body["messages"] if one["role"] == "user"][-1]
    may = "read along" in json.dumps(last)
    return "[silent]" if may and "ship" not in said(body) else f"re: {said(body)}"


async def test_in_slack_a_thread_goes_on_without_a_mention_but_not_for_others(world: World) -> None:
    world.config["operators"] = [f"slack:{ANN}"]
    world.model.script(answers)
    await world.start("slack")
    root = await world.slack.say(f"{ME} who is the ship?", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    await world.slack.say("<@U0BOB> and you, ship?", channel=ROOM, user=BOB, thread_ts=root)
    await world.slack.say("nice weather", channel=ROOM, user=BOB, thread_ts=root)
    await world.turns(2)
    await world.slack.say("ship, where are you?", channel=ROOM, user=BOB, thread_ts=root)
    await world.slack.say("nobody asked the ship", channel=ROOM, user=BOB)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 2)
    assert [one.text.splitlines()[0] for one in world.slack.replies(ROOM, root)][1].startswith(
        "re: ship, where"
    )
    heard = [said(one) for one in world.model.bodies[1:]]
    assert heard == ["nice weather", "ship, where are you?"]
    archived = [line["text"] for line in world.archive() if line["role"] == "user"]
    assert "nice weather" in archived
    assert "nobody asked the ship" not in archived
    assert "[silent]" not in json.dumps([one.text for one in world.slack.visible(ROOM)])


async def listen(world: World, mode: str) -> None:
    delivery = await world.slack.command(f"listen {mode}", channel=ROOM, user=ANN)
    await asyncio.wait_for(delivery.acked.wait(), 90)
    await world.slack.until(lambda: bool(world.slack.ephemeral))
    await world.sent()


async def test_in_slack_it_listens_to_what_an_operator_chose_also_after_a_kill(world: World) -> None:
    world.config["operators"] = [f"slack:{ANN}"]
    world.model.script(answers)
    await world.start("slack")
    await listen(world, "always")
    await world.process.kill()
    await world.start()
    silent = await world.slack.say("lunch at one?", channel=ROOM, user=BOB)
    await world.model.until(lambda: len(world.model.bodies) == 1)
    asked = await world.slack.say("where is the ship?", channel=ROOM, user=BOB)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, asked)) == 1)
    await world.turns(2)
    assert world.slack.replies(ROOM, silent) == []
    assert not world.slack.status_of(ROOM, silent)
    assert world.slack.session_of(ROOM, silent) in {"", "active"}
    heard = {"lunch at one?", "where is the ship?"}
    await eventually(lambda: {line["text"] for line in world.archive() if line["role"] == "user"} == heard)


async def test_in_telegram_it_listens_to_what_an_operator_chose_also_after_a_kill(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(GROUP)]
    world.model.script(answers)
    await world.start("telegram")
    world.telegram.say("nobody asked the ship", chat_id=GROUP, user_id=7)
    world.telegram.say("/listen always", chat_id=GROUP, user_id=PERSON)
    await world.heard("I read everything said here, and answer where I can help.", chat_id=GROUP)
    await world.sent()
    await world.process.kill()
    await world.start()
    world.telegram.say("lunch at one?", chat_id=GROUP, user_id=7)
    await world.model.until(lambda: len(world.model.bodies) == 1)
    world.telegram.say("where is the ship?", chat_id=GROUP, user_id=7)
    await world.telegram.until(lambda: len(world.texts(GROUP)) == 2, START_SECONDS)
    assert world.texts(GROUP)[-1] == "re: where is the ship?"
    await world.turns(2)
    world.telegram.say("/listen mention", chat_id=GROUP, user_id=PERSON)
    await world.telegram.until(lambda: len(world.texts(GROUP)) == 3, START_SECONDS)
    number = next(
        number
        for number, one in world.telegram.chats[GROUP].messages.items()
        if one.get("text") == "re: where is the ship?"
    )
    world.telegram.say("and the ship's name?", chat_id=GROUP, user_id=7, reply_to=number)
    world.telegram.say("@shipmate_bot the ship's name?", chat_id=GROUP, user_id=7)
    await world.telegram.until(lambda: len(world.texts(GROUP)) == 4, START_SECONDS)
    assert [said(one) for one in world.model.bodies] == [
        "lunch at one?",
        "where is the ship?",
        "the ship's name?",
    ]


def context(world: World) -> str:
    """Return the newest message of the model's last request as JSON."""
    return json.dumps(world.model.bodies[-1]["messages"][-1]["content"], ensure_ascii=False)


async def test_in_slack_a_mention_brings_what_was_said_before_it_and_forgets_what_is_deleted(
    world: World,
) -> None:
    world.config["operators"] = [f"slack:{ANN}"]
    world.model.script(lambda body: "Noted.")
    await world.start("slack")
    secret = await world.slack.say("the code is 7731", channel=ROOM, user=BOB)
    await world.slack.say("鯨 ahoy", channel=ROOM, user=ANN)
    root = await world.slack.say(f"{ME} what did they say?", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    told = context(world)
    assert told.index("quoted_messages") < told.index("the code is 7731") < told.index("鯨 ahoy")
    assert "Bob" in told
    await world.turns(1)
    await world.slack.delete(ROOM, secret)
    await eventually(lambda: any(one["kind"] == "removal" for one in world.log()))
    await world.slack.say("and now?", channel=ROOM, user=ANN, thread_ts=root)
    await world.turns(2)
    assert "7731" not in json.dumps(world.model.bodies[-1]["messages"])
    world.slack.api.scopes.discard("channels:history")
    answers = []
    for number in (1, 2, 3):
        root = await world.slack.say(f"{ME} {number}?", channel=ROOM, user=ANN)
        await world.turns(2 + number)
        await world.sent()
        answers.append("".join(one.text for one in world.slack.replies(ROOM, root)))
        if number == 2:
            await world.slack.until(lambda: bool(world.slack.visible("D0ANN")), START_SECONDS)
            await world.sent()
            await world.process.kill()
            await world.start()
    assert ["I'm not allowed to read this chat" in one for one in answers] == [True, False, False]
    (said_once,) = [one.text for one in world.slack.visible("D0ANN")]
    assert said_once.startswith(
        "⚠️ On Slack I can't hear and read channels: the app lacks the scope channels:history"
    )


async def test_in_telegram_a_mention_brings_what_was_heard_before_it_and_the_archive_has_nothing_of_that(
    world: World,
) -> None:
    world.config["channels"]["telegram"]["allow"] = [str(GROUP)]
    world.model.script(lambda body: "Noted.")
    await world.start("telegram")
    number = world.telegram.say("the code is 7713", chat_id=GROUP, user_id=7, name="Grete")["message"][
        "message_id"
    ]
    world.telegram.edit(number, "the code is 7731", chat_id=GROUP)
    world.telegram.say("@shipmate_bot what did they say?", chat_id=GROUP, user_id=8)
    await world.heard("Noted.", chat_id=GROUP)
    assert "the code is 7731" in context(world)
    assert "7713" not in context(world)
    assert "Grete" in context(world)
    await world.turns(1)
    assert not any("7731" in json.dumps(line) for line in world.archive())
