"""A turn or a task with its recorded requests. Nothing on disk is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot import errors, ulids
from bot.cli.common import HOME, events

if TYPE_CHECKING:
    from bot.contracts.base import Json, Message
    from bot.core.event_log import EventLog
    from bot.core.events import Event
    from bot.core.recorded_requests import RecordedRequest
    from bot.features.replay.rerun import Call, RecordedTurn

NOT_RECORDED = (
    "nothing is recorded of what {} asked a model: it was before requests were recorded, the disk refused, or it "
    "was too long ago (requests are kept for 90 days, of a chat the newest 32 MB)"
)
UNKNOWN = (
    "the log knows no turn and no task {!r}, and no request is recorded of it. Turns, commands and what is done beside "
    "them are named by `requestId` in the log, tasks by `details.task`."
)


@dataclass(frozen=True, slots=True)
class Found:
    """The requests of a turn, or of the `task` of one. `session` is None where the log has nothing of the turn."""

    request_id: str
    chat_key: str
    session: str | None
    calls: Sequence[Call]
    task: str | None = None
    told: dict[str, Any] = field(default_factory=dict)
    """Further facts of the task: `mode`, `label`, `callId`."""
    tasks: tuple[Found, ...] = ()
    joined: tuple[Message, ...] = ()

    @property
    def turn(self) -> RecordedTurn:
        """The requests that can be asked again. Raises `errors.NotFound`."""
        from bot.features.replay.rerun import recorded_turn

        own = [call.record for call in self.calls if self.task is not None or call.record.purpose == "turn"]
        if not own:
            raise errors.NotFound(f"{self.request_id} asked for no answer: there is nothing to ask again")
        return recorded_turn(own, self.joined)


@dataclass(frozen=True, slots=True)
class Known:
    """The log's knowledge of a turn or a task: the turn's lines of the transcript, and the facts of its tasks by their ids."""

    turn: str
    chat_key: str
    task: str | None = None
    events: Sequence[Event] = ()
    """Those of the turn, and of the messages that it answers."""
    lines: Sequence[Json] = ()
    tasks: dict[str, Json] = field(default_factory=dict)


def find(root: Path, asked: str) -> Found:
    """Find the turn or task with this id. Raises `errors.NotFound` and `errors.StorageError`."""
    wanted = asked.upper()
    if not ulids.FORM.fullmatch(wanted):
        raise errors.NotFound(UNKNOWN.format(asked))
    known = asyncio.run(_known(root, wanted))
    name = wanted if known is None or known.task is not None else known.turn
    records = _records(root / HOME, name)
    if known is not None and known.task is not None and not records:
        raise errors.NotFound(f"the task {name} ended before it asked a model")
    if not records:
        raise errors.NotFound(
            (UNKNOWN if known is None else NOT_RECORDED).format(asked if known is None else name)
        )
    told = known.tasks if known is not None else {}
    if records[0].task == name:
        return _of_task(name, records, told, None)
    session = known.lines[0]["sessionId"] if known is not None and known.lines else None
    tasks = dict.fromkeys([*told, *(one.task for one in records if one.task is not None)])
    return Found(
        name,
        records[0].chat_key,
        session,
        _calls([one for one in records if one.task is None]),
        tasks=tuple(_of_task(one, records, told, session) for one in tasks),
        joined=tuple(
            one["message"]
            for one in (known.lines if known is not None else ())
            if one["type"] == "user" and one.get("data", {}).get("sources")
        ),
    )


def _records(home: Path, name: str) -> list[RecordedRequest]:
    from bot.core.recorded_requests import FILE, TROUBLE, RecordedRequests

    if not (home / FILE).is_file():
        return []
    try:
        with closing(RecordedRequests(home / FILE, readonly=True)) as file:
            return file.find(name)
    except TROUBLE as error:
        raise errors.StorageError(f"the recorded requests cannot be read: {error}") from None


def _of_task(
    task: str, records: Sequence[RecordedRequest], told: dict[str, Json], session: str | None
) -> Found:
    own = [one for one in records if one.task == task]
    turn = next((one.request_id for one in records), None)
    return Found(str(turn), records[0].chat_key, session, _calls(own), task, told.get(task, {}))


def _calls(records: Sequence[RecordedRequest]) -> list[Call]:
    from bot.features.replay.rerun import Call

    return [Call(one) for one in records]


async def _known(root: Path, name: str) -> Known | None:
    async with events(root) as log:
        return None if log is None else await known(log, name)


async def known(log: EventLog, name: str) -> Known | None:
    """The turn or task with this id, or the turn that a message with it has joined. Raises `errors.StorageError`."""
    from bot.core import events as kinds
    from bot.core import transcript
    from bot.core.chat import chat_of_task

    found = await log.chat_of(name)
    if found is None:
        return None
    task = name if found.kind == "task" else None
    chat = found.chat if task is not None else found
    if task is not None:
        ordered = next(
            (one.data for one in await log.read(found) if isinstance(one.data, kinds.Ordered)), None
        )
        chat = ordered.inbound.chat_key if ordered is not None else chat
    events, turn, members = await log.read(chat), name, {name}
    for one in events:
        match one.data:
            case kinds.TurnStarted(added) | kinds.Joined(added) if name in added:
                turn = one.turn or name
            case kinds.ToolStarted() if task is not None and one.data.task == task:
                turn = one.turn or name
    told: dict[str, Json] = {}
    for one in events:
        if one.turn == turn and isinstance(one.data, kinds.ToolStarted) and one.data.task:
            order = await log.read(chat_of_task(chat, one.data.task))
            facts = next((each.data for each in order if isinstance(each.data, kinds.Ordered)), None)
            more = {} if facts is None else {"mode": facts.mode, "label": facts.label}
            told[one.data.task] = {"callId": one.data.call} | more
    for one in events:
        if one.turn == turn and isinstance(one.data, kinds.TurnStarted | kinds.Joined):
            members.update(one.data.members)
    own = [
        one
        for one in events
        if one.turn == turn or one.id in members or getattr(one.data, "request", "") in members
    ]
    lines = [one for one in transcript.lines(chat, events) if one.get("requestId") == turn]
    return Known(turn, str(chat), task, own, lines, told)
