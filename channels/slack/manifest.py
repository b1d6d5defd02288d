"""Manifest of the Slack channel. Imports no library of Slack."""

from __future__ import annotations

from bot.contracts.channel import Channel, ChannelDeps, EditPace, Manifest, Pace, TokenForm
from bot.contracts.examination import Examination
from bot.words import sentence
from channels.slack import address
from channels.slack.settings import SlackSettings

RULES = """\
Your messages are shown in Slack as Markdown: bold, italic, strikethrough, inline code, fenced code, links, \
quotes, lists, headings and tables work. Images are not shown, HTML is not read, and mentions you write do not \
notify anybody. Everything you send goes into the thread of the message you answer. Keep messages short; one of \
more than 11,500 characters is cut into several."""


def _build(settings: SlackSettings, outside: ChannelDeps) -> Channel:
    from channels.slack.adapter import SlackChannel

    return SlackChannel(settings, outside)


async def _examine(settings: SlackSettings) -> Examination:
    from channels.slack.examination import examine

    return await examine(settings)


def _connect(name: str, posts_to: str | None) -> str:
    import json

    from channels.slack.app_manifest import app_manifest

    return "\n".join(
        [
            "For Slack, make an app at https://api.slack.com/apps (Create New App, From a manifest) of this:",
            "",
            json.dumps(app_manifest(name, posts_to), indent=2, ensure_ascii=False),
            "",
            "Install it and take the Bot User OAuth Token (OAuth & Permissions); "
            + (
                "make an app-level token with\nconnections:write (Basic Information)."
                if posts_to is None
                else "take the Signing Secret\n(Basic Information)."
            )
            + " Your own id is in your profile, at Copy member ID.",
        ]
    )


MANIFEST = Manifest(
    name="slack",
    settings=SlackSettings,
    build=_build,
    encode=address.encode,
    decode=address.decode,
    buttons=True,
    tokens=("bot_token", "app_token"),
    webhook_tokens=("bot_token", "signing_secret"),
    token_forms={
        "bot_token": TokenForm(r"(?:xoxe\.)?xoxb-[\w.-]+", "xoxb-…"),
        "app_token": TokenForm(r"xapp-[\w.-]+", "xapp-…"),
        "signing_secret": TokenForm(r"[0-9a-f]{32}", "32 of the digits 0 to f"),
    },
    access="allowlist",
    valid_id=address.valid_id,
    where_id=sentence("operators.id_slack"),
    pace={"direct": Pace(burst=3, every=1.0), "group": Pace(burst=3, every=1.0)},
    # Slack accepts one message a second in each conversation, and some hundreds a minute in a workspace.
    total=Pace(burst=20, every=0.25),
    # Slack accepts about fifty `chat.update` calls a minute in one workspace, over all conversations.
    # Live edits use less than that, so that the final answers can still be written.
    edits=EditPace({"direct": 1.2, "group": 1.5}, total=Pace(burst=6, every=1.6)),
    ephemeral=True,
    files=True,
    silence=90.0,  # Slack pings every few seconds
    direct=lambda user: {"channel": user},  # for a user id, Slack opens the direct conversation itself
    examine=_examine,
    connect=_connect,
    rules=RULES,
    command_prefix="!",
    indicate_every=60.0,  # Slack clears the status after two minutes
)
