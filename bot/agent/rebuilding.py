"""A turn made again from its transcript: every request to the model as it was sent, with what came of it.

The lines of the session are carried out by the functions that fill a store after a restart, up to each place where the
model was asked; the digest that was written there (`bot.agent.request_log`) tells whether the bytes are the same. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot import errors
from bot.context import blocks, deletions, repair, replay, view
from bot.context.deletions import Deletions
from bot.context.store import AgentContextStore, Older
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.contracts.transcript import (
    SAME,
    Boundary,
    Injection,
    Mask,
    Meta,
    Said,
    TranscriptLine,
    TurnEnd,
    TurnStart,
)
from bot.history import frames
from bot.llm import body

Part = Callable[[str], Any]
"""A part of a prompt by its digest; None where there is none."""
_ANY = 1_000_000
"""Messages of a store that nothing is cut from."""


@dataclass(slots=True)
class Call:
    """One request of a turn. `record` is what was written when it was sent; `request` is None where it cannot be made again,
    and `wrong` says why, or what is different.
    """

    record: Json
    request: ModelRequest | None = None
    older: int = 0
    """Number of its messages that stand before those of the turn itself."""
    body: bytes = b""
    wrong: list[str] = field(default_factory=list)
    answer: Message | None = None
    facts: Json | None = None
    """Stop reason and cost of the answer; None if none came."""
    results: list[Json] = field(default_factory=list)
    injected: list[Message] = field(default_factory=list)
    """Older turns that its tools loaded."""

    @property
    def sha256(self) -> str | None:
        return hashlib.sha256(self.body).hexdigest() if self.body else None

    @property
    def exact(self) -> bool:
        """True if these are the bytes that were sent."""
        return self.sha256 is not None and self.sha256 == self.record.get("sha256")


@dataclass(slots=True)
class Rebuilt:
    """A turn: its calls in order, and the messages of people that joined it while it ran."""

    calls: list[Call] = field(default_factory=list)
    joined: list[Message] = field(default_factory=list)
    status: str | None = None
    """Status with which the turn ended; None if it did not end."""


def rebuild(lines: Sequence[TranscriptLine], request_id: str, part: Part, gone: Deletions) -> Rebuilt:
    """The calls of a turn, by the lines of its session. What was removed since is not shown again: those requests differ."""
    hidden = _Hidden(lines, gone)
    shown = [hidden.line(line) for line in lines]
    found = Rebuilt()
    known = own_parts(lines)
    for at, line in enumerate(shown):
        if line.type == "turn_start" and line.request_id == request_id:
            store = AgentContextStore(_ANY)
            replay.replay(store, shown[:at])
            store.apply(line)
            turn = _Turn(store, request_id, lambda name: known.get(name) or part(name), found)
            turn.walk(shown, at + 1)
    judge(found, removed=hidden.any)
    return found


def shown_at(
    lines: Sequence[TranscriptLine], request_id: str, uuid: str, gone: Deletions
) -> tuple[list[Message], bool] | None:
    """Return the messages that the model was shown once a line was written, with all before them, and whether something
    was removed from the session since; None where its session has no such line.
    """
    hidden = _Hidden(lines, gone)
    shown = [hidden.line(line) for line in lines]
    for at, line in enumerate(shown):
        if line.type == "turn_start" and line.request_id == request_id:
            store = AgentContextStore(_ANY)
            replay.replay(store, shown[:at])
            store.apply(line)
            turn = _Turn(store, request_id, lambda _: None, Rebuilt())
            if turn.walk(shown, at + 1, until=uuid):
                return [message for part in turn.shown() for message in part], hidden.any
    return None


def judge(found: Rebuilt, *, removed: bool) -> None:
    """Say of each call that is not what was sent what is different."""
    for call in found.calls:
        if removed and not call.exact:
            call.wrong.append("words were removed from this conversation since")
        if call.body and not call.exact and not call.wrong:
            call.wrong.append(_difference(call))


def own_parts(lines: Iterable[TranscriptLine]) -> Json:
    """The parts of prompts that a session itself has, by digest."""
    known: Json = {}
    for line in lines:
        if isinstance(line.event, Meta):
            known |= line.event.parts or {}
    return known


def _difference(call: Call) -> str:
    sent, made = call.record.get("messages"), len(call.request.messages) if call.request is not None else 0
    if call.record.get("sha256") is None:
        return "no digest was written when it was sent"
    if sent != made:
        return f"{sent} messages were sent, {made} are made of what is on file"
    return f"the {made} messages or what stands before them are not what was sent"


class _Turn:
    """One turn while its lines are carried out."""

    def __init__(self, store: AgentContextStore, request_id: str, part: Part, found: Rebuilt) -> None:
        self._store = store
        self._part = part
        self._found = found
        self._request_id = request_id
        self._call: Call | None = None

    def walk(self, lines: Sequence[TranscriptLine], start: int, until: str | None = None) -> bool:
        """Carry out the lines of a session from this one up to the end of the turn, or to one of them; whether it was
        found.
        """
        known = replay.said(lines)
        for line in lines[start:]:
            event, own = line.event, line.request_id == self._request_id
            if isinstance(event, TurnStart):
                return False
            if isinstance(event, Boundary | Mask):
                replay.carry_out(self._store, line, known)
            elif own and isinstance(event, TurnEnd):
                self._found.status = event.status
                return False
            elif own and isinstance(event, Meta):
                self._meta(event)
            elif own:
                self._take(line)
            if line.uuid == until:
                return True
        return False

    def shown(self) -> tuple[list[Message], list[Message], list[Message]]:
        """What is shown by now: the history, loaded older messages, and the turn itself."""
        return list(self._store.view()), self._store.older(), self._store.current()

    def _meta(self, event: Meta) -> None:
        if event.asked is not None:
            self._call = made(event.asked, self._part, *self.shown())
            self._found.calls.append(self._call)
        elif self._call is not None and event.answered is not None:
            self._call.facts = event.answered

    def _take(self, line: TranscriptLine) -> None:
        self._store.apply(line)
        call, event = self._call, line.event
        if isinstance(event, Injection):
            if call is not None:
                call.injected += event.messages
        elif call is None or not isinstance(event, Said):
            return
        elif event.role == "assistant":
            if call.facts is None and event.usage is not None:
                spent = {"usage": event.usage, "costUsd": event.cost_usd}
                call.answer, call.facts = event.message, {"stopReason": event.stop_reason} | spent
        elif blocks.is_results(event.message):
            call.results += event.message["content"]
        else:
            self._found.joined.append(event.message)


def made(
    record: Json,
    part: Part,
    history: Sequence[Message],
    injected: Sequence[Message],
    current: Sequence[Message],
) -> Call:
    """The call of which this was written down, behind these messages."""
    call = Call(record)
    system = [_block(name, part, call) for name in record.get("system", ())]
    tools = _block(record["tools"], part, call) if record.get("tools") else ()
    if any(one is None for one in (*system, tools)):
        return call
    request = view.render(
        model=record["model"],
        max_tokens=record["maxTokens"],
        system=system,
        tools=tools,
        history=history,
        injected=injected,
        current=[*current, *record.get("tail", ())],
    )
    try:
        call.request = repair.sound(request, paused=bool(record.get("paused")))[0]
        call.body = body.wire(call.request)
    except (errors.ModelError, ValueError, TypeError) as error:
        call.wrong.append(f"it cannot be made of what is on file ({type(error).__name__})")
    call.older = len(history) + len(injected)
    return call


def _block(name: str, part: Part, call: Call) -> Any:
    found = part(name)
    if found is None:
        call.wrong.append(f"a part of what stands before the messages is not on file ({name})")
    elif frames.digest(found) != name:
        call.wrong.append(f"a part of what stands before the messages held a secret or was changed ({name})")
    return found


def hidden_older(event: Injection, gone: Deletions) -> tuple[Message, ...]:
    """Older messages without the words of those that are gone."""
    keys = event.keys or ((),) * len(event.messages)
    older = (Older(0, message, key) for message, key in zip(event.messages, keys, strict=True))
    return tuple(one.message for one in deletions.older(older, gone))


class _Hidden:
    """The lines of a session without what was removed at somebody's wish, whenever that was."""

    def __init__(self, lines: Sequence[TranscriptLine], gone: Deletions) -> None:
        told = [line for line in lines if not isinstance(line.event, Boundary)]
        found, self._since = deletions.ids_to_redact(told, gone)
        self._gone = gone
        self._uuids = set(found)
        self._until = "~"
        ids, since = deletions.quoted(told, gone)
        self._since = min(filter(None, (self._since, since)), default=0)
        for line in lines:
            event = line.event
            if isinstance(event, Boundary) and (event.blank or event.unquoted):
                self._uuids.update(event.blank)
                self._until = line.uuid
        self.any = bool(self._uuids or ids)

    def line(self, line: TranscriptLine) -> TranscriptLine:
        """The line as it may be read."""
        event = line.event
        if isinstance(event, Said):
            if line.uuid in self._uuids:
                message = deletions.without(event.message)
            else:
                message = deletions.unquoted(event.message, self._gone.ids)
            return replace(line, event=replace(event, message=message))
        if isinstance(event, Injection) and (shown := hidden_older(event, self._gone)) != event.messages:
            self.any = True
            return replace(line, event=replace(event, messages=shown))
        # A summary of what was said may tell of it until the removal was carried out.
        if not isinstance(event, Boundary) or line.uuid >= self._until or not self._since:
            return line
        if event.head is SAME or event.head is None or line.ts < self._since:
            return line
        return replace(line, event=replace(event, head=deletions.redacted(event.head)))
