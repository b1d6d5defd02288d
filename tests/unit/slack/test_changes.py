"""Edits and deletions: which events count, who caused them, and which message they concern."""

from __future__ import annotations

from typing import Any

import pytest

from channels.slack import inbound

ME = inbound.BotIdentity(team="T0TEAM", user="U0SHIP", bot="B0SHIP")
TS, LATER = "1800000000.000100", "1800000009.000200"


def post(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "user": "U0ADA", "ts": TS, "text": words} | more


def changed(
    after: dict[str, Any], before: dict[str, Any] | None, channel: str = "C0TEAM", **event: Any
) -> Any:
    event = {"type": "message", "subtype": "message_changed", "hidden": True, "channel": channel} | event
    event |= {"message": after, "ts": LATER, "event_ts": LATER}
    return read(event if before is None else event | {"previous_message": before})


def deleted(before: dict[str, Any] | None, channel: str = "C0TEAM") -> Any:
    event = {"type": "message", "subtype": "message_deleted", "channel": channel, "deleted_ts": TS}
    return read(event if before is None else event | {"previous_message": before})


def said(message: dict[str, Any], channel: str = "C0TEAM") -> Any:
    return read(message | {"channel": channel})


def read(event: dict[str, Any]) -> Any:
    return inbound.read_event({"event_id": "Ev1", "event": event}, ME)


EDITED = {"edited": {"user": "U0ADA", "ts": LATER}}


@pytest.mark.parametrize("channel", ["C0TEAM", "D0ADA"])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"thread_ts": "1799999999.000001"},
        {"thread_ts": TS, "reply_count": 2},
        {"subtype": "thread_broadcast", "thread_ts": "1799999999.000001", "root": {}},
        {"subtype": "file_share", "files": [{"id": "F1", "name": "图.png", "mimetype": "image/png"}]},
        {"subtype": "me_message"},
    ],
)
def test_a_change_has_the_place_and_the_id_of_its_message_and_keys_of_its_own(
    channel: str, extra: dict[str, Any]
) -> None:
    first = {name: part for name, part in extra.items() if name != "reply_count"}
    if first.get("thread_ts") == TS:
        del first["thread_ts"]  # nobody has replied yet
    original = said(post("<@U0SHIP> 你好", **first), channel)
    edit = changed(post("<@U0SHIP> 再见", **extra, **EDITED), post("<@U0SHIP> 你好", **extra), channel)
    gone = deleted(post("<@U0SHIP> 你好", **extra), channel)
    assert (edit.kind, edit.text, gone.kind, gone.text) == ("edit", "再见", "delete", "")
    for change in (edit, gone):
        assert (change.chat_key, change.message_id, change.user_id) == (original.chat_key, TS, "U0ADA")
        assert change.target == original.target
        assert change.addressed == original.addressed
        assert change.answers is None
        assert not set(change.keys) & set(original.keys) - {"slack:T0TEAM:event:Ev1"}
    assert edit.attachments == original.attachments
    assert gone.attachments == ()
    assert edit.ts == 1_800_000_009_000


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (post("same", **EDITED), post("same")),  # only a file or block changed
        (post("see https://a.b", attachments=[{"title": "unfurled"}]), post("see https://a.b")),
        (post("edited before", attachments=[{}], **EDITED), post("edited before", **EDITED)),
        (post("new words"), post("old words")),  # no `edited` field, so no person edited it
        (post("pinned", subtype="channel_topic", **EDITED), post("topic", subtype="channel_topic")),
        (post("x", thread_ts=TS, reply_count=1), post("x")),  # a reply changed only the counter
        (post("said too", subtype="thread_broadcast", thread_ts=TS), post("said too", thread_ts=TS)),
        (post("mine", bot_id="B0SHIP", **EDITED), post("mi", bot_id="B0SHIP")),
        (post("x", edited={"user": "U0EVE", "ts": LATER}), post("y")),  # somebody else edited it
    ],
)
def test_what_is_no_edit_of_a_person_for_the_bot_is_passed_over(
    after: dict[str, Any], before: dict[str, Any]
) -> None:
    assert changed(after, before) is None


def test_an_edit_that_removes_the_mention_is_still_for_the_bot() -> None:
    edit = changed(post("never mind", **EDITED), post("<@U0SHIP> do it"))
    assert (edit.addressed, edit.text) == ("mention", "never mind")


def test_a_bots_edit_is_a_bots() -> None:
    edit = changed(post("x", user=None, bot_id="B9", edited={"ts": LATER}), None)
    assert (edit.from_bot, edit.user_id) == (True, "B9")


def test_an_edit_is_known_even_where_slack_does_not_say_what_stood_there() -> None:
    assert changed(post("<@U0SHIP> hello", **EDITED), None).kind == "edit"


@pytest.mark.parametrize(
    ("after", "before"), [("!status please", "!stats"), ("never mind", "!status"), ("!status", "hello")]
)
def test_a_change_to_a_command_in_a_channel_is_for_the_bot_and_runs_nothing(after: str, before: str) -> None:
    edit = changed(post(after, **EDITED), post(before))
    assert (edit.addressed, edit.command, edit.text) == ("command", None, after)
    assert edit.chat_key == said(post("!status")).chat_key
    gone = deleted(post("!status"))
    assert (gone.addressed, gone.kind) == ("command", "delete")


def test_a_deletion_that_does_not_say_what_is_gone_is_nobodys() -> None:
    assert deleted(None) is None
    assert deleted(None, "D0ADA") is None


@pytest.mark.parametrize("more", [{"bot_id": "B0SHIP"}, {"user": "U0SHIP"}, {"subtype": "channel_join"}])
def test_the_deletion_of_what_no_person_said_is_passed_over(more: dict[str, Any]) -> None:
    assert deleted(post("<@U0SHIP> gone", **more)) is None


def test_the_tombstone_of_a_message_with_replies_is_its_deletion() -> None:
    before = post("<@U0SHIP> gone", thread_ts=TS, reply_count=1)
    stone = post("This message was deleted.", subtype="tombstone", user="USLACKBOT", thread_ts=TS)
    gone = changed(stone, before)
    assert (gone.kind, gone.message_id, gone.user_id) == ("delete", TS, "U0ADA")
    assert str(gone.chat_key) == f"slack:chat:C0TEAM:thread:{TS}"


STOPPED = {
    "type": "agent_session_stopped",
    "channel": "D0ADA",
    "thread_ts": TS,
    "user": "U0ADA",
    "event_ts": LATER,
}


IGNORED = (
    "assistant_thread_started",
    "file_shared",
    "member_left_channel",
    "reaction_added",
    "app_home_opened",
    "teleported",
)
OTHER_SUBTYPES = ("bot_add", "channel_join", "message_replied", "pinned_item", "tombstone", "teleported")


@pytest.mark.parametrize("kind", IGNORED)
def test_other_events_are_ignored(kind: str) -> None:
    assert read(STOPPED | post("hi", type=kind)) is None


@pytest.mark.parametrize("subtype", OTHER_SUBTYPES)
def test_other_subtypes_are_no_messages(subtype: str) -> None:
    assert read(post("<@U0SHIP> hi", channel="D0ADA", subtype=subtype)) is None
