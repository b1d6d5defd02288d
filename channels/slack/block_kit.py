"""Writes the blocks of outgoing messages (buttons, thumbs, task cards), and reads the presses of buttons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from slack_sdk.errors import SlackApiError

from bot import text
from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.base import Json
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import Card, Outbound
from bot.words import say, speaking
from channels import approval_buttons
from channels.slack import address, failures
from channels.slack.inbound import BotIdentity, ChannelId, Label, Payload, Ts, UserId, parse

PRESSED = "block_actions"
FALLBACK = 3_000
"""Max characters of the text that a notification shows."""
CARDS, THUMBS = "task cards", "thumbs"
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""Slack's error codes for blocks that it does not support."""
_SHOWN_WHOLE: frozenset[Choice] = frozenset({"again", "renew"})
"""Choices below messages that do not ask for an approval, so their whole text may be in the notification."""
_RATINGS: dict[str, Literal["good", "bad"]] = {"rating good": "good", "rating bad": "bad"}


class BlockWriter:
    """Sends task cards and thumbs as blocks. Once Slack has refused one of these kinds, it sends plain
    Markdown in place of that kind.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._refused: set[str] = set()

    def has_thumbs(self, message: Outbound) -> bool:
        """Return True if thumbs are shown below a message: the last part of an answer in a direct chat."""
        return THUMBS not in self._refused and message.ends and address.is_direct(message.target["channel"])

    async def write(
        self, call: Callable[..., Awaitable[Any]], message: Outbound, markdown: str, **where: Any
    ) -> Any:
        """Call `chat.postMessage` or `chat.update` with the blocks of a message. Raises what `call` raises."""
        forms: dict[str, Json] = {}
        if message.cards and CARDS not in self._refused:
            forms[CARDS] = _with_cards(message)
        if self.has_thumbs(message) and message.buttons is None:
            forms[THUMBS] = _with_blocks(markdown, markdown, thumbs(message.language))
        for form, content in forms.items():
            try:
                return await call(**where, **content)
            except SlackApiError as error:
                code = failures.error_code(error)
                if code not in REFUSED:
                    raise
                self._refused.add(form)
                self._log.write("delivery", f"Slack does not take {form}", level="warn", error=code)
        if message.buttons is None:
            return await call(**where, markdown_text=markdown)
        return await call(**where, **_with_buttons(markdown, message.buttons, message.language))


def _with_blocks(fallback: str, markdown: str, *below: Json) -> Json:
    return {"text": text.head(fallback, FALLBACK), "blocks": [{"type": "markdown", "text": markdown}, *below]}


def thumbs(language: str) -> Json:
    """Return the block with the two thumbs."""
    with speaking(language):
        good, bad = (
            {
                "text": {"type": "plain_text", "text": say(f"buttons.{which}")},
                "accessibility_label": say(f"buttons.{which}_label"),
                "value": f"rating {which}",
            }
            for which in ("good", "bad")
        )
    element = {
        "type": "feedback_buttons",
        "action_id": "rating",
        "positive_button": good,
        "negative_button": bad,
    }
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
    # A notification on a locked phone must not show the call that needs an approval.
    fallback = markdown if _SHOWN_WHOLE & {*asked.choices} else markdown.partition("\n\n")[0]
    # A decided question has no buttons, but it needs blocks, since Slack would otherwise keep the old buttons.
    actions = [{"type": "actions", "elements": elements}] if elements else []
    return _with_blocks(fallback, markdown, *actions)


def _with_cards(message: Outbound) -> Json:
    plan = {"type": "plan", "title": message.title, "tasks": [_task(card) for card in message.cards]}
    return {"text": text.head(message.text, FALLBACK), "blocks": [plan]}


def _task(card: Card) -> Json:
    task: Json = {"type": "task_card", "task_id": card.id, "title": card.title, "status": card.state}
    if card.detail:
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": card.detail}]}
        task["details"] = {"type": "rich_text", "elements": [section]}
    return task


class _User(Payload):
    id: UserId


class _Channel(Payload):
    id: ChannelId


class _Message(Payload):
    ts: Ts
    thread_ts: Ts | None = None


class _Press(Payload):
    user: _User
    channel: _Channel
    message: _Message
    trigger_id: Label


def read_press(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """Return the press of a button as a command or rating of the person who pressed it; None for a button of
    another app. Raises `inbound.Unreadable`.
    """
    actions = body.get("actions")
    action = actions[0] if isinstance(actions, list) and len(actions) == 1 else None
    value = action.get("value") if isinstance(action, dict) else None
    if not isinstance(value, str):
        return None
    command, rating = approval_buttons.command(value), _RATINGS.get(value)
    if command is None and rating is None:
        return None
    press = parse(_Press, body)
    target = {"channel": press.channel.id, "press": press.trigger_id}
    if press.message.thread_ts is not None:
        target["thread_ts"] = press.message.thread_ts
    return me.inbound(
        press.channel.id,
        press.message.thread_ts,
        press.user.id,
        keys=(f"slack:{me.team}:press:{press.trigger_id}",),
        ts=int(now * 1000),
        target=target,
        addressed="command",
        command=command,
        kind="message" if rating is None else "rating",
        answers=None if rating is None else press.message.ts,
        rating=rating,
    )
