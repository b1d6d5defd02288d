"""Shows that the bot works: as an agent's session, which has a stop button, or as a line of status where Slack has
none.
"""

from __future__ import annotations

import asyncio

from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.environment import Log
from channels.slack import failures

LINE = "is thinking…"


class TypingIndicator:
    """`show` raises `failures.CALL_ERRORS`; a way that this workspace does not have is tried once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sessions = True
        self._lines = True
        self._settling: set[asyncio.Task[None]] = set()

    async def show(self, client: AsyncWebClient, channel: str, thread_ts: str, *, working: bool) -> None:
        if self._sessions:
            self._sessions = await self._session(client, channel, thread_ts, working=working)
        if self._lines and not self._sessions:
            self._lines = await self._line(client, channel, thread_ts, working=working)

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

    async def _session(self, client: AsyncWebClient, channel: str, thread_ts: str, *, working: bool) -> bool:
        status = "processing" if working else "active"
        try:
            await client.agents_sessions_setStatus(channel_id=channel, thread_ts=thread_ts, status=status)
        except failures.CALL_ERRORS as error:
            return self._for_good(error, "Slack shows no stop button")
        return True

    async def _line(self, client: AsyncWebClient, channel: str, thread_ts: str, *, working: bool) -> bool:
        status = LINE if working else ""
        try:
            await client.assistant_threads_setStatus(channel_id=channel, thread_ts=thread_ts, status=status)
        except failures.CALL_ERRORS as error:
            return self._for_good(error, "Slack shows no sign of work")
        return True

    def _for_good(self, error: BaseException, what: str) -> bool:
        """False, with a line for the operator, where this way does not exist; else the error goes on."""
        if failures.error_code(error) not in failures.UNAVAILABLE:
            raise error
        self._log.write("delivery", what, level="warn", error=failures.name(error))
        return False
