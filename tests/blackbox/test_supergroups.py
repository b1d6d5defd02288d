"""A group becomes a supergroup and gets another id. The conversation continues."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import PERSON, World, eventually
from tests.blackbox.test_schedules import ANSWER, an_hour_later, in_an_hour, planning

OLD, NEW = -500, -1_000_500
OTHER = 3003


async def begun(world: World, *, admitted: int = OLD) -> None:
    """Start a conversation in a group whose members have access."""
    world.config["channels"]["telegram"]["allow"] = [str(admitted)]
    world.model.script(lambda body: f"answer {sum(one['role'] == 'user' for one in body['messages'])}")
    await world.start("telegram")
    world.telegram.chat(OLD, "group")
    world.telegram.say("@shipmate_bot the code is 7731", chat_id=OLD, user_id=PERSON)
    await world.heard("answer 1", chat_id=OLD)
    await world.turns(1)
    await world.sent()


Told = tuple[Literal["to", "from"], ...]


@pytest.mark.parametrize(
    ("told", "kill"), [(("to", "from"), False), (("from", "to"), True), (("to",), True), (("from",), False)]
)
async def test_history_and_admission_stay(world: World, told: Told, *, kill: bool) -> None:
    await begun(world)
    world.telegram.upgrade(OLD, NEW, told=told[:1])
    if kill:
        await world.process.kill()
    world.telegram.upgrade(OLD, NEW, told=told[1:])
    if kill:
        await world.start()
    world.telegram.say("@shipmate_bot which code?", chat_id=NEW, user_id=OTHER)
    await world.heard("answer 2", chat_id=NEW)
    assert "7731" in json.dumps(world.model.bodies[-1]["messages"])
    await world.turns(2)
    await world.sent()
    await world.process.kill()
    await world.start()
    world.telegram.say("@shipmate_bot and again?", chat_id=NEW, user_id=PERSON)
    await world.heard("answer 2", "answer 3", chat_id=NEW)
    assert {line["chatKey"] for line in world.archive()} == {f"telegram:chat:{OLD}"}
    names = [line["messageId"] for line in world.archive()]
    assert len(set(names)) == len(names), "the supergroup counts its messages anew"
    assert world.texts(OLD) == ["answer 1"]


async def test_a_job_of_the_group_is_answered_in_the_supergroup(world: World) -> None:
    world.config["channels"]["telegram"]["allow"] = [str(OLD)]
    world.model.script(planning(in_an_hour))
    await world.start("telegram")
    world.telegram.chat(OLD, "group").members[PERSON] = "member"
    world.telegram.say("@shipmate_bot remind me", chat_id=OLD, user_id=PERSON)
    await world.heard("I will.", chat_id=OLD)
    await world.turns(1)
    await world.sent()
    await world.process.kill()
    world.process.faked("--clock", str(world.root / "clock"))
    world.telegram.upgrade(OLD, NEW, told=("from",))
    await an_hour_later(world)
    await world.heard(ANSWER, chat_id=NEW)


async def test_an_approval_that_waits_is_given_in_the_supergroup(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(OLD)]
    world.config["permissions"] = {"ask": ["skills_list"]}
    world.model.answer(tool_use("skills_list", {}))
    world.model.answer("Here they are.")
    await world.start("telegram")
    world.telegram.chat(OLD, "group")
    world.telegram.say("@shipmate_bot which skills?", chat_id=OLD, user_id=PERSON)
    await world.telegram.until(
        lambda: any("reply_markup" in one for one in world.telegram.chats[OLD].messages.values())
    )
    world.telegram.upgrade(OLD, NEW)
    await world.process.kill()
    await world.start()
    world.telegram.say("/approve@shipmate_bot", chat_id=NEW, user_id=PERSON)
    await world.telegram.until(lambda: "Here they are." in world.texts(NEW))
    assert not any("Here they are." in one for one in world.texts(OLD))


async def test_an_answer_on_its_way_arrives_where_the_group_is_now(world: World) -> None:
    await begun(world)

    def while_it_is_asked(_: object) -> str:
        world.telegram.upgrade(OLD, NEW, told=())
        return "late"

    world.model.script(while_it_is_asked)
    world.telegram.say("@shipmate_bot more", chat_id=OLD, user_id=PERSON)
    await world.heard("late", chat_id=NEW)
    await world.sent()


async def test_whoever_is_blocked_or_not_let_in_stays_so(world: World) -> None:
    await begun(world)
    world.telegram.upgrade(OLD, NEW)
    (world.root / ".ship" / "access.json").write_text(
        json.dumps({"v": 1, "channels": {"telegram": {"allow": [], "block": [str(OLD)]}}})
    )
    await world.process.kill()
    await world.start()
    world.telegram.say("@shipmate_bot hello", chat_id=NEW, user_id=OTHER)
    await eventually(lambda: any(one["kind"] == "denied" for one in world.log()))
    assert world.texts(NEW) == []


async def test_the_supergroup_can_be_named_in_ship_json(world: World) -> None:
    await begun(world)
    world.telegram.upgrade(OLD, NEW)
    await world.process.kill()
    world.config["channels"]["telegram"]["allow"] = [str(NEW)]
    await world.start()
    world.telegram.say("@shipmate_bot hello", chat_id=NEW, user_id=OTHER)
    await world.heard("answer 2", chat_id=NEW)


async def test_an_edit_in_the_supergroup_is_of_its_own_message(world: World) -> None:
    """The first message in the group and the first in the supergroup have the same number."""
    await begun(world)
    world.telegram.upgrade(OLD, NEW, told=("to",))
    said = world.telegram.say("@shipmate_bot the harbour", chat_id=NEW, user_id=PERSON)["message"][
        "message_id"
    ]
    assert said == 1
    await world.heard("answer 2", chat_id=NEW)
    await world.turns(2)
    world.telegram.edit(said, "@shipmate_bot the quay", chat_id=NEW)
    await eventually(lambda: any(line["text"] == "the quay" for line in world.archive()))
    lines = [(line["messageId"], line["text"]) for line in world.archive() if line["role"] == "user"]
    assert lines == [
        ("1", "the code is 7731"),
        (f"{NEW}/1", "the harbour"),
        (f"{NEW}/1", "the quay"),
    ]
