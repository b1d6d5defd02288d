"""Relations between two incoming messages (same person, same message, same turn, affected by a stop), and
edits applied to messages.
"""

from __future__ import annotations

from bot.contracts.inbound import Inbound


def plain(inbound: Inbound) -> bool:
    """Return True for a person's message to the model, which is no command, signal or due job."""
    return inbound.kind == "message" and inbound.command is None and inbound.due is None


def is_follow_up(other: Inbound, running: Inbound) -> bool:
    """Return True if a message is from the same person and in the same conversation as the running turn, so
    that the message adds to that turn. In a Slack direct chat each message may open a thread; all these
    threads count as one conversation. Due jobs and regenerated answers are turns of their own.
    """
    if other.due or running.due or other.renews or running.renews:
        return False
    return other.kind in {"message", "edit"} and other.command is None and other.person == running.person


def can_coalesce(other: Inbound, first: Inbound) -> bool:
    """Return True if two messages may start one turn together."""
    return plain(other) and plain(first) and is_follow_up(other, first)


def can_join_running_turn(other: Inbound, running: Inbound) -> bool:
    """Return True if a waiting message or edit may join a running turn. A message with unreadable files may
    not, since these files are reported below an answer of their own.
    """
    files = other.attachments
    if files and (other.kind != "message" or not all(one.may_be_read for one in files)):
        return False
    return is_follow_up(other, running) and bool(files or other.has_text)


def same_message(one: Inbound, other: Inbound) -> bool:
    """Return True if both events refer to one message by the same author."""
    same = one.message_id is not None and one.message_id == other.message_id
    return same and one.chat_key == other.chat_key and one.person == other.person


def stops(stop: Inbound, other: Inbound) -> bool:
    """Return True if a stop affects a waiting message, that is if both are from the same person and from the
    same chat or target.
    """
    return other.person == stop.person and reaches(stop, other)


def _place(inbound: Inbound) -> dict[str, str]:
    """Return the target of the answer to an incoming message, without the message that the answer replies to."""
    return {name: value for name, value in inbound.target.items() if name != "reply_to"}


def reaches(stop: Inbound, other: Inbound) -> bool:
    return other.chat_key == stop.chat_key or (
        other.channel == stop.channel and other.chat_id == stop.chat_id and _place(other) == _place(stop)
    )


def revised(message: Inbound, edit: Inbound) -> Inbound:
    """Return a message with its author's edit applied."""
    changed: dict[str, object] = {
        "text": edit.text,
        "command": edit.command,
        "attachments": edit.attachments,
        # Platforms repeat quoted content with an edit, except for the quoted message that is replied to.
        "quoted": edit.quoted or tuple(one for one in message.quoted if not one.brought),
        "links": edit.links,
        "mentioned": edit.mentioned,
    }
    return message.model_copy(update=changed)


def has_newer_words(known: Inbound, edit: Inbound) -> bool:
    """Return True if the known version is newer than this edit; platforms deliver edits in any order."""
    return known.ts > edit.ts
