"""What is being done, in Slack's own form for that: a plan of task cards."""

from __future__ import annotations

from bot import text
from bot.contracts import Card, Json, Outbound

FALLBACK = 3_000
"""Characters of the words that stand for the cards in notifications."""
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""What Slack says where it does not take such blocks."""


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
