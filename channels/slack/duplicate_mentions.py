"""Pairs the two events that Slack sends for one mention: `message` and `app_mention`. The `app_mention` may
lack the files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator

from bot.contracts.base import Json

HOLD_SECONDS = 0.5
"""Max seconds for which an `app_mention` without files waits for its `message`. Slack expects the
acknowledgement within 3 s.
"""
MAX_KNOWN = 1_000


class DuplicateMentions:
    """Delays an `app_mention` without files until its `message` was processed. Correctness does not depend
    on this delay: if the `app_mention` comes first, the `message` adds the files later
    (`inbound.rest_of`).
    """

    def __init__(self) -> None:
        self._processed: OrderedDict[tuple[str, str], asyncio.Event] = OrderedDict()
        """Newest messages by channel and `ts`; each event is set once the message was processed."""
        self._silent: set[str] = set()
        """Channels where an `app_mention` waited in vain, so the app is not subscribed to their messages."""

    @contextlib.asynccontextmanager
    async def paired(self, event: Json) -> AsyncIterator[None]:
        """Process an event inside this context manager."""
        channel, ts, kind = event.get("channel"), event.get("ts"), event.get("type")
        if not (isinstance(channel, str) and isinstance(ts, str)) or kind not in {"message", "app_mention"}:
            yield
            return
        processed = self._processed.setdefault((channel, ts), asyncio.Event())
        if len(self._processed) > MAX_KNOWN:
            self._processed.popitem(last=False)
        if kind == "message":
            self._silent.discard(channel)
        elif not event.get("files") and channel not in self._silent:
            try:
                async with asyncio.timeout(HOLD_SECONDS):
                    await processed.wait()
            except TimeoutError:
                self._silent.add(channel)
        try:
            yield
        finally:
            if kind == "message":
                processed.set()
