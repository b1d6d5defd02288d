"""Marks Shipmate's own text in requests to the model. The marks are tags, or system messages for models that accept
them.

A message that Shipmate writes begins with a tag. All tags of a message have the same nonce, which no author of a quoted
text could know. A tag with another nonce, or without one, is text that a person wrote.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from bot.contracts.base import Json, Message
from bot.identity_cache import IdentityCache

CONTEXT = "turn_context"
FILES = "attached_files"
HISTORY = "loaded_history"
NOTES = "memory_notes"
QUOTES = "quoted_messages"
REATTACHED = "reattached"
SERVERS = "mcp_servers"
SUMMARY = "conversation_summary"

_NAMES = f"{CONTEXT}|{FILES}|{HISTORY}|{NOTES}|{QUOTES}|{REATTACHED}|{SERVERS}|{SUMMARY}"
_SHAPE = re.compile(
    rf'<(?P<name>{_NAMES})(?:-(?P<nonce>[0-9a-f]{{8}}))?(?: note="(?P<note>[^"<>\r\n]*)")?>'
    r"(?P<words>.*)</(?P=name)(?(nonce)-(?P=nonce))>",
    re.DOTALL,
)
_OURS = re.compile(rf"<(?=/?(?:{_NAMES})\b)", re.IGNORECASE)
_IN_NOTES = str.maketrans({'"': "'", "<": "‹", ">": "›", "\r": " ", "\n": " "})


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag with its content. The nonce is ignored in comparisons."""

    name: str
    words: str
    note: str = ""
    nonce: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        name = f"{self.name}-{self.nonce}" if self.nonce else self.name
        note = f' note="{self.note.translate(_IN_NOTES)}"' if self.note else ""
        return f"<{name}{note}>{self.words}</{name}>"

    @property
    def block(self) -> Json:
        return {"type": "text", "text": self.text}

    @property
    def rows(self) -> list[Json]:
        """Return the JSON objects in the content, one per line; [] if any line is invalid."""
        try:
            found = [
                json.loads(line) for line in self.words.removeprefix("\n").removesuffix("\n").split("\n")
            ]
        except (ValueError, RecursionError):
            return []
        return found if all(isinstance(row, dict) for row in found) else []


def nonce(unique: str) -> str:
    """Return a nonce derived from an id that no author has seen."""
    return hashlib.sha256(unique.encode()).hexdigest()[:8]


def dumped(value: object) -> str:
    """Return a value as JSON that cannot contain a tag."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def lines(rows: list[Json]) -> str:
    return "\n" + "\n".join(map(dumped, rows)) + "\n"


def harmless(words: str) -> str:
    """Return a text in which no tag can be mistaken for one of Shipmate's tags."""
    return _OURS.sub("‹", words)


def read(text: object) -> Tag | None:
    """Return the tag if the text consists of exactly one tag, whoever wrote it; otherwise None."""
    if not isinstance(text, str) or not text.startswith("<"):
        return None
    found = _SHAPE.fullmatch(text)
    return Tag(found["name"], found["words"], found["note"] or "", found["nonce"] or "") if found else None


def _read_all(message: Message) -> Sequence[Tag | None]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    if message.get("role") != "user":
        return [None] * len(blocks)
    texts = [block.get("text") if block.get("type") == "text" else None for block in blocks]
    found = [read(text) for text in texts]
    first = next((tag for tag, text in zip(found, texts, strict=True) if text is not None), None)
    own = first.nonce if first is not None else ""
    return [tag if tag is not None and tag.nonce == own else None for tag in found]


of = IdentityCache[Message, Sequence[Tag | None]](_read_all)
"""The tag of each block of a message; None for a block that is no tag of Shipmate."""


def begins(message: Message, name: str) -> Tag | None:
    """Return the first tag of a message if the tag has this name and has no note; otherwise None."""
    first = next(iter(of(message)), None)
    return first if first is not None and first.name == name and not first.note else None


def _facts(message: Message) -> Json:
    first = begins(message, CONTEXT)
    try:
        found = json.loads(first.words) if first is not None else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


facts = IdentityCache[Message, Json](_facts)
"""Facts (sender, time and so on) in the context tag of a person's message, or {}. Do not change the result."""


SILENT = "[silent]"
"""Text that the model writes if a message needs no answer. People never see this text."""


# ------------------------------------------------------------ system messages

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
EDITED = "The person has changed an earlier message. The words below are what it says now, in place of it."
ANSWER = "The person still waits for your answer. Give it now, with what you have."
LAST_STEP = "This is your last step: no tool runs any more. Write your summary now, with what you have, and say what is missing."
SEND = "chat_send"
"""Name of the tool that sends a message. If a step calls no other tool, the turn usually ends after the step."""
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
        ("note edit", "|".join(map(re.escape, (DUE, BROUGHT, SPOKEN, OVERHEARD, EDITED)))),
    )
    for name in names.split()
}
"""Pattern of the value of each fact that no person can choose, such as a time."""
_NOTICES = frozenset({ANSWER, LAST_STEP})


def with_system_messages(messages: Sequence[Message]) -> list[Message]:
    """Move the facts that no person can choose (such as times) to messages of the role `system`, and return all
    messages. Each system message stays directly before its answer, so that the provider's cache of the previous request applies.
    """
    shown, said, works, mark = list[Message](), list[str](), False, None
    end: Message = {"role": "assistant", "content": ()}
    for message, (kept, words) in zip([*messages, end], [*_SPLIT.each(messages), (end, "")], strict=True):
        if message["role"] == "assistant":
            if said:
                shown.append(_system_message(*said))
                if mark is not None:  # the last message gets the cache breakpoint
                    shown[-2:] = [_marked(shown[-2], None), _marked(shown[-1], mark)]
            said = []
            works = any(one["type"] == "tool_use" and one["name"] != SEND for one in message["content"])
        if words in _NOTICES and shown and shown[-1]["role"] == "user":
            said.append(words)
        else:
            shown.append(kept)
            if words and words not in _NOTICES:
                said = ["\n".join((*(said or [JOINED] * works), words))]
        mark = message["content"][-1].get("cache_control") if message is not end else None
    return shown[:-1]


def _marked(message: Message, mark: Json | None) -> Message:
    *first, last = message["content"]
    last = {key: value for key, value in last.items() if key != "cache_control"}
    return {**message, "content": [*first, last | ({"cache_control": mark} if mark else {})]}


def without_system_messages(messages: Iterable[Message]) -> list[Message]:
    """Undo `with_system_messages`: turn each system message into tags before the text that it describes."""
    shown = list[Message]()
    for message in messages:
        if message["role"] != "system" or not shown:
            shown.append(message)
            continue
        content = shown[-1]["content"]
        at = len(content) - (content[-1]["type"] != "tool_result")
        told = []
        for line in "\n".join(block["text"] for block in message["content"]).split("\n"):
            said = line.removeprefix(FACTS)
            if said != line:
                told.append(Tag(CONTEXT, said, nonce=json.loads(said)["nonce"]).block)
            elif line != JOINED:
                told.append({"type": "text", "text": line})
        shown[-1] = {**shown[-1], "content": [*content[:at], *told, *content[at:]]}
    return shown


def _split(message: Message) -> tuple[Message, str]:
    """Return the message without the facts that no person can choose, and these facts as text; "" if there are none."""
    first, content = begins(message, CONTEXT), message["content"]
    if first is None or not first.nonce:
        words = content[0].get("text") if len(content) == 1 else ""
        return message, words if words in _NOTICES else ""
    said, rest = _parted(facts(message))
    left = {**content[0], "text": replace(first, words=dumped(rest)).text}
    kept = [*([left] if rest else []), *content[1:]]
    if not said or not kept:
        return message, ""
    words = FACTS + dumped({"nonce": first.nonce, **said})
    return {**message, "content": kept}, words.replace("The words below", "The words above")


_SPLIT = IdentityCache[Message, tuple[Message, str]](_split)


def _parted(told: Json) -> tuple[Json, Json]:
    parts: tuple[Json, Json] = {}, {}
    for name, value in told.items():
        if name == "job" and isinstance(value, dict):
            for at, found in enumerate(_parted(value)):
                parts[at].update({name: found} if found else {})
        else:
            plain = name in _SHAPES and isinstance(value, str | int) and _SHAPES[name].fullmatch(str(value))
            parts[0 if plain else 1][name] = value
    return parts


@lru_cache(1_024)
def _system_message(*words: str) -> Message:
    """Return a system message. Equal texts give the same object, because facts of messages are cached by identity."""
    return {"role": "system", "content": [{"type": "text", "text": one} for one in words]}
