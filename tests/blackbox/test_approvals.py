"""Approvals of tool calls: asked in the chat, decided by a button, and kept over kill -9."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from bot.testing.anthropic_script import reply, tool_use
from bot.testing.slack import Seen
from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, START_SECONDS, World, eventually, fast

OPERATOR, OTHER = 2002, 3003
GROUP = -100500


def question(world: World) -> int:
    """Return the id of the message with buttons; 0 if there is none yet."""
    messages = world.telegram.chats[GROUP].messages if GROUP in world.telegram.chats else {}
    return next((number for number, one in messages.items() if "reply_markup" in one), 0)


def results(world: World) -> list[Any]:
    last = world.model.bodies[-1]["messages"][-1]["content"]
    return [block for block in last if block["type"] == "tool_result"]


async def prepared(world: World, permissions: dict[str, list[str]]) -> None:
    """Start a gateway with an operator, and a model that uses a tool."""
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.config["permissions"] = permissions
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(OTHER)]
    world.model.answer(tool_use("skills_list", {}))
    world.model.answer("Here they are.")
    await world.start("telegram")


async def begun(world: World, **permissions: list[str]) -> str:
    """Start a turn that waits for an approval, and return the data of the first button."""
    await prepared(world, permissions)
    await asked_for(world, PERSON, lambda: question(world) > 0)
    asked = world.telegram.chats[GROUP].messages[question(world)]
    assert "skills_list" in asked["text"]
    assert str(PERSON) in asked["text"]
    return str(asked["reply_markup"]["inline_keyboard"][0][0]["callback_data"])


@fast
async def test_it_outlives_any_number_of_clean_restarts(world: World) -> None:
    button = await begun(world, ask=["skills_list"])
    await world.sent()
    for count in range(2, 8):
        assert await world.process.stop() == 0
        await world.start()
        await eventually(lambda n=count: sum(one["kind"] == "turn_start" for one in world.log()) >= n)  # type: ignore[misc]
    world.telegram.press(question(world), button, chat_id=GROUP, user_id=OPERATOR)
    await world.telegram.until(lambda: any("Here they are." in one for one in world.texts(GROUP)))


async def asked_for(world: World, person: int, there: Callable[[], bool]) -> None:
    """Ask in the group for a call that needs an approval."""
    world.telegram.say("@shipmate_bot which skills?", chat_id=GROUP, user_id=person)
    await world.telegram.until(there, START_SECONDS)


async def test_it_is_found_again_after_a_kill_and_only_an_operator_decides(world: World) -> None:
    button = await begun(world, ask=["skills_list"])
    await world.sent()
    await world.process.kill()
    await world.start()
    for user in (OTHER, PERSON):
        told = len(world.telegram.called("answerCallbackQuery"))
        world.telegram.press(question(world), button, chat_id=GROUP, user_id=user)
        await world.telegram.until(lambda n=told: len(world.telegram.called("answerCallbackQuery")) > n)  # type: ignore[misc]
    assert all(
        call.params["text"].startswith("Only an operator can decide")
        for call in world.telegram.called("answerCallbackQuery")
    )
    assert len(world.model.requests) == 1
    number = question(world)
    for _ in range(2):
        world.telegram.press(number, button, chat_id=GROUP, user_id=OPERATOR)
    await world.telegram.until(lambda: any("Here they are." in one for one in world.texts(GROUP)))
    (result,) = results(world)
    assert "is_error" not in result
    await world.telegram.until(lambda: question(world) == 0)
    assert "✅ Allowed by Person 2002" in world.telegram.chats[GROUP].messages[number]["text"]
    await world.turns(1)
    (waited,) = [line["details"] for line in world.log() if line["kind"] == "answer_shown"]
    assert waited["approvalMs"] > waited["modelMs"] > 0
    assert waited["approvalMs"] + waited["modelMs"] + waited["deliveryMs"] <= waited["waitedMs"]
    audit = [line["details"] for line in world.log() if line["kind"] == "approval"]
    assert [one["by"] for one in audit if one.get("decision") == "refused"] == [
        f"telegram:{OTHER}",
        f"telegram:{PERSON}",
    ]
    assert {one["rule"] for one in audit if one.get("decision") == "approved"} == {"ask skills_list"}
    assert await world.process.stop() == 0


async def test_an_operator_elsewhere_sees_where_it_was_asked_and_each_copy_how_it_ended(world: World) -> None:
    world.telegram.chat(OPERATOR)
    await prepared(world, {"ask": ["skills_list"]})
    await asked_for(world, PERSON, lambda: bool(world.texts(OPERATOR) and world.texts(GROUP)))
    assert question(world) == 0, "in the group nobody may decide who has asked"
    (copy,) = [one for one in world.telegram.chats[OPERATOR].messages.values() if "reply_markup" in one]
    assert copy["text"].endswith(f"Asked in this conversation (Group {GROUP}).")
    links = [one["url"] for one in copy["entities"] if one["type"] == "text_link"]
    (said,) = [one for one in world.telegram.chats[GROUP].messages.values() if one["from"]["id"] == PERSON]
    assert links == [f"https://t.me/c/{str(GROUP).removeprefix('-100')}/{said['message_id']}"]
    deny = copy["reply_markup"]["inline_keyboard"][0][1]["callback_data"]
    world.telegram.press(copy["message_id"], deny, chat_id=OPERATOR)
    for chat in (OPERATOR, GROUP):
        await world.telegram.until(
            lambda chat=chat: "⛔ Denied by Person 2002" in world.texts(chat)[0],  # type: ignore[misc]
            START_SECONDS,
        )
    assert "reply_markup" not in world.telegram.chats[OPERATOR].messages[copy["message_id"]]
    await world.turns(1)
    assert await world.process.stop() == 0


async def test_in_slack_an_operator_decides_from_their_direct_messages_after_a_kill(world: World) -> None:
    world.config["operators"] = [f"slack:{BOB}"]
    world.config["permissions"] = {"ask": ["skills_list"]}
    world.model.answer(tool_use("skills_list", {}))
    world.model.answer("Here they are.")
    await world.start("slack")
    ts = await world.slack.say(f"<@{world.slack.world.bot_user}> which skills?", channel=ROOM, user=ANN)
    direct = f"D{BOB[1:]}"

    def copies() -> list[Seen]:
        rooms = [ROOM, *([direct] if direct in world.slack.world.rooms else [])]
        shown = [one for room in rooms for one in world.slack.replies(room)]
        return [one for one in shown if "I need a yes" in one.text or "skills_list" in one.text]

    await world.slack.until(lambda: len(copies()) == 2, START_SECONDS)
    assert [bool(one.buttons) for one in copies()] == [False, True]
    await world.slack.until(lambda: world.slack.session_of(ROOM, ts) == "suspended", START_SECONDS)
    link = f"https://example.slack.com/archives/{ROOM}/p{ts.replace('.', '')}"
    where = f"Asked in [this conversation]({link}) (`#{ROOM.lower()}`)."
    assert [one.text.endswith(where) for one in copies()] == [False, True]
    await world.sent()
    await world.process.kill()
    await world.start()
    await world.slack.press(direct, copies()[1].ts, copies()[1].buttons[0], user=BOB)
    await world.slack.until(lambda: all("✅ Allowed by `Bob`" in one.text for one in copies()), START_SECONDS)
    assert not any(one.buttons for one in copies())
    await world.slack.until(
        lambda: any("Here they are." in one.text for one in world.slack.replies(ROOM)), START_SECONDS
    )
    await world.slack.until(lambda: world.slack.session_of(ROOM, ts) == "active", START_SECONDS)
    assert await world.process.stop() == 0


async def test_a_call_that_is_too_long_for_its_question_comes_as_a_file_above_it(world: World) -> None:
    """Both platforms run at once. Each has its operator in a direct chat."""
    world.config["operators"] = [f"telegram:{PERSON}", f"slack:{ANN}"]
    hidden = "line 150 of the plan"
    content = "\n".join(f"line {number} of the plan" for number in range(300))

    def writes(body: dict[str, Any]) -> Any:
        last = body["messages"][-1]["content"][-1]
        name = "of-slack.md" if "slack" in json.dumps(body["messages"][0]) else "of-telegram.md"
        if last["type"] == "tool_result":
            return "It is written."
        return reply(tool_use("write_file", {"path": name, "content": content}))

    world.model.script(writes)
    await world.start("telegram", "slack")
    world.telegram.say("write it, telegram")
    await world.slack.say("write it, slack", channel="D0ANN", user=ANN)

    def in_telegram() -> list[dict[str, Any]]:
        return [one for one in world.telegram.chat(PERSON).messages.values() if one["from"]["id"] != PERSON]

    def in_slack() -> list[Seen]:
        return world.slack.replies("D0ANN")

    await world.telegram.until(lambda: any("reply_markup" in one for one in in_telegram()), START_SECONDS)
    await world.slack.until(lambda: any(one.buttons for one in in_slack()), START_SECONDS)
    above, asked = in_telegram()
    assert above["document"]["file_name"] == "write_file.txt"
    assert hidden not in asked["text"]
    assert "characters are not shown here …]" in asked["text"]
    shown, question_ = in_slack()
    assert hidden not in question_.text
    assert (shown.text, [name for name, *_ in world.slack.sent_files("D0ANN")]) == ("", ["write_file.txt"])
    for files, path in (
        (world.telegram.documents(PERSON), "of-telegram.md"),
        (world.slack.sent_files("D0ANN"), "of-slack.md"),
    ):
        ((_, _, data),) = files
        told = data.decode()
        assert path in told
        assert all(f"line {number} of the plan" in told for number in range(300))
    buttons = asked["reply_markup"]["inline_keyboard"][0]
    world.telegram.press(asked["message_id"], buttons[0]["callback_data"])
    await world.slack.press("D0ANN", question_.ts, question_.buttons[0], user=ANN)
    await world.turns(2)
    for path in ("of-telegram.md", "of-slack.md"):
        assert (world.root / path).read_text(encoding="utf-8") == content
    assert await world.process.stop() == 0


async def test_several_that_wait_are_named_with_what_each_of_them_shows(world: World) -> None:
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(OTHER)]
    world.telegram.chat(OPERATOR)
    await world.start("telegram")
    for person, command in ((PERSON, "df -h"), (OTHER, "uptime -p")):
        world.model.answer(tool_use("run_shell", {"command": command}))
        world.telegram.say("please", chat_id=person, user_id=person)
        await world.telegram.until(lambda command=command: command in str(world.texts(OPERATOR)[-1:]))  # type: ignore[misc]
    await world.ask("/approve", 3, chat_id=OPERATOR, user_id=OPERATOR)
    told = world.texts(OPERATOR)[-1]
    assert told.count("run a command") == 2
    found = re.search(r"(\w{6}) \(run a command[^)]*uptime -p", told)
    assert found is not None, told
    world.telegram.say(f"/deny {found[1]}", chat_id=OPERATOR, user_id=OPERATOR)
    await world.telegram.until(lambda: "⛔ Denied by" in world.texts(OPERATOR)[1])
    assert "⛔" not in world.texts(OPERATOR)[0]
    world.telegram.say("/reset", chat_id=OPERATOR, user_id=OPERATOR)
    await world.telegram.until(lambda: world.texts(OPERATOR)[-1].endswith("Did you mean /new?"))


async def test_what_is_denied_reaches_the_model_with_its_rule(world: World) -> None:
    world.config["permissions"] = {"deny": ["skills_*"]}
    world.model.answer(tool_use("skills_list", {}))
    world.model.answer("I may not.")
    await world.start("telegram")
    world.telegram.say("which skills?")
    await world.heard("I may not.")
    (result,) = results(world)
    assert result["is_error"]
    assert "deny skills_*" in json.dumps(result["content"])


@pytest.mark.parametrize("operators", [[], ["telegram:2002"]], ids=["none", "out of reach"])
async def test_where_no_operator_can_be_asked_nobody_is_waited_for(
    world: World, operators: list[str]
) -> None:
    """Otherwise a person in a direct chat would see a question for half an hour and could not answer it."""
    world.config["operators"] = operators
    world.telegram.block(OPERATOR)
    world.model.answer(tool_use("run_shell", {"command": "ls"}))
    world.model.answer("Nobody here can allow that.")
    await world.start("telegram")
    world.telegram.say("list it")
    await world.telegram.until(lambda: world.texts()[-1:] == ["Nobody here can allow that."])
    (result,) = results(world)
    assert result["is_error"]
    assert "`operators` of ship.json" in json.dumps(result["content"])

    def ended() -> list[str]:
        """Return the questions, each with its final state."""
        asked = [text for text in world.texts() if "I need a yes" in text]
        return [text for text in asked if "No longer needed" in text or "was not run" in text]

    await world.telegram.until(lambda: len(ended()) == len(operators))
    assert len([text for text in world.texts() if "I need a yes" in text]) == len(operators)


async def test_a_stop_ends_the_waiting(world: World) -> None:
    button = await begun(world, ask=["skills_list"])
    number = question(world)
    world.telegram.say("/stop@shipmate_bot", chat_id=GROUP, user_id=PERSON)
    await world.telegram.until(lambda: "Stopped." in world.texts(GROUP))
    await eventually(lambda: any(line["kind"] == "turn_end" for line in world.log()))
    world.telegram.press(number, button, chat_id=GROUP, user_id=OPERATOR)
    await world.telegram.until(lambda: bool(world.telegram.called("answerCallbackQuery")))
    assert (
        world.telegram.called("answerCallbackQuery")[0].params["text"].startswith("This was already decided")
    )
    assert len(world.model.requests) == 1


async def test_rules_that_are_none_or_never_match_are_findings(world: World) -> None:
    rules = {
        "run_shell(a | b)": "write the command plainly",
        "read_fil(secret/)": 'did you mean "read_file"?',
        "run_shell(git *": "the bracket is not closed",
        "@trustd:run_shell(make *)": "did you mean @trusted:",
        "mcp__": "for all tools write mcp__*",
        "mcp__Tracker": "for all tools write mcp__tracker__*",
        "mcp__trakcer__*": "did you mean mcp__tracker__?",
        "mcp__*__delete": "",
        "mcp__TRACKER__list": "",
        "@night:run_shell(make)": "",
    }
    world.config["permissions"] = {"deny": [*rules]}
    world.config["mcp"] = {"servers": {"tracker": {"command": "true"}}}
    await world.start("telegram", wait=False)
    assert await world.process.ended() == 78
    told = world.process.stderr.splitlines()
    for number, (rule, mend) in enumerate(rules.items()):
        lines = [one for one in told if one.startswith(f"permissions.deny[{number}]: found")]
        assert (len(lines), mend in "".join(lines)) == (bool(mend), True), (rule, lines)
