"""Records model requests exactly as they are sent, so that they can be sent again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

from bot import errors, telemetry, ulids
from bot.contracts.base import Json
from bot.contracts.environment import Ids, Log, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest, ModelStream
from bot.core import events
from bot.core.events import Event
from bot.core.exports import Export, Exporter
from bot.core.feature import Feature, Hooks, Runtime
from bot.core.recorded_requests import FILE, TROUBLE, RecordedRequest, RecordedRequests
from bot.identity_cache import IdentityCache
from bot.llm import blocks, messages_api
from bot.llm.wrapper import ModelWrapper, spent
from bot.periodic_jobs import PeriodicJob

PROMPTS = 32  # max system prompts whose redacted text is cached
DAYS = 90  # max days that a request is kept; a shorter retention time of the chat applies first
_DAY = 86_400.0
_NO_JSON = (ValueError, TypeError, RecursionError)

GATHER = 0.25
"""Interval in seconds at which waiting records are written in one transaction. Every transaction delays running turns."""

Work = Callable[[RecordedRequests], object]


class Recorder:
    """Writes model requests to a file, in order, many in one transaction. If writing fails, records are dropped and logged."""

    def __init__(self, path: Path, *, log: Log) -> None:
        self._path = path
        self._log = log
        self._file: RecordedRequests | None = None
        self._waiting: list[Work] = []
        self._thread = ThreadPoolExecutor(1, "requests")
        self._timer: asyncio.Task[None] | None = None
        self._refused = False

    def put(self, work: Work) -> None:
        """Run `work` on the file within `GATHER` seconds."""
        self._waiting.append(work)
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._gather(), name="requests")

    async def run(self, work: Work) -> None:
        """Run `work` on the file after all earlier work, and wait for it. Raises `errors.StorageError`."""
        self._waiting.append(work)
        await self._write()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(errors.StorageError):
            await self._write()
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _gather(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHER)
            with contextlib.suppress(errors.StorageError):
                await self._write()

    async def _write(self) -> None:
        batch, self._waiting = self._waiting, []
        # The thread writes batches in order, so even an empty batch waits until the previous batch is written.
        await asyncio.get_running_loop().run_in_executor(self._thread, self._carry_out, batch)

    def _carry_out(self, batch: Sequence[Work]) -> None:
        if not batch:
            return
        try:
            file = self._file = self._file or RecordedRequests(self._path)
            file.transaction(lambda: [work(file) for work in batch])
        except TROUBLE as error:
            if not self._refused:
                words = "what the model is asked is not recorded"
                self._log.write("storage", words, level="error", cause=str(error))
            self._refused = True
            raise errors.StorageError(f"requests cannot be recorded: {error}") from error
        self._refused = False


@dataclass(eq=False)
class RecordedModel(ModelWrapper):
    """Records each model request of a chat. Retries by the model client are not recorded, because they send the same bytes."""

    recorder: Recorder
    ids: Ids
    redact: Redact

    def __post_init__(self) -> None:
        # Prompts make up most of a request. Redacting each prompt once instead of in every request saves time.
        self._prompt = lru_cache(PROMPTS)(self.redact)
        self._tools = IdentityCache[Sequence[Json], list[Json]](
            lambda tools: blocks.redacted(tools, self.redact), most=8
        )

    async def stream(self, request: ModelRequest) -> ModelStream:
        running, name = telemetry.current(), self.ids.ulid()
        if (chat_key := running.chat_key) is not None:
            self.recorder.put(partial(self._record, name, chat_key, running, request))
        async with aclosing(self.model.stream(request)) as answer:
            async for item in answer:
                if chat_key is not None and isinstance(item, ModelReply):
                    self.recorder.put(partial(self._answered, name, item))
                yield item

    def _record(
        self,
        name: str,
        chat: ChatKey,
        running: telemetry.Running,
        request: ModelRequest,
        file: RecordedRequests,
    ) -> None:
        try:
            sent = messages_api.wire(request)
        except _NO_JSON:
            return  # a request that cannot be encoded is not sent either
        digest = hashlib.sha256(sent).hexdigest()
        asked = RecordedRequest(
            name, str(chat), running.request_id, running.task, request.purpose, request.model, digest, None
        )
        file.record(asked, self._kept(request, sent))

    def _kept(self, request: ModelRequest, sent: bytes) -> bytes:
        """Return the request body with secrets redacted in the prompt and the tools. Messages are redacted already."""
        system = blocks.redacted(request.system, self._prompt)
        tools = self._tools(request.tools)
        if system == list(request.system) and tools == list(request.tools):
            return sent
        return messages_api.wire(replace(request, system=system, tools=tools))

    def _answered(self, name: str, reply: ModelReply, file: RecordedRequests) -> None:
        """Record the answer without thinking blocks. The next request of the turn repeats the thinking blocks that it needs."""
        said = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        facts = {"stopReason": reply.stop_reason} | spent(reply)
        file.answered(name, facts | {"content": blocks.redacted(said, self.redact)})


class Removals(Export):
    """Erases recorded requests that may contain a removed message. The event log tells which messages were removed."""

    name: ClassVar[str] = "record of requests"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def take(self, n: int, event: Event) -> None:
        del n
        data = event.data
        if not isinstance(data, events.Removed):
            return
        names = filter(ulids.FORM.fullmatch, (*data.requests, *data.turns, *data.related))
        since, chat = min(names, default=""), str(event.chat)
        await self._recorder.run(lambda file: file.remove(chat, since, event.id))


SWEEP_SECONDS = 3_600.0  # interval in seconds at which expired requests are deleted


def _build(runtime: Runtime) -> Hooks:
    settings = runtime.settings
    recorder = Recorder(settings.home / FILE, log=runtime.log)

    async def sweep() -> None:
        """Delete the expired requests of all chats. Raises `errors.StorageError`."""
        now, gone = runtime.clock.now(), list[int]()

        def work(file: RecordedRequests) -> None:
            for chat in file.chats():
                days = min(settings.history.days(ChatKey.parse(chat)) or DAYS, DAYS)
                before = int(max(0.0, now - days * _DAY) * 1000)
                gone.append(file.sweep(chat, ulids.written(before << 80)))

        await recorder.run(work)
        if sum(gone):
            runtime.log.write("retention", "old requests to the model are gone", requests=sum(gone))

    return Hooks(
        wrap_model=lambda model: RecordedModel(model, recorder, ids=runtime.ids, redact=runtime.redact),
        exports=(Exporter(Removals(recorder), runtime.event_log, clock=runtime.clock, log=runtime.log),),
        periodic=(PeriodicJob("remove old requests", SWEEP_SECONDS, sweep),),
        close=recorder.close,
    )


FEATURE = Feature("replay", _build)
