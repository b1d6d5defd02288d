"""Slack's scopes: those that a method of the Web API, an event or a slash command needs."""

from __future__ import annotations

from collections.abc import Mapping

HISTORY = {
    "im": "im:history",
    "mpim": "mpim:history",
    "channel": "channels:history",
    "group": "groups:history",
}
"""By the kind of the conversation that is read."""
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
"""Methods that need the scope of the kind of each conversation that they are about."""
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
"""Events that an app may subscribe to. Without its scope none comes, and nothing says so."""
COMMANDS = "commands"


def of_method(method: str) -> frozenset[str]:
    """All scopes that a method may need. Raises `KeyError`."""
    return frozenset(METHODS[method] if method in METHODS else BY_KIND[method].values())


def of_event(event: str, kind: str | None = None) -> frozenset[str]:
    """The scopes that an event needs, of one kind of conversation or of all. Raises `KeyError`."""
    needed = EVENTS[event]
    if isinstance(needed, str):
        return frozenset({needed})
    return frozenset(scope for one, scope in needed.items() if kind in {None, one})


ALL = frozenset({COMMANDS}).union(*map(of_method, (*METHODS, *BY_KIND)), *map(of_event, EVENTS))
