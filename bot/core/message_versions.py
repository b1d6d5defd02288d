"""Relations between inbounds (same person, same message, same turn, affected by a stop), and edits applied
to messages.
"""

from __future__ import annotations

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound


def plain(inbound: Inbound) -> bool:
    """Return True for a person's message to the model: no command, signal or due job."""
    return inbound.kind == "message" and inbound.command is None and inbound.due is None


def is_follow_up(other: Inbound, running: Inbound) -> bool:
    """Return True if a message adds to the running turn: words of the same person in the same conversation.
    In a Slack direct chat each message may open a thread; they count as one place. Due jobs and
    regenerated answers are turns of their own.
    """
    if other.due or running.due or other.renews or running.renews:
        return False
    return other.kind in {"message", "edit"} and other.command is None and other.person == running.person


def can_coalesce(other: Inbound, first: Inbound) -> bool:
    """Return True if two messages may start one turn together."""
    return plain(other) and plain(first) and is_follow_up(other, first)


def can_join_running_turn(other: Inbound, running: Inbound) -> bool:
    """Return True if a waiting message or edit may join a running turn. Unreadable files are reported below
    an answer of their own.
    """
    files = other.attachments
    if files and (other.kind != "message" or not all(one.may_be_read for one in files)):
        return False
    return is_follow_up(other, running) and bool(files or other.has_text)


def same_message(one: Inbound, other: Inbound) -> bool:
    """Return True if both refer to one message by the same author."""
    return one.chat_key == other.chat_key and one.person == other.person and _named(one, other)


def _named(one: Inbound, other: Inbound) -> bool:
    """An album has the ids of all its items."""
    return (
        (one.message_id is not None and one.message_id == other.message_id)
        or other.message_id in one.items
        or one.message_id in other.items
    )


def stops(stop: Inbound, other: Inbound) -> bool:
    """Return True if a stop affects a waiting inbound: same person, same chat or place."""
    return other.person == stop.person and reaches(stop, other)


def is_thread_of(stop: Inbound, place: ChatKey) -> bool:
    """Return True if this is a thread of the stop's place."""
    return place != stop.chat_key and stop.chat_key.contains(place)


def _place(inbound: Inbound) -> dict[str, str]:
    """Return the target of its answer without the message replied to."""
    return {name: value for name, value in inbound.target.items() if name != "reply_to"}


def reaches(stop: Inbound, other: Inbound) -> bool:
    return other.chat_key == stop.chat_key or (
        other.channel == stop.channel and other.chat_id == stop.chat_id and _place(other) == _place(stop)
    )


def revised(message: Inbound, edit: Inbound) -> Inbound:
    """Return a message with its author's edit applied; of an album, to one item."""
    changed: dict[str, object] = {
        "text": edit.text,
        "command": edit.command,
        "attachments": edit.attachments,
        # The quoted reply is not repeated with every edit; other quoted content is.
        "quoted": edit.quoted or tuple(one for one in message.quoted if not one.brought),
        "links": edit.links,
        "mentioned": edit.mentioned,
    }
    if edit.message_id in message.items:
        changed |= _album(message, edit, edit.message_id)
    return message.model_copy(update=changed)


def _album(message: Inbound, edit: Inbound, item: str) -> dict[str, object]:
    """Split an album: each item has one attachment and possibly a caption."""
    items = {**message.items, item: edit.items.get(item, edit.text)}
    at = list(items).index(item)
    files, new = list(message.attachments), edit.attachments[at:] if edit.items else edit.attachments
    if new and len(files) == len(items):
        files[at] = new[0]
    return {"items": items, "text": "\n".join(filter(None, items.values())), "attachments": tuple(files)}


def whole(message: Inbound, edit: Inbound) -> Inbound:
    """Return the edit of one album item as new content of the whole album. Its `message_id` still names the item."""
    if edit.message_id not in message.items or edit.items:
        return edit
    return edit.model_copy(update=_album(message, edit, edit.message_id))


def has_newer_words(known: Inbound, edit: Inbound) -> bool:
    """Return True if the known version is newer than this edit; platforms deliver edits in any order."""
    return known.ts > edit.ts and edit.message_id not in known.items
