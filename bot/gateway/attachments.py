"""Files that people send, with what became of each as a step of its message: so after a crash nothing is fetched again."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import storage_errors_logged
from bot.contracts.inbound import Inbound, SeenFile, ShownFile
from bot.contracts.journal import StepRecord, Steps
from bot.core.attachments import STEP, FileReader, SentFile
from bot.core.file_words import GONE


class RecordingFileReader(FileReader):
    """Reads the files of messages, unless memory is short."""

    def __init__(self, *arguments: Any, steps: Steps, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._steps = steps
        self._known: dict[str, SeenFile] = {}

    async def read(self, inbound: Inbound, *, refused: bool | None = None) -> tuple[SeenFile, ...]:
        known = await self._earlier_outcomes(inbound.request_id) if inbound.attachments else {}
        self._known |= known
        try:
            before = any(one.refused for one in known.values()) if known else refused
            return await super().read(inbound, refused=before)
        finally:
            for name in known:
                self._known.pop(name, None)

    async def _one(self, file: SentFile, unfetched: SeenFile | None, deadline: float, room: int) -> SeenFile:
        known = self._known.get(file.name)
        if known is not None and not known.read:
            return known
        kept = await self._kept(file) if known is None or known.artifact is not None else SeenFile()
        shown = known.shown if known is not None else None
        if kept is not None and (shown is None or await self._page(file, shown.artifact) is not None):
            return dataclasses.replace(kept, shown=shown)
        if known is not None:
            return GONE  # what was kept of it has gone since
        began = self._clock.monotonic()
        seen = unfetched or await self._fetched(file, deadline, room)
        await self._record(file, self._clock.monotonic() - began, seen)
        return seen

    async def _earlier_outcomes(self, request_id: str) -> dict[str, SeenFile]:
        """The outcome of files of a message from before."""
        try:
            steps = await self._steps.steps(request_id)
        except errors.StorageError as error:
            self._log.write("error", "what is on file cannot be read", level="error", cause=str(error))
            return {}
        return {step.id: _recorded(step.id, step.result or {}) for step in steps if step.name == STEP}

    async def _record(self, file: SentFile, took: float, seen: SeenFile) -> None:
        shown: Json = {}
        if seen.shown is not None:
            shown = {"shown": dataclasses.asdict(seen.shown), "text": seen.artifact is not None}
        result: Json = {"read": True} | shown
        if not seen.read:
            facts = {"refused": seen.refused} if seen.refused else {"code": seen.code, "limit": seen.limit}
            result = {"read": False, "why": seen.why} | {name: fact for name, fact in facts.items() if fact}
        now = self._clock.now()
        step = StepRecord(file.inbound.request_id, file.name, "tool", STEP, now - took, now, result)
        with storage_errors_logged(self._log, "a step could not be recorded"):
            await self._steps.begin_step(step)


def _recorded(name: str, result: Json) -> SeenFile:
    """The outcome that a step tells; of a file whose text was read, its name alone."""
    if result.get("read"):
        shown = result.get("shown")
        if not isinstance(shown, dict):
            return SeenFile(name)
        return SeenFile(name if result.get("text") else None, shown=ShownFile(**shown))
    why = str(result.get("why") or "")
    code: errors.FileCode | Literal[""] = next(
        (one for one in get_args(errors.FileCode) if one == result.get("code")), ""
    )
    return SeenFile(
        why=why, refused=bool(result.get("refused")), code=code, limit=int(result.get("limit") or 0)
    )
