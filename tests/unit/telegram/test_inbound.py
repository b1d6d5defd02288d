"""Tests of the conversion of updates to `Inbound`s."""

from __future__ import annotations

import json
from typing import Any

import pytest
from telegram import User

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, Origin, Quoted
from bot.testing.clock import FakeClock
from bot.testing.telegram import TelegramServer
from channels.telegram import bot_api, inbound

GROUP = -100200
BOT = 4242
ALBUM = {"media_group_id": "g"}


class Line:
    """A bot that reads updates of a server without an event loop."""

    def __init__(self) -> None:
        self.server = TelegramServer(clock=FakeClock())
        self.server.wake = lambda: None  # type: ignore[method-assign]
        self.server.updates.allowed = inbound.HANDLED
        self.me = bot_api.connect("4242:test-token", "http://127.0.0.1:1", 1)
        self.me._bot_user = User(BOT, "Shipmate", True, username="Shipmate_Bot")

    def read(self, update: Any) -> Inbound | None:
        """Convert an update, encoded as JSON. Return None if the update does not concern the bot."""
        found = inbound.read(json.loads(json.dumps(update)), self.me, 1_800_000_000.5)
        return None if found is None or found.addressed == "chat" else found

    def must(self, update: Any) -> Inbound:
        found = self.read(update)
        assert found is not None
        return found

    def heard(self, *said: Any, **how: Any) -> Inbound:
        """Return the `Inbound` of a message."""
        return self.must(self.server.say(*said, **how))


@pytest.fixture
def line() -> Line:
    return Line()


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
    line: Line, text: str, addressed: str | None
) -> None:
    found = line.read(line.server.say(text, chat_id=GROUP))
    assert (found.addressed if found else None) == addressed
    if found:
        assert (found.chat_type, found.user_id) == ("group", "1001")
        assert found.target == {"chat_id": str(GROUP), "reply_to": found.message_id}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("@shipmate_bot hi", "hi"),
        (" @SHIPMATE_bot, 你好", "你好"),
        ("ask @shipmate_bot now", "ask @shipmate_bot now"),
        ("@shipmate_bot", "@shipmate_bot"),
        ("@shipmate_bot2 @shipmate_bot", "@shipmate_bot2 @shipmate_bot"),
    ],
)
def test_the_bots_own_mention_before_a_sentence_is_left_out(line: Line, said: str, told: str) -> None:
    assert line.heard(said, chat_id=GROUP).text == told


def test_what_speaks_to_somebody_else_says_so(line: Line) -> None:
    theirs = line.server.say("I said", chat_id=GROUP, user_id=5, name="Fifth")["message"]["message_id"]
    mine = line.server.say("me", chat_id=GROUP, fields={"from": line.server.me})["message"]["message_id"]
    other = {"type": "text_mention", "offset": 0, "length": 4, "user": {**line.server.me, "id": 77}}
    said = [
        (line.server.say(" @fifth_one what now?", chat_id=GROUP), True),
        (line.server.say("Kurt, hi", chat_id=GROUP, entities=[other]), True),
        (line.server.say("why?", chat_id=GROUP, reply_to=theirs), True),
        (line.server.say("ask @fifth_one", chat_id=GROUP), False),
        (line.server.say("@shipmate_bot hi", chat_id=GROUP), False),
        (line.server.say("why?", chat_id=GROUP, reply_to=mine), False),
    ]
    for update, to_others in said:
        found = inbound.read(update, line.me, 0)
        assert found is not None
        assert found.to_others is to_others


def test_a_mention_without_a_user_name_counts_by_id(line: Line) -> None:
    for user, addressed in ((BOT, True), (77, False)):
        span = {"type": "text_mention", "offset": 0, "length": 4, "user": {**line.server.me, "id": user}}
        found = line.read(line.server.say("ship, hi", chat_id=GROUP, entities=[span]))
        assert (found is not None) is addressed


def test_a_reply_to_the_bot_is_for_it_and_brings_its_words(line: Line) -> None:
    mine = line.server.say("I said", chat_id=GROUP, fields={"from": line.server.me})["message"]["message_id"]
    theirs = line.server.say("they said", chat_id=GROUP, user_id=5, name="Fifth")["message"]["message_id"]
    found = line.heard("why?", chat_id=GROUP, reply_to=mine)
    assert found.addressed == "reply"
    assert found.chat_key == ChatKey.parse(f"telegram:chat:{GROUP}")  # a thread of replies is not a topic
    (quoted,) = found.quoted
    assert (quoted.text, quoted.from_self, quoted.user_id) == ("I said", True, str(BOT))
    assert line.read(line.server.say("why?", chat_id=GROUP, reply_to=theirs)) is None
    (quoted,) = line.heard("@shipmate_bot why?", chat_id=GROUP, reply_to=theirs).quoted
    assert (quoted.text, quoted.from_self, quoted.user_id) == ("they said", False, "5")
    assert quoted.user_name == "Fifth"
    assert quoted.message_id == str(theirs)


def test_a_reply_to_a_file_says_what_kind_it_is(line: Line) -> None:
    photo = line.server.say(media="photo")["message"]["message_id"]
    dice = line.server.say("by a channel", fields={"sender_chat": {"id": 3, "type": "channel", "title": "c"}})
    assert line.heard("what is this?", reply_to=photo).quoted[0].text == "[photo]"
    quoted = line.heard("and this?", reply_to=dice["message"]["message_id"]).quoted[0]
    assert (quoted.text, quoted.user_id, quoted.user_name) == ("by a channel", None, None)


def test_a_message_in_a_topic_that_the_bot_opened_is_no_reply_to_it(line: Line) -> None:
    line.server.topic(GROUP, 7, by_bot=True)
    assert line.read(line.server.say("hi", chat_id=GROUP, thread_id=7)) is None
    assert line.heard("/help", chat_id=GROUP, thread_id=7).quoted == ()


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
def test_commands_are_told_from_text(line: Line, text: str, name: str, args: str) -> None:
    for chat in (1001, GROUP):
        found = line.heard(text, chat_id=chat)
        assert found.command is not None
        assert (found.command.name, found.command.args) == (name, args)
        assert found.text == text
        named = line.heard(f"@Shipmate_bot: {text}", chat_id=chat)
        assert (named.command, named.text) == (found.command, text)


def test_what_is_no_command_of_this_bot_stays_text(line: Line) -> None:
    for text in ("/help@other_bot", "/usr/bin then /abc", "say /help", "/", "@other_bot /help"):
        found = line.heard(text)
        assert (found.command, found.text, found.addressed) == (None, text, "direct")
    broken = [{"type": "bot_command", "offset": 0, "length": 3}]
    assert line.heard("abc", entities=broken).command is None


def test_edits_are_edits_and_run_no_command(line: Line) -> None:
    number = line.server.say("/help")["message"]["message_id"]
    update = line.server.edit(number, "/stop")
    found = line.must(update)
    when = update["edited_message"]["edit_date"]
    assert (found.kind, found.text, found.command) == ("edit", "/stop", None)
    assert found.keys == (f"telegram:4242:update:{update['update_id']}",)
    assert found.ts == when * 1000
    in_group = line.server.say("hi", chat_id=GROUP)["message"]["message_id"]
    assert line.read(line.server.edit(in_group, "ho", chat_id=GROUP)) is None
    assert line.must(line.server.edit(in_group, "ho @shipmate_bot", chat_id=GROUP)).kind == "edit"


@pytest.mark.parametrize(
    ("media", "kind", "name"),
    [
        ("photo", "photo", None),
        ("voice", "voice", None),
        ("audio", "audio", "a.bin"),
        ("video", "video", "a.bin"),
        ("video_note", "video", None),
        ("animation", "video", "a.bin"),
        ("document", "file", "a.bin"),
    ],
)
def test_files_are_named_and_their_captions_are_the_text(
    line: Line, media: Any, kind: str, name: str | None
) -> None:
    update = line.server.say("look 👀", media=media, data=b"1234", file_name="a.bin")
    found = line.must(update)
    (attachment,) = found.attachments
    assert (attachment.kind, attachment.name, attachment.size) == (kind, name, 4)
    assert attachment.ref == "file-1"
    assert found.text == "look 👀"
    assert line.heard(media=media).text == ""


def test_a_caption_addresses_and_commands_like_a_text(line: Line) -> None:
    assert line.read(line.server.say("look", media="photo", chat_id=GROUP)) is None
    found = line.heard("/help look", media="photo", chat_id=GROUP)
    assert found.command is not None
    assert line.heard("@shipmate_bot", media="photo", chat_id=GROUP).addressed == "mention"


def test_file_names_cannot_pretend(line: Line) -> None:
    update = line.server.say(
        media="document", file_name="invoice\u202egnp.exe\n\0你.pdf", mime="application/pdf"
    )
    (attachment,) = line.must(update).attachments
    assert attachment.name == "invoicegnp.exe你.pdf"
    assert attachment.mime == "application/pdf"


def test_messages_that_are_nobodys_are_dropped(line: Line) -> None:
    channel = {"id": -9, "type": "channel", "title": "c"}
    people = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    group = line.server.chat(GROUP).json()
    hidden = {"sender_chat": group, "from": people}
    assert line.read(line.server.say("@shipmate_bot", chat_id=GROUP, fields=hidden)) is None
    assert line.read(line.server.say("/help", chat_id=GROUP, fields={"sender_chat": channel})) is None
    assert line.read(line.server.say("mine", fields={"from": line.server.me})) is None
    assert line.read(line.server.say(chat_id=GROUP, fields={"new_chat_members": [line.server.me]})) is None
    assert line.read(line.server.say()) is None
    post = line.server.say("post")["message"]
    assert line.read({"update_id": 1, "channel_post": post}) is None
    assert line.read({"update_id": 1, "message": {**post, "chat": channel}}) is None
    assert line.read({"update_id": 1, "poll_answer_of_the_future": {"x": 1}}) is None
    senderless = {key: value for key, value in post.items() if key != "from"}
    assert line.read({"update_id": 1, "message": senderless}) is None


def test_other_bots_are_passed_on_as_bots(line: Line) -> None:
    assert line.heard("/help", chat_id=GROUP, user_id=9, is_bot=True).from_bot
    assert line.heard("hi", user_id=9, is_bot=True).from_bot


def test_lone_surrogates_are_replaced_and_nothing_else(line: Line) -> None:
    found = line.heard("/a x\ud83d y\0 \u202e", name="N\udc00")
    assert found.text == "/a x\ufffd y\0 \u202e"
    assert found.command is not None
    assert found.command.args == "x\ufffd y\0 \u202e".strip()
    assert found.user_name == "N\ufffd"


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
def test_what_is_no_update_is_unreadable(line: Line, change: dict[str, Any]) -> None:
    with pytest.raises(inbound.Unreadable) as caught:
        line.read(line.server.say("secret words", fields=change))
    assert "secret" not in str(caught.value)


def sent(line: Line, **fields: Any) -> Quoted:
    """Return the type and the description of a message with these fields and no text."""
    told = line.heard(fields=fields)
    (brought,) = told.brought
    assert told.has_text
    assert (told.text, told.attachments) == ("", ())
    return brought


PLACE = {"latitude": 52.520008, "longitude": 13.404954}
CONTACT = {
    "phone_number": "+49 30 1",
    "first_name": "Eve",
    "last_name": "李",
    "user_id": 666,
    "vcard": "BEGIN:VCARD",
}
POLL = {
    "id": "1",
    "question": "Where?",
    "total_voter_count": 3,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
    "options": [
        {"text": "Rome", "voter_count": 1, "persistent_id": "a"},
        {"text": "東京", "voter_count": 2, "persistent_id": "b"},
    ],
}


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"location": PLACE}, "location", ["latitude: 52.520008", "longitude: 13.404954"]),
        (
            {"venue": {"location": PLACE, "title": "Dom", "address": "Lustgarten"}, "location": PLACE},
            "venue",
            ["Dom", "Lustgarten", "52.520008"],
        ),
        ({"contact": CONTACT}, "contact", ["Eve", "李", "phone number: +49 30 1", "666"]),
        ({"poll": POLL}, "poll", ["question: Where?", "Rome", "東京", "voter count: 2"]),
        ({"dice": {"emoji": "🎲", "value": 5}}, "dice", ["🎲", "5"]),
        ({"story": {"id": 3, "chat": {"id": 9, "type": "channel", "title": "News"}}}, "story", ["News"]),
        (
            {"checklist": {"title": "List", "tasks": [{"id": 1, "text": "milk"}]}},
            "checklist",
            ["List", "text: milk"],
        ),
        ({"game": {"title": "Chess", "description": "Play", "photo": []}}, "game", ["Chess", "Play"]),
        ({"hologram": {"a": 1}, "sender_tag": "x"}, "unknown", ["hologram"]),
    ],
)
def test_what_is_neither_words_nor_a_file_is_named_and_told(
    line: Line, fields: dict[str, Any], kind: str, words: list[str]
) -> None:
    brought = sent(line, **fields)
    assert brought.kind == kind
    for one in words:
        assert one in brought.text
    assert brought.origin is None


@pytest.mark.parametrize(
    "fields",
    [
        {"new_chat_members": [{"id": 9, "is_bot": False, "first_name": "X"}]},
        {"group_chat_created": True, "strange": 1},
        {"pinned_message": {"message_id": 1, "date": 0, "chat": {"id": 1, "type": "private"}}},
        {"migrate_to_chat_id": -1005},
        {"forward_date": 1},
    ],
)
def test_messages_of_the_service_are_nobodys(line: Line, fields: dict[str, Any]) -> None:
    assert line.read(line.server.say(fields=fields)) is None


def test_addresses_behind_words_are_told_beside_them(line: Line) -> None:
    said = "🎉 see here and there"
    entities = [
        {"type": "text_link", "offset": 7, "length": 4, "url": "https://a.example/?q=1"},
        {"type": "text_link", "offset": 16, "length": 5, "url": "https://b.example/"},
    ]
    told = line.heard(said, entities=entities)
    assert told.text == said
    assert [(link.text, link.url) for link in told.links] == [
        ("here", "https://a.example/?q=1"),
        ("there", "https://b.example/"),
    ]
    passed_on = line.must(line.server.forward(told_of(said, entities)))
    assert passed_on.links == ()
    assert passed_on.brought[0].text == "🎉 see here (https://a.example/?q=1) and there (https://b.example/)"


def told_of(words: str, entities: list[dict[str, Any]]) -> dict[str, Any]:
    chat = {"id": 666, "type": "private", "first_name": "Eve"}
    who = {"id": 666, "is_bot": False, "first_name": "Eve"}
    return {"message_id": 1, "date": 5, "chat": chat, "from": who, "text": words, "entities": entities}


def test_where_somebody_is_now_is_no_edit(line: Line) -> None:
    live = {"location": {**PLACE, "live_period": 900}}
    number = line.server.say(fields=live)["message"]["message_id"]
    line.server.chats[1001].messages[number]["location"] = {**PLACE, "latitude": 1.0, "live_period": 900}
    message = {**line.server.chats[1001].messages[number], "edit_date": 2_000_000_000}
    assert line.read({"update_id": 1, "edited_message": message}) is None


def test_an_older_servers_marks_of_a_forward_count(line: Line) -> None:
    told = line.heard("/stop", fields={"forward_date": 1, "forward_sender_name": "Eve"})
    assert (told.text, told.command) == ("", None)
    assert told.brought[0].origin == Origin(how="forwarded")
