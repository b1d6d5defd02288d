"""Manifest of the Slack app. `shipmate init` prints it, and an operator pastes it at api.slack.com/apps."""

from __future__ import annotations

from typing import Any

from bot.contracts.approvals import EXAMPLES
from bot.words import say

SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "mpim:history",
    "mpim:read",
    "reactions:write",
    "users:read",
)
"""OAuth scopes that Shipmate uses. The catalogues say what each scope is for (`rights.…`)."""
EVENTS = (
    "agent_session_stopped",
    "app_home_opened",
    "app_mention",
    "member_joined_channel",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
)


def app_manifest(name: str, posts_to: str | None = None) -> dict[str, Any]:
    """Return the manifest of an app with this name and exactly the scopes that Shipmate uses. `posts_to` is
    the address to which the app posts its events; without `posts_to` the app uses Socket Mode.

    A manifest cannot ask for the app token (`connections:write`), so the operator creates that token by hand.
    """
    title = name[:35] or "Shipmate"
    address = {} if posts_to is None else {"request_url": posts_to}
    return {
        "display_information": {"name": title, "description": "An assistant that answers where it is asked."},
        "features": {
            "bot_user": {"display_name": title, "always_online": True},
            # Without a writable messages tab, Slack silently drops direct messages.
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "agent_view": {
                "agent_description": "Answers questions and does tasks, in direct messages and in channels.",
                # A tap sends the prompt as the person's message.
                "suggested_prompts": [
                    {"title": words, "message": words} for words in (say(f"start.{one}") for one in EXAMPLES)
                ],
            },
            "slash_commands": [
                {
                    "command": "/shipmate",
                    "description": "Help, status and other commands",
                    "usage_hint": "help",
                    "should_escape": False,
                }
                | ({} if posts_to is None else {"url": posts_to})
            ],
        },
        "oauth_config": {"scopes": {"bot": list(SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(EVENTS)} | address,
            "interactivity": {"is_enabled": True} | address,
            "org_deploy_enabled": False,
            "socket_mode_enabled": posts_to is None,
            "token_rotation_enabled": False,
        },
    }
