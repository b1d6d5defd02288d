"""Tests of the channel's start. No error text contains the token."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import UserRef
from bot.testing.telegram import refusal
from tests.unit.telegram.bed import Bed, message


@pytest.mark.parametrize("token", [None, "", "nonsense", "4242:a b", "4242:", "4242:x\n"])
async def test_a_malformed_token_is_refused_without_asking(idle: Bed, token: str | None) -> None:
    with pytest.raises(errors.ChannelRefused, match="form"):
        await idle.build(bot_token=token).start(idle.intake)
    assert not idle.server.calls


async def test_a_token_that_telegram_refuses_is_refused(idle: Bed) -> None:
    channel = idle.build(bot_token="4242:revoked-token")
    with pytest.raises(errors.ChannelRefused) as caught:
        await channel.start(idle.intake)
    assert "revoked-token" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert not channel.health().connected
    await channel.stop()


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"status": 200, "body": "<html></html>"},
        {"status": 200, "body": {"ok": True, "result": 5}},
        {"status": 200, "body": {"ok": True, "result": {"id": 1}}},
        {"status": 403, "body": {}},
        {"status": 429, "body": {}},
        {"action": "cut"},
    ],
)
async def test_a_telegram_that_does_not_answer_is_waited_for(idle: Bed, fault: dict[str, Any]) -> None:
    idle.server.fail("getMe", **fault)
    with pytest.raises(errors.ChannelUnreachable) as caught:
        await idle.channel.start(idle.intake)
    assert idle.server.token not in str(caught.value)
    assert not idle.channel.health().connected
    await idle.channel.start(idle.intake)
    assert idle.channel.health().connected


async def test_menus_and_descriptions_are_there_in_each_language(bed: Bed) -> None:
    scopes = {"default", "all_group_chats"}
    assert bed.server.commands.keys() == {(scope, code) for scope in scopes for code in ("", "zh")}
    alone, together = (
        {one["command"]: one["description"] for one in bed.server.commands[scope, ""]}
        for scope in ("default", "all_group_chats")
    )
    assert list(alone)[:3] == ["start", "help", "new"]
    assert {"listen", "allow"} & alone.keys() == set()
    assert "listen" in together
    assert "whoami" not in together
    chinese = {one["command"]: one["description"] for one in bed.server.commands["default", "zh"]}
    assert alone.keys() == chinese.keys()
    assert (alone["stop"], chinese["stop"]) == ("Stop what I'm doing", "停止我正在做的事")
    kinds = {"description", "short_description"}
    assert bed.server.descriptions.keys() == {(kind, code) for kind in kinds for code in ("", "zh")}
    assert "/help" in bed.server.descriptions["description", "zh"]


async def test_an_operator_sees_the_commands_of_operators_in_their_own_chat_and_nobody_else(
    idle: Bed,
) -> None:
    idle.server.chat(7)
    operators = [UserRef("telegram", "7"), UserRef("telegram", "8"), UserRef("slack", "U1")]
    idle.channel = idle.build(operators=operators)
    await idle.channel.start(idle.intake)
    assert {scope for scope, _ in idle.server.commands} == {"default", "all_group_chats", "chat 7"}
    menu = [one["command"] for one in idle.server.commands["chat 7", "zh"]]
    assert {"allow", "block", "new"} <= set(menu)
    assert "listen" not in menu
    assert not {"allow", "block"} & {one["command"] for one in idle.server.commands["default", ""]}


async def test_the_channel_works_without_its_menu(idle: Bed) -> None:
    idle.server.fail("setMyCommands", **refusal(400, "Bad Request: BOT_COMMAND_INVALID"))
    await idle.channel.start(idle.intake)
    assert idle.channel.health().connected
    assert [line.level for line in idle.log.entries] == ["warn"]


async def test_neither_token_nor_words_reach_the_logs_of_the_library(
    idle: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await idle.channel.start(idle.intake)
    idle.server.say("private words")
    await idle.taken()
    await idle.channel.send(message("private answer"))
    idle.server.fail("sendMessage", body="private error page")
    with pytest.raises(errors.DeliveryUncertain):
        await idle.channel.send(message("private answer"))
    await idle.channel.stop()
    logged = caplog.text + idle.log.text
    assert idle.server.token not in logged
    assert "private" not in logged


async def test_a_proxy_in_the_environment_does_not_stand_before_loopback(
    idle: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    await idle.channel.start(idle.intake)
    assert idle.channel.health().connected
