"""Provenance and trust of the text in view: pages, files, output of programs, words of others in the chat.

It follows from the messages alone, so a restart finds the same. A kept block states its own provenance
(`contracts.provenance.ORIGIN`), and so does each message of the model, which may repeat anything that it had in view: a
cut that takes a text takes nothing of what the answers have of it. Any other block is judged by its kind. In doubt it is
foreign: text that cannot be told apart from another person's words counts as theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
_SOURCES: Mapping[str, Taint] = {
    "chat_load_history": Taint.FOREIGN,
    "list_dir": Taint.WORKSPACE,
    "read_artifact": Taint.FOREIGN,
    "read_file": Taint.WORKSPACE,
    "run_shell": Taint.WORKSPACE,
    "search_files": Taint.WORKSPACE,
    "task": Taint.FOREIGN,
    "web_fetch": Taint.FOREIGN,
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
    """A message of the model as it is kept: with the provenance of all that was in view when it was written."""
    origin = seen(seen_by_model)
    return {**answer, ORIGIN: (origin if len(origin.people) <= MOST_PEOPLE else ANYBODYS).packed()}


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
