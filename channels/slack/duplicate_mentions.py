"""Pairs the two events that Slack sends for one mention: `message`, which is whole, and `app_mention`, which may lack
the files.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TypeVar

from bot.contracts.base import Json

HOLD = 0.5
"""Seconds of the network's own time for which a mention without files waits for the whole message. Slack's patience is 3."""
MOST = 1_000

Place = tuple[str, str]
_Key = TypeVar("_Key", Place, str)


class DuplicateMentions:
    """Holds a mention without files for half a second, until its whole message has come. Forgetting is safe: the event
    that comes later adds what the first one lacked. A channel where a mention waited in vain (the app is not
    subscribed to messages) is not waited for again until a message of it is heard.
    """

    def __init__(self) -> None:
        self._silent: OrderedDict[str, None] = OrderedDict()
        self._heard: OrderedDict[Place, None] = OrderedDict()
        self._waiting: dict[Place, asyncio.Event] = {}

    def message_taken_in(self, event: Json) -> None:
        """Note that a whole message has been taken in, or rightly dropped."""
        place = _place(event)
        if event.get("type") != "message" or place is None:
            return
        self._silent.pop(place[0], None)
        _note(self._heard, place)
        if (waiting := self._waiting.pop(place, None)) is not None:
            waiting.set()

    async def wait_for_message(self, event: Json) -> None:
        """Wait until the whole message of a mention has been taken in, for half a second at the most."""
        place = _place(event)
        if event.get("type") != "app_mention" or event.get("files") or place is None or place in self._heard:
            return
        if place[0] in self._silent:
            return
        heard = self._waiting.setdefault(place, asyncio.Event())
        try:
            async with asyncio.timeout(HOLD):
                await heard.wait()
        except TimeoutError:
            _note(self._silent, place[0])
        finally:
            self._waiting.pop(place, None)


def _note(known: OrderedDict[_Key, None], key: _Key) -> None:
    known[key] = None
    if len(known) > MOST:
        known.popitem(last=False)


def _place(event: Json) -> Place | None:
    channel, ts = event.get("channel"), event.get("ts")
    return (channel, ts) if isinstance(channel, str) and isinstance(ts, str) else None
