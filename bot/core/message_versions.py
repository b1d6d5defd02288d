"""Relations between inbounds (same person, same message, same turn, reached by a stop), and edits applied to a message."""

from __future__ import annotations

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound


def plain(inbound: Inbound) -> bool:
    """True where it is something for the model that a person says now: neither a command, a signal nor a job that is due."""
    return inbound.kind == "message" and inbound.command is None and inbound.due is None


def is_follow_up(other: Inbound, running: Inbound) -> bool:
    """True where it adds to what runs in its chat: words of the person who caused that. One conversation is one place,
    though each message of a direct chat in Slack may open a thread: the answer to all is where the first one's is. A job
    that is due is a turn of its own, and so is what is answered in the place of another answer.
    """
    if other.due or running.due or other.renews or running.renews:
        return False
    return other.kind in {"message", "edit"} and other.command is None and other.person == running.person


def can_coalesce(other: Inbound, first: Inbound) -> bool:
    """True where two messages may be one turn from its beginning."""
    return plain(other) and plain(first) and is_follow_up(other, first)


def can_join_running_turn(other: Inbound, running: Inbound) -> bool:
    """True where a waiting message, or the new words of an earlier one, may join a running turn. Files that hold no text
    are told of below an answer of their own.
    """
    files = other.attachments
    if files and (other.kind != "message" or not all(one.may_be_read for one in files)):
        return False
    return is_follow_up(other, running) and bool(files or other.says)


def same_message(one: Inbound, other: Inbound) -> bool:
    """True where both are about one message, and of its author."""
    return one.chat_key == other.chat_key and one.person == other.person and _named(one, other)


def _named(one: Inbound, other: Inbound) -> bool:
    """An album has the names of all its items."""
    return (
        (one.message_id is not None and one.message_id == other.message_id)
        or other.message_id in one.items
        or one.message_id in other.items
    )


def stops(stop: Inbound, other: Inbound) -> bool:
    """True where a stop reaches a waiting inbound: it is of the same person, in the same chat or place."""
    return other.person == stop.person and reaches(stop, other)


def is_thread_of(stop: Inbound, place: ChatKey) -> bool:
    """True where this is a thread of the stop's place."""
    return place != stop.chat_key and stop.chat_key.contains(place)


def _place(inbound: Inbound) -> dict[str, str]:
    """The place of its answer, but for the message that it hangs on."""
    return {name: value for name, value in inbound.target.items() if name != "reply_to"}


def reaches(stop: Inbound, other: Inbound) -> bool:
    return other.chat_key == stop.chat_key or (
        other.channel == stop.channel and other.chat_id == stop.chat_id and _place(other) == _place(stop)
    )


def revised(message: Inbound, edit: Inbound) -> Inbound:
    """A message as its author changed it; of an album, one item."""
    changed: dict[str, object] = {
        "text": edit.text,
        "command": edit.command,
        "attachments": edit.attachments,
        # What it answered is not told again with every edit; what it brings is.
        "quoted": edit.quoted or tuple(one for one in message.quoted if not one.brought),
        "links": edit.links,
        "mentioned": edit.mentioned,
    }
    if edit.message_id in message.items:
        changed |= _album(message, edit, edit.message_id)
    return message.model_copy(update=changed)


def _album(message: Inbound, edit: Inbound, item: str) -> dict[str, object]:
    """Each item of an album has one attachment, and perhaps words."""
    items = {**message.items, item: edit.items.get(item, edit.text)}
    at = list(items).index(item)
    files, new = list(message.attachments), edit.attachments[at:] if edit.items else edit.attachments
    if new and len(files) == len(items):
        files[at] = new[0]
    return {"items": items, "text": "\n".join(filter(None, items.values())), "attachments": tuple(files)}


def whole(message: Inbound, edit: Inbound) -> Inbound:
    """An edit of one item of an album as the new words of all of it. Its `message_id` still says which item."""
    if edit.message_id not in message.items or edit.items:
        return edit
    return edit.model_copy(update=_album(message, edit, edit.message_id))


def has_newer_words(known: Inbound, edit: Inbound) -> bool:
    """True where a message, as last told, is newer than an edit of it: platforms bring edits in any order."""
    return known.ts > edit.ts and edit.message_id not in known.items
