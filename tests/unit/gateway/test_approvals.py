"""Approvals in the chats: who is asked what, who may decide, and what ends the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts import approvals
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.approvals import CHOICES, Approval, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Command
from bot.lifecycle import active_chats
from bot.words import say
from tests.unit.gateway.desk import GROUP, MEMBER, OPERATOR, STRANGER, Desk
from tests.unit.gateway.outgoing import until


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_an_operator_allows_what_the_chat_was_shown(desk: Desk) -> None:
    name = await desk.asked()
    (question,) = desk.tele.sent
    assert question.kind == "notice"
    assert question.text.startswith("77 wants me to run a command. May I?")
    assert "I ask because no rule allows it. Rule: ask run_shell." in question.text
    assert "command: make \\u0060\\u0060\\u0060 x" in question.text
    await desk.press("approve", name[-6:].lower())
    await desk.idle()
    assert desk.ran == [Verdict("approved", UserRef("tele", "1"), "once")]
    assert sorted(desk.tele.texts[1:]) == ["approved", "✅ Allowed."]
    assert desk.decisions() == ["approved"]
    assert await desk.lines(ChatKey.parse("tele:chat:-100")) == [("user", "work"), ("assistant", "approved")]


async def test_a_name_of_their_own_choice_stands_beside_the_id_and_is_no_formatting(desk: Desk) -> None:
    name = "1`*Admin* (telegram:1) https://a.test \u202e\n<@U1>"
    await desk.asked(user_name=name)
    (question,) = desk.tele.sent
    shown = "`1\\u0060*Admin* (telegram:1) https://a.test \\u202e <@U1>` (77) wants me to run a command."
    assert question.text.startswith(shown)


async def test_operators_are_asked_in_their_own_chats_too(desk: Desk) -> None:
    desk.manifests["tele"] = replace(desk.manifests["tele"], direct=lambda person: {"chat": person})
    home: dict[str, Any] = {
        "chat_id": "77",
        "chat_key": "tele:chat:77",
        "chat_type": "direct",
        "target": {"chat": "77"},
    }
    name = await desk.asked(**home)
    await until(lambda: len(desk.names()) == 2)
    shown = {one.target["chat"]: one.buttons and one.buttons.choices for one in desk.tele.sent}
    assert shown == {"1": CHOICES, "77": ()}, "who cannot decide sees no buttons"
    assert sorted(one.target["chat"] for one in desk.tele.sent) == ["1", "77"]
    there: dict[str, Any] = {
        "chat_id": "1",
        "chat_key": "tele:chat:1",
        "chat_type": "direct",
        "target": {"chat": "1"},
    }
    await desk.press("approve", name, **there)
    await desk.idle()
    assert desk.ran == [Verdict("approved", UserRef("tele", "1"), "once")]
    desk.tele.sent.clear()
    await desk.asked(**there, user_id=OPERATOR)
    await desk.press("deny", **there)
    await desk.idle()
    assert len(desk.names()) == 1, "an operator who asks is asked once"


async def test_nothing_is_shown_as_work_while_a_person_is_waited_for(desk: Desk) -> None:
    await desk.asked()
    await desk.clock.advance(60)
    assert not any(desk.tele.signs)
    await desk.press("deny")
    await desk.idle()


async def test_without_a_name_the_only_one_of_the_chat_is_meant(desk: Desk) -> None:
    await desk.asked()
    await desk.press("deny")
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["denied"]


async def test_nobody_else_decides_and_it_goes_on_waiting(desk: Desk) -> None:
    name = await desk.asked()
    for user in (MEMBER, "78"):
        for word in ("approve", "deny"):
            await desk.press(word, name, user)
            await until(lambda: desk.tele.texts[-1] == say("approval.not_yours"))
    await desk.press(
        "approve", f"{name} always", STRANGER, chat_id="99", chat_key="tele:chat:99", chat_type="direct"
    )
    await desk.press("approve", name, from_bot=True)
    await desk.press("approve", name, "1087968824")  # everybody who writes as the group itself
    await until(lambda: desk.decisions() == ["refused"] * 4)
    assert not desk.ran
    await desk.press("approve", name)
    await desk.idle()
    assert [verdict.by for verdict in desk.ran] == [UserRef("tele", "1")]


async def test_who_asked_decides_where_a_rule_grants_it_but_not_always(tmp_path: Path) -> None:
    desk = Desk(tmp_path, granted=True)
    await desk.open()
    name = await desk.asked()
    await desk.press("approve", name, "78")
    await until(lambda: desk.tele.texts[-1] == say("approval.not_yours"))
    await desk.press("approve", f"{name} always", MEMBER)
    await until(lambda: desk.tele.texts[-1] == say("approval.not_always"))
    await desk.press("approve", name, MEMBER)
    await desk.idle()
    assert desk.ran == [Verdict("approved", UserRef("tele", "77"), "once")]
    await desk.close()


async def test_a_second_press_has_no_effect(desk: Desk) -> None:
    name = await desk.asked()
    await desk.press("approve", name)
    await until(lambda: bool(desk.ran))
    await desk.clock.advance(1)
    await desk.press("deny", name)
    await desk.press("approve", name)
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["approved"]
    assert sorted(desk.tele.texts[1:]) == sorted(
        ["✅ Allowed.", say("approval.unknown"), say("approval.unknown"), "approved"]
    )


@pytest.mark.parametrize(
    ("scope", "user", "elsewhere"), [("chat", OPERATOR, "asks"), ("always", OPERATOR, "approved")]
)
async def test_what_is_allowed_for_longer_is_not_asked_again(
    desk: Desk, scope: str, user: str, elsewhere: str
) -> None:
    await desk.press("approve", f"{await desk.asked()} {scope}", user)
    await desk.idle()
    desk.tele.sent.clear()
    await desk.say("work again", **GROUP)
    await desk.idle()
    assert desk.tele.texts == ["approved"]
    desk.name = "f2"  # other arguments, or another folder
    await desk.asked()
    await desk.press("deny")
    await desk.idle()
    desk.name, desk.lasting = "f1", False
    await desk.asked()  # untrusted text is in view
    await desk.press("deny")
    await desk.idle()
    desk.lasting = True
    desk.tele.sent.clear()
    await desk.say("work there")
    await until(lambda: bool(desk.tele.sent))
    assert (desk.tele.sent[0].buttons is not None) == (elsewhere == "asks")


async def test_what_a_member_allowed_for_a_chat_holds_for_nobody_without_that_right(tmp_path: Path) -> None:
    desk = Desk(tmp_path, granted=True)
    await desk.open()
    await desk.press("approve", f"{await desk.asked()} chat", MEMBER)
    await desk.idle()
    await desk.say("work again", **{**GROUP, "user_id": MEMBER})
    await desk.idle()
    desk.granted = False  # a person whom no rule gives it
    await desk.asked(user_id=OPERATOR)
    await desk.press("approve", f"{desk.names()[-1]} chat", OPERATOR)
    await desk.idle()
    await desk.say("work again", **{**GROUP, "user_id": "78"})
    await desk.idle()
    await desk.close()
    people = [UserRef("tele", one) for one in (MEMBER, MEMBER, OPERATOR, OPERATOR)]
    assert [(verdict.ended, verdict.by) for verdict in desk.ran] == [("approved", by) for by in people]


async def test_while_it_waits_its_place_is_free_and_it_comes_back_to_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_concurrent=1)
    await desk.open()
    await desk.asked()
    await desk.say("quick question")
    await until(lambda: desk.tele.texts[-1] == "quickly")
    await until(lambda: desk.turn_queue.free == 1)
    await desk.press("approve")
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["approved"]
    assert desk.turn_queue.free == 1
    await desk.close()


async def test_what_runs_waits_and_for_what_can_be_seen(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_concurrent=1)
    await desk.open()
    await desk.asked()
    desk.agent.hold = asyncio.Event()
    await desk.say("quick but held")
    await until(lambda: desk.turn_queue.free == 0)
    await desk.say("quick and later", chat_id="1", chat_key="tele:chat:1", user_id="1")
    await until(lambda: desk.turn_queue.total == 1)
    seen = active_chats(desk.turn_queue)
    assert [(one.chat_key, one.state, one.waiting) for one in seen] == [
        ("tele:chat:-100", "waits for an approval", 0),
        ("tele:chat:77", "runs", 0),
        ("tele:chat:1", "waits", 1),
    ]
    assert [bool(one.request_id and one.since) for one in seen] == [True, True, False]
    desk.agent.hold.set()
    await desk.press("approve")
    await desk.idle()
    assert active_chats(desk.turn_queue) == []
    await desk.close()


async def test_a_turn_that_has_waited_goes_before_others(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_concurrent=1)
    await desk.open()
    await desk.asked()
    desk.agent.hold = asyncio.Event()
    await desk.say("quick but held")
    await until(lambda: desk.turn_queue.free == 0)
    await desk.say("quick and later", chat_id="1", chat_key="tele:chat:1", user_id="1")
    await desk.press("approve")
    await until(lambda: desk.tele.texts[-1].startswith("✅ Allowed"))
    assert not desk.ran
    desk.agent.hold.set()
    await desk.idle()
    assert desk.tele.texts[-3:] == ["quickly", "approved", "quickly"]
    assert desk.turn_queue.free == 1
    await desk.close()


async def test_what_its_person_adds_ends_the_waiting(desk: Desk) -> None:
    await desk.asked()
    await desk.say("somebody else", user_id="78", **GROUP)
    assert not desk.ran
    await desk.say("quick, rather this", user_id=MEMBER, **GROUP)
    await until(lambda: bool(desk.ran))
    assert desk.ran[0] == Verdict("steered")
    await until(lambda: len(desk.names()) == 2)
    await desk.press("deny", desk.names()[1])
    await desk.idle()


async def test_a_stop_ends_it_and_nothing_can_be_allowed_after(desk: Desk) -> None:
    name = await desk.asked()
    await desk.say("", user_id=MEMBER, command=Command(name="stop"), addressed="command", **GROUP)
    await until(lambda: "Stopped." in desk.tele.texts)
    await desk.idle()
    await desk.press("approve", name)
    await desk.idle()
    assert not desk.ran
    assert desk.tele.texts[-1] == say("approval.unknown")
    record = await desk.journal.approval(name)
    assert record is not None
    assert record.verdict == Verdict("stopped")
    assert desk.turn_queue.free == 8


async def test_after_half_an_hour_it_is_over(desk: Desk) -> None:
    name = await desk.asked()
    await desk.clock.advance(approvals.SECONDS - 1)
    assert not desk.ran
    await desk.clock.advance(2)
    await desk.idle()
    assert desk.ran == [Verdict("expired")]
    await desk.press("approve", name)
    await desk.idle()
    assert desk.tele.texts[-1] == say("approval.unknown")


async def test_where_nobody_could_press_nobody_is_asked(tmp_path: Path) -> None:
    desk = Desk(tmp_path, operators=frozenset())
    await desk.open()
    await desk.say("work", **GROUP)
    await desk.idle()
    assert desk.ran == [Verdict("nobody")]
    assert desk.tele.texts == ["nobody"]
    await desk.close()


async def test_a_question_that_cannot_be_delivered_can_still_be_answered(desk: Desk) -> None:
    desk.tele.failures = [errors.TargetGone()]
    await desk.say("work", user_id=MEMBER, **GROUP)
    await until(lambda: desk.approvals.waits(ChatKey.parse("tele:chat:-100")) and not desk.tele.failures)
    await desk.press("deny")
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["denied"]


async def test_a_question_that_may_not_have_arrived_is_asked_until_it_has(desk: Desk) -> None:
    desk.tele.failures = [errors.DeliveryUncertain("lost")] * 25
    await desk.say("work", user_id=MEMBER, **GROUP)
    async with asyncio.timeout(90):
        while not desk.names():
            await desk.clock.advance(1.0) if desk.clock.sleeping else None
            await asyncio.sleep(0.001)
    await desk.press("approve", desk.names()[0])
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["approved"]


async def test_commands_without_anything_that_waits(desk: Desk) -> None:
    await desk.press("approve")
    await desk.press("deny", "abcdef")
    await desk.idle()
    assert desk.tele.texts == [say("approval.nothing"), say("approval.no_such", name="abcdef")]


async def test_of_several_the_name_is_asked_for(desk: Desk) -> None:
    name = await desk.asked()
    turn = desk.running[ChatKey.parse("tele:chat:-100")].first
    left = Approval(
        turn.request_id,
        "left",
        ChatKey.parse("tele:chat:-100"),
        "t",
        "f9",
        "s",
        "rule",
        "",
        "tele",
        MEMBER,
        granted=False,
        lasting=True,
    )
    await desk.journal.ask(f"{name[:-3]}ZZZ", left)  # of a turn that a crash cut off
    await desk.press("approve")
    await until(lambda: "Say which one" in desk.tele.texts[-1])
    await desk.press("deny", name)
    await desk.idle()
    await desk.journal.ask(f"{name[:-3]}YYY", replace(left, request_id="R0", call_id="older"))
    await desk.clock.advance(approvals.SECONDS)
    await desk.press("deny")
    await desk.idle()
    assert desk.tele.texts[-1] == say("approval.nothing")
    await desk.journal.resolve(f"{name[:-3]}YYY", Verdict("stopped"))
    assert [verdict.ended for verdict in desk.ran] == ["denied"]
    assert await desk.journal.open_approvals() == []


async def test_in_a_chat_one_question_is_asked_at_a_time_and_one_place_is_lent(tmp_path: Path) -> None:
    desk = Desk(tmp_path, max_concurrent=1)
    await desk.open()
    ask = desk.ask_people

    async def twice(request: TurnRequest) -> TurnOutcome:
        desk.name = "f1"
        first = asyncio.create_task(ask(request))
        await until(lambda: len(desk.names()) == 1)
        desk.name = "f2"
        await asyncio.gather(first, ask(request))
        return TurnOutcome("done", delivered=2)

    desk.agent.converse = twice  # type: ignore[method-assign]
    first = await desk.asked()
    await until(lambda: desk.suspension.asking(ChatKey.parse("tele:chat:-100")) == 2)
    assert desk.turn_queue.free == 1
    await desk.press("deny", first)
    await until(lambda: len(desk.names()) == 2)
    await until(lambda: desk.turn_queue.free == 1)
    await desk.press("approve", desk.names()[1])
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["denied", "approved"]
    assert desk.turn_queue.free == 1
    assert not desk.suspension.asking(ChatKey.parse("tele:chat:-100"))
    await desk.close()


def below(root: str) -> dict[str, str]:
    """A thread of the member's direct chat."""
    return {"chat_id": MEMBER, "chat_key": f"tele:chat:{MEMBER}:thread:{root}", "chat_type": "direct"}


@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_without_a_name_the_question_of_a_thread_is_meant_where_it_is_the_only_one(
    tmp_path: Path, word: str
) -> None:
    desk = Desk(tmp_path, operators=frozenset({UserRef("tele", MEMBER)}))
    await desk.open()
    direct = {"chat_id": MEMBER, "chat_key": f"tele:chat:{MEMBER}", "chat_type": "direct"}
    names = [await desk.asked(**below("1")), await desk.asked(**below("2"))]
    await desk.press(word, user=MEMBER, **direct)
    await until(lambda: "Say which one" in desk.tele.texts[-1])
    assert all(name[-6:] in desk.tele.texts[-1] for name in names)
    await desk.press(word, user=MEMBER, **below("2"))
    await until(lambda: len(desk.ran) == 1)
    await desk.press(word, user=MEMBER, **{**direct, "chat_key": f"tele:chat:{MEMBER}:topic:9"})
    await until(lambda: "Nothing is waiting for approval here." in desk.tele.texts)
    await desk.press(word, user=MEMBER, **direct)
    await until(lambda: len(desk.ran) == 2)
    await desk.idle()
    await desk.close()


@pytest.mark.parametrize("command", ["new", "undo", "compact", "fork", "resume", "forget"])
async def test_a_command_of_the_person_ends_the_waiting_and_runs(desk: Desk, command: str) -> None:
    await desk.asked()
    args = "last" if command == "forget" else ""
    await desk.press(command, args, MEMBER)
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["steered"]
    answers = [text for text in desk.tele.texts[1:] if text != "steered"]
    assert len(answers) == 1, "the command has its answer"


@pytest.mark.parametrize("args", ["", "{name}", "{name} chat"])
async def test_a_misspelt_command_is_told_as_one_and_what_waits_stays(desk: Desk, args: str) -> None:
    name = await desk.asked(user_id=OPERATOR)
    await desk.press("aprove", args.format(name=name), OPERATOR)
    await until(lambda: desk.tele.texts[-1] == "I don't know /aprove. Did you mean /approve?")
    assert not desk.ran
    await desk.press("approve", name)
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == ["approved"]


async def test_a_stop_names_the_commands_that_do_not_run_for_it(desk: Desk) -> None:
    desk.agent.hold = asyncio.Event()
    await desk.say("quick", user_id=MEMBER, **GROUP)
    await until(lambda: bool(desk.agent.requests))
    for name in ("new", "compact", "new"):
        await desk.press(name, user=MEMBER)
    await desk.press("stop", user=MEMBER)
    await desk.idle()
    assert desk.tele.texts == ["Stopped. Not carried out: /new, /compact."]
    assert not desk.agent.resets


DIRECT: dict[str, Any] = {
    "chat_id": OPERATOR,
    "chat_key": f"tele:chat:{OPERATOR}",
    "chat_type": "direct",
    "target": {"chat": OPERATOR},
}


@pytest.mark.parametrize(("typed", "ended"), [("approve", "approved"), ("deny", "denied")])
async def test_an_operator_decides_without_a_name_about_the_only_one_before_them(
    tmp_path: Path, typed: str, ended: str
) -> None:
    desk = Desk(tmp_path, direct=lambda user: {"chat": user})
    await desk.open()
    await desk.asked()
    await desk.press(typed, **DIRECT)
    await desk.idle()
    assert [verdict.ended for verdict in desk.ran] == [ended]
    await desk.press("approve", **DIRECT)
    await desk.idle()
    assert desk.tele.texts[-1] == say("approval.nothing")
    await desk.close()


async def test_of_several_before_them_an_operator_is_told_the_names(tmp_path: Path) -> None:
    desk = Desk(tmp_path, direct=lambda user: {"chat": user})
    await desk.open()
    first = await desk.asked()
    desk.name = "f2"
    home: dict[str, Any] = {
        "chat_id": "77",
        "chat_key": "tele:chat:77",
        "chat_type": "direct",
        "target": {"chat": "77"},
    }
    second = await desk.asked(**home)
    await desk.press("approve", **DIRECT)
    await until(lambda: "Say which one" in desk.tele.texts[-1])
    assert first[-6:] in desk.tele.texts[-1]
    assert second[-6:] in desk.tele.texts[-1]
    assert not desk.ran
    for name in (first, second):
        await desk.press("deny", name[-6:], **DIRECT)
    await desk.idle()
    await desk.close()


async def test_a_name_that_no_question_ever_had_is_no_decided_one(desk: Desk) -> None:
    name = await desk.asked()
    for typed in ("approve", "deny"):
        await desk.press(typed, "nope")
        await until(lambda: desk.tele.texts[-1] == "No question of mine is called “nope”.")
    await desk.press("deny", name[-6:])
    await desk.idle()
    await desk.press("approve", name[-6:])
    await desk.idle()
    assert desk.tele.texts[-1] == say("approval.unknown")


async def test_the_status_says_that_a_decision_is_waited_for(desk: Desk) -> None:
    await desk.asked()
    await desk.press("status", user=MEMBER)
    await until(lambda: "Model" in desk.tele.texts[-1])
    assert desk.tele.texts[-1].startswith("Waiting for a yes. Model")
    home, *_ = await desk.intake.home(desk.inbound(user_id=MEMBER))
    assert home.lines[:2] == ("Waiting for a yes", "I wait for a decision: may I run a command?")
    await desk.press("deny")
    await desk.idle()


@pytest.mark.parametrize(
    ("asked", "begins"),
    [
        ({"tool": "run_shell"}, "May I run a command?"),
        ({"tool": "write_file"}, "May I write a file?"),
        (
            {"tool": "write_file", "replaces": 2},
            "May I replace a file? The file exists already: its 2 lines would be replaced.",
        ),
        (
            {"tool": "write_file", "replaces": 1_200, "gone": 3, "new": 1, "differs_from": 14},
            "May I replace a file? The file exists already: this replaces 3 of its 1,200 lines with 1, from line 14 on.",
        ),
        (
            {"tool": "write_file", "replaces": 2, "gone": 0, "new": 0, "differs_from": 3},
            "May I replace a file? The file exists already, with the same lines.",
        ),
        (
            {"tool": "write_file", "replaces": 2, "gone": 0, "new": 0, "differs_from": 1},
            "May I replace a file? The file exists already: its lines would be reordered.",
        ),
        ({"tool": "memory"}, "May I change my notes?"),
        ({"tool": "schedule_create"}, "May I schedule a job?"),
        ({"tool": "web_fetch"}, "May I open a web page?"),
        ({"tool": "mcp__tracker__close_it"}, "May I use `close_it` of the server `tracker`?"),
        (
            {"tool": "skills_list", "task": "look"},
            "May I use my tool `skills_list`? It is for the task “look”.",
        ),
    ],
)
async def test_an_operator_alone_with_the_bot_reads_what_it_would_do(
    tmp_path: Path, asked: dict[str, Any], begins: str
) -> None:
    desk = Desk(tmp_path, direct=lambda user: {"chat": user})
    desk.asked_more = asked
    await desk.open()
    await desk.asked(**DIRECT, user_id=OPERATOR, user_name="Ann")
    (question,) = desk.tele.sent
    assert question.text.startswith(begins)
    assert "You can decide within 30 minutes." in question.text
    await desk.press("deny", **DIRECT)
    await desk.idle()
    await desk.close()


async def test_an_operator_on_another_channel_reads_on_which_one_it_was_asked(tmp_path: Path) -> None:
    desk = Desk(tmp_path, operators=frozenset({UserRef("local", OPERATOR)}))
    desk.manifests["local"] = replace(
        desk.manifests["local"], access="allowlist", direct=lambda user: {"chat": user}
    )
    await desk.open()
    await desk.say("work", user_id=MEMBER)
    await until(lambda: bool(desk.channels["local"].sent))
    (copy,) = desk.channels["local"].sent
    assert copy.text.endswith("Asked in a direct chat on Tele.")
    await desk.press("stop", user=MEMBER, chat_id="77", chat_key="tele:chat:77", chat_type="direct")
    await desk.idle()
    await desk.close()
