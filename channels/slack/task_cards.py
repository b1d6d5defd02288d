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
CARDS, THUMBS = "task cards", "thumbs"
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""Error codes of Slack for blocks that it does not take."""


class CardWriter:
    """Writes messages with task cards and thumbs until Slack refuses them, from then on in plain text."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._refused: set[str] = set()
        """The kinds of blocks that Slack does not take."""

    def rates(self, message: Outbound) -> bool:
        """True where thumbs belong below a message: the end of an answer to one person."""
        return THUMBS not in self._refused and message.ends and address.is_direct(message.target["channel"])

    async def write(
        self, call: Callable[..., Awaitable[Any]], message: Outbound, markdown: str, **where: Any
    ) -> Any:
        """Post or change a message; in plain words from then on where Slack does not take cards. Raises what `call` does."""
        plain = (markdown, message.buttons, message.language)
        forms: dict[str, Json] = {}
        if message.cards and CARDS not in self._refused:
            forms[CARDS] = content(message)
        if self.rates(message):
            forms[THUMBS] = buttons.content(*plain, rated=True)
        for form, given in forms.items():
            try:
                return await call(**where, **given)
            except SlackApiError as error:
                said = failures.error_code(error)
                if said not in REFUSED:
                    raise
                self._refused.add(form)
                self._log.write("delivery", f"Slack does not take {form}", level="warn", error=said)
        return await call(**where, **buttons.content(*plain))


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
