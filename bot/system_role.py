"""Moves facts about people's messages into messages with the role `system`, for models that accept this
role.

The module only transforms a request. A system message stands after the messages that it describes and before
the answer to them, so that each request is an extension of the previous request. A system message contains
ids, times, numbers and the sentences below. Everything that a person may have chosen stays in the person's
message, inside its tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from bot import tags
from bot.contracts.base import Json, Message
from bot.identity_cache import MessageFact
from bot.tags import SILENT

DUE = (
    "The words below are a job that this person planned before, and it is due now. Do it and send the answer here; "
    "nobody is there to be asked or to approve anything, and jobs cannot be planned in it."
)
BROUGHT = (
    "The person sent no words of their own, only what stands in quoted_messages. It asks nothing of you: say what it is, or "
    "ask what they want with it."
)
SPOKEN = (
    "The person spoke instead of writing: the text of the voice note in attached_files is what they said to you, as far as it was "
    "understood. Answer it as you would answer words; where it makes no sense, ask."
)
OVERHEARD = (
    f"This was said where you read along, perhaps not to you. Where it needs nothing from you, your whole answer is {SILENT} as "
    "plain text, which nobody sees."
)
EDITED = (
    "The person has changed a message that was sent {}. The words below are what it says now, in place of it."
)
EARLIER = "earlier"
ANSWER = "The person still waits for your answer. Give it now, with what you have."
LAST_STEP = "This is your last step: no tool runs any more. Write your summary now, with what you have, and say what is missing."
SEND = "chat_send"
"""Name of the tool whose result alone usually ends a turn. A message after that result did not join the turn."""
FACTS = "Facts of the person's message above: "
JOINED = "While you worked the person said what stands above, behind the tool results: it is no part of a result. Take it up now."

_TIME = r"\d{4}-\d\d-\d\dT[\d:]{5,8}"
_SHAPES = {
    name: re.compile(shape, re.ASCII)
    for names, shape in (
        ("requestId userId id", r"-?\d{1,20}|(?=[A-Z]*\d)[0-9A-Z]{2,32}"),
        ("time due", f"{_TIME}Z"),
        ("lateSeconds missedBefore moreAttachments", r"\d+"),
        ("localTime", rf"[A-Z][a-z]{{2}} {_TIME}[+-][\d:]+ [A-Za-z]+(?:/[\w+-]+)*"),
        ("note", "|".join(map(re.escape, (DUE, BROUGHT, SPOKEN, OVERHEARD)))),
        ("edit", re.escape(EDITED).replace(r"\{\}", rf"(?:{EARLIER}|at {_TIME}Z)")),
    )
    for name in names.split()
}
"""Facts that no person can choose. Each name maps to the pattern of the fact's value."""
_NOTICES = frozenset({ANSWER, LAST_STEP})


def told(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with system messages inserted."""
    shown, said, works, mark = list[Message](), list[str](), False, None
    for message, (kept, words) in zip(messages, _TAKEN.each(messages), strict=True):
        if message["role"] == "assistant":
            _close(shown, said, mark)
            said = []
            works = any(one["type"] == "tool_use" and one["name"] != SEND for one in message["content"])
        if words in _NOTICES and shown and shown[-1]["role"] == "user":
            said.append(words)
        else:
            shown.append(kept)
            if words and words not in _NOTICES:
                said = ["\n".join((*(said or [JOINED] * works), words))]
        mark = message["content"][-1].get("cache_control")
    _close(shown, said, mark)
    return shown


def _close(shown: list[Message], said: list[str], mark: Json | None) -> None:
    """Append a system message and move the cache breakpoint to it."""
    if said:
        shown.append(_message(*said))
        if mark is not None:
            shown[-2:] = [_marked(shown[-2], None), _marked(shown[-1], mark)]


def _marked(message: Message, mark: Json | None) -> Message:
    *first, last = message["content"]
    last = {key: value for key, value in last.items() if key != "cache_control"}
    return {**message, "content": [*first, last | ({"cache_control": mark} if mark else {})]}


def folded(messages: Iterable[Message]) -> list[Message]:
    """Undo `told` for other models. Each system message becomes tags before the text of the message that it follows."""
    shown = list[Message]()
    for message in messages:
        if message["role"] == "system" and shown:
            content = shown[-1]["content"]
            at = len(content) - (content[-1]["type"] != "tool_result")
            lines = [
                line for block in message["content"] for line in block["text"].split("\n") if line != JOINED
            ]
            shown[-1] = {**shown[-1], "content": [*content[:at], *map(_tagged, lines), *content[at:]]}
        else:
            shown.append(message)
    return shown


def _tagged(line: str) -> Json:
    facts = line.removeprefix(FACTS)
    if facts == line:
        return {"type": "text", "text": line}
    return tags.Tag(tags.CONTEXT, facts, nonce=json.loads(facts)["nonce"]).block


def _taken(message: Message) -> tuple[Message, str]:
    """Split a message into the part that stays and the text of its system message. The text may be ""."""
    first, content = tags.begins(message, tags.CONTEXT), message["content"]
    if first is None or not first.nonce:
        words = content[0].get("text") if len(content) == 1 else ""
        return message, words if words in _NOTICES else ""
    said, rest = _parted(tags.facts(message))
    left = {**content[0], "text": replace(first, words=tags.dumped(rest)).text}
    kept = [*([left] if rest else []), *content[1:]]
    if not said or not kept:
        return message, ""
    words = FACTS + tags.dumped({"nonce": first.nonce, **said})
    return {**message, "content": kept}, words.replace("The words below", "The words above")


_TAKEN = MessageFact[Message, tuple[Message, str]](_taken)


def _parted(facts: Json) -> tuple[Json, Json]:
    """Split facts into the facts that no person can choose, and the other facts."""
    parts: tuple[Json, Json] = {}, {}
    for name, value in facts.items():
        if name == "job" and isinstance(value, dict):
            for at, found in enumerate(_parted(value)):
                parts[at].update({name: found} if found else {})
        else:
            plain = name in _SHAPES and isinstance(value, str | int) and _SHAPES[name].fullmatch(str(value))
            parts[0 if plain else 1][name] = value
    return parts


@lru_cache(1_024)
def _message(*words: str) -> Message:
    """Return a system message. Messages are cached by text, because facts of messages are cached by identity
    (`bot.identity_cache`).
    """
    return {"role": "system", "content": [{"type": "text", "text": one} for one in words]}
