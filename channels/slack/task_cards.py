"""Writes messages with blocks: the progress of a turn as task cards, and answers with thumbs below; without them once Slack has
refused them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from slack_sdk.errors import SlackApiError

from bot import text
from bot.contracts.base import Json
from bot.contracts.environment import Log
from bot.contracts.outbound import Card, Outbound
from channels.slack import address, buttons, failures

FALLBACK = 3_000
"""Characters of the words that stand for the cards in notifications."""
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""Error codes of Slack for blocks that it does not take."""


class CardWriter:
    """Writes messages with task cards and thumbs until Slack refuses them, from then on in plain text."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._cards = True
        self._thumbs = True

    def rates(self, message: Outbound) -> bool:
        """True where thumbs belong below a message: the end of an answer to one person."""
        return self._thumbs and message.ends and address.is_direct(message.target["channel"])

    async def write(
        self, call: Callable[..., Awaitable[Any]], message: Outbound, markdown: str, **where: Any
    ) -> Any:
        """Post or change a message; in plain words from then on where Slack does not take cards. Raises what `call` does."""
        if message.cards and self._cards:
            try:
                return await call(**where, **content(message))
            except SlackApiError as error:
                said = failures.error_code(error)
                if said not in REFUSED:
                    raise
                self._cards = False
                self._log.write("delivery", "Slack does not take task cards", level="warn", error=said)
        if self.rates(message):
            try:
                return await call(
                    **where, **buttons.content(markdown, message.buttons, message.language, rated=True)
                )
            except SlackApiError as error:
                said = failures.error_code(error)
                if said not in REFUSED:
                    raise
                self._thumbs = False
                self._log.write("delivery", "Slack does not take thumbs", level="warn", error=said)
        return await call(**where, **buttons.content(markdown, message.buttons, message.language))


def content(message: Outbound) -> Json:
    """A message with cards as `chat.postMessage` and `chat.update` take it."""
    return {
        "text": text.head(message.text, FALLBACK),
        "blocks": [
            {"type": "plan", "title": message.title, "tasks": [_task(card) for card in message.cards]}
        ],
    }


def _task(card: Card) -> Json:
    task: Json = {"type": "task_card", "task_id": card.id, "title": card.title, "status": card.state}
    if card.detail:
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": card.detail}]}
        task["details"] = {"type": "rich_text", "elements": [section]}
    return task
