"""The bot is brought into a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from bot.contracts.channel import Introduction
from bot.words import sentence


@pytest.mark.parametrize("scopes", [{"channels:history"}, {"channels:history", "groups:history"}])
async def test_it_says_which_rights_it_lacks(idle: Any, scopes: set[str]) -> None:
    idle.server.api.scopes -= scopes
    await idle.slack.start(idle.intake)
    await idle.server.invite(idle.channel, by=idle.ada)
    (added,) = await idle.arrived()
    introduction: Introduction = await idle.slack.introduce(added)
    assert introduction.words.endswith(" Without a mention I can't hear you yet: I lack some rights here.")
    assert introduction.hindrance == sentence("operators.deaf_slack", scopes=", ".join(sorted(scopes)))
