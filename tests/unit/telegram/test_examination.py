"""Telegram's token is examined, and its owner shown by a code, without an update that is taken from anybody."""

from __future__ import annotations

import pytest

from bot import errors
from bot.testing.telegram import TelegramServer
from channels.telegram.examination import examine, invite, look
from channels.telegram.settings import TelegramSettings

CODE = "operator-0123456789abcdef"


def settings(server: TelegramServer, token: str = "") -> TelegramSettings:
    return TelegramSettings(bot_token=token or server.token, base_url=server.url)


async def test_a_token_that_holds_is_named_with_its_bot(server: TelegramServer) -> None:
    found = await examine(settings(server))
    (only,) = found.findings
    assert (only.part, only.verdict) == ("telegram botToken", "ok")
    assert only.found.startswith("@")
    assert found.time is not None
    assert not server.called("getUpdates")


async def test_a_webhook_of_another_program_is_named(server: TelegramServer) -> None:
    server.webhook = "https://elsewhere.example/hook"
    assert [one.verdict for one in (await examine(settings(server))).findings] == ["ok", "warn"]


async def test_a_token_that_is_refused_says_why_and_what_to_do(server: TelegramServer) -> None:
    (found,) = (await examine(settings(server, "1:wrong"))).findings
    assert found.verdict == "wrong"
    assert "Unauthorized" in found.found
    assert "@BotFather" in found.remedy


async def test_a_service_that_is_away_is_for_later(server: TelegramServer) -> None:
    await server.stop()
    (found,) = (await examine(settings(server))).findings
    assert (found.part, found.verdict) == ("telegram", "later")
    assert server.token not in found.found


async def test_who_sends_the_code_in_private_is_found_and_the_update_stays(server: TelegramServer) -> None:
    assert f"start={CODE}" in await invite(settings(server), CODE)
    server.say(f"/start {CODE}", chat_id=-100, user_id=1002, chat_type="group")
    server.say("something else", user_id=1003, chat_id=1003)
    assert await look(settings(server), CODE) is None
    server.say(f"/start {CODE}", user_id=1001, chat_id=1001)
    assert await look(settings(server), CODE) == "1001"
    assert await look(settings(server), CODE) == "1001", "what is looked at is not confirmed"


async def test_a_claim_says_what_telegram_says(server: TelegramServer) -> None:
    with pytest.raises(errors.ChannelRefused, match="Unauthorized"):
        await invite(settings(server, "1:wrong"), CODE)
    with pytest.raises(errors.ChannelRefused, match="Unauthorized"):
        await look(settings(server, "1:wrong"), CODE)
