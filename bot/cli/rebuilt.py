"""A turn or a task as it is on disk, with its requests made again. Nothing on disk is changed."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot import errors
from bot.cli.common import HOME
from bot.cli.history import _Complaints
from bot.contracts.identity import ChatKey

if TYPE_CHECKING:
    from bot.agent.rebuilding import Rebuilt
    from bot.history.tasks import FoundTask
    from bot.history.turns import FoundTurn

NOT_RECORDED = "nothing is recorded of what it asked a model"


@dataclass(frozen=True, slots=True)
class Found:
    """The calls of a turn, or of the `task` of one. `session` is None where the transcript of the turn is gone."""

    request_id: str
    chat_key: ChatKey
    session: str | None
    calls: Rebuilt
    task: str | None = None
    told: dict[str, Any] | None = None
    """Facts of the task: `mode`, `label`, `callId`; None where its requests were not recorded."""
    tasks: tuple[Found, ...] = ()


def find(root: Path, asked: str) -> Found:
    """Find a turn or task by its id. Raises `errors.NotFound`."""
    from bot.history import tasks, turns
    from bot.system import SystemDisk

    disk, wanted = SystemDisk(), asked.upper()
    task = tasks.find(disk, root / HOME / "artifacts", wanted)
    if task is not None and not task.lines:
        raise errors.NotFound(
            f"the task {wanted} is on file, but {NOT_RECORDED}: it worked before that was written down, or the disk "
            f"refused. What it did is in its transcript; its turn is {task.request_id}."
        )
    turn = turns.find(disk, root / HOME / "transcripts", wanted if task is None else task.request_id)
    if task is not None:
        found = _Session(root, turn, task.chat_key, task.request_id).task(task)
        if not found.calls.calls:
            raise errors.NotFound(f"the task {wanted} ended before it asked a model")
        return found
    if turn is None:
        raise errors.NotFound(
            f"no transcript knows a turn or a task {asked!r}. A turn is named by `requestId` in the log, a task by "
            "`details.task`; tasks are kept for 30 days, and go with a message that is removed. What a command such as "
            "`/compact` asked, or what was asked to remember a conversation, is not recorded."
        )
    return _Session(root, turn, turn.chat_key, turn.request_id).turn()


class _Session:
    """The session of a turn, as far as it is on disk."""

    def __init__(self, root: Path, turn: FoundTurn | None, chat_key: ChatKey, request_id: str) -> None:
        from bot.agent import rebuilding
        from bot.context.deletions import read_deletions

        self._root = root
        self._chat_key = chat_key
        self._request_id = request_id
        self._name = turn.session if turn is not None else None
        self._lines = turn.lines if turn is not None else []
        self._gone = read_deletions(asyncio.run(_removals(root, chat_key)))
        self._own = rebuilding.own_parts(self._lines)
        # Tasks that were forked in one step go on from the same place.
        self._shown_at = functools.cache(
            lambda uuid: rebuilding.shown_at(self._lines, request_id, uuid, self._gone)
        )

    def turn(self) -> Found:
        from bot.agent.rebuilding import rebuild
        from bot.history import tasks
        from bot.system import SystemDisk

        calls = rebuild(self._lines, self._request_id, self._part, self._gone)
        if not calls.calls:
            raise errors.NotFound(f"nothing is recorded of what {self._request_id} asked a model")
        made = tasks.of_turn(SystemDisk(), self._root / HOME / "artifacts", self._chat_key, self._request_id)
        below = tuple(map(self.task, made))
        return Found(self._request_id, self._chat_key, self._name, calls, tasks=below)

    def task(self, task: FoundTask) -> Found:
        from bot.agent.rebuilding import Rebuilt
        from bot.agent.subagents.rebuilding import rebuild
        from bot.history.tasks import HEAD

        if not task.lines:
            return Found(self._request_id, self._chat_key, self._name, Rebuilt(), task.id)
        calls = rebuild(task.lines, self._shown_at, self._part, self._gone)
        return Found(self._request_id, self._chat_key, self._name, calls, task.id, task.lines[0][HEAD])

    def _part(self, name: str) -> Any:
        from bot.history import frames
        from bot.system import SystemDisk

        return self._own.get(name) or frames.read(SystemDisk(), self._root / HOME / "transcripts", name)


async def _removals(root: Path, chat_key: ChatKey) -> list[Any]:
    from bot.history.archive import ChatStore
    from bot.system import SystemDisk

    if not await asyncio.to_thread((root / HOME / "chats").is_dir):
        return []
    store = ChatStore(root / HOME / "chats", disk=SystemDisk(), log=_Complaints())
    try:
        return await store.removals(chat_key)
    finally:
        await store.close()
