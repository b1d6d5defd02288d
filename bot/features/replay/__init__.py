"""Records model requests exactly as they are sent, so that they can be sent again.

A request body is split into pieces at message boundaries. A piece that several requests of a chat contain is stored only
once, so each further request of a conversation adds only its new messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import re
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Ids, Log, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest, ModelStream
from bot.core import events
from bot.core.events import Event
from bot.core.exports import Export, Exporter
from bot.core.feature import Feature, Hooks, Runtime
from bot.identity_cache import IdentityCache
from bot.llm import blocks, messages_api
from bot.llm.wrapper import ModelWrapper, spent
from bot.periodic_jobs import PeriodicJob
from bot.system import ULID, ulid_of
from bot.telemetry import log as telemetry

FILE = "requests.db"
CHAT_BYTES = 32 * 1024 * 1024
"""Max total bytes of the pieces of one chat. Above the limit, the chat's oldest requests are deleted."""
REMOVED = "words were removed from this conversation since"
DAMAGED = "its record is damaged"
REDACTED = "it held a secret, which is not recorded"
DIFFERENT = "what is recorded is not what was sent"
_SCHEMA = Path(__file__).with_name("requests.sql").read_text("utf-8")
_BORDER = re.compile(rb'\{"role":|,"cache_control":|\}\]\}')
_LEVEL = 1
_FOUND = "SELECT id, chat, turn, task, purpose, model, sha256, redacted, body, answer FROM requests WHERE turn = ? OR task = ? ORDER BY id"
_SIZE = (
    "SELECT (SELECT coalesce(sum(length(bytes)), 0) FROM pieces WHERE chat = ?), "
    "(SELECT count(*) FROM requests WHERE chat = ?)"
)
_OLDEST = "DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE chat = ? ORDER BY id LIMIT ?)"
_ERASED = "chat = ? AND id >= ? AND (id <= ? OR task IS NOT NULL AND turn <= ?)"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A stored request. `id` is a ULID; for `purpose` see `contracts.model.ModelRequest`; `task` is the id of the subagent
    task that sent the request. `body` is None if it is unavailable. `wrong` is the reason why the body is unavailable or
    differs from the body that was sent. `answer` contains stop reason, usage, cost and content.
    """

    id: str
    chat_key: str
    request_id: str | None
    task: str | None
    purpose: str
    model: str
    sha256: str
    body: bytes | None
    wrong: str | None = None
    answer: Json | None = None


TROUBLE = (sqlite3.Error, OSError)  # Exceptions that the methods of `RecordedRequests` raise


class RecordedRequests:
    """Database of recorded requests. Methods raise `sqlite3.Error` and OSError."""

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}{'?mode=ro' if readonly else ''}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=5.0,
        )
        self._erased = False
        if not readonly:
            self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def transaction(self, work: Callable[[], object]) -> None:
        """Run `work` in a transaction. Content that `work` erases is removed from the write-ahead log too."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            work()
        if self._erased:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._erased = False

    # ------------------------------------------------------------ writing

    def record(self, asked: RecordedRequest, kept: bytes) -> None:
        """Record a request that is about to be sent. `kept` is the request's body, in which secrets are redacted."""
        late = (
            asked.task is not None
            and self._db.execute(
                "SELECT 1 FROM removals WHERE chat = ? AND until > ?", (asked.chat_key, asked.request_id)
            ).fetchone()
        )
        self._db.execute(
            "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (
                asked.id,
                asked.chat_key,
                asked.request_id,
                asked.task,
                asked.purpose,
                asked.model,
                asked.sha256,
                hashlib.sha256(kept).hexdigest(),
                # A task that was ordered before a removal may still send the removed text. Do not store such a request's body.
                None if late else self._pieces(asked.chat_key, kept),
            ),
        )

    def answered(self, request: str, facts: Json) -> None:
        """Record the outcome of a request: stop reason, usage, cost and content."""
        packed = zlib.compress(json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace"), _LEVEL)
        self._db.execute(
            "UPDATE requests SET answer = ? WHERE id = ? AND body IS NOT NULL", (packed, request)
        )

    def _pieces(self, chat: str, body: bytes) -> bytes:
        borders = [0, *(found.start() for found in _BORDER.finditer(body)), len(body)]
        parts = [body[begin:end] for begin, end in itertools.pairwise(borders) if begin < end]
        names = array("q")
        for part in parts:
            digest = hashlib.blake2b(part, digest_size=16).digest()
            known = self._db.execute(
                "SELECT id FROM pieces WHERE chat = ? AND digest = ?", (chat, digest)
            ).fetchone()
            if known is None:
                added = self._db.execute(
                    "INSERT INTO pieces (chat, digest, bytes) VALUES (?, ?, ?)",
                    (chat, digest, zlib.compress(part, _LEVEL)),
                )
                names.append(added.lastrowid or 0)
            else:
                names.append(known[0])
        return zlib.compress(names.tobytes(), _LEVEL)

    # ------------------------------------------------------------ removing

    def remove(self, chat: str, since: str, until: str) -> None:
        """Erase body and answer of a chat's requests from `since` to `until` (ULIDs), and of later requests of tasks that
        were ordered before `until`.
        """
        self._db.execute("INSERT OR IGNORE INTO removals VALUES (?, ?)", (chat, until))
        self._db.execute(
            f"UPDATE requests SET body = NULL, answer = NULL WHERE {_ERASED}",  # noqa: S608 - a constant
            (chat, since, until, until),
        )
        self._prune(chat)

    def forget(self, chat: str) -> None:
        """Delete all recorded requests of a chat."""
        self._erased = True
        for table in ("requests", "pieces", "removals"):
            self._db.execute(f"DELETE FROM {table} WHERE chat = ?", (chat,))  # noqa: S608 - constants

    def chats(self) -> list[str]:
        return [chat for (chat,) in self._db.execute("SELECT DISTINCT chat FROM requests")]

    def sweep(self, chat: str, before: str) -> int:
        """Delete a chat's requests older than the ULID `before`, then the oldest requests until the chat has at most
        `CHAT_BYTES`. Returns the number of deleted requests.
        """
        gone = self._db.execute("DELETE FROM requests WHERE chat = ? AND id < ?", (chat, before)).rowcount
        if gone:
            self._prune(chat)
        while True:
            size, count = self._db.execute(_SIZE, (chat, chat)).fetchone()
            if size <= CHAT_BYTES or count < 2:
                return gone
            gone += self._db.execute(_OLDEST, (chat, count // 4 + 1)).rowcount
            self._prune(chat)

    def _prune(self, chat: str) -> None:
        self._erased, used = True, set[int]()
        for (body,) in self._db.execute(
            "SELECT body FROM requests WHERE chat = ? AND body IS NOT NULL", (chat,)
        ):
            used.update(_names(body))
        known = [one for (one,) in self._db.execute("SELECT id FROM pieces WHERE chat = ?", (chat,))]
        self._db.executemany("DELETE FROM pieces WHERE id = ?", [(one,) for one in known if one not in used])

    # ------------------------------------------------------------ reading

    def find(self, name: str) -> list[RecordedRequest]:
        """Return all requests of the turn or task with the id `name`, oldest first."""
        return [self._read(row) for row in self._db.execute(_FOUND, (name, name)).fetchall()]

    def _read(self, row: tuple[Any, ...]) -> RecordedRequest:
        name, chat, turn, task, purpose, model, sha256, redacted, packed, answer = row
        body, wrong = None, REMOVED
        if packed is not None:
            body, wrong = self._body(packed), DAMAGED
        if body is not None:
            digest = hashlib.sha256(body).hexdigest()
            wrong = "" if digest == sha256 else REDACTED if digest == redacted else DIFFERENT
        told = None if answer is None else json.loads(zlib.decompress(answer))
        return RecordedRequest(name, chat, turn, task, purpose, model, sha256, body, wrong or None, told)

    def _body(self, packed: bytes) -> bytes | None:
        parts = list[bytes]()
        for name in _names(packed):
            found = self._db.execute("SELECT bytes FROM pieces WHERE id = ?", (name,)).fetchone()
            if found is None:
                return None
            parts.append(zlib.decompress(found[0]))
        return b"".join(parts)


def _names(packed: bytes) -> array[int]:
    names = array("q")
    names.frombytes(zlib.decompress(packed))
    return names


# ------------------------------------------------------------ recording

PROMPTS = 32  # max system prompts whose redacted text is cached
DAYS = 90  # max days that a request is kept; a shorter retention time of the chat applies first
_DAY = 86_400.0
_NO_JSON = (ValueError, TypeError, RecursionError)

GATHER = 0.25
"""Interval in seconds at which waiting records are written in one transaction. Every transaction delays running turns."""

Work = Callable[[RecordedRequests], object]


@dataclass(eq=False)
class Recorder:
    """Writes model requests to a file, in order, many in one transaction. If writing fails, records are dropped and logged."""

    path: Path
    _: KW_ONLY
    log: Log
    _file: RecordedRequests | None = None
    _waiting: list[Work] = field(default_factory=list)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "requests"))
    _timer: asyncio.Task[None] | None = None
    _refused: bool = False

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
            file = self._file = self._file or RecordedRequests(self.path)
            file.transaction(lambda: [work(file) for work in batch])
        except TROUBLE as error:
            if not self._refused:
                words = "what the model is asked is not recorded"
                self.log.write("storage", words, level="error", cause=str(error))
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
        # The messages are redacted already, but not the prompt and the tools.
        system, tools = blocks.redacted(request.system, self._prompt), self._tools(request.tools)
        if system != list(request.system) or tools != list(request.tools):
            sent = messages_api.wire(replace(request, system=system, tools=tools))
        file.record(asked, sent)

    def _answered(self, name: str, reply: ModelReply, file: RecordedRequests) -> None:
        """Record the answer without thinking blocks. The next request of the turn repeats the thinking blocks that it needs."""
        said = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        facts = {"stopReason": reply.stop_reason} | spent(reply)
        file.answered(name, facts | {"content": blocks.redacted(said, self.redact)})


@dataclass(eq=False)
class Removals(Export):
    """Erases recorded requests that may contain a removed message. The event log tells which messages were removed."""

    name: ClassVar[str] = "record of requests"

    recorder: Recorder

    async def take(self, n: int, event: Event) -> None:
        del n
        data = event.data
        if not isinstance(data, events.Removed):
            return
        names = filter(ULID.fullmatch, (*data.requests, *data.turns, *data.related))
        since, chat = min(names, default=""), str(event.chat)
        await self.recorder.run(lambda file: file.remove(chat, since, event.id))


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
                gone.append(file.sweep(chat, ulid_of(before << 80)))

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
