"""The buttons below a question: each is a command, pressed instead of typed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from bot.contracts.base import Json
from bot.contracts.inbound import Command, Inbound
from channels.slack import address
from channels.slack.inbound import BotIdentity, ChannelId, Label, Ts, Unreadable, UserId

ASKED = "This waits for an approval."
"""Text of a message with buttons in notifications."""
PRESSED = "block_actions"
_BUTTONS = (
    ("Allow once", "approve {} once"),
    ("Allow in this chat", "approve {} chat"),
    ("Always", "approve {} always"),
    ("Deny", "deny {}"),
)
_VALUE = re.compile(r"(?P<name>approve|deny) (?P<args>[0-9A-Z]{26}(?: (?:once|chat|always))?)")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _User(_Part):
    id: UserId


class _Channel(_Part):
    id: ChannelId


class _Message(_Part):
    ts: Ts
    thread_ts: Ts | None = None


class _Press(_Part):
    user: _User
    channel: _Channel
    message: _Message
    trigger_id: Label


def content(markdown: str, target: Mapping[str, str]) -> Json:
    """A message as `chat.postMessage` takes it, with buttons where it asks for an approval."""
    name = target.get("approval")
    if name is None:
        return {"markdown_text": markdown}
    choices = target.get("choices", "once chat always deny").split()
    elements = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": label},
            "action_id": f"approval_{number}",
            "value": value.format(name),
        }
        for number, (label, value) in enumerate(_BUTTONS)
        if value.split()[-1] in choices or ("deny" in choices and value.startswith("deny"))
    ]
    # Once it is decided there are none, and without blocks of its own Slack would leave them where they are.
    actions = [{"type": "actions", "elements": elements}] if name and elements else []
    return {"text": ASKED, "blocks": [{"type": "markdown", "text": markdown}, *actions]}


def read(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """A press as a command of the person who pressed; None for a button of another app. Raises `Unreadable`."""
    found = _ours(body)
    if found is None:
        return None
    try:
        press = _Press.model_validate(body)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, one["loc"])) for one in error.errors(include_input=False))
        raise Unreadable(f"{PRESSED}: {places}") from None
    place = {"channel": press.channel.id}
    if press.message.thread_ts is not None:
        place["thread_ts"] = press.message.thread_ts
    return Inbound(
        channel="slack",
        chat_id=press.channel.id,
        chat_key=address.encode(place),
        chat_type="direct" if address.is_direct(press.channel.id) else "group",
        user_id=press.user.id,
        keys=(f"slack:{me.team}:press:{press.trigger_id}",),
        ts=int(now * 1000),
        target={**place, "press": press.trigger_id},
        addressed="command",
        command=Command(name=found["name"], args=found["args"]),
    )


def _ours(body: Json) -> re.Match[str] | None:
    """The command that our button holds. The value comes from the person's client, so only commands that buttons have
    are taken.
    """
    actions = body.get("actions")
    action = actions[0] if isinstance(actions, list) and len(actions) == 1 else None
    value = action.get("value") if isinstance(action, dict) else None
    return _VALUE.fullmatch(value) if isinstance(value, str) else None
