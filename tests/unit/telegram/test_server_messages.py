"""The Bot API server takes the messages that Telegram takes, and refuses the others."""

from __future__ import annotations

from typing import Any

import pytest

from bot.testing.telegram import TelegramServer
from tests.unit.telegram.client import Client

GROUP = -100200


@pytest.mark.parametrize(
    ("params", "refused"),
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
    client: Client, server: TelegramServer, params: dict[str, Any], refused: str
) -> None:
    server.chat(1)
    said = await client.refused("sendMessage", **{"chat_id": 1, **params})
    assert said.startswith("400 Bad Request: ")
    assert refused in said
    assert server.visible(1) == []


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
async def test_entities_that_telegram_refuses(
    client: Client, server: TelegramServer, entities: list[Any], why: str
) -> None:
    server.chat(1)
    said = await client.refused("sendMessage", chat_id=1, text="ab👍cd", entities=entities)
    assert said.startswith("400 Bad Request: ")
    assert why in said


async def test_entities_that_telegram_takes(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    entities = [
        span("blockquote", 0, 6),
        span("bold", 0, 4),
        span("italic", 2, 2),
        span("text_link", 4, 1, url="https://a.b"),
        span("code", 5, 1),
    ]
    await client.ok("sendMessage", chat_id=1, text="ab👍cd", entities=entities)
    assert list(server.visible(1)[0].entities) == entities


async def test_blank_ends_are_cut_off_and_entities_follow(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    entities = [span("bold", 0, 4), span("italic", 4, 3), span("underline", 0, 1)]
    await client.ok("sendMessage", chat_id=1, text="\n\nab x  \n", entities=entities)
    (seen,) = server.visible(1)
    assert seen.text == "ab x"
    assert list(seen.entities) == [span("bold", 0, 2), span("italic", 2, 2)]


async def test_text_that_is_no_utf8_is_refused(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    assert "UTF-8" in await client.refused("sendMessage", chat_id=1, text="\ud83d")


async def test_replies_and_topics_are_shown(client: Client, server: TelegramServer) -> None:
    asked = server.say("question", chat_id=GROUP, thread_id=7)["message"]["message_id"]
    place = {"chat_id": GROUP, "message_thread_id": 7, "reply_parameters": {"message_id": asked}}
    await client.ok("sendMessage", text="answer", **place)
    absent = {"message_id": 99, "allow_sending_without_reply": True}
    await client.ok("sendMessage", text="lost", chat_id=GROUP, reply_parameters=absent)
    answer, lost = server.visible(GROUP)
    assert (answer.thread_id, answer.reply_to) == (7, asked)
    assert (lost.thread_id, lost.reply_to) == (None, None)
    assert [seen.text for seen in server.visible(GROUP, everyone=True)] == ["question", "answer", "lost"]


async def test_previews_show_unless_they_are_turned_off(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    link = [span("text_link", 0, 1, url="https://a.b")]
    await client.ok("sendMessage", chat_id=1, text="https://a.b")
    await client.ok("sendMessage", chat_id=1, text="x", entities=link)
    await client.ok("sendMessage", chat_id=1, text="x")
    off = {"is_disabled": True}
    await client.ok("sendMessage", chat_id=1, text="https://a.b", link_preview_options=off)
    assert [seen.preview for seen in server.visible(1)] == [True, True, False, False]


async def test_messages_are_edited_and_deleted(client: Client, server: TelegramServer) -> None:
    theirs = server.say("mine", chat_id=1)["message"]["message_id"]
    sent = (await client.ok("sendMessage", chat_id=1, text="old"))["message_id"]
    place = {"chat_id": 1, "message_id": sent}
    assert "message is not modified" in await client.refused("editMessageText", text="old", **place)
    await client.ok("editMessageText", text="new", **place)
    (seen,) = server.visible(1)
    assert (seen.text, seen.edited) == ("new", True)
    assert "can't be edited" in await client.refused(
        "editMessageText", chat_id=1, message_id=theirs, text="x"
    )
    assert "can't be deleted" in await client.refused("deleteMessage", chat_id=1, message_id=theirs)
    await client.ok("deleteMessage", **place)
    assert server.visible(1) == []
    assert "message to delete not found" in await client.refused("deleteMessage", **place)
