"""Provenance and trust of the text in view: pages, files, output of programs, words of others in the chat.

Each message states its provenance (`contracts.provenance.ORIGIN`), and so does each block of it that differs; what states none is
anybody's. That of the view is the union, so a restart finds the same.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot import tags
from bot.contracts.base import Json, Message
from bot.contracts.provenance import ANYBODYS, NOBODYS, ORIGIN, Provenance, Taint, unpacked
from bot.contracts.tools import MCP, Effect
from bot.identity_cache import MessageFact

_OWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "compaction"})
"""Kinds of blocks that the model writes itself; others are results of the provider's own tools."""
MOST_PEOPLE = 200
"""Max people whose words an answer may repeat; if there are more, it counts as anybody's."""
_LEFT_OUT: Json = {"type": "text", "text": "[words of others, left out]"}
GONE: Json = _LEFT_OUT | {ORIGIN: NOBODYS.packed()}
_RUN, _STEP, _LEAST = 24, 8, 8
"""In bytes of letters: a passage that an answer repeats is found from 31 on, and so is a whole line of 8."""
_SOURCES: Mapping[str, Taint] = {
    "chat_load_history": Taint.FOREIGN,
    "list_dir": Taint.WORKSPACE,
    "read_artifact": Taint.FOREIGN,
    "read_file": Taint.WORKSPACE,
    "run_shell": Taint.WORKSPACE,
    "search_files": Taint.WORKSPACE,
    "task": Taint.FOREIGN,
    "web_fetch": Taint.FOREIGN,
    "web_search": Taint.FOREIGN,
}
"""Level of the results of tools that report none; MCP tools are foreign."""


def usual(tool: str, effects: frozenset[Effect]) -> Provenance:
    """Provenance of a result whose tool reported none."""
    level = Taint.FOREIGN if tool.startswith(MCP) else _SOURCES.get(tool, Taint.NONE)
    # What comes over a network is nobody's of this project.
    return ANYBODYS if level and "network" in effects else Provenance(taint=level)


def seen(messages: Iterable[Message]) -> Provenance:
    """Provenance of these messages together."""
    origin = NOBODYS
    for found in _ORIGIN.each(list(messages)):
        if found.taint == Taint.FOREIGN:
            return ANYBODYS
        if found is not NOBODYS and found != origin:
            origin |= found
    return origin


def _origin(message: Message) -> Provenance:
    blocks = _blocks(message)
    if _by_model(message):
        if any(block.get("type") not in _OWN for block in blocks):
            return ANYBODYS
        return unpacked(message[ORIGIN]) if ORIGIN in message else NOBODYS
    origin = NOBODYS if blocks else unpacked(message.get(ORIGIN))
    for block in blocks:
        origin |= unpacked(_stated(block, message))
    return origin


_ORIGIN = MessageFact[Message, Provenance](_origin)


def _stated(block: Json, message: Message) -> Any:
    """The provenance that a block states, or its message for it; None if neither does."""
    return block.get(ORIGIN, message.get(ORIGIN))


def _by_model(message: Message) -> bool:
    return bool(message["role"] == "assistant")


def _blocks(message: Message) -> Sequence[Json]:
    content = message["content"]
    return () if isinstance(content, str) else content


def stamped(answer: Message, seen_by_model: Iterable[Message]) -> Message:
    """A message of the model with its provenance: that of all that was in view when it was written, but foreign text counts only if
    it repeats some.
    """
    kept = list(seen_by_model)
    origin = seen(kept)
    if origin.taint == Taint.FOREIGN and not _repeats(answer, kept):
        origin = seen(faded(kept))
    return {**answer, ORIGIN: (origin if len(origin.people) <= MOST_PEOPLE else ANYBODYS).packed()}


def _parted(message: Message) -> tuple[Message, Sequence[Any]]:
    """A message with a mark in place of what it states to be foreign, and that text. Summaries stay: nothing else has their words."""
    blocks = _blocks(message)
    if not blocks or _ORIGIN(message).taint < Taint.FOREIGN:
        return message, ()
    if _by_model(message):
        calls = [{**block, "input": {}} for block in blocks if block["type"] == "tool_use"]
        return {**message, "content": [GONE, *calls], ORIGIN: NOBODYS.packed()}, [*_spoken(message)]
    left, gone = list[Json](), list[Any]()
    for block, tag in zip(blocks, tags.of(message), strict=True):
        stated = _stated(block, message)
        summary = block["type"] == "compaction" or (tag is not None and tag.name == tags.SUMMARY)
        if stated is None or unpacked(stated).taint < Taint.FOREIGN or summary:
            left.append(block)
        elif block["type"] == "tool_result":
            gone.append(block["content"])
            left.append({**block, "content": [_LEFT_OUT], ORIGIN: NOBODYS.packed()})
        elif tag is not None and tag.name == tags.CONTEXT and not tag.note:
            # Ids and times are ours; the names of files are words of whoever made them.
            facts = {**tags.facts(message)}
            gone += [names] if (names := facts.pop("attachments", None)) else []
            left.append(replace(tag, words=tags.dumped(facts)).block | {ORIGIN: NOBODYS.packed()})
        else:
            gone.append((tag.rows if tag is not None else None) or block)
            left.append(GONE)
    return {**message, "content": left}, gone


_PARTED = MessageFact[Message, tuple[Message, Sequence[Any]]](_parted)


def faded(messages: Iterable[Message]) -> list[Message]:
    """Messages without foreign text: what is written from these repeats nothing of it. Those that have none are the same objects."""
    return [left for left, _ in _PARTED.each(messages)]


_LINES = MessageFact[Message, list[bytes]](
    lambda message: [_letters(line) for said in _strings(_PARTED(message)[1]) for line in said.splitlines()]
)
"""The lines of its foreign text, as letters."""


def _repeats(answer: Message, messages: Sequence[Message]) -> bool:
    """True if an answer has a line of foreign text, or a passage of one, however its letters are set apart."""
    said = b" ".join(map(_letters, _spoken(answer)))
    runs = {said[at : at + _RUN] for at in range(len(said))}
    return any(
        (len(line) >= _LEAST and line in said)
        or any(line[at : at + _RUN] in runs for at in range(0, len(line) - _RUN + 1, _STEP))
        for line in itertools.chain.from_iterable(_LINES.each(messages))
    )


def says(messages: Iterable[Message], words: str) -> bool:
    """True if the model has said these words itself in one of these messages."""
    wanted, own = _letters(words), filter(_by_model, messages)
    return bool(wanted) and any(wanted in _letters(said) for one in own for said in _spoken(one))


def about(messages: Sequence[Message], people: Collection[str]) -> str:
    """The newest foreign text in view, else that of others than these people: whose message it is, or which result or file."""
    theirs = [one for one in reversed(messages) if not _by_model(one)]
    words = (one for one in theirs if seen([one]).people - set(people))
    found = next((one for one in theirs if _PARTED(one)[1]), None) or next(words, None)
    if found is None:
        return "…"
    calls = {one["id"]: one for said in messages for one in _blocks(said) if one.get("type") == "tool_use"}
    if (call := calls.get(_blocks(found)[-1].get("tool_use_id", ""))) is not None:
        return ": ".join([call["name"], *itertools.islice(_strings(call["input"]), 1)])
    rows = [tag.rows for tag in tags.of(found) if tag is not None and tag.name == tags.QUOTES]
    newest = (_PARTED(found)[1] or rows or _blocks(found))[-1]
    one = newest[-1] if isinstance(newest, list) else newest
    return ": ".join(filter(None, (one.get("from"), one.get("text") or one.get("name"))))


def _letters(words: str) -> bytes:
    """Letters and digits of a text, without case, form and spacing."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", words).casefold()).encode(errors="replace")


def _spoken(message: Message) -> Iterator[str]:
    """The words of a message of the model: what it says, thinks, and gives its tools."""
    for block in message["content"]:
        yield from _strings(block.get("text") or block.get("thinking") or block.get("input"))


def _strings(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(one)
