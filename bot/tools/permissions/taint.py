"""Provenance and trust of the text in view: pages, files, output of programs, words of others in the chat.

It follows from the messages alone, so a restart finds the same. A kept block states its own provenance
(`contracts.provenance.ORIGIN`), and so does each message of the model: one that repeats foreign text is foreign as long as it
is in view itself. Any other block is judged by its kind. In doubt it is
foreign: text that cannot be told apart from another person's words counts as theirs.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bot import tags
from bot.contracts.base import Json, Message
from bot.contracts.provenance import ANYBODYS, NOBODYS, ORIGIN, Provenance, Taint, unpacked
from bot.contracts.tools import MCP, Effect
from bot.identity_cache import MessageFact

_TELLING = frozenset({"memory", "schedule_list"})
"""Tools whose results said in their first line whose words they held, before each block did."""
_OTHERS = frozenset({tags.QUOTES, tags.FILES, tags.SERVERS})
"""The tags of words of others, in a person's message or a summary."""
_BLOCK = "compaction"
"""A summary that the provider wrote; what it stands for is said behind it, as for ours."""
_FOUND = "tool_reference"
_OWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result", _BLOCK})
MOST_PEOPLE = 200
"""People whose words an answer may repeat; where there are more, it counts as anybody's."""
GONE: Json = {"type": "text", "text": "[words of others, left out]"}
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
"""Tools whose results may hold words of any author, with the level of trust where the result states none; MCP tools are
such too.
"""


def usual(tool: str, effects: frozenset[Effect]) -> Provenance:
    """Provenance of a result whose tool reported none."""
    level = Taint.FOREIGN if tool.startswith(MCP) else _SOURCES.get(tool, Taint.NONE)
    # What comes over a network is nobody's of this project.
    return ANYBODYS if level and "network" in effects else Provenance(taint=level)


def seen(messages: Iterable[Message]) -> Provenance:
    """Provenance of these messages together."""
    calls: dict[str, str] = {}
    origin = NOBODYS
    kept = list(messages)
    for message, (called, own) in zip(kept, _JUDGED.each(kept), strict=True):
        calls |= called
        found = own if own is not None else _of(message, _blocks(message), calls)
        if found.taint == Taint.FOREIGN:
            return ANYBODYS
        if found is not NOBODYS and found != origin:
            origin |= found
    return origin


class _Judged(NamedTuple):
    """The tools that a message calls, by id of the call, and its provenance; None where that depends on calls before it."""

    calls: Mapping[str, str]
    origin: Provenance | None


def _judged(message: Message) -> _Judged:
    blocks = _blocks(message)
    calls = [block for block in blocks if block.get("type") == "tool_use"] if _by_model(message) else []
    open_ = any(block.get("type") == "tool_result" and ORIGIN not in block for block in blocks)
    return _Judged(
        {block["id"]: block["name"] for block in calls}, None if open_ else _of(message, blocks, {})
    )


_JUDGED = MessageFact[Message, _Judged](_judged)


def _by_model(message: Message) -> bool:
    return bool(message["role"] == "assistant")


def _blocks(message: Message) -> Sequence[Json]:
    content = message["content"]
    return () if isinstance(content, str) else content


def stamped(answer: Message, seen_by_model: Iterable[Message]) -> Message:
    """A message of the model as it is kept: with the provenance of all that was in view when it was written, but foreign
    text counts where it repeats some.
    """
    kept = list(seen_by_model)
    origin = seen(kept)
    if origin.taint == Taint.FOREIGN and not _repeats(answer, kept):
        origin = seen(faded(kept))
    return {**answer, ORIGIN: (origin if len(origin.people) <= MOST_PEOPLE else ANYBODYS).packed()}


def _parted(message: Message) -> tuple[Message, Sequence[Any]]:
    """A message with a mark in the place of its foreign text, and that text."""
    blocks = _blocks(message)
    if not blocks or _of(message, blocks, {}).taint < Taint.FOREIGN:
        return message, ()
    if _by_model(message):
        calls = [{**block, "input": {}} for block in blocks if block["type"] == "tool_use"]
        return {**message, "content": [GONE, *calls], ORIGIN: NOBODYS.packed()}, [*_spoken(message)]
    left, gone = list[Json](), list[Any]()
    for block, told in zip(blocks, tags.of(message), strict=True):
        others = block["type"] not in _OWN or (told is not None and told.name in _OTHERS)
        whose = unpacked(block[ORIGIN]) if ORIGIN in block else ANYBODYS if others else NOBODYS
        if (result := block["type"] == "tool_result") and _of_result(block, "").taint == Taint.FOREIGN:
            gone.append(block["content"])
            left.append({**block, "content": [GONE], ORIGIN: NOBODYS.packed()})
        elif not result and whose.taint == Taint.FOREIGN:
            gone.append((told.rows if told is not None else None) or block)
            left.append(GONE)
        else:
            left.append(block)
    first, facts = tags.begins(message, tags.CONTEXT), {**tags.facts(message)}
    if first is not None and (names := facts.pop("attachments", None)):
        gone.append(names)
        left[0] = replace(first, words=tags.dumped(facts)).block
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


def _of(message: Message, blocks: Sequence[Json], calls: Mapping[str, str]) -> Provenance:
    if any(block.get("type") not in _OWN for block in blocks):
        return ANYBODYS
    if _by_model(message):
        # Versions before kept no note of it.
        return unpacked(message[ORIGIN]) if ORIGIN in message else NOBODYS
    origin = NOBODYS
    results = [block for block in blocks if block["type"] == "tool_result"]
    for block in results:
        origin |= _of_result(block, calls.get(block["tool_use_id"], ""))
    told = [unpacked(block[ORIGIN]) for block in blocks if block["type"] != "tool_result" and ORIGIN in block]
    for one in told:
        origin |= one
    if not results and (not told or any(block["type"] == "text" and ORIGIN not in block for block in blocks)):
        origin |= _said(message)
    return origin


def _of_result(result: Json, tool: str) -> Provenance:
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    if any(part.get("type") == _FOUND and str(part.get("tool_name", MCP)).startswith(MCP) for part in parts):
        # What a server says of its tools.
        return ANYBODYS
    if ORIGIN in result:
        return unpacked(result[ORIGIN])
    if tool in _TELLING:
        first = content.partition("\n")[0] if isinstance(content, str) else ""
        return _inside(tags.read(first)) if first.startswith(f"<{tags.ORIGIN}>") else NOBODYS
    # From before results said it: nobody knows which file that was, or whether there was a network.
    return ANYBODYS if not tool or tool in _SOURCES or tool.startswith(MCP) else NOBODYS


def summed(origin: Provenance) -> str:
    """Return the origin of the words that a summary stands for (`tags.ORIGIN`); "" if anybody's."""
    return tags.dumped(origin.packed()) if origin.taint < Taint.FOREIGN else ""


def _said(message: Message) -> Provenance:
    """Provenance of a message of the user's side. A message of the gateway has two blocks at least; one block alone may
    hold words of any author, as in a history that was made from an archive.
    """
    told = tags.of(message)
    others = (
        one is not None and one.name in _OTHERS and ORIGIN not in block
        for one, block in zip(told[1:], message["content"][1:], strict=True)
    )
    if len(told) < 2 or any(others):
        return ANYBODYS
    first = told[0]
    if message["content"][0]["type"] == _BLOCK or (first is not None and first.name == tags.SUMMARY):
        return _inside(told[1])
    facts = tags.facts(message)
    author = facts.get("userId")
    if not isinstance(author, str) or "attachments" in facts:
        # The name and the kind of a file are words of whoever made it.
        return ANYBODYS
    origin = Provenance(frozenset({author}))
    if "job" in facts:
        # What a job is to do was written by a model, which had these people's words in view.
        job = facts["job"]
        origin |= unpacked(job.get("wordsOf")) if isinstance(job, dict) else ANYBODYS
    return origin


def _inside(told: tags.Tag | None) -> Provenance:
    """The origin in a tag; `ANYBODYS` without one."""
    return unpacked(told.json) if told is not None and told.name == tags.ORIGIN else ANYBODYS
