"""Queue modes: what becomes of a message that comes while its person's last one is being answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.gateway.attachments.notices import may_hold_text

LONGEST_BURST = 5
"""How many times the quiet that ends a burst a person may go on writing before their turn begins all the same."""
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True, slots=True)
class QueueMode:
    """`steers`: a running turn takes up what its person adds. `interrupts`: that stops it. `collects`: what waits of
    one person in one chat is one turn.
    """

    steers: bool = False
    interrupts: bool = False
    collects: bool = False


MODES: Mapping[str, QueueMode] = {
    "steer": QueueMode(steers=True),
    "followup": QueueMode(),
    "collect": QueueMode(collects=True),
    "interrupt": QueueMode(interrupts=True, collects=True),
}


def person(inbound: Inbound) -> UserRef:
    return UserRef(inbound.channel, inbound.user_id)


def plain(inbound: Inbound) -> bool:
    """Whether it is something for the model that a person says now: neither a command, a signal nor a job that is due."""
    return inbound.kind == "message" and inbound.command is None and inbound.due is None


def follows(other: Inbound, running: Inbound) -> bool:
    """Whether it adds to what runs in its chat: words of the person who caused that. One conversation is one place,
    though each message of a direct chat in Slack may open a thread: the answer to all is where the first one's is. A job
    that is due is a turn of its own.
    """
    if other.due is not None or running.due is not None:
        return False
    return other.kind in {"message", "edit"} and other.command is None and person(other) == person(running)


def belongs(other: Inbound, first: Inbound) -> bool:
    """Whether two messages may be one turn from its beginning."""
    return plain(other) and plain(first) and follows(other, first)


def joins(other: Inbound, running: Inbound) -> bool:
    """Whether a waiting message, or the new words of an earlier one, may join a running turn. Files that hold no text
    are told of below an answer of their own.
    """
    files = other.attachments
    if files and (other.kind != "message" or not all(map(may_hold_text, files))):
        return False
    return follows(other, running) and bool(files or other.says)


def same_message(one: Inbound, other: Inbound) -> bool:
    """Whether both are about one message, and of its author."""
    return one.chat_key == other.chat_key and person(one) == person(other) and _named(one, other)


def _named(one: Inbound, other: Inbound) -> bool:
    """An album has the names of all its items."""
    return (
        (one.message_id is not None and one.message_id == other.message_id)
        or other.message_id in one.items
        or one.message_id in other.items
    )


def taken_in_at(inbound: Inbound) -> float:
    """When it was taken in, in epoch seconds: its requestId tells."""
    return named_at(inbound.request_id)


def named_at(request_id: str) -> float:
    """When a requestId was given, in epoch seconds; 0 where it is none."""
    value = 0
    for char in request_id[:10]:
        value = value * 32 + max(_CROCKFORD.find(char), 0)
    return value / 1000
