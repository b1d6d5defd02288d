"""A turn or a task with its recorded requests. Nothing on disk is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot import errors

if TYPE_CHECKING:
    from bot.contracts.base import Message
    from bot.core.recording import Call, RecordedTurn
    from bot.history.transcript import requests
    from bot.history.transcript.requests import RecordedRequest
    from bot.history.transcript.sessions import FoundTurn

NOT_RECORDED = (
    "nothing is recorded of what {} asked a model: it was before requests were recorded, the disk refused, or it "
    "was too long ago (requests are kept for 90 days, of a chat the newest 32 MB)"
)
UNKNOWN = (
    "no transcript knows a turn or a task {!r}, and no request is recorded of it. Turns, commands and what is done beside "
    "them are named by `requestId` in the log, tasks by `details.task`."
)


@dataclass(frozen=True, slots=True)
class Found:
    """The requests of a turn, or of the `task` of one. `session` is None where the transcript of the turn is gone."""

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
        from bot.core.recording import recorded_turn

        own = [call.record for call in self.calls if self.task is not None or call.record.purpose == "turn"]
        if not own:
            raise errors.NotFound(f"{self.request_id} asked for no answer: there is nothing to ask again")
        return recorded_turn(own, self.joined)


def find(folder: Path, asked: str) -> Found:
    """Find the turn or task with this id; `folder` is that of the transcripts. Raises `errors.NotFound`."""
    from bot.history.transcript import requests, sessions
    from bot.system import SystemDisk

    disk, wanted = SystemDisk(), asked.upper()
    turn = sessions.find_turn(disk, folder, wanted)
    name = turn.request_id if turn is not None else wanted
    found = requests.find(disk, folder, name)
    if found is None:
        raise errors.NotFound(
            (UNKNOWN if turn is None else NOT_RECORDED).format(asked if turn is None else name)
        )
    if name in found.tasks or any(one.task == name for one in found.requests):
        task = _of_task(found, name, None)
        if not task.calls:
            raise errors.NotFound(f"the task {name} ended before it asked a model")
        return task
    session = turn.session if turn is not None else None
    names = dict.fromkeys([*found.tasks, *(one.task for one in found.requests if one.task is not None)])
    return Found(
        name,
        found.chat_key,
        session,
        _calls(one for one in found.requests if one.task is None),
        tasks=tuple(_of_task(found, one, session) for one in names),
        joined=_joined(turn) if turn is not None else (),
    )


def _of_task(found: requests.FoundRequests, task: str, session: str | None) -> Found:
    records = [one for one in found.requests if one.task == task]
    told = found.tasks.get(task, {})
    turn = told.get("requestId") or next((one.request_id for one in records), None)
    return Found(str(turn), found.chat_key, session, _calls(records), task, told)


def _calls(records: Iterable[RecordedRequest]) -> list[Call]:
    from bot.core.recording import Call

    return [Call(one) for one in records]


def _joined(turn: FoundTurn) -> tuple[Message, ...]:
    """Return the messages of people in the turn."""
    from bot.contracts.transcript import MessageEvent

    return tuple(
        line.event.message
        for line in turn.lines
        if line.request_id == turn.request_id
        and isinstance(line.event, MessageEvent)
        and line.event.role == "user"
        and line.event.sources
    )
