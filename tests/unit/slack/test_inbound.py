"""Conversion of payloads to `Inbound`s without a server, for cases that other tests do not cover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Command, Quoted
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.slack import SlackServer
from channels.slack import inbound
from channels.slack.web_api import MAX_AGE, People


@pytest.fixture
def client(server: SlackServer) -> AsyncWebClient:
    return AsyncWebClient(token=server.bot_token, base_url=server.api_url, retry_handlers=[])


ME = inbound.BotIdentity(team="T1", user="U0SHIP", bot="B0SHIP")
TS, LATER = "1700000000.000100", "1700000001.500000"


def body(**event: Any) -> dict[str, Any]:
    return {"type": "event_callback", "event_id": "Ev1", "event": {"type": "message", **event}}


def post(**more: Any) -> dict[str, Any]:
    return {"user": "U0ADA", "ts": TS, "text": "hello", **more}


@pytest.mark.parametrize(
    ("channel", "thread_ts", "key", "chat_type"),
    [
        ("D1AA", None, f"slack:chat:D1AA:thread:{TS}", "direct"),
        ("D1AA", TS, f"slack:chat:D1AA:thread:{TS}", "direct"),
        ("D1AA", "1600000000.000001", "slack:chat:D1AA:thread:1600000000.000001", "direct"),
        ("C1AA", None, f"slack:chat:C1AA:thread:{TS}", "group"),
        ("C1AA", TS, f"slack:chat:C1AA:thread:{TS}", "group"),
        ("C1AA", "1600000000.000001", "slack:chat:C1AA:thread:1600000000.000001", "group"),
        ("G1AA", None, f"slack:chat:G1AA:thread:{TS}", "group"),
    ],
)
def test_where_a_message_stands_makes_its_chat(
    channel: str, thread_ts: str | None, key: str, chat_type: str
) -> None:
    said = post(text="<@U0SHIP> hi", channel=channel, thread_ts=thread_ts)
    found = inbound.read_event(body(**said), ME)
    assert found is not None
    assert (str(found.chat_key), found.chat_type) == (key, chat_type)
    assert found.target == {"channel": channel, "thread_ts": thread_ts or TS}
    whole = inbound.read_event(body(**said), replace(ME, one_direct=True))
    assert whole is not None
    assert str(whole.chat_key) == ("slack:chat:D1AA" if chat_type == "direct" else key)
    assert whole.target == found.target
    assert found.opens == (chat_type == "direct" and thread_ts in {None, TS})
    assert not whole.opens


def test_a_command_in_a_direct_chat_is_about_the_chat_unless_it_stands_in_a_thread() -> None:
    for thread_ts, key in {None: "slack:chat:D1AA", TS: f"slack:chat:D1AA:thread:{TS}"}.items():
        said = post(text="!new", channel="D1AA", ts=LATER, thread_ts=thread_ts)
        found = inbound.read_event(body(**said), ME)
        assert found is not None
        assert str(found.chat_key) == key
        assert found.target["thread_ts"] == (thread_ts or LATER)


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("!new", "new", ""),
        ("!History  two words ", "history", "two words"),
        ("\u200b!stop", "stop", ""),
        ("<@U0SHIP> !help me", "help", "me"),
        ("<@U0SHIP|shipmate>: !help", "help", ""),
        ("!deny 理由 🚫", "deny", "理由 🚫"),
        ("!aprove W6AG6Q", "aprove", "W6AG6Q"),  # a misspelt command
    ],
)
def test_a_command_begins_with_an_exclamation_mark(text: str, name: str, args: str) -> None:
    found = inbound.read_event(body(**post(text=text, channel="D1AA")), ME)
    assert found is not None
    said = text[text.find("!") :] if text.startswith("<") else text
    assert (found.command, found.text) == (Command(name=name, args=args), said)


@pytest.mark.parametrize(
    "text",
    [
        "! no",
        "!!wow",
        "well !new",
        "!ship/it",
        "<@U0GRACE> !new",
        "!important: read",
        "!news of today, please",
        "!重要",
    ],
)
def test_other_exclamations_are_messages(text: str) -> None:
    found = inbound.read_event(body(**post(text=text, channel="D1AA")), ME)
    assert found is not None
    assert found.command is None


@pytest.mark.parametrize(
    ("text", "thread_ts", "addressed", "name"),
    [
        ("!status", None, "command", "status"),
        ("!aprove", None, "chat", None),
        ("!important", None, "chat", None),
        ("<@U0SHIP> !aprove", None, "mention", "aprove"),
        ("<@U0SHIP> !important: read", None, "mention", None),
        ("!stop", "1600000000.000001", "thread", "stop"),
        ("!aprove", "1600000000.000001", "thread", "aprove"),
    ],
)
def test_a_command_in_a_channel_needs_no_mention_and_a_misspelt_one_does(
    text: str, thread_ts: str | None, addressed: str, name: str | None
) -> None:
    found = inbound.read_event(body(**post(text=text, channel="C1AA", thread_ts=thread_ts)), ME)
    assert found is not None
    assert (found.addressed, found.command.name if found.command else None) == (addressed, name)


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        ("Forget  a &lt; b", Command(name="forget", args="a < b"), ""),
        ("", Command(name="help"), ""),
        ("/help", Command(name="help"), ""),
        ("!HELP", Command(name="help"), ""),
        ("aprove W6AG6Q", Command(name="aprove", args="W6AG6Q"), ""),
        ("what is the time? a &lt; b", None, "what is the time? a < b"),
        ("news of today, please", None, "news of today, please"),
        ("重要な質問です", None, "重要な質問です"),
    ],
)
@pytest.mark.parametrize("channel", ["C1AA", "D1AA"])
def test_a_slash_command_is_about_the_chat_and_other_words_are_a_message(
    channel: str, text: str, command: Command | None, said: str
) -> None:
    given = {
        "command": "/shipmate",
        "channel_id": channel,
        "user_id": "U0ADA",
        "trigger_id": "1.2",
        "text": text,
    }
    found = inbound.read_command(given, ME, 1.5)
    assert (found.command, found.text, found.addressed, found.ts) == (command, said, "command", 1500)
    assert (found.chat_key, found.message_id) == (ChatKey("slack", channel), None)
    assert found.target == {"channel": channel, "trigger": "1.2"}
    assert found.keys == ("slack:T1:command:1.2",)


@pytest.mark.parametrize("user", [None, "U0OTHERBOT"])
def test_other_bots_are_bots(user: str | None) -> None:
    said = post(text="<@U0SHIP> beep", channel="C1AA", user=user, bot_id="B0OTHER", subtype="bot_message")
    found = inbound.read_event(body(**said), ME)
    assert found is not None
    assert (found.from_bot, found.user_id) == (True, user or "B0OTHER")


def test_files_are_attachments_whatever_slack_says_of_them() -> None:
    files = [
        {"id": "F1", "name": "photo\u202egpj.exe", "mimetype": "image/png", "size": 12},
        {"id": "F2", "name": "memo", "mimetype": "audio/mp4", "subtype": "slack_audio", "size": -1},
        {"id": "F3", "mimetype": "video/mp4", "size": True},
        "broken",
    ]
    found = inbound.read_event(body(**post(channel="D1AA", files=files)), ME)
    assert found is not None
    assert [(one.kind, one.name, one.size, one.ref) for one in found.attachments] == [
        ("photo", "photogpj.exe", 12, "F1"),
        ("voice", "memo", None, "F2"),
        ("video", None, None, "F3"),
        ("file", None, None, None),
    ]


def test_a_mention_may_carry_a_name_and_others_do_not_count() -> None:
    for text, addressed in {
        "<@U0SHIP|ship> hi": "mention",
        "<@U0SHIPPER> hi": "chat",
        "write &lt;@U0SHIP&gt; to call it": "chat",
        "U0SHIP hi": "chat",
    }.items():
        found = inbound.read_event(body(**post(text=text, channel="C1AA")), ME)
        assert found is not None
        assert found.addressed == addressed


@pytest.mark.parametrize(
    ("words", "to_others"),
    [
        ("\n <@U0GRACE> what do you think?", True),
        ("<@U0GRACE|grace>: and you?", True),
        ("ask <@U0GRACE>", False),
        ("<@U0SHIP> hi", False),
        ("<!here> hi", False),
        ("<#C0X|team> hi", False),
    ],
)
def test_what_speaks_to_somebody_else_says_so(words: str, to_others: bool) -> None:
    found = inbound.read_event(body(**post(text=words, channel="C1AA", thread_ts="1600000000.000001")), ME)
    assert found is not None
    assert found.to_others is to_others


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("<@U0SHIP> hi", "hi"),
        (" <@U0SHIP|ship>: 你好", "你好"),
        ("ask <@U0SHIP>, or <@U0SHIP|ship>", "ask @shipmate, or @shipmate"),
        ("<@U0SHIP> <@U0SHIP>?", "@shipmate?"),
        ("<@U0SHIP>", "@shipmate"),
        ("<@U0SHIP>, ", "@shipmate, "),
        ("<@U0SHIPPER> hi", "<@U0SHIPPER> hi"),
    ],
)
def test_the_bots_own_mention_is_its_name_within_a_sentence_and_nothing_before_it(
    words: str, read: str
) -> None:
    me = replace(ME, name="shipmate")
    found = inbound.read_event(body(**post(text=words, channel="C1AA")), me)
    edited = post(text=words, edited={"ts": LATER})
    event = {"subtype": "message_changed", "channel": "C1AA", "message": edited}
    edit = inbound.read_event(body(**event), me)
    assert found is not None
    assert edit is not None
    assert (found.text, edit.text) == (read, read)


@pytest.mark.parametrize("own", [{"bot_id": "B0SHIP", "user": None}, {"user": "U0SHIP"}])
def test_own_messages_are_known_by_either_id(own: dict[str, Any]) -> None:
    assert inbound.read_event(body(**(post(channel="D1AA") | own)), ME) is None
    changed = post(edited={"ts": LATER}) | own
    event = {"subtype": "message_changed", "channel": "D1AA", "message": changed}
    assert inbound.read_event(body(**event), ME) is None
    event = {"subtype": "message_deleted", "channel": "D1AA", "deleted_ts": TS, "previous_message": changed}
    assert inbound.read_event(body(**event), ME) is None


def test_entities_are_undone_once() -> None:
    found = inbound.read_event(body(**post(channel="D1AA", text="&lt;b&gt; &amp;lt; &amp;amp; &nbsp;")), ME)
    assert found is not None
    assert found.text == "<b> &lt; &amp; &nbsp;"


def test_edits_and_deletions_of_chatter_speak_to_nobody() -> None:
    message = post(edited={"ts": LATER})
    edit: dict[str, Any] = {"subtype": "message_changed", "channel": "C1AA", "message": message}
    gone = {"subtype": "message_deleted", "channel": "C1AA", "deleted_ts": TS, "previous_message": post()}
    for event in (edit, gone):
        found = inbound.read_event(body(**event), ME)
        assert found is not None
        assert found.addressed == "chat"


def test_a_thread_is_read_in_order_and_without_what_is_no_message() -> None:
    messages: Any = [
        post(ts="2.000000", text="two"),
        post(ts="1.000000", text="one"),
        post(ts="3.000000", text="join", subtype="channel_join"),
        post(ts="3.500000", text="  "),
        {"ts": "3.600000", "text": "beep", "bot_id": "B9", "subtype": "bot_message"},
        "broken",
        {"text": "no ts"},
        post(ts="4.000000", text="the question"),
        post(ts="4.000001", text="later"),
    ]
    assert inbound.read_thread(messages, ME, "4.000000") == [
        Quoted(user_id="U0ADA", text="one", ts=1_000, message_id="1.000000"),
        Quoted(user_id="U0ADA", text="two", ts=2_000, message_id="2.000000"),
        Quoted(user_id="B9", text="beep", ts=3_600, message_id="3.600000", kind="post of a bot"),
    ]
    assert inbound.read_thread("nothing", ME, "4.000000") == []


async def test_a_name_that_was_not_reached_is_asked_for_again(
    server: SlackServer, client: AsyncWebClient
) -> None:
    # aiohttp itself repeats the request once, so two cuts are needed.
    server.fail("users.info", action="cut", times=2)
    server.limit("users.info")
    names = People(client, MemoryLog(), FakeClock())
    for _ in range(3):
        assert names.name("U0ADA") is None
        await names.learn(["U0ADA"])
    assert names.name("U0ADA") == "Ada 🚢"


async def test_somebody_who_travels_is_looked_up_again_after_an_hour(
    server: SlackServer, client: AsyncWebClient
) -> None:
    clock = FakeClock()
    names = People(client, MemoryLog(), clock)
    for zone, asked in (("Europe/Berlin", 1), ("Asia/Tokyo", 2)):
        server.world.users["U0ADA"]["tz"] = zone
        for _ in range(2):
            await names.learn(["U0ADA"])
        heard = inbound.read_event(body(**post(channel="D1AA")), ME)
        assert heard is not None
        heard = names.named(heard)
        assert (heard.zone, heard.language) == (zone, "en-US")
        assert len(server.called("users.info")) == asked
        await clock.advance(MAX_AGE + 1)
    server.limit("users.info")
    await names.learn(["U0ADA"])
    assert names.name("U0ADA") == "Ada 🚢"
