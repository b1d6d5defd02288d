"""Reads a turn or a task, and the model requests recorded for it, from a project folder. Changes nothing."""

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
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core import events, transcript
from bot.core.chat import chat_of_task
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.recorded_requests import FILE, TROUBLE, RecordedRequests

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
    """A turn as its chat's log contains it. `task` is set if the user asked for one task of this turn: its id."""

    turn: str
    task: str | None
    events: Sequence[Event]
    """Events of the turn, and of the messages that the turn answers."""
    lines: Sequence[Json]
    """Transcript lines of the turn."""
    tasks: Mapping[str, Json]
    """Fields `callId`, `mode` and `label` of each task of the turn; the key is the task's id."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded model requests of a turn, or of one task of the turn if `task` is set."""

    request_id: str
    chat_key: str
    calls: Sequence[Call]
    session: str | None = None
    task: str | None = None
    facts: Json = field(default_factory=dict)
    """Fields `callId`, `mode` and `label` of the task."""
    tasks: Sequence[Recording] = ()

    @property
    def turn(self) -> RecordedTurn:
        """Return the turn's requests that can be sent again. Raises `errors.NotFound` if there are none."""
        from bot.features.replay.rerun import recorded_turn

        own = [call.record for call in self.calls if self.task is not None or call.record.purpose == "turn"]
        if not own:
            raise errors.NotFound(
                f"{self.request_id} sent no request for an answer, so there is nothing to repeat"
            )
        return recorded_turn(own)


def find(root: Path, asked: str) -> Recording:
    """Return the requests of the turn or task with this id. Raises `errors.NotFound` and `errors.StorageError`."""
    from bot.features.replay.rerun import Call  # imports most of the product, which `trace` does not need

    wanted, path = asked.upper(), root / HOME / FILE
    logged = asyncio.run(find_logged(root, wanted)) if ulids.FORM.fullmatch(wanted) else None
    name = wanted if logged is None or logged.task is not None else logged.turn
    calls = list[Call]()
    if path.is_file():
        with (
            errors.as_storage_error("the recorded requests cannot be read", *TROUBLE),
            closing(RecordedRequests(path, readonly=True)) as file,
        ):
            calls = list(map(Call, file.find(name)))
    if not calls:
        raise errors.NotFound(UNKNOWN.format(asked) if logged is None else NOT_RECORDED.format(name))
    lines, facts = (logged.lines, logged.tasks) if logged is not None else ((), {})
    first = calls[0].record

    def part(task: str | None, **more: object) -> Recording:
        own = [call for call in calls if call.record.task == task]
        request = name if task is None else str(first.request_id)
        return Recording(request, first.chat_key, own, task=task, **more)  # type: ignore[arg-type]  # fields

    if first.task == name:
        return part(name, facts=facts.get(name, {}))
    tasks = dict.fromkeys([*facts, *(call.record.task for call in calls if call.record.task is not None)])
    return part(
        None,
        session=lines[0]["sessionId"] if lines else None,
        tasks=[part(one, facts=facts.get(one, {})) for one in tasks],
    )


async def find_logged(root: Path, name: str) -> LoggedTurn | None:
    """Return the turn for an id: the id of the turn, of a message that joined the turn, or of a task in the
    turn. Return None if there is no such turn. Raises `errors.StorageError`.
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
            started = isinstance(one.data, events.ToolStarted) and task and one.data.task == task
            if started or name in getattr(one.data, "members", ()):
                turn = one.turn or name
        tasks: dict[str, Json] = {}
        for one in (one for one in found if one.turn == turn):
            members.update(getattr(one.data, "members", ()))
            if isinstance(one.data, events.ToolStarted) and one.data.task:
                order = await _order(log, chat_of_task(chat, one.data.task))
                facts = {"mode": order.mode, "label": order.label} if order is not None else {}
                tasks[one.data.task] = {"callId": one.data.call, **facts}
    own = [one for one in found if one.turn == turn or {one.id, getattr(one.data, "request", "")} & members]
    lines = [one for one in transcript.lines(chat, found) if one.get("requestId") == turn]
    return LoggedTurn(turn, task, own, lines, tasks)


async def _order(log: EventLog, chat: ChatKey) -> events.Ordered | None:
    return next((one.data for one in await log.read(chat) if isinstance(one.data, events.Ordered)), None)
