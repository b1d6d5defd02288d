"""Messages and joins in the form in which the gateway receives them."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import Introduction
from bot.words import sentence


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


async def test_chatter_is_accepted_where_all_is_heard(stage: Any) -> None:
    await stage.server.say("!stop", channel=stage.channel, user=stage.ada)
    (stop,) = await stage.arrived()
    stage.intake.overheard.add(stop.chat_key.chat)
    await stage.server.say("!aprove", channel=stage.channel, user=stage.ada)
    _, heard = await stage.arrived(2)
    assert (heard.command, heard.text, heard.addressed) == (None, "!aprove", "chat")


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


async def test_what_is_said_after_a_message_does_not_pass_it_while_its_name_is_asked_for(stage: Any) -> None:
    await stage.server.say("<@U0SHIP> hi", channel=stage.channel, user=stage.grace)
    await stage.arrived(1)  # her name is in the cache now
    stage.server.fail("users.info", action="hang")
    asked = len(stage.server.called("users.info"))
    await stage.server.say("<@U0SHIP> one", channel=stage.channel, user=stage.ada)
    await stage.server.until(lambda: len(stage.server.called("users.info")) > asked)
    await stage.server.say("<@U0SHIP> two", channel=stage.channel, user=stage.grace)
    await stage.server.say("!stop", channel=stage.channel, user=stage.ada)
    await stage.server.say("elsewhere", channel=stage.server.add_im(stage.grace), user=stage.grace)
    await stage.server.until(lambda: len(stage.intake.accepted) == 2)  # the other chat does not wait
    await stage.clock.advance(1)
    heard = [(message.text, message.user_name) for message in await stage.arrived(5)]
    assert heard == [("hi", "غريس"), ("elsewhere", "غريس"), ("one", None), ("two", "غريس"), ("!stop", None)]


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


@pytest.mark.parametrize("scopes", [{"channels:history"}, {"channels:history", "groups:history"}])
async def test_it_says_which_rights_it_lacks(idle: Any, scopes: set[str]) -> None:
    idle.server.api.scopes -= scopes
    await idle.slack.start(idle.intake)
    await idle.server.invite(idle.channel, by=idle.ada)
    (added,) = await idle.arrived()
    introduction: Introduction = await idle.slack.introduce(added)
    assert introduction.words.endswith(" Without a mention I can't hear you yet: I lack some rights here.")
    assert introduction.hindrance == sentence("operators.deaf_slack", scopes=", ".join(sorted(scopes)))
