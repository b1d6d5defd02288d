"""Provenance of the text in the model's context. Each message states its provenance (`ORIGIN`). A block whose provenance
differs states its own. Text without a stated provenance counts as anybody's. The provenance of the context is the union over
all its messages, so a restart does not change it.
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
from bot.contracts.messages import ANYBODYS, NOBODYS, ORIGIN, Provenance, Taint, unpacked
from bot.contracts.tools import MCP, Effect
from bot.identity_cache import IdentityCache

_OWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
"""Types of blocks that the model itself writes. Other blocks in an answer are results of the provider's tools."""
MOST_PEOPLE = 200
"""Max people whose text an answer may repeat. With more people, the answer counts as anybody's."""
_LEFT_OUT: Json = {"type": "text", "text": "[words of others, left out]"}
GONE: Json = _LEFT_OUT | {ORIGIN: NOBODYS.packed()}
_RUN, _STEP, _LEAST = 24, 8, 8
"""Lengths for finding repeated foreign text, in bytes of letters and digits. A repeated passage is found if it has 31
bytes or more. A repeated whole line is found if it has 8 bytes or more.
"""
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
"""Untrusted-text levels of results for which a tool reports no provenance. Results of MCP tools are foreign."""


def usual(tool: str, effects: frozenset[Effect]) -> Provenance:
    """Return the provenance of a result if its tool reported none."""
    level = Taint.FOREIGN if tool.startswith(MCP) else _SOURCES.get(tool, Taint.NONE)
    # Anybody may have written a text that a tool reads from a network.
    return ANYBODYS if level and "network" in effects else Provenance(taint=level)


def seen(messages: Iterable[Message]) -> Provenance:
    """Return the combined provenance of these messages."""
    origin = NOBODYS
    for found in _ORIGIN.each(list(messages)):
        if found.taint == Taint.FOREIGN:
            return ANYBODYS
        if found is not NOBODYS and found != origin:
            origin |= found
    return origin


def _origin(message: Message) -> Provenance:
    blocks = _blocks(message)
    if message["role"] == "assistant":
        if any(block.get("type") not in _OWN for block in blocks):
            return ANYBODYS
        return unpacked(message[ORIGIN]) if ORIGIN in message else NOBODYS
    origin = NOBODYS if blocks else unpacked(message.get(ORIGIN))
    for block in blocks:
        origin |= unpacked(block.get(ORIGIN, message.get(ORIGIN)))
    return origin


_ORIGIN = IdentityCache[Message, Provenance](_origin)


def _blocks(message: Message) -> Sequence[Json]:
    content = message["content"]
    return () if isinstance(content, str) else content


def stamp_of(content: list[Json], seen_by_model: Iterable[Message]) -> Any:
    """Return the packed provenance of an answer of the model, computed from all text that the model saw. Foreign text is
    included only if the answer repeats some of it.
    """
    kept = list(seen_by_model)
    origin = seen(kept)
    if origin.taint == Taint.FOREIGN and not _repeats({"role": "assistant", "content": content}, kept):
        origin = seen(faded(kept))
    return (origin if len(origin.people) <= MOST_PEOPLE else ANYBODYS).packed() or None


def _parted(message: Message) -> tuple[Message, Sequence[Any]]:
    """Return the message with a note in place of its foreign parts, and the foreign text. Summaries are kept, because
    no other message contains their text.
    """
    blocks = _blocks(message)
    if not blocks or _ORIGIN(message).taint < Taint.FOREIGN:
        return message, ()
    if message["role"] == "assistant":
        calls = [{**block, "input": {}} for block in blocks if block["type"] == "tool_use"]
        return {**message, "content": [GONE, *calls], ORIGIN: NOBODYS.packed()}, [*_spoken(message)]
    left, gone = list[Json](), list[Any]()
    for block, tag in zip(blocks, tags.of(message), strict=True):
        stated = block.get(ORIGIN, message.get(ORIGIN))
        summary = tag is not None and tag.name == tags.SUMMARY
        if stated is None or unpacked(stated).taint < Taint.FOREIGN or summary:
            left.append(block)
        elif block["type"] == "tool_result":
            gone.append(block["content"])
            left.append({**block, "content": [_LEFT_OUT], ORIGIN: NOBODYS.packed()})
        elif tag is not None and tag.name == tags.CONTEXT and not tag.note:
            # The gateway wrote ids and times. Only the file names are foreign, because the authors of files chose them.
            facts = {**tags.facts(message)}
            gone += [names] if (names := facts.pop("attachments", None)) else []
            left.append(replace(tag, words=tags.dumped(facts)).block | {ORIGIN: NOBODYS.packed()})
        else:
            gone.append((tag.rows if tag is not None else None) or block)
            left.append(GONE)
    return {**message, "content": left}, gone


_PARTED = IdentityCache[Message, tuple[Message, Sequence[Any]]](_parted)


def faded(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without foreign text. A message without foreign text is returned as the same object."""
    return [left for left, _ in _PARTED.each(messages)]


_LINES = IdentityCache[Message, list[bytes]](
    lambda message: [_letters(line) for said in _strings(_PARTED(message)[1]) for line in said.splitlines()]
)
"""Caches, for each message, the lines of its foreign text, reduced to letters and digits."""


def _repeats(answer: Message, messages: Sequence[Message]) -> bool:
    """Return True if an answer repeats a line or a passage of foreign text. Spacing and punctuation are ignored."""
    said = b" ".join(map(_letters, _spoken(answer)))
    runs = {said[at : at + _RUN] for at in range(len(said))}
    return any(
        (len(line) >= _LEAST and line in said)
        or any(line[at : at + _RUN] in runs for at in range(0, len(line) - _RUN + 1, _STEP))
        for line in itertools.chain.from_iterable(_LINES.each(messages))
    )


def says(messages: Iterable[Message], words: str) -> bool:
    """Return True if the model itself wrote these words in one of these messages."""
    wanted, own = _letters(words), (one for one in messages if one["role"] == "assistant")
    return bool(wanted) and any(wanted in _letters(said) for one in own for said in _spoken(one))


def about(messages: Sequence[Message], people: Collection[str]) -> str:
    """Describe the newest foreign text. If there is no foreign text, describe the newest text by anybody but `people`. The
    description names the author of the message, the tool result or the file.
    """
    theirs = [one for one in reversed(messages) if one["role"] != "assistant"]
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
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", words).casefold()).encode(errors="replace")


def _spoken(message: Message) -> Iterator[str]:
    for block in message["content"]:
        yield from _strings(block.get("text") or block.get("thinking") or block.get("input"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(one)
