"""Shows that the bot works: as an agent's session, which has a stop button, and as a line of status with words that change;
gives the session its title; and marks what was seen meanwhile by a reaction.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.base import Json
from bot.contracts.environment import Log
from bot.words import say
from channels.slack import failures

SessionStatus = Literal["active", "processing", "suspended"]
LOADING = 4
"""Lines that Slack shows by turns below the name of the bot."""
SEEN = "eyes"


class TypingIndicator:
    """`show` raises `failures.CALL_ERRORS`; a way that this workspace does not have is tried once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sessions = True
        self._lines = True
        self._titles = True
        self._reactions = True
        self._settling: set[asyncio.Task[None]] = set()

    async def show(self, client: AsyncWebClient, channel: str, thread_ts: str, *, working: bool) -> None:
        if self._sessions:
            status: SessionStatus = "processing" if working else "active"
            self._sessions = await self._session(client, channel, thread_ts, status)
        if self._lines:
            self._lines = await self._line(client, channel, thread_ts, working=working)

    async def entitle(self, client: AsyncWebClient, channel: str, thread_ts: str, title: str) -> None:
        """Name a thread in the person's list of conversations."""
        if not self._titles:
            return
        try:
            await client.assistant_threads_setTitle(channel_id=channel, thread_ts=thread_ts, title=title)
        except failures.CALL_ERRORS as error:
            self._titles = self._for_good(error, "Slack shows no titles of conversations")

    async def suspend(self, client: AsyncWebClient, channel: str, thread_ts: str) -> None:
        """Show that a session waits for a person. Raises as `show`."""
        if self._sessions:
            self._sessions = await self._session(client, channel, thread_ts, "suspended")
        if self._lines:
            self._lines = await self._line(client, channel, thread_ts, working=False)

    async def react(self, client: AsyncWebClient, channel: str, ts: str) -> None:
        """Mark a message as seen. Raises as `show`."""
        if not self._reactions:
            return
        try:
            await client.reactions_add(channel=channel, timestamp=ts, name=SEEN)
        except failures.CALL_ERRORS as error:
            if failures.error_code(error) != "already_reacted":
                self._reactions = self._for_good(error, "Slack takes no reactions")

    def settle(self, client: AsyncWebClient, channel: str, thread_ts: str) -> None:
        """Take the stop button away beside everything else: pressing it alone does not, and it need not have
        found anything to stop.
        """
        if self._sessions:
            task = asyncio.create_task(self._settled(client, channel, thread_ts))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def close(self) -> None:
        settling = list(self._settling)
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)

    async def _settled(self, client: AsyncWebClient, channel: str, thread_ts: str) -> None:
        try:
            await self.show(client, channel, thread_ts, working=False)
        except failures.CALL_ERRORS as error:
            self._log.write(
                "delivery", "A stop button was not taken away", level="debug", error=failures.name(error)
            )

    async def _session(
        self, client: AsyncWebClient, channel: str, thread_ts: str, status: SessionStatus
    ) -> bool:
        try:
            await client.agents_sessions_setStatus(channel_id=channel, thread_ts=thread_ts, status=status)
        except failures.CALL_ERRORS as error:
            return self._for_good(error, "Slack shows no stop button")
        return True

    async def _line(self, client: AsyncWebClient, channel: str, thread_ts: str, *, working: bool) -> bool:
        shown: Json = {"status": ""}
        if working:
            loading = [say(f"slack.loading_{number}") for number in range(1, LOADING + 1)]
            shown = {"status": say("slack.thinking"), "loading_messages": loading}
        try:
            await client.assistant_threads_setStatus(channel_id=channel, thread_ts=thread_ts, **shown)
        except failures.CALL_ERRORS as error:
            return self._for_good(error, "Slack shows no sign of work")
        return True

    def _for_good(self, error: BaseException, what: str) -> bool:
        """False, with a line for the operator, where this way does not exist; else the error goes on."""
        if failures.error_code(error) not in failures.UNAVAILABLE:
            raise error
        self._log.write("delivery", what, level="warn", error=failures.name(error))
        return False
