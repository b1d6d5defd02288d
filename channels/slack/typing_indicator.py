"""Shows that the bot works: as an agent's session, which has a stop button, and as a line of status with words that change;
gives the session its title; and marks what was seen meanwhile by a reaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.base import Json
from bot.contracts.environment import Log, cancel_all
from bot.words import say
from channels.slack import failures

SessionStatus = Literal["active", "processing", "suspended"]
LOADING = 4
"""Lines that Slack shows by turns below the name of the bot."""
SEEN = "eyes"
_SESSIONS = "Slack shows no stop button"
_LINES = "Slack shows no sign of work"
_TITLES = "Slack shows no titles of conversations"
_REACTIONS = "Slack takes no reactions"


class TypingIndicator:
    """`show` raises `failures.CALL_ERRORS`; a way that this workspace does not have is tried once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._unavailable: set[str] = set()
        """Statuses that Slack does not show, by the words in which operators were told."""
        self._settling: set[asyncio.Task[None]] = set()

    async def show(self, client: AsyncWebClient, channel: str, thread_ts: str, *, working: bool) -> None:
        await self._show(client, channel, thread_ts, "processing" if working else "active")

    async def suspend(self, client: AsyncWebClient, channel: str, thread_ts: str) -> None:
        """Show that a session waits for a person. Raises as `show`."""
        await self._show(client, channel, thread_ts, "suspended")

    async def _show(
        self, client: AsyncWebClient, channel: str, thread_ts: str, status: SessionStatus
    ) -> None:
        shown: Json = {"status": ""}
        if status == "processing":
            loading = [say(f"slack.loading_{number}") for number in range(1, LOADING + 1)]
            shown = {"status": say("slack.thinking"), "loading_messages": loading}
        where = {"channel_id": channel, "thread_ts": thread_ts}
        await self._try(_SESSIONS, client.agents_sessions_setStatus, **where, status=status)
        await self._try(_LINES, client.assistant_threads_setStatus, **where, **shown)

    async def entitle(self, client: AsyncWebClient, channel: str, thread_ts: str, title: str) -> None:
        """Name a thread in the person's list of conversations."""
        entitle = client.assistant_threads_setTitle
        await self._try(_TITLES, entitle, channel_id=channel, thread_ts=thread_ts, title=title)

    async def react(self, client: AsyncWebClient, channel: str, ts: str) -> None:
        """Mark a message as seen. Raises as `show`."""
        try:
            await self._try(_REACTIONS, client.reactions_add, channel=channel, timestamp=ts, name=SEEN)
        except failures.CALL_ERRORS as error:
            if failures.error_code(error) != "already_reacted":
                raise

    def remove_stop(self, client: AsyncWebClient, channel: str, thread_ts: str) -> None:
        """Take the stop button away beside everything else: pressing it alone does not, and it need not have
        found anything to stop.
        """
        if _SESSIONS not in self._unavailable:
            task = asyncio.create_task(self._settled(client, channel, thread_ts))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def close(self) -> None:
        await cancel_all(self._settling)

    async def _settled(self, client: AsyncWebClient, channel: str, thread_ts: str) -> None:
        try:
            await self.show(client, channel, thread_ts, working=False)
        except failures.CALL_ERRORS as error:
            self._log.write(
                "delivery", "A stop button was not taken away", level="debug", error=failures.name(error)
            )

    async def _try(self, what: str, call: Callable[..., Awaitable[Any]], **given: Any) -> None:
        """Make a call, unless Slack has refused one like it for good: of that operators were told `what`."""
        if what in self._unavailable:
            return
        try:
            await call(**given)
        except failures.CALL_ERRORS as error:
            if failures.error_code(error) not in failures.UNAVAILABLE:
                raise
            self._unavailable.add(what)
            self._log.write("delivery", what, level="warn", error=failures.name(error))
