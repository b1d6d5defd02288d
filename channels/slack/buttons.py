"""The buttons below a question: each is a command, pressed instead of typed."""

from __future__ import annotations

from typing import Literal

from bot import text
from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.words import say, speaking
from channels import approval_buttons
from channels.slack.inbound import BotIdentity, ChannelId, Label, Payload, Ts, UserId, parse

FALLBACK = 3_000
"""Characters of a message that a notification gets."""
_OTHER: frozenset[Choice] = frozenset({"again", "renew"})
PRESSED = "block_actions"
_RATINGS: dict[str, Literal["good", "bad"]] = {"rating good": "good", "rating bad": "bad"}


def thumbs(language: str) -> Json:
    """The block below an answer with two thumbs."""
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


def content(markdown: str, asked: QuestionButtons | None, language: str, *, rated: bool = False) -> Json:
    """A message as `chat.postMessage` takes it, with buttons where it asks for an approval, and thumbs where it is to be `rated`."""
    if asked is None and rated:
        blocks = [{"type": "markdown", "text": markdown}, thumbs(language)]
        return {"text": text.head(markdown, FALLBACK), "blocks": blocks}
    if asked is None:
        return {"markdown_text": markdown}
    elements = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": label},
            "action_id": f"approval_{choice}",
            "value": value,
        }
        for choice, (label, value) in approval_buttons.offered(asked, language).items()
    ]
    # Once it is decided there are none, and without blocks of its own Slack would leave them where they are.
    actions = [{"type": "actions", "elements": elements}] if elements else []
    # What a question shows of a call is not for the screen of a locked phone.
    told = markdown if _OTHER & {*asked.choices} else markdown.partition("\n\n")[0]
    return {"text": text.head(told, FALLBACK), "blocks": [{"type": "markdown", "text": markdown}, *actions]}


def read(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """A press as a command or rating of the person who pressed; None for a button of another app. Raises `Unreadable`."""
    value = _value(body)
    command = approval_buttons.command(value)
    rating = _RATINGS.get(value)
    if command is None and rating is None:
        return None
    press = parse(_Press, body)
    place = {"channel": press.channel.id}
    if press.message.thread_ts is not None:
        place["thread_ts"] = press.message.thread_ts
    return me.inbound(
        press.channel.id,
        press.message.thread_ts,
        press.user.id,
        keys=(f"slack:{me.team}:press:{press.trigger_id}",),
        ts=int(now * 1000),
        target={**place, "press": press.trigger_id},
        addressed="command",
        command=command,
        kind="message" if rating is None else "rating",
        answers=None if rating is None else press.message.ts,
        rating=rating,
    )


def _value(body: Json) -> str:
    actions = body.get("actions")
    action = actions[0] if isinstance(actions, list) and len(actions) == 1 else None
    value = action.get("value") if isinstance(action, dict) else None
    return value if isinstance(value, str) else ""
