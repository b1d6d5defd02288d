"""The event types of Slack that are handled. Any other is ignored, with a log line for the first of its type."""

from __future__ import annotations

from bot import text
from bot.contracts.environment import Log
from bot.words import names

MOST_TYPES = 100

HOME = "app_home_opened"
HANDLED = frozenset({HOME, "agent_session_stopped", "app_mention", "member_joined_channel", "message"})

MESSAGES = frozenset({"file_share", "thread_broadcast", "me_message", "bot_message"})
"""Subtypes of `message` that are messages."""

CHANGES = frozenset({"message_changed", "message_deleted"})
"""Subtypes that tell of a change to another message."""

COMMANDS = frozenset(names("help"))
"""`!` with one of these is a command, and speaks to the bot without a mention; with any other word it is a message, unless that
`is_misspelt` and speaks to the bot.
"""
MOST_ARGS = 2
"""Words behind a command whose name is misspelt: more make a sentence, as in `!news of today, please`."""


def is_command(name: str, _args: str) -> bool:
    return name in COMMANDS


def is_misspelt(name: str, args: str) -> bool:
    """True for a word that is no command and probably means one: as a message it would call off what waits for its person."""
    return (
        name not in COMMANDS and len(args.split()) <= MOST_ARGS and text.nearest(name, COMMANDS) is not None
    )


def is_handled(kind: str, subtype: object = None) -> bool:
    """True for the events that are read. Joins, topics, pins, reactions and the like are no business of a conversation."""
    known = kind != "message" or not isinstance(subtype, str) or subtype in MESSAGES | CHANGES
    return kind in HANDLED and known


class UnhandledTypes:
    """Writes one debug line for the first event of each type that is not handled."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seen: set[str] = set()

    def log_once(self, kind: object, subtype: object = None) -> None:
        if not isinstance(kind, str) or is_handled(kind, subtype):
            return
        named = f"{kind} {subtype}" if isinstance(subtype, str) else kind
        if named not in self._seen and len(self._seen) < MOST_TYPES:
            self._seen.add(named)
            self._log.write(
                "inbound",
                "Slack sent an event of a type that is not handled",
                level="debug",
                event=named[:80],
            )
