"""Removes the text of deleted messages from events and from the model's messages. Tool calls and their results stay,
because the provider requires a result for each call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from bot.contracts.base import Json, Message
from bot.contracts.messages import Inbound
from bot.core import events, quotes
from bot.core.events import Event, EventData
from bot.llm import blocks

REMOVED = "[message removed]"
SENDS = "chat_send"
"""Name of the tool that sends messages to people. This tool's input is removed; the input of other tools stays."""
_REMOVED: Json = {"type": "text", "text": REMOVED}


@dataclass(frozen=True, slots=True)
class Gone:
    """Ids of the content to remove: `requests` are messages to the bot, `turns` are its answers, `messages` are quoted messages."""

    requests: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()

    @classmethod
    def of(cls, data: events.Removed) -> Gone:
        return cls(frozenset(data.requests), frozenset(data.turns), frozenset(data.messages))

    @property
    def names(self) -> frozenset[str]:
        return self.requests | self.turns | self.messages


def message_without(message: Message, sources: Collection[str], turn: str | None, gone: Gone) -> Message:
    """Return a message of the model's context without the content to remove; `message` itself if nothing is removed.
    `sources` are the ids of the requests whose text the message contains.
    """
    if message["role"] == "assistant":
        return without(message) if turn in gone.turns else message
    if not gone.requests.isdisjoint(sources):
        return redacted(message)
    return quotes.without(message, gone.names, REMOVED)


def blanked(event: Event, gone: Gone) -> EventData:  # noqa: PLR0911 - one `match` over the events that contain text
    """Return an event's data without the content to remove; equal data if nothing is removed."""
    match data := event.data:
        case events.Received() | events.Edited():
            return replace(data, inbound=_inbound_without(data.inbound, gone))
        case events.Told():
            return replace(data, message=message_without(data.message, data.sources, event.turn, gone))
        case events.FilesRead() if data.request in gone.requests:
            return replace(data, files=tuple(replace(one, head="") for one in data.files))
        case events.Answered() if event.turn in gone.turns:
            answer: Message = {"role": "assistant", "content": data.content}
            return replace(data, content=without(answer)["content"])
        case events.Queued(form="reply") if event.turn in gone.turns:
            return replace(data, text=REMOVED, file=None)
        case events.Revised() if event.turn in gone.turns:
            return replace(data, text="")
        case events.Injected() if data.messages:
            # These messages do not name their requests, so all of them are redacted.
            return replace(data, messages=tuple(map(redacted, data.messages)))
        case events.FactSet() if event.turn in gone.names:
            return replace(data, value=None)
        case events.Cut() | events.SessionMoved() if data.head is not None:
            return replace(data, head=None)
        case _:
            return data


def without(message: Message) -> Message:
    content: list[Json] = []
    for block in message["content"]:
        if block.get("type") == "text":
            content.append(_REMOVED)
        elif block.get("type") == "tool_use" and block.get("name") == SENDS:
            content.append({**block, "input": {"text": REMOVED}})
        elif block.get("type") not in blocks.THINKING:
            content.append(block)
    return {**message, "content": content or [_REMOVED]}


def redacted(message: Message) -> Message:
    results = [block for block in message["content"] if block.get("type") == "tool_result"]
    return {**message, "content": results or [_REMOVED]}


def emptied(inbound: Inbound) -> Inbound:
    empty = {"text": "", "quoted": (), "links": (), "mentioned": {}, "attachments": ()}
    return inbound.model_copy(update=empty)


def _inbound_without(inbound: Inbound, gone: Gone) -> Inbound:
    if inbound.request_id in gone.requests:
        return emptied(inbound)
    if gone.messages.isdisjoint(one.message_id for one in inbound.quoted):
        return inbound
    blank = {"text": REMOVED, "part": None, "files": ()}
    quoted = [
        one.model_copy(update=blank) if one.message_id in gone.messages else one for one in inbound.quoted
    ]
    return inbound.model_copy(update={"quoted": tuple(quoted)})
