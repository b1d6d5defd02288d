"""The Bot API server refuses what Telegram refuses. `doctor`, the black-box tests and the bench rely on it."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from bot.testing.clock import FakeClock
from bot.testing.telegram import TelegramServer, refusal
from tests.unit.telegram.client import Client

GROUP = -100200
JSON = {"content-type": "application/json"}


async def test_a_wrong_token_is_unauthorised_and_a_malformed_one_unknown(client: Client) -> None:
    assert (await client.call("getMe", token="4242:other"))["error_code"] == 401
    assert (await client.call("getMe", token="nonsense"))["error_code"] == 404
    assert (await client.call("noSuchMethod"))["error_code"] == 404
    assert (await client.ok("getMe"))["username"] == "shipmate_bot"


async def test_parameters_come_in_any_of_the_four_ways(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    address = f"{server.url}/bot{server.token}/sendMessage"
    spans = json.dumps([{"type": "bold", "offset": 0, "length": 1}])
    values = {"chat_id": "1", "text": "x", "entities": spans}
    multipart = aiohttp.FormData(values)
    multipart.add_field("file", b"0", filename="f")
    assert server.visible(2) == []
    for how in ({"params": values}, {"data": values}, {"json": values}, {"data": multipart}):
        async with client.session.post(address, **how) as answer:
            assert answer.status == 200
    async with client.session.get(address, params=values) as answer:
        assert answer.status == 200
    assert [seen.entities[0]["type"] for seen in server.visible(1)] == ["bold"] * 5
    for broken in (b"{", b"[]"):
        async with client.session.post(address, data=broken, headers=JSON) as answer:
            assert answer.status == 400


async def test_an_update_is_kept_until_its_offset_is_passed(client: Client, server: TelegramServer) -> None:
    first, second = server.say("one"), server.say("two")
    assert await client.ok("getUpdates") == [first, second]
    assert await client.ok("getUpdates", limit=1) == [first]
    assert await client.ok("getUpdates", offset=second["update_id"]) == [second]
    assert await client.ok("getUpdates") == [second]
    assert await client.ok("getUpdates", offset=second["update_id"] + 1) == []
    server.repeat(first)
    assert await client.ok("getUpdates") == [first]


async def test_a_negative_offset_keeps_the_newest_only(client: Client, server: TelegramServer) -> None:
    updates = [server.say(str(n)) for n in range(5)]
    assert await client.ok("getUpdates", offset=-2) == updates[-2:]


async def test_updates_are_dropped_after_a_day(
    client: Client, server: TelegramServer, clock: FakeClock
) -> None:
    server.say("old")
    await clock.advance(23 * 3600)
    fresh = server.say("fresh")
    assert len(await client.ok("getUpdates")) == 2
    await clock.advance(2 * 3600)
    assert await client.ok("getUpdates") == [fresh]


async def test_a_long_poll_waits_for_an_update(client: Client, server: TelegramServer) -> None:
    poll = asyncio.create_task(client.ok("getUpdates", timeout=30))
    await server.until(lambda: bool(server.called("getUpdates")))
    assert not poll.done()
    update = server.say("now")
    assert await poll == [update]


async def test_a_long_poll_ends_empty_after_its_timeout(
    client: Client, server: TelegramServer, clock: FakeClock
) -> None:
    poll = asyncio.create_task(client.ok("getUpdates", timeout=30))
    while not clock.sleeping:  # noqa: ASYNC110 - a clock has no event
        await asyncio.sleep(0)
    await clock.advance(29)
    assert clock.sleeping
    await clock.advance(1)
    assert await poll == []


async def test_a_second_poll_ends_the_first_with_a_conflict(client: Client, server: TelegramServer) -> None:
    first = asyncio.create_task(client.refused("getUpdates", timeout=30))
    await server.until(lambda: len(server.called("getUpdates")) == 1)
    second = asyncio.create_task(client.ok("getUpdates", timeout=30))
    assert (await first).startswith("409 Conflict: terminated by other getUpdates request")
    update = server.say("now")
    assert await second == [update]


async def test_a_webhook_and_polls_exclude_each_other(client: Client, server: TelegramServer) -> None:
    poll = asyncio.create_task(client.refused("getUpdates", timeout=30))
    await server.until(lambda: len(server.called("getUpdates")) == 1)
    await client.ok("setWebhook", url="https://bot.test/hook")
    assert (await poll).startswith("409")
    assert (await client.refused("getUpdates")).startswith("409 Conflict: can't use getUpdates")
    assert (await client.ok("getWebhookInfo"))["url"] == "https://bot.test/hook"
    update = server.say("kept")
    await client.ok("deleteWebhook")
    assert await client.ok("getUpdates") == [update]
    await client.ok("deleteWebhook", drop_pending_updates=True)
    assert await client.ok("getUpdates") == []


async def test_only_allowed_updates_are_kept(client: Client, server: TelegramServer) -> None:
    await client.ok("getUpdates", allowed_updates=["edited_message"])
    number = server.say("one")["message"]["message_id"]
    edit = server.edit(number, "two")
    assert await client.ok("getUpdates") == [edit]
    await client.ok("getUpdates", offset=edit["update_id"] + 1, allowed_updates=[])
    fresh = server.say("three")
    assert await client.ok("getUpdates") == [fresh]


async def test_a_blocked_or_upgraded_chat_takes_nothing(client: Client, server: TelegramServer) -> None:
    server.block(1)
    assert (await client.refused("sendMessage", chat_id=1, text="x")).startswith(
        "403 Forbidden: bot was blocked"
    )
    server.upgrade(-5, GROUP)
    body = await client.call("sendMessage", chat_id=-5, text="x")
    assert body["parameters"] == {"migrate_to_chat_id": GROUP}
    await client.ok("sendMessage", chat_id=GROUP, text="x")
    kinds = [set(update["message"]) for update in await client.ok("getUpdates")]
    assert ["migrate_to_chat_id" in kind for kind in kinds] == [True, False]


async def test_actions_commands_and_callbacks_are_checked(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    await client.ok("sendChatAction", chat_id=1, action="typing")
    assert "wrong parameter action" in await client.refused("sendChatAction", chat_id=1, action="dancing")
    assert "thread" in await client.refused("sendChatAction", chat_id=1, action="typing", message_thread_id=4)
    commands = [{"command": "help", "description": "Help"}]
    await client.ok("setMyCommands", commands=commands)
    assert server.commands == {("default", ""): commands}
    group = {"type": "all_group_chats"}
    await client.ok("setMyCommands", commands=commands, scope=group, language_code="zh")
    assert server.commands["all_group_chats", "zh"] == commands
    assert "language" in await client.refused("setMyCommands", commands=commands, language_code="zh-hans")
    assert "unsupported type" in await client.refused(
        "setMyCommands", commands=commands, scope={"type": "all"}
    )
    await client.ok("setMyDescription", description="x" * 512, language_code="zh")
    await client.ok("setMyShortDescription", short_description="y")
    assert server.descriptions == {("description", "zh"): "x" * 512, ("short_description", ""): "y"}
    assert "too long" in await client.refused("setMyDescription", description="x" * 513)
    assert "too long" in await client.refused("setMyShortDescription", short_description="x" * 121)
    for wrong in ({"command": "Help", "description": "x"}, {"command": "help", "description": ""}, "help"):
        assert "BOT_COMMAND_INVALID" in await client.refused("setMyCommands", commands=[wrong])
    sent = (await client.ok("sendMessage", chat_id=1, text="choose"))["message_id"]
    pressed = server.press(sent, "yes", chat_id=1)["callback_query"]["id"]
    await client.ok("answerCallbackQuery", callback_query_id=pressed)
    assert "query is too old" in await client.refused("answerCallbackQuery", callback_query_id="1")
    assert "TOO_LONG" in await client.refused(
        "answerCallbackQuery", callback_query_id=pressed, text="x" * 201
    )


async def test_files_are_served_under_their_path(client: Client, server: TelegramServer) -> None:
    document = server.say(media="document", data=b"bytes", file_name="a.txt")["message"]["document"]
    found = await client.ok("getFile", file_id=document["file_id"])
    assert found["file_size"] == 5
    for token, status in ((server.token, 200), ("4242:other", 404)):
        async with client.session.get(f"{server.url}/file/bot{token}/{found['file_path']}") as answer:
            assert answer.status == status
            assert (await answer.read() == b"bytes") is (status == 200)
    assert "invalid file_id" in await client.refused("getFile", file_id="none")
    large = server.say(media="photo", data=b"\0" * (20 * 1024 * 1024 + 1))["message"]["photo"][-1]
    assert "file is too big" in await client.refused("getFile", file_id=large["file_id"])


async def test_faults_come_on_command(client: Client, server: TelegramServer) -> None:
    server.chat(1)
    server.fail("sendMessage", **refusal(429, "Too Many Requests: retry after 3", retry_after=3))
    body = await client.call("sendMessage", chat_id=1, text="x")
    assert (body["error_code"], body["parameters"]) == (429, {"retry_after": 3})
    server.fail("sendMessage", action="lose")
    with pytest.raises(aiohttp.ClientError):
        await client.ok("sendMessage", chat_id=1, text="lost")
    server.fail("sendMessage", action="cut")
    with pytest.raises(aiohttp.ClientError):
        await client.ok("sendMessage", chat_id=1, text="cut")
    assert [seen.text for seen in server.visible(1)] == ["lost"]


async def test_flood_limits_hold_for_each_chat_on_the_servers_clock(clock: FakeClock) -> None:
    async with TelegramServer(clock=clock, limits=True) as server, aiohttp.ClientSession() as session:
        client = Client(server, session)
        for chat, wait in ((1, 1), (GROUP, 3)):
            server.chat(chat)
            for _ in range(5):
                await client.ok("sendChatAction", chat_id=chat, action="typing")
            body = await client.call("sendMessage", chat_id=chat, text="x")
            assert body["parameters"] == {"retry_after": wait}
            await clock.advance(wait)
            await client.ok("sendMessage", chat_id=chat, text="x")


def test_what_people_say_gets_its_entities_as_telegram_makes_them() -> None:
    server = TelegramServer()
    server.wake = lambda: None  # type: ignore[method-assign]  # no loop runs here
    said = server.say("👍 @shipmate_bot see /help@shipmate_bot me@here.org https://a.b/c @no")["message"]
    assert said["entities"] == [
        {"type": "mention", "offset": 3, "length": 13},
        {"type": "bot_command", "offset": 21, "length": 18},
        {"type": "url", "offset": 52, "length": 13},
    ]
    mine = {"type": "text_mention", "offset": 0, "length": 2, "user": server.me}
    assert server.say("hi", entities=[mine])["message"]["entities"] == [mine]
    assert server.say("/x", media="photo")["message"]["caption_entities"][0]["type"] == "bot_command"


async def test_a_message_in_a_topic_points_at_the_topics_opening(server: TelegramServer) -> None:
    server.topic(GROUP, 7, by_bot=True)
    said = server.say("hi", chat_id=GROUP, thread_id=7)["message"]
    assert said["is_topic_message"] is True
    assert said["reply_to_message"]["forum_topic_created"]
    assert said["reply_to_message"]["from"]["id"] == server.me["id"]


async def test_a_reply_in_a_group_without_topics_has_a_thread_all_the_same(server: TelegramServer) -> None:
    root = server.say("root", chat_id=GROUP)["message"]["message_id"]
    reply = server.say("reply", chat_id=GROUP, reply_to=root)["message"]
    assert reply["message_thread_id"] == root
    assert "is_topic_message" not in reply


async def test_raw_updates_go_out_as_they_are(client: Client, server: TelegramServer) -> None:
    numbered = server.push_raw({"message": 5})
    server.push_raw({"update_id": "x"})
    server.push_raw("nonsense")
    assert await client.ok("getUpdates") == [numbered, {"update_id": "x"}, "nonsense"]
    assert isinstance(numbered["update_id"], int)
