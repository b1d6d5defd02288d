"""Renders a stored conversation for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from bot import tags, text
from bot.contracts.base import Message
from bot.contracts.model import ATTACHED
from bot.contracts.provenance import ORIGIN
from bot.core import quotes
from bot.tools.builtin.chat_send import ChatSend
from bot.tools.permissions.display import named
from bot.words import CATALOGUES, DEFAULT, say

SHOWN = 2_000
"""Max characters of a conversation that are shown."""
_GATHERED = 5 * SHOWN
"""Characters redacted before the text is cut, so that no part of a secret remains at the cut."""
QUOTED = 80
_ID = re.compile(r" \([^()]*\)$")
"""Pattern for the id after the name of a quoted person."""
_UNSHOWN = frozenset({tags.CONTEXT, tags.HISTORY, tags.NOTES, tags.SERVERS})
"""Tags of the gateway that are not shown, since they mean nothing to people."""


def history(messages: Sequence[Message], redact: Callable[[str], str]) -> str:
    """Return the newest part of a conversation with secrets redacted, oldest message first. The text starts
    with `…` if older messages are left out; returns "" if there is nothing to show.
    """
    gathered, left = "", 0
    for at, message in reversed(list(enumerate(messages))):
        gathered = "".join(f"{line}\n" for line in _lines(message)) + gathered
        if len(gathered) > _GATHERED:
            left = at
            break
    words = redact(gathered).strip()
    if len(words) <= SHOWN and not left:
        return words
    newest = words[text.border(words, max(0, len(words) - SHOWN + 2)) :]
    _, line, whole = newest.partition("\n")
    return f"…\n{whole if line else newest}"


def said(message: Message) -> str:
    """Return the beginning of the person's text in a message."""
    told = tags.of(message)
    both = zip(message["content"], told, strict=True)
    own = [block["text"] for block, tag in both if block["type"] == "text" and tag is None]
    quoted = [line for tag in told for line in _quoted(tag)]
    return text.preview(" ".join(own or quoted), QUOTED)


def _quoted(told: tags.Tag | None) -> Iterator[str]:
    for row in quotes.rows_of(told):
        name = _ID.sub("", str(row.get("from")))
        # People choose their names freely, so formatting and links in names are not rendered.
        who = say("quoted.me") if name == quotes.YOU else f"`{named(name)}`"
        how, kind = f"quoted.{row.get('how')}", str(row.get("kind", ""))
        if kind:
            key = f"kinds.{kind.replace(' ', '_')}"
            yield say("quoted.kind", kind=say(key) if key in CATALOGUES[DEFAULT] else kind, who=who)
        else:
            yield say(how if how in CATALOGUES[DEFAULT] else "quoted.said", who=who)
        yield from (f"> {line}" for line in str(row.get("text", "")).splitlines())


def _lines(message: Message) -> Iterator[str]:
    who = "turn.history_bot" if message["role"] == "assistant" else "turn.history_person"
    for block, tag in zip(message["content"], tags.of(message), strict=True):
        if quoted := list(_quoted(tag)):
            yield from quoted
        elif block["type"] == "text" and (tag is None or tag.name not in _UNSHOWN):
            yield say(who, words=block["text"])
        elif (
            block["type"] == "tool_use"
            and block["name"] == ChatSend.name
            and isinstance(block["input"].get("text"), str)
        ):
            yield say(who, words=block["input"]["text"])
        elif block["type"] == ATTACHED and ORIGIN not in block:
            yield say(who, words="📎")
