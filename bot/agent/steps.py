"""The steps of the running turn on their way into the journal, and what a resumed turn knows from them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Log
from bot.contracts.journal import StepKind, StepRecord, Steps
from bot.contracts.model import ModelReply
from bot.contracts.provenance import NOBODYS
from bot.contracts.tools import ToolCall, ToolResult
from bot.llm.log import spent
from bot.tools.builtin.chat_send import UNCERTAIN, ChatSend, delivered_words, partly_delivered_words

INTERRUPTED = "Interrupted: the turn was stopped while this ran. It may or may not have taken effect."
_WRITTEN = "written"
SUBAGENT = "subagent"
"""The name of the step of a task at work: its id is that of the task, its parent the step of its call."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The record of a call: its result, and what the model is not told: the ids of what it has `written` into the outbox."""

    result: ToolResult
    written: Sequence[str] = ()

    @property
    def record(self) -> Json:
        """The result of its step."""
        return self.result.block | ({_WRITTEN: list(self.written)} if self.written else {})


class StepLog:
    """Hands the begin and end of each step to the journal at once, in order; a caller that must know it is on file waits.

    A journal that cannot write does not stop the conversation: the operator is told, and who waits gets False.
    `pending` holds what is on its way, also after the turn.
    """

    def __init__(
        self, request_id: str, steps: Steps, pending: set[asyncio.Task[bool]], *, clock: Clock, log: Log
    ) -> None:
        self._request_id = request_id
        self._steps = steps
        self._pending = pending
        self._clock = clock
        self._log = log
        self._running: dict[str, StepKind] = {}

    def begin(
        self, step_id: str, kind: StepKind, name: str, parent_id: str | None = None
    ) -> asyncio.Task[bool]:
        """A step begins. Done, the task says whether it is on file."""
        self._running[step_id] = kind
        step = StepRecord(self._request_id, step_id, kind, name, self._clock.now(), parent_id=parent_id)
        return self._put(self._recorded(self._steps.begin_step(step)))

    def end(
        self, step_id: str, result: Json, *, after: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """It has ended; written once `after` is done."""
        self._running.pop(step_id, None)
        if after is not None:
            self._put(self._end(step_id, result, after))
        else:
            self._put(self._recorded(self._ended(step_id, result)))

    def took_place(self, step_id: str, name: str, began_at: float, result: Json) -> None:
        """A tool call without effects, all of it."""
        step = StepRecord(self._request_id, step_id, "tool", name, began_at, self._clock.now(), result)
        self._put(self._recorded(self._steps.begin_step(step)))

    def answered(self, reply: ModelReply, uuid: str | None, on_file: Callable[[], Awaitable[object]]) -> None:
        """The model call that runs has ended with an answer, which stands in the transcript under `uuid`: told once it really
        does, so that an answer that is recorded is never asked for again; or, where its file refuses it, behind the
        journal's row of it.
        """
        for step_id in [one for one, kind in self._running.items() if kind == "model"]:
            self.end(step_id, _facts(reply, uuid), after=on_file)

    def failed(self, error: str) -> None:
        """Whatever still runs ends in this."""
        for step_id in list(self._running):
            self.end(step_id, {"error": error})

    def _ended(self, step_id: str, result: Json) -> Awaitable[None]:
        return self._steps.end_step(self._request_id, step_id, result)

    async def _end(self, step_id: str, result: Json, after: Callable[[], Awaitable[object]]) -> bool:
        return await self._recorded(after()) and await self._recorded(self._ended(step_id, result))

    def _put(self, recording: Coroutine[None, None, bool]) -> asyncio.Task[bool]:
        task = asyncio.create_task(recording)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _recorded(self, change: Awaitable[object]) -> bool:
        """False if it cannot be recorded. The journal keeps the order of its calls: that of `change` has been made."""
        try:
            await change
        except errors.StorageError as error:
            self._log.write("error", "a step could not be recorded", level="error", cause=str(error))
            return False
        return True


def _facts(reply: ModelReply, uuid: str | None) -> Json:
    facts = {"uuid": uuid, "stopReason": reply.stop_reason} | spent(reply)
    facts |= {"model": reply.model} if reply.note else {}
    return facts | {"providerRequestId": reply.provider_request_id}


def silent_answer(recorded: Sequence[StepRecord], on_file: Collection[str]) -> Json | None:
    """Return the record of the last answer if it had no words and all before it is `on_file`."""
    answers = [step.result or {} for step in recorded if step.kind == "model"]
    said = {answer["uuid"] for answer in answers if answer.get("uuid") is not None}
    if not recorded or recorded[-1].kind != "model" or not said <= set(on_file):
        return None
    return answers[-1] if answers[-1].get("uuid", "") is None else None


def known_results(
    calls: Sequence[ToolCall], recorded: Sequence[StepRecord], begun: Sequence[PriorReply]
) -> dict[str, CallRecord]:
    """The results of tool calls of a cut-off step that must not run again: they did run, or may have.

    What the turn has `begun` to say and no ended call accounts for was said by the call that the crash cut off, whose
    result then tells of it, to be put on file.
    """
    steps = {step.id: step for step in recorded if step.kind == "tool"}
    told = written(recorded)
    fresh = [one for one in begun if one.id not in told]
    known: dict[str, CallRecord] = {}
    tasks = {step.parent_id: step.id for step in steps.values()}
    for call in calls:
        step = steps.get(call.id)
        if step is not None and "tool_use_id" in (step.result or {}):
            known[call.id] = CallRecord(ToolResult.of(step.result or {}))
        elif call.name == ChatSend.name:
            # Rows of earlier versions do not say which call they are of: the first that is not accounted for.
            said = [one for one in fresh if one.step_id in {call.id, None}]
            fresh = [one for one in fresh if one not in said]
            # What has failed is said again.
            if not all(one.failed for one in said):
                known[call.id] = _said(call, said)
        elif step is not None:
            task = tasks.get(call.id)
            words = f"{INTERRUPTED} What it had done by then: read_artifact {task}." if task else INTERRUPTED
            known[call.id] = CallRecord(ToolResult(call.id, words, failed=True))
    return known


def written(recorded: Iterable[StepRecord]) -> set[str]:
    """The ids in the outbox of what recorded calls have said."""
    return {one for step in recorded for one in (step.result or {}).get(_WRITTEN, ())}


def _said(call: ToolCall, begun: Sequence[PriorReply]) -> CallRecord:
    """The record of a call that said this before a crash, or may have."""
    there = [one for one in begun if not one.failed]
    told = [one.id for one in begun]
    if len(there) < len(begun):
        words = partly_delivered_words(len(there), len(begun))
    elif all(one.ids for one in begun):
        words = delivered_words([name for one in begun for name in one.ids])
        return CallRecord(ToolResult(call.id, words, origin=NOBODYS), told)
    else:
        words = UNCERTAIN
    return CallRecord(ToolResult(call.id, words, failed=True), told)
