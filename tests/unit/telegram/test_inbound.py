"""Updates as inbound messages: who is addressed, where, with what, and what is refused or unreadable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from telegram import User

from bot.contracts import Inbound
from bot.testing.telegram import TelegramServer
from channels.telegram import inbound, wire

GROUP = -100200
BOT = 4242
ALBUM = {"media_group_id": "g"}


@pytest.fixture(scope="module")
def me() -> wire.Bot:
    bot = wire.connect("4242:test-token", "http://127.0.0.1:1", 1)
    bot._bot_user = User(BOT, "Shipmate", True, username="Shipmate_Bot")
    return bot


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> TelegramServer:
    monkeypatch.setattr(TelegramServer, "_wake", lambda self: None)  # no loop runs here
    return TelegramServer()


def read(update: Any, me: wire.Bot) -> Inbound | None:
    """Through JSON, as it comes."""
    event = inbound.read(json.loads(json.dumps(update)), me, 1_800_000_000.5)
    return None if event is None else inbound.merge([event])


def must(update: Any, me: wire.Bot) -> Inbound:
    found = read(update, me)
    assert found is not None
    return found


def test_a_private_message_is_direct(server: TelegramServer, me: wire.Bot) -> None:
    update = server.say("  héllo 👋\n你好 ", name="Zoë")
    found = must(update, me)
    assert found.text == "  héllo 👋\n你好 "
    assert (found.chat_type, found.addressed, found.kind) == ("direct", "direct", "message")
    assert (found.chat_id, found.chat_key, found.user_id) == ("1001", "telegram:chat:1001", "1001")
    assert found.target == {"chat_id": "1001"}
    assert found.keys == (f"telegram:4242:update:{update['update_id']}", "telegram:4242:message:1001:1")
    assert (found.message_id, found.user_name, found.from_bot) == ("1", "Zoë", False)
    assert found.ts == update["message"]["date"] * 1000


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("just talking", None),
        ("@shipmate_bot hello", "mention"),
        ("你好 👍 @SHIPMATE_bot", "mention"),
        ("@shipmate_bot2 hello", None),
        ("mail shipmate_bot@shipmate_bot.org", None),
        ("/help", "command"),
        ("/help@shipmate_bot now", "command"),
        ("/help@other_bot", None),
        ("/help@other_bot @shipmate_bot", None),
        ("try /help", None),
        ("/usr/bin", None),
        ("/usr/bin then /abc", None),
        ("shipmate_bot", None),
    ],
)
def test_a_group_message_is_for_the_bot_only_when_it_says_so(
    server: TelegramServer, me: wire.Bot, text: str, addressed: str | None
) -> None:
    found = read(server.say(text, chat_id=GROUP), me)
    assert (found.addressed if found else None) == addressed
    if found:
        assert (found.chat_type, found.user_id) == ("group", "1001")
        assert found.target == {"chat_id": str(GROUP), "reply_to": found.message_id}


def test_a_mention_without_a_user_name_counts_by_id(server: TelegramServer, me: wire.Bot) -> None:
    for user, addressed in ((BOT, True), (77, False)):
        span = {"type": "text_mention", "offset": 0, "length": 4, "user": {**server.me, "id": user}}
        found = read(server.say("ship, hi", chat_id=GROUP, entities=[span]), me)
        assert (found is not None) is addressed


@pytest.mark.parametrize(("offset", "length"), [(9999, 4), (-3, 2), (0, 10**9), (1, 1)])
def test_a_mention_with_senseless_numbers_is_no_mention(
    server: TelegramServer, me: wire.Bot, offset: int, length: int
) -> None:
    span = {"type": "mention", "offset": offset, "length": length}
    assert read(server.say("👍 hi", chat_id=GROUP, entities=[span]), me) is None


def test_a_reply_to_the_bot_is_for_it_and_brings_its_words(server: TelegramServer, me: wire.Bot) -> None:
    mine = server.say("I said", chat_id=GROUP, fields={"from": server.me})["message"]["message_id"]
    theirs = server.say("they said", chat_id=GROUP, user_id=5, name="Fifth")["message"]["message_id"]
    found = must(server.say("why?", chat_id=GROUP, reply_to=mine), me)
    assert found.addressed == "reply"
    assert found.chat_key == f"telegram:chat:{GROUP}"  # a thread of replies is no topic
    (quoted,) = found.quoted
    assert (quoted.text, quoted.from_self, quoted.user_id) == ("I said", True, str(BOT))
    assert read(server.say("why?", chat_id=GROUP, reply_to=theirs), me) is None
    (quoted,) = must(server.say("@shipmate_bot why?", chat_id=GROUP, reply_to=theirs), me).quoted
    assert (quoted.text, quoted.from_self, quoted.user_id) == ("they said", False, "5")
    assert quoted.user_name == "Fifth"
    assert quoted.message_id == str(theirs)


def test_a_reply_to_a_file_says_what_kind_it_is(server: TelegramServer, me: wire.Bot) -> None:
    photo = server.say(media="photo")["message"]["message_id"]
    dice = server.say("by a channel", fields={"sender_chat": {"id": 3, "type": "channel", "title": "c"}})
    assert must(server.say("what is this?", reply_to=photo), me).quoted[0].text == "[photo]"
    quoted = must(server.say("and this?", reply_to=dice["message"]["message_id"]), me).quoted[0]
    assert (quoted.text, quoted.user_id, quoted.user_name) == ("by a channel", None, None)


def test_topics_are_chats_of_their_own(server: TelegramServer, me: wire.Bot) -> None:
    found = must(server.say("/help", chat_id=GROUP, thread_id=7), me)
    assert found.chat_key == f"telegram:chat:{GROUP}:topic:7"
    assert found.target == {"chat_id": str(GROUP), "message_thread_id": "7", "reply_to": found.message_id}
    direct = must(server.say("hi", thread_id=9), me)
    assert direct.chat_key == "telegram:chat:1001:topic:9"
    assert direct.target == {"chat_id": "1001", "message_thread_id": "9"}


def test_a_message_in_a_topic_that_the_bot_opened_is_no_reply_to_it(
    server: TelegramServer, me: wire.Bot
) -> None:
    server.topic(GROUP, 7, by_bot=True)
    assert read(server.say("hi", chat_id=GROUP, thread_id=7), me) is None
    assert must(server.say("/help", chat_id=GROUP, thread_id=7), me).quoted == ()


@pytest.mark.parametrize(
    ("text", "name", "args"),
    [
        ("/start", "start", ""),
        ("/start payload-1_2", "start", "payload-1_2"),
        ("/NEW  topic\nmore ", "new", "topic\nmore"),
        ("/help@Shipmate_BOT 你好", "help", "你好"),
        ("/a, b", "a", ", b"),
    ],
)
def test_commands_are_told_from_text(
    server: TelegramServer, me: wire.Bot, text: str, name: str, args: str
) -> None:
    for chat in (1001, GROUP):
        found = must(server.say(text, chat_id=chat), me)
        assert found.command is not None
        assert (found.command.name, found.command.args) == (name, args)
        assert found.text == text


def test_what_is_no_command_of_this_bot_stays_text(server: TelegramServer, me: wire.Bot) -> None:
    for text in ("/help@other_bot", "/usr/bin then /abc", "say /help", "/"):
        found = must(server.say(text), me)
        assert (found.command, found.text, found.addressed) == (None, text, "direct")
    broken = [{"type": "bot_command", "offset": 0, "length": 3}]
    assert must(server.say("abc", entities=broken), me).command is None


def test_edits_are_edits_and_run_no_command(server: TelegramServer, me: wire.Bot) -> None:
    number = server.say("/help")["message"]["message_id"]
    update = server.edit(number, "/stop")
    found = must(update, me)
    when = update["edited_message"]["edit_date"]
    assert (found.kind, found.text, found.command) == ("edit", "/stop", None)
    assert found.keys == (f"telegram:4242:update:{update['update_id']}",)
    assert found.ts == when * 1000
    in_group = server.say("hi", chat_id=GROUP)["message"]["message_id"]
    assert read(server.edit(in_group, "ho", chat_id=GROUP), me) is None
    assert must(server.edit(in_group, "ho @shipmate_bot", chat_id=GROUP), me).kind == "edit"


@pytest.mark.parametrize(
    ("media", "kind", "name"),
    [
        ("photo", "photo", None),
        ("voice", "voice", None),
        ("audio", "audio", "a.bin"),
        ("video", "video", "a.bin"),
        ("video_note", "video", None),
        ("animation", "video", "a.bin"),
        ("sticker", "sticker", None),
        ("document", "file", "a.bin"),
    ],
)
def test_files_are_named_and_their_captions_are_the_text(
    server: TelegramServer, me: wire.Bot, media: Any, kind: str, name: str | None
) -> None:
    update = server.say("look 👀", media=media, data=b"1234", file_name="a.bin")
    found = must(update, me)
    (attachment,) = found.attachments
    assert (attachment.kind, attachment.name, attachment.size) == (kind, name, 4)
    assert attachment.ref == "file-1"
    assert found.text == "look 👀"
    assert must(server.say(media=media), me).text == ""


def test_a_caption_addresses_and_commands_like_a_text(server: TelegramServer, me: wire.Bot) -> None:
    assert read(server.say("look", media="photo", chat_id=GROUP), me) is None
    found = must(server.say("/help look", media="photo", chat_id=GROUP), me)
    assert found.command is not None
    assert must(server.say("@shipmate_bot", media="photo", chat_id=GROUP), me).addressed == "mention"


def test_file_names_cannot_pretend(server: TelegramServer, me: wire.Bot) -> None:
    update = server.say(media="document", file_name="invoice\u202egnp.exe\n\0你.pdf", mime="application/pdf")
    (attachment,) = must(update, me).attachments
    assert attachment.name == "invoicegnp.exe你.pdf"
    assert attachment.mime == "application/pdf"


def test_other_content_is_named(server: TelegramServer, me: wire.Bot) -> None:
    place = {"latitude": 1.0, "longitude": 2.0}
    (attachment,) = must(server.say(fields={"location": place}), me).attachments
    assert (attachment.kind, attachment.name, attachment.ref) == ("file", "location", None)


def test_messages_that_are_nobodys_are_dropped(server: TelegramServer, me: wire.Bot) -> None:
    channel = {"id": -9, "type": "channel", "title": "c"}
    people = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    group = server.chat(GROUP).json()
    hidden = {"sender_chat": group, "from": people}
    assert read(server.say("@shipmate_bot", chat_id=GROUP, fields=hidden), me) is None
    assert read(server.say("/help", chat_id=GROUP, fields={"sender_chat": channel}), me) is None
    assert read(server.say("mine", fields={"from": server.me}), me) is None
    assert read(server.say(chat_id=GROUP, fields={"new_chat_members": [server.me]}), me) is None
    assert read(server.say(), me) is None
    post = server.say("post")["message"]
    assert read({"update_id": 1, "channel_post": post}, me) is None
    assert read({"update_id": 1, "message": {**post, "chat": channel}}, me) is None
    assert read({"update_id": 1, "poll_answer_of_the_future": {"x": 1}}, me) is None
    senderless = {key: value for key, value in post.items() if key != "from"}
    assert read({"update_id": 1, "message": senderless}, me) is None


def test_other_bots_are_passed_on_as_bots(server: TelegramServer, me: wire.Bot) -> None:
    assert must(server.say("/help", chat_id=GROUP, user_id=9, is_bot=True), me).from_bot
    assert must(server.say("hi", user_id=9, is_bot=True), me).from_bot


def test_lone_surrogates_are_replaced_and_nothing_else(server: TelegramServer, me: wire.Bot) -> None:
    found = must(server.say("/a x\ud83d y\0 \u202e", name="N\udc00"), me)
    assert found.text == "/a x\ufffd y\0 \u202e"
    assert found.command is not None
    assert found.command.args == "x\ufffd y\0 \u202e".strip()
    assert found.user_name == "N\ufffd"


def test_names_are_cut_to_what_a_screen_shows(server: TelegramServer, me: wire.Bot) -> None:
    assert len(must(server.say("x", name="n" * 5000), me).user_name or "") == 200


def test_an_album_is_one_message(server: TelegramServer, me: wire.Bot) -> None:
    items = [
        server.say("", media="photo", fields=ALBUM, chat_id=GROUP),
        server.say("@shipmate_bot compare", media="photo", fields=ALBUM, chat_id=GROUP),
        server.say("", media="video", fields=ALBUM, chat_id=GROUP),
    ]
    events = [event for item in items if (event := inbound.read(item, me, 0))]
    assert {event.album for event in events} == {f"{GROUP}:g"}
    found = inbound.merge(events)
    assert found is not None
    assert (found.text, found.addressed) == ("@shipmate_bot compare", "mention")
    assert [attachment.kind for attachment in found.attachments] == ["photo", "photo", "video"]
    assert len(found.keys) == 6
    assert found.message_id == "1"
    assert found.items == {"1": "", "2": "@shipmate_bot compare", "3": ""}
    assert inbound.merge(events[:1]) is None


@pytest.mark.parametrize(
    "change",
    [
        {"message_id": "7"},
        {"message_id": True},
        {"date": None},
        {"date": 10**30},
        {"chat": None},
        {"chat": {"id": "1001", "type": "private"}},
        {"from": {"id": "1001", "is_bot": False, "first_name": "x"}},
        {"from": {"id": True, "is_bot": False, "first_name": "x"}},
        {"text": 5},
        {"text": ["x"]},
        {"photo": [{"file_id": "a"}]},
        {"reply_to_message": 5},
    ],
)
def test_what_is_no_update_is_unreadable(
    server: TelegramServer, me: wire.Bot, change: dict[str, Any]
) -> None:
    with pytest.raises(inbound.Unreadable) as caught:
        read(server.say("secret words", fields=change), me)
    assert "secret" not in str(caught.value)


def test_an_edit_without_its_date_is_unreadable(server: TelegramServer, me: wire.Bot) -> None:
    said = server.say("x")["message"]
    with pytest.raises(inbound.Unreadable):
        read({"update_id": 1, "edited_message": said}, me)
