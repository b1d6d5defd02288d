"""Tests of the fake server: it refuses the requests that Telegram refuses."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from bot.testing.telegram import TelegramServer


async def refused(server: TelegramServer, method: str, **params: Any) -> str:
    address = f"{server.url}/bot{server.token}/{method}"
    async with aiohttp.ClientSession() as session, session.post(address, json=params) as answer:
        body = await answer.json()
    assert not body["ok"], body
    return f"{body['error_code']} {body['description']}"


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"text": ""}, "message text is empty"),
        ({"text": " \n "}, "message text is empty"),
        ({"text": "x" * 4097}, "message is too long"),
        ({"text": "👍" * 2049}, "message is too long"),
        ({"text": "x", "chat_id": 77}, "chat not found"),
        ({"text": "x", "chat_id": ""}, "chat_id is empty"),
        ({"text": "x", "parse_mode": "Klingon"}, "unsupported parse_mode"),
        ({"text": "x", "message_thread_id": 9}, "message thread not found"),
        ({"text": "x", "message_thread_id": "nine"}, "integer expected"),
        ({"text": "x", "message_thread_id": True}, "must be an integer"),
        ({"text": "\u200b\ufeff"}, "message text is empty"),
        ({"text": "x", "reply_parameters": {"message_id": 9}}, "message to be replied not found"),
        ({"text": "x", "reply_parameters": "{"}, "can't parse reply_parameters"),
        ({"text": "x", "entities": "no"}, "can't parse entities"),
        ({"text": "x", "entities": {}, "reply_parameters": [1]}, "object expected"),
        ({"text": "x", "entities": {"a": 1}}, "array expected"),
    ],
)
async def test_messages_that_telegram_refuses(
    server: TelegramServer, params: dict[str, Any], why: str
) -> None:
    server.chat(1)
    said = await refused(server, "sendMessage", **{"chat_id": 1, **params})
    assert said.startswith("400 Bad Request: ")
    assert why in said


def span(kind: str, offset: Any, length: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


LINK = {"url": "https://a.b"}


@pytest.mark.parametrize(
    ("entities", "why"),
    [
        ([span("bold", 0, 7)], "out of the text"),
        ([span("bold", -1, 2)], "out of the text"),
        ([span("bold", 6, 1)], "out of the text"),
        ([span("bold", 0, 0)], "out of the text"),
        ([span("bold", "0", 1)], "integers"),
        ([span("bold", True, 1)], "integers"),
        ([span("blink", 0, 1)], "unknown entity type"),
        (["bold"], "unknown entity type"),
        ([span("bold", 3, 1)], "middle of a UTF-16 symbol"),
        ([span("bold", 2, 1)], "middle of a UTF-16 symbol"),
        ([span("bold", 0, 1)] * 2, "nested bold"),
        ([span("bold", 0, 4), span("italic", 2, 4)], "overlap partially"),
        ([span("pre", 0, 4), span("bold", 0, 1)], "bold inside pre"),
        ([span("bold", 0, 4), span("code", 0, 1)], "code inside bold"),
        ([span("code", 0, 4), span("text_link", 0, 1, **LINK)], "text_link inside code"),
        ([span("text_link", 0, 4, **LINK), span("mention", 0, 1)], "mention inside text_link"),
        ([span("blockquote", 0, 4), span("blockquote", 0, 1)], "nested blockquote"),
        ([span("blockquote", 0, 4), span("expandable_blockquote", 0, 1)], "nested quotes"),
        ([span("text_link", 0, 1)], "unsupported URL"),
        ([span("text_link", 0, 1, url="javascript:x")], "unsupported URL"),
    ],
)
async def test_entities_that_telegram_refuses(server: TelegramServer, entities: list[Any], why: str) -> None:
    server.chat(1)
    said = await refused(server, "sendMessage", chat_id=1, text="ab👍cd", entities=entities)
    assert said.startswith("400 Bad Request: ")
    assert why in said


HELP = {"command": "help", "description": "Help"}


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("noSuchMethod", {}, "404"),
        ("sendMessage", {"chat_id": 2, "text": "x"}, "403 Forbidden: bot was blocked"),
        ("sendMessage", {"chat_id": -5, "text": "x"}, "upgraded to a supergroup"),
        ("sendChatAction", {"chat_id": 1, "action": "dancing"}, "wrong parameter action"),
        ("sendChatAction", {"chat_id": 1, "action": "typing", "message_thread_id": 4}, "thread"),
        ("setMyCommands", {"commands": [HELP], "language_code": "zh-hans"}, "language"),
        ("setMyCommands", {"commands": [HELP], "scope": {"type": "all"}}, "unsupported type"),
        ("setMyCommands", {"commands": [HELP | {"command": "Help"}]}, "BOT_COMMAND_INVALID"),
        ("setMyCommands", {"commands": [HELP | {"description": ""}]}, "BOT_COMMAND_INVALID"),
        ("setMyDescription", {"description": "x" * 513}, "too long"),
        ("setMyShortDescription", {"short_description": "x" * 121}, "too long"),
        ("answerCallbackQuery", {"callback_query_id": "1"}, "query is too old"),
        ("getFile", {"file_id": "none"}, "invalid file_id"),
        ("editMessageText", {"chat_id": 1, "message_id": 1, "text": "x"}, "can't be edited"),
        ("deleteMessage", {"chat_id": 1, "message_id": 1}, "can't be deleted"),
    ],
)
async def test_calls_that_telegram_refuses(
    server: TelegramServer, method: str, params: dict[str, Any], why: str
) -> None:
    assert server.say("theirs", chat_id=1)["message"]["message_id"] == 1
    server.block(2)
    server.upgrade(-5, -100200)
    assert why in await refused(server, method, **params)
