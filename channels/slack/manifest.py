"""Manifest, settings and chatKeys of the Slack channel. Does not import Slack's library."""

from __future__ import annotations

import json
import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts.channel import (
    LOOPBACK,
    ChannelSettings,
    EditPace,
    Manifest,
    Pace,
    Streaming,
    TokenForm,
    Webhook,
)
from bot.words import sentence
from channels import ChatKeys, lazy

RULES = """\
Your messages are shown in Slack as Markdown: bold, italic, strikethrough, inline code, fenced code, links, \
quotes, lists, headings and tables work. Images are not shown, HTML is not read, and mentions you write do not \
notify anybody. Everything you send goes into the thread of the message you answer. Keep messages short; one of \
more than 11,500 characters is cut into several."""
_ID = re.compile(r"[UWCDG][A-Z0-9]{2,}")


class SlackSettings(ChannelSettings):
    """Settings of the Slack channel."""

    bot_token: str | None = None
    """Bot token (`xoxb-…`). Default: `${SLACK_BOT_TOKEN}`."""
    app_token: str | None = None
    """App token (`xapp-…`) with `connections:write`, for Socket Mode. Default: `${SLACK_APP_TOKEN}`."""
    webhook: Webhook | None = None
    """Receive events over HTTP. Default: through Socket Mode, which needs no address that Slack can reach."""
    signing_secret: str | None = None
    """Signing secret of the app, with which Slack signs the events for the webhook. Default: `${SLACK_SIGNING_SECRET}`."""
    base_url: str = "https://slack.com/api/"
    """Address of the Web API."""
    allow: list[str] = Field(default_factory=list)
    """Ids of people, groups and channels that may talk to the bot; `*` allows everyone. `shipmate allow` adds ids here."""
    direct: Literal["threads", "one"] = "threads"
    """Conversations in direct messages. `threads`: each message outside a thread starts a conversation, and the message's
    thread continues the conversation. `one`: all direct messages of a person are one conversation.
    """
    streaming: Streaming = Streaming()
    """Settings for unfinished answers and progress that are shown while the bot works."""

    @field_validator("base_url")
    @classmethod
    def _safe_address(cls, value: str) -> str:
        # Every call sends the token to this address, so the address must be safe.
        parts = urlsplit(value)
        here = parts.scheme == "http" and parts.hostname in LOOPBACK
        if not parts.hostname or not (here or parts.scheme == "https"):
            raise ValueError("must be an https:// address, or http:// on this machine")
        return value


KEYS = ChatKeys("slack", "channel", "thread_ts")
encode, decode = KEYS.encode, KEYS.decode


def is_direct(channel: str) -> bool:
    return channel.startswith("D")


def _connect(name: str, posts_to: str | None) -> str:
    manifest = lazy("channels.slack.app:app_manifest")(name, posts_to)
    secret = (
        "make an app-level token with\nconnections:write (Basic Information)."
        if posts_to is None
        else "take the Signing Secret\n(Basic Information)."
    )
    return (
        "For Slack, make an app at https://api.slack.com/apps (Create New App, From a manifest) of this:\n\n"
        f"{json.dumps(manifest, indent=2, ensure_ascii=False)}\n\n"
        f"Install it and take the Bot User OAuth Token (OAuth & Permissions); {secret} "
        "Your own id is in your profile, at Copy member ID."
    )


MANIFEST = Manifest(
    name="slack",
    settings=SlackSettings,
    build=lazy("channels.slack.adapter:SlackChannel"),
    encode=encode,
    decode=decode,
    buttons=True,
    tokens=("bot_token", "app_token"),
    webhook_tokens=("bot_token", "signing_secret"),
    token_forms={
        "bot_token": TokenForm(r"(?:xoxe\.)?xoxb-[\w.-]+", "xoxb-…"),
        "app_token": TokenForm(r"xapp-[\w.-]+", "xapp-…"),
        "signing_secret": TokenForm(r"[0-9a-f]{32}", "32 of the digits 0 to f"),
    },
    valid_id=lambda value: _ID.fullmatch(value) is not None,
    where_id=sentence("operators.id_slack"),
    pace={"direct": Pace(burst=3, every=1.0), "group": Pace(burst=3, every=1.0)},
    # Slack accepts one message per second in a conversation, and a few hundred per minute in a workspace.
    total=Pace(burst=20, every=0.25),
    # Slack accepts about fifty `chat.update` calls per minute in a workspace. Edits of unfinished answers use fewer calls, so
    # that edits with final answers still fit.
    edits=EditPace({"direct": 1.2, "group": 1.5}, total=Pace(burst=6, every=1.6)),
    ephemeral=True,
    files=True,
    silence=90.0,  # Slack sends a ping every few seconds
    direct=lambda user: {"channel": user},  # Slack accepts a user id in place of the direct channel's id
    examine=lazy("channels.slack.app:examine"),
    connect=_connect,
    rules=RULES,
    command_prefix="!",
    indicate_every=60.0,  # Slack clears the status after two minutes
)
