"""Tests of edits, replies, stops and damaged updates."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telegram import Update

from bot.testing.telegram import TelegramServer
from channels.telegram import inbound
from channels.telegram.manifest import MANIFEST
from tests.shares import examples
from tests.unit.telegram.bed import GROUP, Bed
from tests.unit.telegram.test_inbound import ALBUM, Line, line

__all__ = ["line"]
EXAMPLES = int(os.environ.get("EXAMPLES", examples(600)))


@pytest.mark.parametrize("where", [{}, {"chat_id": GROUP}, {"chat_id": GROUP, "thread_id": 7}])
def test_an_edit_has_the_place_and_the_id_of_its_message(line: Line, where: dict[str, Any]) -> None:
    said = line.server.say("@shipmate_bot 你好", **where)
    original = line.must(said)
    changed = line.server.edit(
        said["message"]["message_id"], "@shipmate_bot 再见", chat_id=where.get("chat_id", 1001)
    )
    edit = line.must(changed)
    assert (edit.kind, edit.text) == ("edit", "再见")
    assert (edit.chat_key, edit.message_id, edit.target) == (
        original.chat_key,
        original.message_id,
        original.target,
    )
    assert (edit.user_id, edit.addressed) == (original.user_id, original.addressed)
    assert set(edit.keys).isdisjoint(original.keys)


def test_two_edits_within_a_second_are_two(line: Line) -> None:
    number = line.server.say("a")["message"]["message_id"]
    first, second = (line.must(line.server.edit(number, words)) for words in ("b", "c"))
    assert first.ts == second.ts
    assert set(first.keys).isdisjoint(second.keys)


def test_the_edit_of_a_caption_is_about_its_item_of_the_album(line: Line) -> None:
    items = [
        line.server.say("one", media="photo", fields=ALBUM),
        line.server.say("two", media="photo", fields=ALBUM),
    ]
    edit = line.must(line.server.edit(items[1]["message"]["message_id"], "zwei"))
    assert (edit.message_id, edit.text) == (str(items[1]["message"]["message_id"]), "zwei")
    assert edit.chat_key == line.must(items[0]).chat_key
    assert [attachment.kind for attachment in edit.attachments] == ["photo"]


@pytest.mark.parametrize("topic", [None, 5])
def test_a_stop_is_about_the_chat_and_by_the_person_whose_chat_it_is(line: Line, topic: int | None) -> None:
    if topic:
        line.server.topic(1001, topic)
    line.server.updates.allowed = ("message",)
    line.server.press_stop(thread_id=topic)
    assert len(line.server.updates) == 0, "a bot that does not ask for stops gets none"
    line.server.updates.allowed = inbound.HANDLED
    stop = line.must(line.server.press_stop(thread_id=topic, draft_id=77))
    said = line.heard("hi", thread_id=topic)
    assert (stop.kind, stop.user_id, stop.chat_type, stop.addressed) == ("stop", "1001", "direct", "direct")
    assert (stop.chat_key, stop.target, stop.chat_id) == (said.chat_key, said.target, said.chat_id)
    assert stop.ts == 1_800_000_000_500
    assert stop.message_id is None
    assert len(stop.keys) == 1


def test_drafts_are_stopped_in_private_chats_only(line: Line) -> None:
    with pytest.raises(ValueError, match="private"):
        line.server.press_stop(chat_id=GROUP)
    body = {"chat": {"id": GROUP, "type": "supergroup", "title": "g"}, "draft_id": 1}
    assert line.read({"update_id": 1, inbound.STOPPED: body}) is None
    body = {"chat": {"id": -5, "type": "private"}, "draft_id": 1}
    assert line.read({"update_id": 1, inbound.STOPPED: body}) is None


def test_a_thumb_below_a_message_is_a_rating_of_it(line: Line) -> None:
    ratings = [line.must(line.server.react(7, *emoji)) for emoji in (["👍"], ["🔥", "👎"], ["🔥"])]
    assert [one.rating for one in ratings] == ["good", "bad", "none"]
    (first, *_) = ratings
    assert (first.kind, first.answers, first.user_id, first.has_text) == ("rating", "7", "1001", False)
    assert str(first.chat_key) == "telegram:chat:1001"
    assert len({one.keys for one in ratings}) == 3


def test_other_reactions_and_those_of_nobody_are_none(line: Line) -> None:
    assert line.read(line.server.react(7, "🔥")) is None
    thumb = line.server.react(7, "👍")
    assert line.read(line.server.react(7, "👍", "🔥")) is None
    del thumb["message_reaction"]["user"]
    assert line.read(thumb) is None
    assert line.server.react(7, "👍", chat_id=GROUP) == {}, "in groups only administrators are told"


IGNORED = frozenset(
    {
        "business_connection",
        "business_message",
        "channel_post",
        "chat_boost",
        "chat_join_request",
        "chat_member",
        "chosen_inline_result",
        "deleted_business_messages",
        "edited_business_message",
        "edited_channel_post",
        "guest_message",
        "inline_query",
        "managed_bot",
        "message_reaction_count",
        "poll",
        "poll_answer",
        "pre_checkout_query",
        "purchased_paid_media",
        "removed_chat_boost",
        "shipping_query",
    }
)
"""Types of updates that the bot does not request on purpose."""


def test_every_kind_of_update_is_handled_or_ignored() -> None:
    listed = {*inbound.HANDLED, *IGNORED}
    assert set(Update.ALL_TYPES) | {inbound.STOPPED} == listed
    assert len(listed) == len(inbound.HANDLED) + len(IGNORED)


def samples(server: TelegramServer) -> Iterator[dict[str, Any]]:
    """Return at least one update of each type."""
    root = server.say("root", chat_id=GROUP)["message"]["message_id"]
    yield server.say("@shipmate_bot hi", chat_id=GROUP, thread_id=4, reply_to=root)
    yield server.say("/start x", media="photo", fields=ALBUM)
    said = server.say("a")["message"]["message_id"]
    yield server.say("doc", media="document", file_name="f", reply_to=said)
    yield server.edit(said, "b 你好")
    yield server.edit(root, "@shipmate_bot مرحبا", chat_id=GROUP)
    yield server.press_stop()
    yield server.press_stop(thread_id=3)
    asked = server.say("May I?", chat_id=GROUP, thread_id=4, fields={"from": server.me})["message"][
        "message_id"
    ]
    yield server.react(said, "👍")
    yield server.press(asked, "deny 01JC0000000000000000000ABC", chat_id=GROUP)


def test_no_change_to_an_update_breaks_the_reader_or_lets_somebody_in(line: Line) -> None:
    whole = list(samples(line.server))
    huge = "🚢" * 20_000
    junk = st.sampled_from(
        [None, True, 0, -1, 10**40, 1.5, "", "x", "\ud800", huge, [], [None], {}, {"id": 1}]
    )

    @settings(derandomize=True, deadline=None, max_examples=EXAMPLES)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        update = copy.deepcopy(data.draw(st.sampled_from(whole)))
        node: Any = update
        while True:
            key = data.draw(
                st.sampled_from(sorted(node) if isinstance(node, dict) else list(range(len(node))))
            )
            if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
                node = node[key]
                continue
            if isinstance(node, dict) and data.draw(st.booleans()):
                del node[key]
            else:
                node[key] = data.draw(junk)
            break
        try:
            found = line.read(update)
        except inbound.Unreadable:
            return
        if found is not None:
            found.model_dump_json()
            assert found.user_id == str(_author(update))
            assert MANIFEST.encode(MANIFEST.decode(found.chat_key)) == found.chat_key

    holds()


def _author(update: dict[str, Any]) -> Any:
    message = update.get("message") or update.get("edited_message")
    if inbound.PRESSED in update:
        return update[inbound.PRESSED]["from"]["id"]
    if inbound.REACTED in update:
        return update[inbound.REACTED]["user"]["id"]
    if message is None:
        return update[inbound.STOPPED]["chat"]["id"]
    return message["from"]["id"]


async def test_an_edit_that_takes_the_mention_away_still_reaches_the_bot(bed: Bed) -> None:
    number = bed.server.say("@shipmate_bot go on", chat_id=GROUP)["message"]["message_id"]
    other = bed.server.say("chatter", chat_id=GROUP)["message"]["message_id"]
    await bed.taken()
    bed.server.edit(other, "more chatter", chat_id=GROUP)
    bed.server.edit(number, "算了", chat_id=GROUP)
    edit = await bed.taken(4)
    assert len(bed.intake.accepted) == 2
    assert (edit.kind, edit.text, edit.message_id) == ("edit", "算了", str(number))


async def test_an_edit_that_changes_no_word_is_none(bed: Bed) -> None:
    update = bed.server.say("see https://a.b")
    await bed.taken()
    number = update["message"]["message_id"]
    bed.server.edit(number, "see https://a.b")
    bed.server.edit(number, "see https://c.d")
    assert (await bed.taken(2)).text == "see https://c.d"
    bed.server.edit(number, "see https://c.d")
    bed.server.edit(number, "see https://a.b")
    assert (await bed.taken(3)).text == "see https://a.b"
    await bed.polling()
    assert len(bed.server.updates) == 0


async def test_what_was_refused_makes_no_edit_the_bots_business(bed: Bed) -> None:
    update = bed.server.say("@shipmate_bot hi", chat_id=GROUP)
    first = await bed.taken()
    await bed.polling()
    await bed.channel.stop()
    await bed.restart()
    await bed.polling()
    bed.server.repeat(update)
    assert (await bed.taken(2)).keys == first.keys
    bed.server.edit(update["message"]["message_id"], "nothing", chat_id=GROUP)
    bed.server.say("after")
    assert (await bed.taken(3)).text == "after"
