"""The model never sees deleted or forgotten messages again, also after a kill."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import ANN, PERSON, ROOM, World, eventually


def asked(world: World) -> str:
    return json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)


def removals(world: World) -> int:
    return sum(bool((line.get("meta") or {}).get("deleted")) for line in world.archive())


async def test_forget_as_a_reply_in_telegram(world: World) -> None:
    await world.start("telegram")
    note = {"command": "create", "path": "/memories/me/a.md", "file_text": "secret 鯨"}
    world.model.answer(tool_use("memory", note))
    world.model.answer("noted")
    sent = world.telegram.say("my secret is 鯨")
    await world.heard("noted")
    assert "鯨".encode() in b"".join(p.read_bytes() for p in (world.root / ".ship" / "memory").rglob("*.md"))
    await world.ask("/forget", 2, reply_to=sent["message"]["message_id"])
    assert world.texts()[1].startswith("Forgotten. ")
    assert not list((world.root / ".ship" / "memory").rglob("*.md"))
    for count, again in ((2, True), (3, False)):
        world.telegram.say("and now?")
        await world.turns(count)
        assert "my secret is" not in asked(world)
        assert "[message removed]" in asked(world)
        await world.process.kill()
        if again:
            await world.start()


@pytest.mark.parametrize("again", [False, True])
async def test_an_edited_question_s_answer_is_forgotten_also_where_it_was_given_again(
    world: World, *, again: bool
) -> None:
    await world.start("telegram")
    world.model.answer("it is 鯨")
    number = world.telegram.say("what is my secret?")["message"]["message_id"]
    await world.heard("it is 鯨")
    await world.turns(1)
    await world.sent()
    world.telegram.edit(number, "what was my secret?")
    shown = world.telegram.chats[PERSON].messages
    await world.telegram.until(lambda: any("reply_markup" in one for one in shown.values()))
    (answer,) = [one for one in shown.values() if "reply_markup" in one]
    if again:
        world.model.answer("it was 鯨")
        ((button,),) = answer["reply_markup"]["inline_keyboard"]
        world.telegram.press(answer["message_id"], button["callback_data"], chat_id=PERSON)
        await world.telegram.until(lambda: world.texts() == ["it was 鯨"])
        await world.turns(2)
        await world.sent()
    await world.ask("/forget", 2, reply_to=answer["message_id"])
    assert world.texts()[1].startswith("Forgotten. ")
    world.telegram.say("and now?")
    await world.turns(2 + again)
    assert "鯨" not in asked(world)


async def test_a_note_that_a_conversation_began_with_is_forgotten_there_too(world: World) -> None:
    await world.start("telegram")
    note = {"command": "create", "path": "/memories/me/a.md", "file_text": "their secret is 鯨"}
    world.model.answer(tool_use("memory", note))
    world.model.answer("noted")
    sent = world.telegram.say("my secret is 鯨")
    await world.turns(1)
    await world.ask("/new", 2)
    world.telegram.say("hello")
    await world.turns(2)
    assert "鯨" in asked(world)
    world.telegram.say("/forget", reply_to=sent["message"]["message_id"])
    await world.telegram.until(lambda: any(text.startswith("Forgotten. ") for text in world.texts()))
    world.telegram.say("and now?")
    await world.turns(3)
    assert "鯨" not in asked(world)
    assert "[message removed]" in asked(world)


async def deleted(world: World, root: str) -> None:
    """After the first message of a thread is deleted, the next request to the model does not contain it."""
    await world.slack.delete(ROOM, root)
    await eventually(lambda: removals(world) == 1)
    await world.slack.say("and now?", channel=ROOM, user=ANN, thread_ts=root)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) >= 2)
    assert "my secret is" not in asked(world)
    assert "[message removed]" in asked(world)


async def test_a_deletion_in_slack(world: World) -> None:
    await world.start("slack")
    world.model.answer("noted")
    root = await world.slack.say("<@U0SHIP> my secret is 鯨", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    await deleted(world, root)


async def test_a_message_that_was_only_read_along_is_deleted_in_slack(world: World) -> None:
    await world.start("slack")
    root = await world.slack.say("my secret is 鯨", channel=ROOM, user=ANN)
    world.model.answer("well")
    await world.slack.say("<@U0SHIP> what do you say?", channel=ROOM, user=ANN, thread_ts=root)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    assert "my secret is" in asked(world)
    await deleted(world, root)


async def test_a_note_that_a_later_turn_made_of_it_goes_too(world: World) -> None:
    await world.start("telegram")
    world.model.answer("I see")
    sent = world.telegram.say("I love the colour 青緑")
    await world.heard("I see")
    notes = "- Birthday: 4 May\n- Favourite colour: 青緑"
    world.model.answer(
        tool_use("memory", {"command": "create", "path": "/memories/me/a.md", "file_text": notes})
    )
    world.model.answer("noted")
    world.telegram.say("my birthday is 4 May; keep that, and my favourite colour")
    await world.heard("I see", "noted")
    await world.ask("/forget", 3, reply_to=sent["message"]["message_id"])
    (file,) = (world.root / ".ship" / "memory" / "people").rglob("*.md")
    assert file.read_text("utf-8") == "- Birthday: 4 May"


async def test_a_job_goes_with_the_message_that_made_it(world: World) -> None:
    plan = {"prompt": "tell me my secret 鯨鯨", "when": "30 8 * * 1-5", "timezone": "UTC"}
    world.model.answer(tool_use("schedule_create", plan))
    world.model.answer("scheduled")
    await world.start("telegram")
    sent = world.telegram.say("each morning tell me my secret 鯨鯨")
    await world.turns(1)
    await world.sent()
    world.telegram.say("/jobs")
    await world.telegram.until(lambda: "鯨鯨" in world.texts()[-1])
    world.telegram.say("/forget", reply_to=sent["message"]["message_id"])
    await world.telegram.until(lambda: world.texts()[-1].startswith("Forgotten. "))
    await world.ask("/jobs", 4)
    assert "鯨鯨" not in world.texts()[-1]
    with contextlib.closing(sqlite3.connect(world.root / ".ship" / "shipmate.db", timeout=5)) as file:
        facts = file.execute("SELECT count(*) FROM facts WHERE instr(value, '鯨鯨')").fetchone()
        kinds = file.execute("SELECT kind, data FROM events WHERE instr(data, '鯨鯨')").fetchall()
    assert facts == (0,)
    # The tool call stays in the log, but its arguments are blanked.
    assert {kind for kind, _ in kinds} <= {"answered", "queued", "row_ended"}, kinds


async def test_a_message_that_is_deleted_before_it_comes_leaves_no_words(world: World) -> None:
    await world.start("slack")
    ts = await world.slack.say("my secret is 鯨鯨", channel="D0ANN", user=ANN, told=())
    place = {"type": "message", "channel": "D0ANN", "channel_type": "im"}
    post = {**place, "user": ANN, "text": "my secret is 鯨鯨", "ts": ts}
    deletion = {
        "subtype": "message_deleted",
        "deleted_ts": ts,
        "previous_message": post,
        "event_ts": f"{ts}1",
    }
    await world.slack.push({**place, **deletion, "ts": f"{ts}1"})
    await eventually(lambda: world.recorded('"kind":"delete"'))
    await world.slack.tell("D0ANN", ts)
    await eventually(lambda: sum(one["kind"] == "inbound" for one in world.log()) == 2)
    world.model.answer("hello")
    await world.slack.say("hi", channel="D0ANN", user=ANN)
    await world.turns(1)
    assert not world.recorded("鯨鯨")
    assert len(world.model.bodies) == 1
