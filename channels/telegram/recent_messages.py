"""Remembers the newest messages, to tell real edits from repeats: Telegram does not say what a message was before."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from channels.telegram.inbound import ReadUpdate

MOST = 2_000


class RecentMessages:
    """The newest messages that were taken in, with a mark of how they read. Lost at a restart, which costs little:
    an edit then counts by what it says itself.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._marks: OrderedDict[tuple[str, str | None], str] = OrderedDict()

    def without_repeats(self, event: ReadUpdate) -> ReadUpdate | None:
        """The event, unless it is an edit that changes no word."""
        repeats = event.inbound.kind == "edit" and self._marks.get(_place(event)) == _mark(event)
        return None if repeats else event

    def learn(self, event: ReadUpdate) -> None:
        if event.inbound.kind not in {"message", "edit"}:
            return
        place = _place(event)
        self._marks[place] = _mark(event)
        self._marks.move_to_end(place)
        if len(self._marks) > self._most:
            self._marks.popitem(last=False)


def _place(event: ReadUpdate) -> tuple[str, str | None]:
    return event.inbound.chat_id, event.inbound.message_id


def _mark(event: ReadUpdate) -> str:
    inbound = event.inbound
    parts = (*inbound.attachments, *inbound.brought, *inbound.links)
    said = "\0".join([inbound.text, *(one.model_dump_json() for one in parts)])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
