"""What comes in: the real library on the loopback server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import errors
from bot.contracts.inbound import Inbound
from channels.slack import adapter


async def test_a_direct_message_is_taken_in_and_then_acked(stage: Any) -> None:
    ts = await stage.server.say("hello, 世界 🚢 <b> & مرحبا", channel=stage.direct, user=stage.ada)
    (message,) = await stage.arrived()
    assert message.text == "hello, 世界 🚢 <b> & مرحبا"
    assert str(message.chat_key) == f"slack:chat:{stage.direct}:thread:{ts}"
    assert (message.chat_type, message.addressed, message.user_id) == ("direct", "direct", stage.ada)
    assert message.target == {"channel": stage.direct, "thread_ts": ts}
    assert message.message_id == ts
    assert message.ts == 1_800_000_000_000
    assert f"slack:T0TEAM:message:{stage.direct}:{ts}" in message.keys
    assert [key.split(":")[2] for key in message.keys] == ["event", "message", "client"]


async def test_nothing_is_acked_before_it_is_written(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(inbound: Inbound) -> bool:
        begun.set()
        await may_go_on.wait()
        return True

    monkeypatch.setattr(stage.intake, "accept", slow)
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    await begun.wait()
    await stage.server.ping()
    await stage.server.until(lambda: stage.server.pongs == 1)
    assert len(stage.server.unacked()) == 1
    may_go_on.set()
    await stage.server.until(lambda: not stage.server.unacked())


async def test_a_mention_comes_as_two_events_and_is_one_message(stage: Any) -> None:
    await stage.server.say("<@U0SHIP> ship it", channel=stage.channel, user=stage.ada)
    (message,) = await stage.arrived()
    assert {d.payload["event"]["type"] for d in stage.server.deliveries} == {"message", "app_mention"}
    assert stage.intake.tries == 2
    assert (message.text, message.addressed, message.chat_type) == ("ship it", "mention", "group")


async def test_app_mention_alone_is_enough(stage: Any) -> None:
    stage.server.subscriptions = {"app_mention"}
    await stage.server.say("hey <@U0SHIP>", channel=stage.private, user=stage.ada)
    (message,) = await stage.arrived()
    assert message.addressed == "mention"
    assert str(message.chat_key) == f"slack:chat:{stage.private}:thread:{message.message_id}"


async def test_chatter_in_a_channel_is_not_passed_on(stage: Any) -> None:
    await stage.server.say("lunch?", channel=stage.channel, user=stage.ada)
    await stage.server.say("!important meeting", channel=stage.channel, user=stage.ada)
    await stage.settled()
    assert stage.intake.tries == 0


async def test_a_thread_without_a_mention_is_passed_as_such(stage: Any) -> None:
    root = await stage.server.say("lunch?", channel=stage.channel, user=stage.grace)
    ts = await stage.server.say("and you?", channel=stage.channel, user=stage.ada, thread_ts=root)
    (message,) = await stage.arrived()
    assert (message.addressed, message.message_id) == ("thread", ts)
    assert str(message.chat_key) == f"slack:chat:{stage.channel}:thread:{root}"
    assert message.target == {"channel": stage.channel, "thread_ts": root}


async def test_chatter_is_accepted_where_all_is_heard(stage: Any) -> None:
    await stage.server.say("!stop", channel=stage.channel, user=stage.ada)
    (stop,) = await stage.arrived()
    stage.intake.overheard.add(stop.chat_key.chat)
    await stage.server.say("!aprove", channel=stage.channel, user=stage.ada)
    _, heard = await stage.arrived(2)
    assert (heard.command, heard.text, heard.addressed) == (None, "!aprove", "chat")


async def test_a_slash_command_is_acknowledged_without_an_answer(stage: Any) -> None:
    delivery = await stage.server.command("help", channel=stage.channel, user=stage.ada)
    await stage.arrived()
    assert delivery.acked.is_set()
    assert delivery.reply is None


async def test_buttons_and_events_of_other_kinds_are_acked_and_ignored(stage: Any) -> None:
    await stage.server.envelope({"type": "block_actions", "user": {"id": stage.ada}}, kind="interactive")
    await stage.server.push({"type": "reaction_added", "user": stage.ada})
    assert await stage.settled() == []
    assert not stage.intake.dead_letters


async def test_the_first_message_has_the_name_of_its_author(stage: Any) -> None:
    await stage.server.say("one", channel=stage.direct, user=stage.ada)
    await stage.server.say("two", channel=stage.direct, user=stage.ada)
    assert [message.user_name for message in await stage.arrived(2)] == ["Ada 🚢", "Ada 🚢"]
    assert len(stage.server.called("users.info")) == 1


async def test_whom_and_what_a_message_points_at_is_told_by_name_and_address(stage: Any) -> None:
    said = (
        "<@U0SHIP> ask <@U0GRACE> or <@U0GRACE|g> in <#C0TEAM|team> about <https://a.test/x?a=1&amp;b=2|the plan>, not "
        "<@U0NONE> <!here>"
    )
    await stage.server.say(said, channel=stage.channel, user=stage.ada)
    (message,) = await stage.arrived()
    about = "about the plan (https://a.test/x?a=1&b=2), not <@U0NONE> @here"
    assert message.text == f"ask <@U0GRACE> or <@U0GRACE> in <#C0TEAM> {about}"
    assert message.mentioned == {"<@U0GRACE>": "@غريس", "<#C0TEAM>": "#team"}
    assert message.readable == f"ask @غريس (U0GRACE) or @غريس (U0GRACE) in #team (C0TEAM) {about}"
    assert message.addressed == "mention"


async def test_an_edit_and_an_earlier_message_have_the_names_too(stage: Any) -> None:
    root = await stage.server.say("ask <@U0GRACE>", channel=stage.channel, user=stage.ada)
    ts = await stage.server.say("<@U0SHIP> hi", channel=stage.channel, user=stage.ada, thread_ts=root)
    await stage.server.edit(stage.channel, ts, "<@U0SHIP> what of <@U0GRACE>?")
    said, edit = await stage.arrived(2)
    assert (edit.text, edit.mentioned) == ("what of <@U0GRACE>?", {"<@U0GRACE>": "@غريس"})
    assert [one.text for one in await stage.slack.context(said)] == ["ask @غريس (U0GRACE)"]


async def test_names_of_at_most_ten_people_are_asked_for(stage: Any) -> None:
    people = [stage.server.add_user(f"U0P{number}", name=f"P{number}") for number in range(12)]
    said = " ".join(f"<@{user}>" for user in people)
    await stage.server.say(said, channel=stage.direct, user=stage.ada)
    (message,) = await stage.arrived()
    assert message.mentioned == {f"<@U0P{number}>": f"@P{number}" for number in range(10)}
    assert len(stage.server.called("users.info")) == 11


async def test_what_is_said_after_a_message_does_not_pass_it_while_its_name_is_asked_for(stage: Any) -> None:
    await stage.server.say("<@U0SHIP> hi", channel=stage.channel, user=stage.grace)
    await stage.arrived(1)  # her name is known
    stage.server.fail("users.info", action="hang")
    asked = len(stage.server.called("users.info"))
    await stage.server.say("<@U0SHIP> one", channel=stage.channel, user=stage.ada)
    await stage.server.until(lambda: len(stage.server.called("users.info")) > asked)
    await stage.server.say("<@U0SHIP> two", channel=stage.channel, user=stage.grace)
    await stage.server.say("!stop", channel=stage.channel, user=stage.ada)
    await stage.server.say("elsewhere", channel=stage.server.add_im(stage.grace), user=stage.grace)
    await stage.server.until(lambda: len(stage.intake.accepted) == 2)  # another chat waits for nothing
    await stage.clock.advance(1)
    heard = [(message.text, message.user_name) for message in await stage.arrived(5)]
    assert heard == [("hi", "غريس"), ("elsewhere", "غريس"), ("one", None), ("two", "غريس"), ("!stop", None)]


async def test_the_earlier_messages_of_an_old_thread_are_its_context(stage: Any, out: Any) -> None:
    server, channel = stage.server, stage.channel
    root = await server.say("shall we ship? 🚢", channel=channel, user=stage.grace)
    await stage.slack.send(out("I am here", channel, root))
    await server.say("joined", channel=channel, user=stage.ada, thread_ts=root, subtype="channel_join")
    await server.say("1 < 2 是的", channel=channel, user=stage.ada, thread_ts=root)
    await stage.arrived(1)
    await server.say("<@U0SHIP> so?", channel=channel, user=stage.ada, thread_ts=root)
    await server.say("later", channel=channel, user=stage.grace, thread_ts=root)
    message = next(m for m in await stage.arrived(3) if m.addressed == "mention")
    found = await stage.slack.context(message)
    assert [(q.user_id, q.text, q.from_self) for q in found] == [
        (stage.grace, "shall we ship? 🚢", False),
        ("U0SHIP", "I am here", True),
        (stage.ada, "1 < 2 是的", False),
    ]
    assert found[0].ts == 1_800_000_000_000


async def test_of_a_long_thread_the_newest_fifty_are_its_context(stage: Any) -> None:
    server = stage.server
    root = await server.say("0", channel=stage.direct, user=stage.ada)
    for number in range(1, 260):
        await server.say(str(number), channel=stage.direct, user=stage.ada, thread_ts=root)
    message = (await stage.arrived(260))[-1]
    found = await stage.slack.context(message)
    assert [quoted.text for quoted in found] == [str(number) for number in range(209, 259)]
    assert len(server.called("conversations.replies")) == 2


async def test_a_message_that_opens_its_thread_has_no_context(stage: Any) -> None:
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    await stage.server.say("!help", channel=stage.channel, user=stage.ada)
    await stage.server.command("help", channel=stage.direct, user=stage.ada)
    for message in await stage.arrived(3):
        assert await stage.slack.context(message) == ()
    assert not stage.server.called("conversations.replies")
    assert not stage.server.called("conversations.history")


async def test_posts_of_other_bots_come_as_such_and_take_no_place_of_people(stage: Any) -> None:
    server, channel = stage.server, stage.channel
    for number in range(31):
        await server.say(f"said {number}", channel=channel, user=stage.grace)
        await server.say(f"built {number}", channel=channel, user="U0BUILD", bot_id="B0BUILD")
        await server.say(
            f"hooked {number}", channel=channel, user=None, bot_id="B0HOOK", subtype="bot_message"
        )
    await server.say("<@U0SHIP> so?", channel=channel, user=stage.ada)
    (message,) = [one for one in await stage.arrived() if one.addressed == "mention"]
    found = await stage.slack.context(message)
    people = [one.text for one in found if one.kind is None]
    assert people == [f"said {number}" for number in range(1, 31)]
    assert {one.kind for one in found} == {None, "post of a bot"}
    bots = [one.text for one in found if one.kind is not None]
    assert bots == [f"{how} {number}" for number in range(16, 31) for how in ("built", "hooked")]


async def test_a_mention_in_a_channel_brings_the_thirty_messages_before_it(stage: Any, out: Any) -> None:
    server, channel = stage.server, stage.channel
    await server.say("the day before", channel=channel, user=stage.grace)
    stage.clock.jump(86_401.0)
    root = ""
    for number in range(31):
        root = await server.say(f"nummer {number} 🚢", channel=channel, user=stage.grace)
    await server.say("in a thread", channel=channel, user=stage.ada, thread_ts=root)
    await stage.slack.send(out("I am here", channel, root))
    await server.say("<@U0SHIP> so?", channel=channel, user=stage.ada)
    await server.say("later", channel=channel, user=stage.grace)
    message = next(m for m in await stage.arrived(2) if m.addressed == "mention")
    found = await stage.slack.context(message)
    assert [one.text for one in found] == [f"nummer {number} 🚢" for number in range(1, 31)]
    assert {(one.user_id, one.user_name, one.from_self) for one in found} == {(stage.grace, "غريس", False)}
    assert {one.provenance.people for one in found} == {frozenset({stage.grace})}


async def test_a_very_long_thread_is_not_read_without_end(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "PAGE", 1)
    root = await stage.server.say("0", channel=stage.direct, user=stage.ada)
    for number in range(1, 14):
        await stage.server.say(str(number), channel=stage.direct, user=stage.ada, thread_ts=root)
    message = (await stage.arrived(14))[-1]
    found = await stage.slack.context(message)
    assert len(found) == len(stage.server.called("conversations.replies")) == 10
    await stage.slack.stop()
    assert await stage.slack.context(message) == ()


async def test_a_thread_that_cannot_be_read_says_why(stage: Any) -> None:
    root = await stage.server.say("lunch?", channel=stage.channel, user=stage.grace)
    await stage.server.say("<@U0SHIP>?", channel=stage.channel, user=stage.ada, thread_ts=root)
    (message,) = await stage.arrived()
    stage.server.api.scopes.discard("channels:history")
    with pytest.raises(errors.RightMissing, match="missing_scope"):
        await stage.slack.context(message)
    assert stage.intake.lacking == {
        "channels:history": "⚠️ On Slack I can't hear and read channels: the app lacks the scope channels:history. Add it under "
        "“OAuth & Permissions” of the app at https://api.slack.com/apps, then install the app again."
    }
    stage.server.api.scopes.add("channels:history")
    stage.server.limit("conversations.replies")
    with pytest.raises(errors.ChannelUnreachable, match="ratelimited"):
        await stage.slack.context(message)
