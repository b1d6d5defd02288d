"""The bot is brought into a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from bot.contracts.channel import Introduction
from bot.words import sentence


async def test_who_brought_it_and_where_is_known_and_others_that_join_are_no_business(stage: Any) -> None:
    await stage.server.invite(stage.channel, by=stage.ada, user=stage.grace)
    await stage.server.invite(stage.channel, by=stage.ada)
    (added,) = await stage.arrived()
    assert (added.kind, added.user_id, added.chat_id, added.chat_type) == (
        "added",
        stage.ada,
        stage.channel,
        "group",
    )
    assert added.target == {"channel": stage.channel}
    assert added.user_name == "Ada 🚢"
    assert added.text == ""


async def test_nobody_who_brought_it_is_nobody_to_answer(stage: Any) -> None:
    event = {
        "type": "member_joined_channel",
        "user": "U0SHIP",
        "channel": stage.channel,
        "event_ts": "1800000000.000100",
    }
    await stage.server.push(event)
    await stage.server.until(lambda: not stage.server.unacked())
    assert stage.intake.accepted == []


@pytest.mark.parametrize("scopes", [{"channels:history"}, {"channels:history", "groups:history"}])
async def test_it_says_which_rights_it_lacks(idle: Any, scopes: set[str]) -> None:
    idle.server.api.scopes -= scopes
    await idle.slack.start(idle.intake)
    await idle.server.invite(idle.channel, by=idle.ada)
    (added,) = await idle.arrived()
    introduction: Introduction = await idle.slack.introduce(added)
    assert introduction.words.endswith(" Without a mention I can't hear you yet: I lack some rights here.")
    assert introduction.hindrance == sentence("operators.deaf_slack", scopes=", ".join(sorted(scopes)))
