"""The library's client of the Web API, which says where Slack refuses a call because the app lacks a right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.words import Sentence, sentence
from channels.slack.app_manifest import SCOPES

STOPPED = "agent_session_stopped"
_UNHEARD = f"missing_{STOPPED}_event_subscription"


class WebClient(AsyncWebClient):
    """`report_missing_right` hears of each right that was missing: its name, and words for operators."""

    def __init__(self, *, report_missing_right: Callable[[str, Sentence], None], **options: Any) -> None:
        super().__init__(**options)
        self._report_missing_right = report_missing_right

    async def api_call(self, api_method: str, **options: Any) -> AsyncSlackResponse:
        try:
            answer = await super().api_call(api_method, **options)
        except SlackApiError as error:
            for scope in missing_scopes(error):
                self._report_missing_right(scope, lacking(scope))
            raise
        if answer.get("warning") == _UNHEARD:
            self._report_missing_right(STOPPED, sentence("operators.unstoppable", event=STOPPED))
        return answer


def missing_scopes(error: SlackApiError) -> list[str]:
    """The scopes for want of which Slack has refused a call; [] where that is not why."""
    told = error.response.data if isinstance(error.response, AsyncSlackResponse) else None
    if not isinstance(told, dict) or told.get("error") != "missing_scope":
        return []
    needed, provided = (str(told.get(name) or "").split(",") for name in ("needed", "provided"))
    return sorted({scope.strip()[:60] for scope in needed} - {scope.strip() for scope in provided} - {""})


def lacking(scope: str) -> Sentence:
    """The sentence about a missing scope for operators."""
    what = sentence(f"rights.{scope if scope in SCOPES else 'unknown'}")
    return sentence("operators.lacks_scope", what=what, scope=scope)
