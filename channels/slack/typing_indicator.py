"""Signs that the bot is working: the agent session with its stop button, the status line, the title of a
session, and a reaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.environment import Log
from bot.words import say
from channels.slack import web_api

LOADING = 4
"""Number of status lines that Slack shows in turn."""
_SESSIONS = "Slack shows no stop button"
_LINES = "Slack shows no sign of work"
_TITLES = "Slack shows no titles of conversations"
_REACTIONS = "Slack takes no reactions"


class TypingIndicator:
    """Shows and clears the signs of work. Methods raise `web_api.CALL_ERRORS`. A method that the workspace
    does not support is called only once, and logged.
    """

    def __init__(self, client: AsyncWebClient, log: Log) -> None:
        self._client = client
        self._log = log
        self._unsupported: set[str] = set()

    async def show(
        self, target: Mapping[str, str], status: Literal["active", "processing", "suspended"]
    ) -> None:
        """Set the status of an agent session. Outside threads Slack has no session, so nothing is set."""
        if "thread_ts" not in target:
            return
        where = {"channel_id": target["channel"], "thread_ts": target["thread_ts"]}
        await self._try(_SESSIONS, self._client.agents_sessions_setStatus, **where, status=status)
        line: dict[str, Any] = {"status": ""}
        if status == "processing":
            loading = [say(f"slack.loading_{number}") for number in range(1, LOADING + 1)]
            line = {"status": say("slack.thinking"), "loading_messages": loading}
        await self._try(_LINES, self._client.assistant_threads_setStatus, **where, **line)

    async def entitle(self, channel: str, thread_ts: str, title: str) -> None:
        call = self._client.assistant_threads_setTitle
        await self._try(_TITLES, call, channel_id=channel, thread_ts=thread_ts, title=title)

    async def react(self, channel: str, ts: str) -> None:
        try:
            await self._try(
                _REACTIONS, self._client.reactions_add, channel=channel, timestamp=ts, name="eyes"
            )
        except web_api.CALL_ERRORS as error:
            if web_api.error_code(error) != "already_reacted":
                raise

    async def remove_stop(self, target: Mapping[str, str]) -> None:
        """Remove the stop button. Slack keeps the button after a press, even if no turn was running. A
        failure is only logged.
        """
        if _SESSIONS in self._unsupported:
            return
        try:
            await self.show(target, "active")
        except web_api.CALL_ERRORS as error:
            self._log.write(
                "delivery", "A stop button was not taken away", level="debug", error=web_api.name(error)
            )

    async def _try(self, sign: str, call: Callable[..., Awaitable[Any]], **given: Any) -> None:
        if sign in self._unsupported:
            return
        try:
            await call(**given)
        except web_api.CALL_ERRORS as error:
            if web_api.error_code(error) not in web_api.UNSUPPORTED:
                raise
            self._unsupported.add(sign)
            self._log.write("delivery", sign, level="warn", error=web_api.name(error))
