"""Repairs histories that a crash or an old file left invalid, so that the provider accepts them.

Pure; a history that is valid comes back as it is, and what was mended once needs no more mending. What was said is
kept where it can be: an answer whose question is lost keeps its place behind a line that says so.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.contracts.provenance import ORIGIN, unpacked
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, view
from bot.core.validate import SERVER_CALLS, block_problem, is_server_result, validate

UNANSWERED = "Interrupted by a restart: nothing is known of this call. It may have run, or not."
LOST = "(A message that stood here could not be read.)"
GO_ON = "Please go on."


@dataclass(frozen=True, slots=True)
class Entry:
    """A message with a name of its own."""

    uuid: str
    message: Message
    calls: str | None = None
    """The name of the message whose calls it answers, where it was made here."""


def without_thinking(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries without their thinking blocks; one that held nothing else goes."""
    return tuple(
        entry if message is entry.message else replace(entry, message=message)
        for entry in entries
        for message in blocks.without_thinking([entry.message])
    )


def sound(request: ModelRequest, *, paused: bool = False) -> tuple[ModelRequest, str | None]:
    """The request as it can be sent, and what was wrong with it, None where nothing was. `paused`: see `validate`.

    Raises `errors.RequestInvalid` where it is not the messages that are wrong, `errors.RequestTooLarge`.
    """
    try:
        validate(request, paused=paused)
    except errors.RequestInvalid as error:
        messages = mended([_unmarked(message) for message in request.messages])
        if not messages or messages[-1]["role"] == "assistant":
            messages.append(_user(GO_ON if messages else LOST))
        system, shown = view.placed(request.system, messages, 0)
        request = replace(request, system=system, messages=shown)
        validate(request)
        return request, str(error)
    return request, None


def mended(messages: Iterable[Message]) -> list[Message]:
    """Valid messages; they may end with the assistant."""
    return [entry.message for entry in mended_entries([Entry("", message) for message in messages])]


def mended_entries(
    entries: Sequence[Entry], seen: set[str] | None = None, *, running: bool = False
) -> tuple[Entry, ...]:
    """The same for what is kept. What is added has the uuid of what it belongs to, with a `+`.

    `seen` are the ids of tool calls that stand before these messages; theirs are added. Of a `running` turn the calls
    of the last step may still be answered, those of the provider's own tools too: it may have paused.
    """
    known: set[str] = set() if seen is None else seen
    clean = [entry for raw in entries for entry in _clean(raw, known)]
    kept: list[Entry] = []
    runs = [list(run) for _, run in itertools.groupby(clean, key=lambda entry: entry.message["role"])]
    calls: list[ToolCall] = []
    asked = ""
    for at, run in enumerate(runs):
        if run[0].message["role"] == "assistant":
            answer = _answer(run, goes_on=running and at + 1 == len(runs))
            calls = blocks.tool_calls(answer[-1].message["content"]) if answer else []
            kept += answer
            if calls:
                asked = answer[-1].uuid
                if at + 1 == len(runs) and not running:
                    kept.append(Entry(f"{asked}+", _results(calls, {}), calls=asked))
        else:
            kept += _answered(run, calls, asked)
            calls = []
    if kept and kept[0].message["role"] == "assistant":
        kept.insert(0, Entry(f"{kept[0].uuid}+", _user(LOST)))
    return _without_loose_thinking(entries, kept)


def call_ids(messages: Iterable[Message]) -> set[str]:
    """The ids of every tool call in valid messages, those that a server carries out too."""
    return {
        str(block.get("id"))
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_use" or block["type"] in SERVER_CALLS
    }


# ------------------------------------------------------------ one message


def _clean(entry: Entry, seen: set[str]) -> Iterator[Entry]:
    """The message without what may not stand in it; in two, where results and other words stood in one."""
    message = entry.message
    role, content = message.get("role"), message.get("content")
    if role not in {"user", "assistant"}:
        return
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return
    kept = [block for block in content if block_problem(block, role) is None and _first(block, seen)]
    results = [block for block in kept if block["type"] == "tool_result"]
    if 0 < len(results) < len(kept):
        yield replace(entry, message={**message, "content": results})
        rest = [block for block in kept if block["type"] != "tool_result"]
        yield replace(entry, uuid=f"{entry.uuid}+", message={**message, "content": rest})
    elif kept and content is message["content"] and len(kept) == len(content):
        yield entry
    elif kept:
        yield replace(entry, message={**message, "content": kept})


def _first(block: Json, seen: set[str]) -> bool:
    """True if a block is no tool call whose id stood before."""
    if block["type"] != "tool_use" and block["type"] not in SERVER_CALLS:
        return True
    name = str(block.get("id"))
    new = name not in seen
    seen.add(name)
    return new


# ------------------------------------------------------------ what the assistant said, up to the next user message


def _answer(run: Sequence[Entry], *, goes_on: bool) -> list[Entry]:
    """The messages of one answer: pieces of one that called tools are one, and each call of a server has its result, but
    at the end of one that `goes_on`.
    """
    entries = list(run)
    if any(blocks.tool_calls(entry.message["content"]) for entry in entries[:-1]):
        content = [block for entry in entries for block in entry.message["content"]]
        told = [unpacked(entry.message[ORIGIN]) for entry in entries if ORIGIN in entry.message]
        origin = {ORIGIN: functools.reduce(operator.or_, told).packed()} if told else {}
        entries = [replace(entries[0], message={**entries[0].message, **origin, "content": content})]
    entries = _server_pairs(entries, goes_on=goes_on)
    while entries:
        last = entries.pop()
        content = blocks.sayable(last.message["content"], paused=goes_on)
        if len(content) == len(last.message["content"]):
            return [*entries, last]
        if content:
            return [*entries, replace(last, message={**last.message, "content": content})]
    return []


def _server_pairs(entries: Sequence[Entry], *, goes_on: bool) -> list[Entry]:
    asked: dict[str, int] = {}
    paired: set[int] = set()
    last = sum(len(entry.message["content"]) for entry in entries[:-1])
    for at, block in enumerate(block for entry in entries for block in entry.message["content"]):
        if block["type"] in SERVER_CALLS:
            asked[str(block.get("id"))] = at
        elif is_server_result(block) and str(block.get("tool_use_id")) in asked:
            paired |= {asked.pop(str(block["tool_use_id"])), at}
        elif not is_server_result(block):
            paired.add(at)
    if goes_on:
        paired |= {at for at in asked.values() if at >= last}
    places = itertools.count()
    return _filtered(entries, lambda entry: [b for b in entry.message["content"] if next(places) in paired])


# ------------------------------------------------------------ what follows it


def _answered(run: Sequence[Entry], calls: Sequence[ToolCall], asked: str) -> list[Entry]:
    """User messages after these calls of the message `asked`: their results first, all of them in one message, and no
    others.
    """
    found: dict[str, Json] = {}
    for entry in run:
        for block in entry.message["content"]:
            if block["type"] == "tool_result":
                found.setdefault(block["tool_use_id"], block)
    if not calls:
        return _spoken(run)
    given = [str(block.get("tool_use_id")) for block in run[0].message["content"]]
    if sorted(given) == sorted(call.id for call in calls):
        return [run[0], *_spoken(run[1:])]
    uuid = run[0].uuid if blocks.is_results(run[0].message) else f"{run[0].uuid}+"
    return [Entry(uuid, _results(calls, found), calls=asked), *_spoken(run)]


def _spoken(run: Sequence[Entry]) -> list[Entry]:
    return _filtered(run, lambda entry: [b for b in entry.message["content"] if b["type"] != "tool_result"])


def _results(calls: Sequence[ToolCall], found: dict[str, Json]) -> Message:
    content = [found.get(call.id) or ToolResult(call.id, UNANSWERED, failed=True).block for call in calls]
    return {"role": "user", "content": content}


# ------------------------------------------------------------ the whole


def _without_loose_thinking(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[Entry, ...]:
    """The messages without the thinking that stands at or behind the first place that was mended."""
    same = 0
    while same < min(len(before), len(after)) and before[same].message is after[same].message:
        same += 1
    if same == len(before) == len(after):
        return tuple(after)
    return (*after[:same], *without_thinking(after[same:]))


def _filtered(entries: Sequence[Entry], content_of: Callable[[Entry], list[Json]]) -> list[Entry]:
    """The entries with other content, where it is other; one that holds nothing any more goes."""
    kept = []
    for entry in entries:
        content = content_of(entry)
        if len(content) == len(entry.message["content"]):
            kept.append(entry)
        elif content:
            kept.append(replace(entry, message={**entry.message, "content": content}))
    return kept


def _unmarked(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [blocks.unmarked(b) if isinstance(b, dict) else b for b in content]}


def _user(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}
