"""Writes Slack blocks: buttons, thumbs and task cards of messages, and the app's Home tab."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from slack_sdk.errors import SlackApiError

from bot import text
from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection
from bot.contracts.environment import Log
from bot.contracts.outbound import Card, Outbound
from bot.words import say, speaking
from channels import approval_buttons
from channels.slack import web_api
from channels.slack.content import escape
from channels.slack.manifest import is_direct

FALLBACK = 3_000  # Max characters of a notification's text
MAX_TITLE, MAX_SECTION = 150, 3_000  # Max characters of a header and of a section (limits of Slack)
CARDS, THUMBS = "task cards", "thumbs"
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""Slack's error codes for blocks that it refuses."""
_SHOWN_WHOLE: frozenset[Choice] = frozenset({"again", "renew"})
"""Choices whose message may appear in a notification as a whole, because the message asks for no approval."""


class BlockWriter:
    """Sends task cards and thumbs as blocks. After Slack has refused cards, no more cards are sent; thumbs likewise."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._refused: set[str] = set()

    def has_thumbs(self, message: Outbound) -> bool:
        """Return True if thumbs belong below the message: it is the last part of an answer in a direct chat."""
        return THUMBS not in self._refused and message.ends and is_direct(message.target["channel"])

    async def write(
        self, call: Callable[..., Awaitable[Any]], message: Outbound, markdown: str, **where: Any
    ) -> Any:
        """Call `chat.postMessage` or `chat.update` with a message's blocks. Raises the exceptions of `call`."""
        forms: dict[str, Json] = {}
        if message.cards and CARDS not in self._refused:
            tasks = [_task(card) for card in message.cards]
            forms[CARDS] = _blocks(message.text, {"type": "plan", "title": message.title, "tasks": tasks})
        if self.has_thumbs(message) and message.buttons is None:
            words = {"type": "markdown", "text": markdown}
            forms[THUMBS] = _blocks(markdown, words, thumbs(message.language))
        for form, content in forms.items():
            try:
                return await call(**where, **content)
            except SlackApiError as error:
                code = web_api.error_code(error)
                if code not in REFUSED:
                    raise
                self._refused.add(form)
                self._log.write("delivery", f"Slack does not take {form}", level="warn", error=code)
        if message.buttons is None:
            return await call(**where, markdown_text=markdown)
        return await call(**where, **_with_buttons(markdown, message.buttons, message.language))


def _blocks(fallback: str, *blocks: Json) -> Json:
    return {"text": text.head(fallback, FALLBACK), "blocks": list(blocks)}


def thumbs(language: str) -> Json:
    with speaking(language):
        good, bad = (
            {
                "text": {"type": "plain_text", "text": say(f"buttons.{which}")},
                "accessibility_label": say(f"buttons.{which}_label"),
                "value": f"rating {which}",
            }
            for which in ("good", "bad")
        )
    buttons = {"positive_button": good, "negative_button": bad}
    element = {"type": "feedback_buttons", "action_id": "rating"} | buttons
    return {"type": "context_actions", "elements": [element]}


def _with_buttons(markdown: str, asked: QuestionButtons, language: str) -> Json:
    elements = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": label},
            "action_id": f"approval_{choice}",
            "value": value,
        }
        for choice, (label, value) in approval_buttons.offered(asked, language).items()
    ]
    # Slack shows `fallback` in notifications, even on a locked phone, so the call that needs an approval is left out.
    fallback = markdown if _SHOWN_WHOLE & {*asked.choices} else markdown.partition("\n\n")[0]
    # A decided question has no buttons. It still needs blocks, because without them Slack keeps the old buttons.
    actions = [{"type": "actions", "elements": elements}] if elements else []
    return _blocks(fallback, {"type": "markdown", "text": markdown}, *actions)


def _task(card: Card) -> Json:
    task: Json = {"type": "task_card", "task_id": card.id, "title": card.title, "status": card.state}
    if card.detail:
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": card.detail}]}
        task["details"] = {"type": "rich_text", "elements": [section]}
    return task


def home(sections: tuple[HomeSection, ...]) -> Json:
    blocks: list[Json] = []
    for section in sections:
        title = text.head(section.title, MAX_TITLE)
        lines = text.head("\n".join(f"• {escape(line)}" for line in section.lines), MAX_SECTION)
        blocks += [
            {"type": "header", "text": {"type": "plain_text", "text": title}},
            {"type": "section", "text": {"type": "mrkdwn", "text": lines, "verbatim": True}},
        ]
    return {"type": "home", "blocks": blocks}
