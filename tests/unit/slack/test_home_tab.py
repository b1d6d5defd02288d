"""The app's Home tab."""

from __future__ import annotations

from typing import Any

from bot import errors
from bot.contracts.channel import HomeSection
from bot.contracts.inbound import Inbound
from channels.slack import render


async def test_the_tab_of_messages_is_no_home(stage: Any) -> None:
    await stage.server.open_home(stage.ada, tab="messages")
    await stage.server.open_home(stage.grace)
    await stage.server.until(lambda: bool(stage.server.home_of(stage.grace)))
    assert stage.server.home_of(stage.ada) == ""
    assert stage.intake.dead_letters == []


async def test_a_home_that_cannot_be_made_or_published_is_told_to_the_log_alone(stage: Any) -> None:
    async def refused(_: Inbound) -> tuple[HomeSection, ...]:
        raise errors.StorageError("full")

    stage.server.fail("views.publish", status=200, body={"ok": False, "error": "not_enabled"})
    await stage.server.open_home(stage.ada)
    await stage.server.until(lambda: len(stage.log.at("warn")) == 1)
    stage.intake.home = refused
    await stage.server.open_home(stage.grace)
    await stage.server.until(lambda: len(stage.log.at("warn")) == 2)
    assert [one.message for one in stage.log.at("warn")] == [
        "Slack did not take the home of a person (SlackApiError)",
        "Slack did not take the home of a person (StorageError)",
    ]


def test_what_people_wrote_is_text_and_fits() -> None:
    (header, section) = render.home((HomeSection("x" * 200, ("<!channel> *b*", "y" * 5_000)),))["blocks"]
    assert len(header["text"]["text"]) == 150
    assert section["text"]["text"].startswith("• &lt;!channel&gt;")
    assert len(section["text"]["text"]) <= 3_000
