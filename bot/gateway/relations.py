"""Relations of inbounds: of one person, about one message, parts of one turn, reached by a stop."""

from __future__ import annotations

from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.gateway.attachments.notices import may_hold_text

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def person(inbound: Inbound) -> UserRef:
    return UserRef(inbound.channel, inbound.user_id)


def plain(inbound: Inbound) -> bool:
    """True where it is something for the model that a person says now: neither a command, a signal nor a job that is due."""
    return inbound.kind == "message" and inbound.command is None and inbound.due is None


def follows(other: Inbound, running: Inbound) -> bool:
    """True where it adds to what runs in its chat: words of the person who caused that. One conversation is one place,
    though each message of a direct chat in Slack may open a thread: the answer to all is where the first one's is. A job
    that is due is a turn of its own.
    """
    if other.due is not None or running.due is not None:
        return False
    return other.kind in {"message", "edit"} and other.command is None and person(other) == person(running)


def belongs(other: Inbound, first: Inbound) -> bool:
    """True where two messages may be one turn from its beginning."""
    return plain(other) and plain(first) and follows(other, first)


def joins(other: Inbound, running: Inbound) -> bool:
    """True where a waiting message, or the new words of an earlier one, may join a running turn. Files that hold no text
    are told of below an answer of their own.
    """
    files = other.attachments
    if files and (other.kind != "message" or not all(map(may_hold_text, files))):
        return False
    return follows(other, running) and bool(files or other.says)


def same_message(one: Inbound, other: Inbound) -> bool:
    """True where both are about one message, and of its author."""
    return one.chat_key == other.chat_key and person(one) == person(other) and _named(one, other)


def _named(one: Inbound, other: Inbound) -> bool:
    """An album has the names of all its items."""
    return (
        (one.message_id is not None and one.message_id == other.message_id)
        or other.message_id in one.items
        or one.message_id in other.items
    )


def stops(stop: Inbound, other: Inbound) -> bool:
    """True where a stop reaches a waiting inbound: it is of the same person, in the same chat or place."""
    return person(other) == person(stop) and reaches(stop, other)


def stops_below(stop: Inbound, other: Inbound) -> bool:
    """True where a waiting inbound of the same person is in a thread of the stop's place."""
    return person(other) == person(stop) and is_thread_of(stop, other.chat_key)


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


def taken_in_at(inbound: Inbound) -> float:
    """The time at which it was taken in (epoch seconds), by its requestId."""
    return named_at(inbound.request_id)


def named_at(request_id: str) -> float:
    """The time at which a requestId was given (epoch seconds); 0 where it is none."""
    value = 0
    for char in request_id[:10]:
        value = value * 32 + max(_CROCKFORD.find(char), 0)
    return value / 1000
