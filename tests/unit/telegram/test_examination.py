"""Tests of the token's check and of the code that identifies the owner. Neither confirms updates."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import Webhook
from bot.testing.telegram import TelegramServer
from channels.telegram.examination import examine, invite, look
from channels.telegram.manifest import TelegramSettings

CODE = "operator-0123456789abcdef"


def settings(server: TelegramServer, token: str = "") -> TelegramSettings:
    return TelegramSettings(bot_token=token or server.token, base_url=server.url)


async def test_a_webhook_of_another_program_is_named(server: TelegramServer) -> None:
    server.hook.url = "https://elsewhere.example/hook"
    (found,) = [one for one in (await examine(settings(server))).findings if one.part == "telegram webhook"]
    assert found.verdict == "warn"


@pytest.mark.parametrize(
    ("url", "error", "verdict", "words"),
    [
        ("", "", "ok", "nothing waits"),
        ("https://bot.example.org/x", "", "ok", "nothing waits"),
        ("https://bot.example.org/x", "Connection refused", "warn", "Connection refused"),
        ("https://elsewhere.example/hook", "", "warn", "another program"),
    ],
)
async def test_a_webhook_of_our_own_is_examined(
    server: TelegramServer, url: str, error: str, verdict: str, words: str
) -> None:
    server.hook.url, server.hook.error = url, error
    server.updates.add({"message": {}})
    ours = TelegramSettings(
        bot_token=server.token, base_url=server.url, webhook=Webhook(url="https://bot.example.org/x")
    )
    (found,) = [one for one in (await examine(ours)).findings if one.part == "telegram webhook"]
    assert (found.verdict, words in found.found) == (verdict, True)


@pytest.mark.parametrize(("port", "good"), [("", True), (":8443", True), (":9443", False)])
def test_telegram_posts_to_four_ports_alone(port: str, good: bool) -> None:
    webhook = Webhook(url=f"https://bot.example.org{port}/x")
    if good:
        assert TelegramSettings(webhook=webhook).webhook == webhook
    else:
        with pytest.raises(ValueError, match="443, 80, 88, 8443"):
            TelegramSettings(webhook=webhook)


async def test_the_privacy_mode_is_told_with_the_way_to_turn_it_off(server: TelegramServer) -> None:
    (on,) = [one for one in (await examine(settings(server))).findings if "privacy" in one.part]
    assert on.found.startswith("on: ")
    assert "/setprivacy" in on.remedy
    server.me["can_read_all_group_messages"] = True
    (off,) = [one for one in (await examine(settings(server))).findings if "privacy" in one.part]
    assert (off.found[:3], off.remedy) == ("off", "")
    server.me["can_join_groups"] = False
    (closed,) = [one for one in (await examine(settings(server))).findings if one.part == "telegram groups"]
    assert (closed.verdict, "/setjoingroups" in closed.remedy) == ("warn", True)


@pytest.mark.parametrize(
    ("standing", "verdict", "words"),
    [
        ({"status": "member"}, None, ""),
        ({"status": "restricted", "can_send_messages": True}, None, ""),
        ({"status": "restricted", "can_send_messages": False}, "wrong", "may not write"),
        ({"status": "left"}, "warn", "not in it"),
        (None, "warn", "not in it"),
    ],
)
async def test_rights_that_are_missing_in_a_group_are_named(
    server: TelegramServer, standing: dict[str, Any] | None, verdict: str | None, words: str
) -> None:
    if standing is not None:
        server.add_bot(-100, by=7, **standing)
    made = settings(server).model_copy(update={"allow": ["1001", "-100"]})
    found = [one for one in (await examine(made)).findings if one.part == "telegram group -100"]
    assert [one.verdict for one in found] == ([verdict] if verdict else [])
    assert all(words in one.found and one.remedy for one in found)


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
