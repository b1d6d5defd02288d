"""Reads a turn or a task from its chat's log, and the requests that were recorded for it. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot import errors, ulids
from bot.cli.common import HOME
from bot.cli.project import event_log
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.core import events, transcript
from bot.core.chat import chat_of_task
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.recorded_requests import FILE, TROUBLE, RecordedRequest, RecordedRequests

if TYPE_CHECKING:
    from bot.features.replay.rerun import Call, RecordedTurn

NOT_RECORDED = (
    "no request of {} is recorded: it is older than the recording, the disk refused, or it has expired (requests are kept for 90 days, "
    "and per chat the newest 32 MB)"
)
UNKNOWN = (
    "no turn or task {!r} is in the log or in the recorded requests. The log names turns and commands by `requestId`, tasks by "
    "`details.task`."
)


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """A turn in the log of its chat. `task` is set if the requested id is the id of a task in this turn."""

    turn: str
    task: str | None
    events: Sequence[Event]
    """Events of the turn, and of the messages that the turn answers."""
    lines: Sequence[Json]
    """Transcript lines of the turn."""
    tasks: Mapping[str, Json]
    """Facts about the turn's tasks by task id: `callId`, `mode`, `label`."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded requests of a turn, or of a `task` in that turn."""

    request_id: str
    chat_key: str
    calls: Sequence[Call]
    session: str | None = None
    task: str | None = None
    facts: Json = field(default_factory=dict)
    """Facts about the task: `callId`, `mode` and `label`."""
    tasks: Sequence[Recording] = ()
    joined: Sequence[Message] = ()

    @property
    def turn(self) -> RecordedTurn:
        """Return the requests that can be sent again. Raises `errors.NotFound`."""
        own = [call.record for call in self.calls if self.task is not None or call.record.purpose == "turn"]
        if not own:
            raise errors.NotFound(
                f"{self.request_id} sent no request for an answer, so there is nothing to repeat"
            )
        from bot.features.replay.rerun import recorded_turn

        return recorded_turn(own, self.joined)


def find(root: Path, asked: str) -> Recording:
    """Return the requests of the turn or task with this id. Raises `errors.NotFound` and `errors.StorageError`."""
    wanted = asked.upper()
    if not ulids.FORM.fullmatch(wanted):
        raise errors.NotFound(UNKNOWN.format(asked))
    logged = asyncio.run(find_logged(root, wanted))
    name = wanted if logged is None or logged.task is not None else logged.turn
    records = _records(root / HOME / FILE, name)
    if not records:
        if logged is None:
            raise errors.NotFound(UNKNOWN.format(asked))
        if logged.task is not None:
            raise errors.NotFound(f"the task {name} ended before its first request")
        raise errors.NotFound(NOT_RECORDED.format(name))
    lines, facts = (logged.lines, logged.tasks) if logged is not None else ((), {})
    if records[0].task == name:
        return _of_task(name, records, facts)
    tasks = dict.fromkeys([*facts, *(one.task for one in records if one.task is not None)])
    return Recording(
        name,
        records[0].chat_key,
        _calls(records, None),
        session=lines[0]["sessionId"] if lines else None,
        tasks=[_of_task(one, records, facts) for one in tasks],
        joined=[
            one["message"] for one in lines if one["type"] == "user" and one.get("data", {}).get("sources")
        ],
    )


def _of_task(task: str, records: Sequence[RecordedRequest], facts: Mapping[str, Json]) -> Recording:
    first, calls = records[0], _calls(records, task)
    return Recording(str(first.request_id), first.chat_key, calls, task=task, facts=facts.get(task, {}))


def _calls(records: Sequence[RecordedRequest], task: str | None) -> list[Call]:
    from bot.features.replay.rerun import Call  # imports most of the product, which `trace` does without

    return [Call(one) for one in records if one.task == task]


def _records(path: Path, name: str) -> list[RecordedRequest]:
    if not path.is_file():
        return []
    with (
        errors.as_storage_error("the recorded requests cannot be read", *TROUBLE),
        closing(RecordedRequests(path, readonly=True)) as file,
    ):
        return file.find(name)


async def find_logged(root: Path, name: str) -> LoggedTurn | None:
    """Return the turn for an id: the id of the turn, of a message that joined the turn, or of a task in the
    turn. Raises `errors.StorageError`.
    """
    async with event_log(root) as log:
        chat = await log.chat_of(name) if log is not None else None
        if log is None or chat is None:
            return None
        task = None
        if chat.kind == "task":
            task, order = name, await _order(log, chat)
            chat = order.inbound.chat_key if order is not None else chat.chat
        found, turn, members = await log.read(chat), name, {name}
        for one in found:
            match one.data:
                case events.TurnStarted(added) | events.Joined(added) if name in added:
                    turn = one.turn or name
                case events.ToolStarted() if task is not None and one.data.task == task:
                    turn = one.turn or name
        tasks: dict[str, Json] = {}
        for one in found:
            if one.turn != turn:
                continue
            if isinstance(one.data, events.TurnStarted | events.Joined):
                members.update(one.data.members)
            elif isinstance(one.data, events.ToolStarted) and one.data.task:
                order = await _order(log, chat_of_task(chat, one.data.task))
                facts = {"mode": order.mode, "label": order.label} if order is not None else {}
                tasks[one.data.task] = {"callId": one.data.call, **facts}
    own = [
        one
        for one in found
        if one.turn == turn or one.id in members or getattr(one.data, "request", "") in members
    ]
    lines = [one for one in transcript.lines(chat, found) if one.get("requestId") == turn]
    return LoggedTurn(turn, task, own, lines, tasks)


async def _order(log: EventLog, chat: ChatKey) -> events.Ordered | None:
    return next((one.data for one in await log.read(chat) if isinstance(one.data, events.Ordered)), None)
