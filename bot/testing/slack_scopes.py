"""The scopes that Slack's Web API methods, events and slash commands need."""

from __future__ import annotations

from collections.abc import Mapping

HISTORY = {
    "im": "im:history",
    "mpim": "mpim:history",
    "channel": "channels:history",
    "group": "groups:history",
}
"""Scopes for reading messages, by kind of conversation."""
INFO = {"im": "im:read", "mpim": "mpim:read", "channel": "channels:read", "group": "groups:read"}

METHODS: Mapping[str, tuple[str, ...]] = {
    "agents.sessions.setStatus": ("chat:write", "assistant:write"),
    "assistant.threads.setStatus": ("chat:write",),
    "assistant.threads.setTitle": ("assistant:write",),
    "auth.test": (),
    "bots.info": ("users:read",),
    "chat.appendStream": ("chat:write",),
    "chat.delete": ("chat:write",),
    "chat.postEphemeral": ("chat:write",),
    "chat.postMessage": ("chat:write",),
    "chat.startStream": ("chat:write",),
    "chat.stopStream": ("chat:write",),
    "chat.update": ("chat:write",),
    "files.completeUploadExternal": ("files:write",),
    "files.getUploadURLExternal": ("files:write",),
    "files.info": ("files:read",),
    "reactions.add": ("reactions:write",),
    "users.info": ("users:read",),
    "views.publish": (),
}
BY_KIND: Mapping[str, Mapping[str, str]] = {
    "conversations.history": HISTORY,
    "conversations.info": INFO,
    "conversations.replies": HISTORY,
    "users.conversations": INFO,
}
"""Scopes of methods whose scope depends on the kind of conversation."""
EVENTS: Mapping[str, Mapping[str, str] | str] = {
    "agent_session_stopped": "assistant:write",
    "app_home_opened": {},
    "app_mention": "app_mentions:read",
    "member_joined_channel": {"channel": "channels:read", "group": "groups:read"},
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
}
"""Scopes of the events that an app may subscribe to. If the app lacks the scope, Slack does not send the event."""
COMMANDS = "commands"


def of_method(method: str) -> frozenset[str]:
    """Return all scopes that a method may need. Raises `KeyError` for an unknown method."""
    return frozenset(METHODS[method] if method in METHODS else BY_KIND[method].values())


def of_event(event: str, kind: str | None = None) -> frozenset[str]:
    """Return the scopes that an event needs for one kind of conversation; without `kind`, for all kinds."""
    needed = EVENTS[event]
    if isinstance(needed, str):
        return frozenset({needed})
    return frozenset(scope for one, scope in needed.items() if kind in {None, one})


ALL = frozenset({COMMANDS}).union(*map(of_method, (*METHODS, *BY_KIND)), *map(of_event, EVENTS))
