"""Records every request to the model as it was sent, compressed, in files beside the transcripts of its chat.

A record has the SHA-256 of the body and the body itself: what it shares with the body of an earlier record is named by
place and length, the rest is compressed. The files are append-only and have one writer; no turn waits for it. A reader
skips a record that a kill cut off, and what is built on it. Each file stands by itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors, ulids
from bot.batch import Batcher
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.contracts.identity import ChatKey
from bot.core import file_names, jsonl

FILE_BYTES = 4 * 1024 * 1024
"""Bytes of a file, beside the record that the newest ones are built on, after which another one begins."""
FILE_SECONDS = 30 * 86_400.0
"""Age of a file's first record after which another file begins, so that a sweep finds files that are old as a whole."""
CHAT_BYTES = 32 * 1024 * 1024
"""Bytes of a chat; the oldest files go where there are more, but never the two newest."""
MEMORY_BYTES = 8 * 1024 * 1024
"""Bytes of all bodies that stay in memory to build the next ones on; those of the chats that asked longest ago go."""
CHAIN = 256
"""Records in one chain; then one stands by itself again. A damaged record costs those behind it in its chain."""
TASKS = 8
"""Newest bodies of tasks that stay in memory for a chat while its turn runs."""
WORTH = 512
"""Bytes that a body must share with another one to be built on it."""
MOST_WAITING = 500
"""Records that wait for a slow disk; further ones are dropped, and the operator is told."""
MOST_CHATS = 4_000
"""Chats of which the end of their newest file is remembered."""
_CONTEXT = 16 * 1024  # bytes on either side of where bodies part that the compression knows already
_LEVEL = 1
_PIECE = 3 * 256 * 1024  # bytes that are compared or encoded at once; base64 makes four of three
_END = ".requests"
_PACKED = re.compile(rb',"(?:body|said)":"')
_WORDS = frozenset({"body", "base", "cut", "said", "label"})
_REQUEST = frozenset({"id", "purpose", "model", "sha256"})
_NO_JSON = (ValueError, TypeError, RecursionError)
_DAMAGED = (ValueError, TypeError, KeyError, IndexError, zlib.error)
REMOVED = "words were removed from this conversation since"
MISSING = "the record that it is built on is not on file"
DAMAGED = "its record is damaged"
REDACTED = "it held a secret, which is not recorded"
DIFFERENT = "what is recorded is not what was sent"

Sent = Callable[[], tuple[bytes, bytes]]
"""Makes the body that is sent, and the same without our secrets. Called on the writer's thread."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request: `id` is a ULID, `purpose` as in `contracts.model.ModelRequest`, `task` the task that asked."""

    id: str
    chat_key: ChatKey
    request_id: str | None
    task: str | None
    purpose: str
    model: str
    sent: Sent


@dataclass(frozen=True, slots=True)
class _Note:
    """A line that has no body: of a task, or of an answer, with what `said` makes on the writer's thread."""

    chat_key: ChatKey
    name: str
    line: Json
    said: Callable[[], list[Json]] | None = None


@dataclass(frozen=True, slots=True)
class _Remove:
    chat_key: ChatKey
    ranges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Sweep:
    before: float


@dataclass(frozen=True, slots=True)
class _Forget:
    """The bodies in memory go."""


@dataclass(frozen=True, slots=True)
class _Base:
    """A body that others can be built on. `head` is where its messages, tools and prompt begin; `chain` counts what it
    is itself built on.
    """

    id: str
    body: bytes
    head: int
    chain: int


@dataclass(slots=True)
class _Chat:
    """The end of a chat's newest file, and the bodies that the next ones may be built on, by task ("" for the turns)."""

    path: Path
    size: int = 0
    ended: bool = True
    whole: int = 0
    """Bytes of the newest record that stands by itself; 0 where another process wrote it."""
    bases: dict[str, _Base] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(len(base.body) for base in self.bases.values())

    def full(self, name: str) -> bool:
        """True if the record with this ULID belongs into another file."""
        if self.size >= FILE_BYTES + self.whole:
            return True
        return bool(self.size) and ulids.made_at(name) - ulids.made_at(self.path.stem) > FILE_SECONDS

    def keep(self, task: str | None, base: _Base) -> None:
        """Remember a body; that of a turn makes all of its tasks but the newest superfluous: they have ended."""
        self.bases.pop(task or "", None)
        self.bases[task or ""] = base
        tasks = [name for name in self.bases if name]
        for name in tasks[: -TASKS if task else -1]:
            del self.bases[name]
        while len(self.bases) > 1 and self.held > MEMORY_BYTES:
            del self.bases[next(iter(self.bases))]


_Item = SentRequest | _Note | _Remove | _Sweep | _Forget


class RequestLog:
    """Requests of every chat in `folder/<encoded chatKey>/<ULID>.requests`. Nothing here waits for the disk: what it
    refuses is not recorded, and the operator is told.
    """

    def __init__(self, folder: Path, *, disk: Disk, log: Log) -> None:
        self._folder = folder
        self._disk = disk
        self._log = log
        self._chats: OrderedDict[ChatKey, _Chat] = OrderedDict()  # the writer's alone, as is what they hold
        self._held = 0
        self._waiting = 0
        self._refused = False
        self._writer: Batcher[_Item, int] = Batcher("requests", self._work, patient=True)

    def record(self, asked: SentRequest) -> None:
        """Record a request that is about to be sent."""
        self._put(asked)

    def record_answer(self, asked: SentRequest, facts: Json, said: Callable[[], list[Json]]) -> None:
        """Record what came of it: `facts` as they are, and the content of the answer without our secrets, which `said`
        makes on the writer's thread.
        """
        line = {"v": 1, "of": asked.id, "requestId": asked.request_id} | facts
        self._put(_Note(asked.chat_key, asked.id, line, said))

    def record_task(self, task: str, chat_key: ChatKey, request_id: str, about: Json) -> None:
        """Record that a turn has begun a task."""
        self._put(_Note(chat_key, task, {"v": 1, "begun": task, "requestId": request_id} | about))

    def remove(self, chat_key: ChatKey, ranges: Collection[tuple[str, str]]) -> asyncio.Future[int]:
        """Erase the words of all records whose ULIDs are in one of these ranges (both ends included); the number of
        files that changed. That they were there stays. The future may raise `errors.StorageError`.
        """
        return self._writer.put(_Remove(chat_key, tuple(ranges)))

    async def sweep(self, before: float) -> int:
        """Remove the files all of whose records are older than this (seconds since the epoch); returns how many. Raises
        `errors.StorageError`.
        """
        return await self._writer.put(_Sweep(before), hurry=False)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of the bodies that are in memory."""
        return self._held

    def shrink(self) -> None:
        """Memory is short: the bodies in it go. The next record of each chat stands by itself."""
        self._writer.put(_Forget(), hurry=False)

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.close()

    def _put(self, item: SentRequest | _Note) -> None:
        if self._waiting >= MOST_WAITING:
            self._refuse("the disk takes too long")
            return
        self._waiting += 1
        self._writer.put(item, hurry=False).add_done_callback(self._taken)

    def _taken(self, _: asyncio.Future[int]) -> None:
        self._waiting -= 1

    def _refuse(self, cause: str, what: str = "") -> None:
        if what or not self._refused:
            words = what or "what the model is asked is not recorded"
            self._log.write("storage", words, level="error", cause=cause)
        self._refused = True

    # On the writer's thread.

    def _work(self, batch: list[_Item]) -> list[int | errors.StorageError]:
        return [self._carry_out(item) for item in batch]

    def _carry_out(self, item: _Item) -> int | errors.StorageError:
        try:
            match item:
                case _Sweep():
                    return self._remove_old(item.before)
                case _Remove():
                    return self._erase(item)
                case _Forget():
                    self._chats.clear()
                    self._held = 0
                case _Note():
                    with contextlib.suppress(*_NO_JSON):
                        self._note(item)
                case SentRequest():
                    with contextlib.suppress(*_NO_JSON):  # It cannot be sent either.
                        self._record(item)
        except OSError as error:
            if isinstance(item, _Sweep | _Forget):
                return errors.StorageError(f"old requests cannot be removed: {error}")
            # An unknown part of it is on disk: the next record stands by itself.
            self._drop(item.chat_key)
            self._refuse(
                str(error), "removed words are still in records" if isinstance(item, _Remove) else ""
            )
            return errors.StorageError(f"requests cannot be recorded: {error}")
        self._refused = False
        return 0

    def _note(self, item: _Note) -> None:
        raw = jsonl.dumps(item.line)
        if item.said is not None:
            raw = _with(raw, "said", zlib.compress(jsonl.dumps({"content": item.said()}), _LEVEL))
        self._append(self._chat(item.chat_key, item.name), raw)

    def _record(self, asked: SentRequest) -> None:
        sent, kept = asked.sent()
        chat = self._chat(asked.chat_key, asked.id)
        head = max(0, kept.find(b"["))
        line: Json = {
            "v": 1,
            "id": asked.id,
            "requestId": asked.request_id,
            "purpose": asked.purpose,
            "model": asked.model,
            "sha256": hashlib.sha256(sent).hexdigest(),
        }
        line |= {"task": asked.task} if asked.task is not None else {}
        line |= {"redacted": hashlib.sha256(kept).hexdigest()} if kept != sent else {}
        base, shared = _closest(kept, head, chat.bases.values())
        if base is None:
            line["chatKey"] = str(asked.chat_key)
            packed = zlib.compress(kept, _LEVEL)
        else:
            line |= {"base": base.id, "cut": [head, base.head, shared]}
            packed = _packed(kept[:head] + kept[head + shared :], base.body, base.head + shared)
        raw = _with(jsonl.dumps(line), "body", packed)
        self._append(chat, raw)
        if base is None:
            chat.whole = len(raw)
        if asked.purpose == "turn" or asked.task is not None:
            self._held -= chat.held
            chat.keep(asked.task, _Base(asked.id, kept, head, base.chain + 1 if base is not None else 0))
            self._held += chat.held
            while len(self._chats) > 1 and self._held > MEMORY_BYTES:
                self._drop(next(iter(self._chats)))

    def _chat(self, chat_key: ChatKey, name: str) -> _Chat:
        """Return the end of a chat's newest file, looked at again if another process has changed it. If that is full or old,
        another one begins with this record.
        """
        chat = self._chats.get(chat_key)
        if chat is None or self._disk.size(chat.path) != chat.size:
            self._drop(chat_key)
            home = self._folder / file_names.encode(chat_key)
            found = files_of(self._disk, home)
            chat = _Chat(found[-1] if found else home / f"{name}{_END}")
            with closing(self._disk.open(chat.path)) as file:
                chat.size = file.size
                chat.ended = not file.size or file.read(file.size - 1, 1) == b"\n"
        if chat.full(name):
            self._drop(chat_key)
            self._make_room(chat.path)
            # Behind the others by name too, whatever the clock says.
            chat = _Chat(chat.path.with_name(f"{max(name, chat.path.stem + '0')}{_END}"))
        self._chats[chat_key] = chat
        self._chats.move_to_end(chat_key)
        if len(self._chats) > MOST_CHATS:
            self._drop(next(iter(self._chats)))
        return chat

    def _drop(self, chat_key: ChatKey) -> None:
        """Give up what is in memory for a chat: its next record stands by itself."""
        chat = self._chats.pop(chat_key, None)
        self._held -= chat.held if chat is not None else 0

    def _make_room(self, newest: Path) -> None:
        """Remove the oldest files of a chat that is about to begin another one."""
        left = CHAT_BYTES - FILE_BYTES
        for path in reversed(files_of(self._disk, newest.parent)):
            left -= self._disk.size(path)
            if left < 0 and path != newest:
                self._disk.remove(path)

    def _remove_old(self, before: float) -> int:
        gone = 0
        for chat in self._disk.names(self._folder):
            for path in files_of(self._disk, self._folder / chat):
                if ulids.made_at(path.stem) + FILE_SECONDS < before:
                    self._disk.remove(path)
                    gone += 1
        return gone

    def _append(self, chat: _Chat, raw: bytes) -> None:
        raw = (b"" if chat.ended else b"\n") + raw
        self._disk.append(chat.path, raw)
        chat.size, chat.ended = chat.size + len(raw), True

    def _erase(self, item: _Remove) -> int:
        self._drop(item.chat_key)
        changed = 0
        for path in files_of(self._disk, self._folder / file_names.encode(item.chat_key)):
            raws = _lines(self._disk, path)
            if any(_holds_words(raw, item.ranges) for raw in raws):
                self._disk.replace(path, b"".join(_erased(raws, item.ranges)))
                changed += 1
        return changed


def _with(raw: bytes, key: str, packed: bytes) -> bytes:
    """A line with packed bytes behind its other fields. Of large ones a piece at a time: meanwhile the event loop goes on."""
    parts = (base64.b64encode(packed[at : at + _PIECE]) for at in range(0, len(packed), _PIECE))
    return b"".join((raw[:-2], b',"', key.encode(), b'":"', *parts, b'"}\n'))


def _closest(body: bytes, head: int, bases: Collection[_Base]) -> tuple[_Base | None, int]:
    """The body that shares most with this one behind their heads, and how much; None where it is not worth it."""
    found, most = None, WORTH
    for base in bases:
        if base.chain < CHAIN and (shared := _shared(body, head, base.body, base.head)) >= most:
            found, most = base, shared
    return found, most


def _shared(one: bytes, at: int, other: bytes, there: int) -> int:
    """Count the bytes that are the same from these places on."""
    most = min(len(one) - at, len(other) - there)
    low = 0
    while low < most and one[at + low : at + low + _PIECE] == other[there + low : there + low + _PIECE]:
        low += _PIECE
    high = min(low + _PIECE, most)
    while low < high:
        middle = (low + high + 1) // 2
        if one[at + low : at + middle] == other[there + low : there + middle]:
            low = middle
        else:
            high = middle - 1
    return min(low, most)


def _around(base: bytes, end: int) -> bytes:
    """Return the dictionary of the compression: the other body around the place where they part."""
    return base[max(0, end - _CONTEXT) : end + _CONTEXT]


def _packed(rest: bytes, base: bytes, end: int) -> bytes:
    packer = zlib.compressobj(_LEVEL, zdict=_around(base, end))
    return packer.compress(rest) + packer.flush()


def _unpacked(line: Json, base: bytes) -> bytes:
    """The body of a record, on the body that it is built on."""
    packed = base64.b64decode(line["body"])
    if "base" not in line:
        return zlib.decompress(packed)
    head, start, shared = line["cut"]
    unpacker = zlib.decompressobj(zdict=_around(base, start + shared))
    rest = unpacker.decompress(packed)
    if not unpacker.eof:
        raise ValueError("the record is cut off")
    return rest[:head] + base[start : start + shared] + rest[head:]


# ------------------------------------------------------------ erasing and reading


def files_of(disk: Disk, home: Path) -> list[Path]:
    """Return the files of a chat, oldest first."""
    return [home / name for name in disk.names(home) if name.endswith(_END) and ulids.FORM.match(name)]


def newest_at(disk: Disk, path: Path) -> float:
    """The time of the newest record of a file, in seconds since the epoch; that of its first one where none can be read."""
    with closing(disk.open(path)) as file:
        for raw in jsonl.lines_backwards(file):
            if raw and (line := _facts(raw)) is not None:
                return ulids.made_at(_name(line))
    return ulids.made_at(path.stem)


def _facts(raw: bytes) -> Json | None:
    """A line without its packed words, which may be many; None where it is no line of ours."""
    packed = _PACKED.search(raw)
    line = jsonl.loads(raw if packed is None else raw[: packed.start()] + b"}")
    return line if line is not None and ulids.FORM.fullmatch(_name(line)) else None


def _name(line: Json) -> str:
    """The ULID that a line is about."""
    return str(line.get("id") or line.get("of") or line.get("begun"))


def _within(name: str, ranges: Collection[tuple[str, str]]) -> bool:
    return any(first <= name <= last for first, last in ranges)


def _holds_words(raw: bytes, ranges: Collection[tuple[str, str]]) -> bool:
    """True if a line has words of these ranges, or may have: nobody can say of what one is that cannot be read."""
    facts = _facts(raw)
    return facts is None or ("removed" not in facts and _within(_name(facts), ranges))


def _erased(raws: Sequence[bytes], ranges: Collection[tuple[str, str]]) -> Iterator[bytes]:
    """The lines of a file without the words of those in these ranges, of what is built on them, and of what cannot be read."""
    gone = set[str]()
    for raw in raws:
        facts = _facts(raw)
        if facts is None:
            continue
        name = _name(facts)
        if _within(name, ranges) or str(facts.get("base")) in gone or name in gone:
            gone.add(name)
            left = {key: value for key, value in facts.items() if key not in _WORDS}
            yield jsonl.dumps(left | {"removed": True})
        else:
            yield raw + b"\n"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it is on file. `body` is None where it cannot be had; `wrong` says why, or why it is not what was sent."""

    id: str
    request_id: str | None
    task: str | None
    purpose: str
    model: str
    sha256: str
    body: bytes | None
    wrong: str | None
    answer: Json | None
    """Stop reason, usage, cost and `content` of the answer; None if none came."""


@dataclass(slots=True)
class FoundRequests:
    """The requests of a turn or a task, in the order in which they were sent, and what is told of each task by its id."""

    chat_key: str = ""
    requests: list[RecordedRequest] = field(default_factory=list)
    tasks: dict[str, Json] = field(default_factory=dict)


def find(disk: Disk, folder: Path, name: str) -> FoundRequests | None:
    """All that the turn or the task of this id has asked; None where nothing is on file. `folder` is that of the
    transcripts. Blocking; raises OSError.
    """
    if not ulids.FORM.fullmatch(name):
        return None
    for home in disk.names(folder):
        files = [_lines(disk, path) for path in files_of(disk, folder / home)]
        if not any(name.encode() in raw for raws in files for raw in raws):
            continue
        found = _found([[line for raw in raws if (line := jsonl.loads(raw))] for raws in files], name)
        if found.requests or found.tasks:
            found.chat_key = file_names.decode(home) or found.chat_key
            return found
    return None


def _lines(disk: Disk, path: Path) -> list[bytes]:
    with closing(disk.open(path)) as file:
        return list(jsonl.lines(file))


def _found(files: Sequence[Sequence[Json]], name: str) -> FoundRequests:
    found = FoundRequests()
    answers = {line["of"]: line for lines in files for line in lines if "of" in line}
    for lines in files:
        bodies = _Bodies({line["id"]: line for line in lines if line.keys() >= _REQUEST})
        for line in lines:
            found.chat_key = line.get("chatKey", found.chat_key)
            if name not in {line.get("requestId"), line.get("task"), line.get("begun")}:
                continue
            if "begun" in line:
                found.tasks[line["begun"]] = line
            elif line.keys() >= _REQUEST:
                found.requests.append(_recorded(line, bodies, answers.get(line["id"])))
    return found


def _recorded(line: Json, bodies: _Bodies, answer: Json | None) -> RecordedRequest:
    body, wrong = bodies.body(line)
    return RecordedRequest(
        line["id"],
        line.get("requestId"),
        line.get("task"),
        line["purpose"],
        line["model"],
        line["sha256"],
        body,
        wrong,
        _answer(answer) if answer is not None else None,
    )


def _answer(line: Json) -> Json:
    try:
        content = (jsonl.loads(zlib.decompress(base64.b64decode(line["said"]))) or {}).get("content", [])
    except _DAMAGED:
        content = []
    return line | {"content": content}


class _Bodies:
    """Unpacks the records of a file. The last body is remembered: most are built on that."""

    def __init__(self, lines: dict[str, Json]) -> None:
        self._lines = lines
        self._last = ("", b"")

    def body(self, line: Json) -> tuple[bytes | None, str | None]:
        """The body of a record, and what is wrong with it."""
        if "removed" in line:
            return None, REMOVED
        try:
            body = self._built(line)
        except KeyError:
            return None, MISSING
        except _DAMAGED:
            return None, DAMAGED
        digest = hashlib.sha256(body).hexdigest()
        if digest == line["sha256"]:
            return body, None
        return body, REDACTED if digest == line.get("redacted") else DIFFERENT

    def _built(self, line: Json) -> bytes:
        on: list[Json] = [line]
        while "base" in on[-1] and on[-1]["base"] != self._last[0]:
            if len(on) > CHAIN:
                raise ValueError("the records are built on one another")
            on.append(self._lines[on[-1]["base"]])
        body = self._last[1] if "base" in on[-1] else b""
        for one in reversed(on):
            body = _unpacked(one, body)
        self._last = (line["id"], body)
        return body
