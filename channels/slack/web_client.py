"""The library's Web API client, extended to report missing scopes; the logger of the library; and the
reading of pages.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.contracts.environment import Log
from bot.words import Sentence, sentence
from channels.slack.app_manifest import SCOPES

STOPPED = "agent_session_stopped"


class WebClient(AsyncWebClient):
    """Web API client that calls `report_missing_right` with each missing scope and a sentence for operators."""

    def __init__(self, *, report_missing_right: Callable[[str, Sentence], None], **options: Any) -> None:
        super().__init__(**options)
        self._report_missing_right = report_missing_right

    async def api_call(self, api_method: str, **options: Any) -> AsyncSlackResponse:
        try:
            answer = await super().api_call(api_method, **options)
        except SlackApiError as error:
            for scope in _missing_scopes(error):
                what = sentence(f"rights.{scope if scope in SCOPES else 'unknown'}")
                self._report_missing_right(scope, sentence("operators.lacks_scope", what=what, scope=scope))
            raise
        if answer.get("warning") == f"missing_{STOPPED}_event_subscription":
            self._report_missing_right(STOPPED, sentence("operators.unstoppable", event=STOPPED))
        return answer


def _missing_scopes(error: SlackApiError) -> list[str]:
    data = error.response.data if isinstance(error.response, AsyncSlackResponse) else None
    if not isinstance(data, dict) or data.get("error") != "missing_scope":
        return []
    needed, provided = (str(data.get(name) or "").split(",") for name in ("needed", "provided"))
    return sorted({scope.strip()[:60] for scope in needed} - {scope.strip() for scope in provided} - {""})


class LibraryLog(logging.Logger):
    """Logger for Slack's library. It logs only function and exception type of a record, since the record's
    text has messages and URLs.
    """

    def __init__(self, log: Log) -> None:
        super().__init__("shipmate.slack", logging.ERROR)
        self._operator_log = log

    def handle(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        self._operator_log.write(
            "channel",
            "Slack's library reports trouble",
            level="warn",
            where=record.funcName,
            error=None if kind is None else kind.__name__,
        )


async def pages(first: AsyncSlackResponse, most: int) -> AsyncGenerator[AsyncSlackResponse]:
    """Yield the first `most` pages of a response."""
    count = 0
    async for page in first:
        yield page
        count += 1
        if count == most:
            return


def has_more(page: AsyncSlackResponse) -> bool:
    """Return True if another page follows."""
    return bool((page.get("response_metadata") or {}).get("next_cursor"))
