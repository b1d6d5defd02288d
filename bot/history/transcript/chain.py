"""Reads session files of another maker: lines without turns, bound to one another by `parentUuid` alone.

The conversation is what leads from its last message back to the beginning. Entries of other kinds, as of progress, are
links and no more; a link to nothing leads to the message that stands before; one that leads in a circle is told and
not followed. Branches that were left are dead, but results of calls made side by side stand side by side and stay.
Turns are put around what is found, so that it is replayed like any other session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bot.contracts.base import Json, Message

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Node:
    """A line. `parent` is None where a conversation begins; `message` where the line is a link alone."""

    uuid: str
    parent: str | None
    ts: int = 0
    message: Message | None = None
    answer: str = ""
    """The provider's id of the answer that an assistant's message is a part of."""

    @property
    def role(self) -> Role | None:
        if self.message is None:
            return None
        return "assistant" if self.message["role"] == "assistant" else "user"


@dataclass(slots=True)
class Chain:
    """The messages that lead to the last one, in order. `circles` are the uuids at which links lead in a circle."""

    nodes: list[Node] = field(default_factory=list)
    circles: list[str] = field(default_factory=list)


def node(value: Json, offset: int, before: str | None) -> Node | None:
    """A line as a node; None where it says nothing. One without a uuid is named by where it stands; one that does not
    tell its parent follows the message `before` it.
    """
    message = value.get("message")
    kind = value.get("type")
    if kind not in {"user", "assistant"} or not isinstance(message, dict) or value.get("isSidechain"):
        message = None
    uuid = value.get("uuid")
    if message is None and not isinstance(uuid, str):
        return None
    parent = value.get("parentUuid", before)
    return Node(
        uuid if isinstance(uuid, str) and uuid else f"line-{offset}",
        parent if isinstance(parent, str) else None,
        value["ts"] if isinstance(value.get("ts"), int) else 0,
        # What else the provider said with a message it does not take back.
        None if message is None else {"role": kind, "content": message.get("content")},
        str(message.get("id") or "") if message is not None else "",
    )


def chain(nodes: Sequence[Node]) -> Chain:
    """The conversation that nodes, as they stand in a file, end with."""
    known: dict[str, Node] = {}
    for one in nodes:
        known.setdefault(one.uuid, one)
    found = Chain()
    parents = _parents(known, found.circles)
    children: dict[str, list[Node]] = {}
    messages = [one for one in known.values() if one.message is not None]
    for one in messages:
        if (parent := parents[one.uuid]) is not None:
            children.setdefault(parent, []).append(one)
    tips = [one for one in messages if one.uuid not in children] or messages
    line: list[Node] = []
    seen: set[str] = set()
    at = tips[-1] if tips else None
    while at is not None and at.uuid not in seen:
        seen.add(at.uuid)
        line.append(at)
        parent = parents[at.uuid]
        at = known[parent] if parent is not None else None
    if at is not None:
        found.circles.append(at.uuid)
    found.nodes = _with_siblings(line[::-1], children, seen)
    return found


def _parents(known: Mapping[str, Node], circles: list[str]) -> dict[str, str | None]:
    """The message that each message follows: through links, and where a link leads to nothing the one before it."""
    parents: dict[str, str | None] = {}
    before: str | None = None
    for one in known.values():
        if one.message is None:
            continue
        parent, passed = one.parent, set[str]()
        while parent is not None and (link := known.get(parent)) is not None and link.message is None:
            if parent in passed:
                circles.append(parent)
                parent = None
                break
            passed.add(parent)
            parent = link.parent
        parents[one.uuid] = parent if parent is None or parent in known else before
        before = one.uuid
    return parents


def _with_siblings(
    line: Iterable[Node], children: Mapping[str, Sequence[Node]], taken: set[str]
) -> list[Node]:
    """The line with the results of calls that were made side by side: each of them follows its own call."""
    nodes: list[Node] = []
    owed: list[Node] = []
    for one in line:
        if one.role != "assistant":
            nodes += owed
            owed = []
        nodes.append(one)
        if one.role == "assistant":
            beside = [child for child in children.get(one.uuid, ()) if child.uuid not in taken]
            owed += [child for child in beside if _has_results(child)]
            # Parts of one answer may be branches too, as long as it is the same answer.
            nodes += [child for child in beside if one.answer and child.answer == one.answer]
            taken |= {child.uuid for child in beside}
    return nodes + owed


def _has_results(one: Node) -> bool:
    content: Any = (one.message or {}).get("content")
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def turns(nodes: Iterable[Node]) -> list[list[Node]]:
    """The messages by turns: each begins with what a person said."""
    found: list[list[Node]] = []
    for one in nodes:
        if not found or (one.role == "user" and not _has_results(one)):
            found.append([])
        found[-1].append(one)
    return found
