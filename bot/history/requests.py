"""Records every request to the model as it was sent, compressed, in files beside the transcripts of its chat.

A record has the SHA-256 of the body and the body itself: what it shares with the body of an earlier record is named by
place and length, the rest is compressed. The files are append-only and have one writer; no turn waits for it. A reader
skips a record that a kill cut off, and what is built on it. Each file stands by itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors
from bot.batch import Batcher
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.contracts.identity import ChatKey
from bot.history import jsonl, names, pieces

FILE_BYTES = 4 * 1024 * 1024
"""Bytes of a file after which another one begins."""
FILE_SECONDS = 30 * 86_400.0
"""Age of a file's first record after which another file begins, so that a sweep finds files that are old as a whole."""
CHAT_BYTES = 32 * 1024 * 1024
"""Bytes of a chat; the oldest files go where there are more."""
CHAIN = 256
"""Records in one chain; then one stands by itself again. A damaged record costs those behind it in its chain."""
TASKS = 8
"""Newest bodies of tasks that stay in memory for a chat while its turn runs."""
WORTH = 512
"""Bytes that a body must share with another one to be built on it."""
MOST_WAITING = 500
"""Records that wait for a slow disk; further ones are dropped, and the operator is told."""
_CONTEXT = 16 * 1024  # bytes on either side of where bodies part that the compression knows already
_LEVEL = 1
_PIECE = 3 * 256 * 1024  # bytes that are compared or encoded at once; base64 makes four of three
_END = ".requests"
_ULID = re.compile(rf"[{names.CROCKFORD}]{{26}}")
_NAME = re.compile(rb'\{"v":1,"(?:id|of|begun)":"([^"]*)"')
_WORDS = frozenset({"body", "base", "cut", "said", "label"})
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
    bases: dict[str, _Base] = field(default_factory=dict)

    def keep(self, task: str | None, base: _Base) -> None:
        """Remember a body; that of a turn makes all of its tasks but the newest superfluous: they have ended."""
        self.bases.pop(task or "", None)
        self.bases[task or ""] = base
        tasks = [name for name in self.bases if name]
        for name in tasks[: -TASKS if task else -1]:
            del self.bases[name]


_Item = SentRequest | _Note | _Remove | _Sweep


class RequestLog:
    """Requests of every chat in `folder/<encoded chatKey>/<ULID>.requests`. Nothing here waits for the disk: what it
    refuses is not recorded, and the operator is told.
    """

    def __init__(self, folder: Path, *, disk: Disk, log: Log) -> None:
        self._folder = folder
        self._disk = disk
        self._log = log
        self._chats: dict[ChatKey, _Chat] = {}
        self._waiting = 0
        self._refused = False
        self._writer: Batcher[_Item, int] = Batcher("requests", self._work)

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

    def bytes_in_memory(self, chat_key: ChatKey) -> int:
        """Bytes that are in memory for a chat."""
        chat = self._chats.get(chat_key)
        return sum(len(base.body) for base in list(chat.bases.values())) if chat is not None else 0

    def release(self, chat_key: ChatKey) -> None:
        """Give up what is in memory for a chat: its next record stands by itself."""
        self._chats.pop(chat_key, None)

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
                case _Note():
                    self._note(item)
                case SentRequest():
                    self._record(item)
        except OSError as error:
            if isinstance(item, _Sweep):
                return errors.StorageError(f"old requests cannot be removed: {error}")
            # An unknown part of it is on disk: the next record stands by itself.
            self.release(item.chat_key)
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
        try:
            sent, kept = asked.sent()
        except (ValueError, TypeError):
            return  # No JSON: it cannot be sent either.
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
        self._append(chat, _with(jsonl.dumps(line), "body", packed))
        if asked.purpose == "turn" or asked.task is not None:
            chat.keep(asked.task, _Base(asked.id, kept, head, base.chain + 1 if base is not None else 0))

    def _chat(self, chat_key: ChatKey, name: str) -> _Chat:
        """Return the end of a chat's newest file, looked at again if another process has changed it. If that is full or old,
        another one begins with this record.
        """
        chat = self._chats.get(chat_key)
        if chat is None or self._disk.size(chat.path) != chat.size:
            home = self._folder / names.encode(chat_key)
            found = _files(self._disk, home)
            chat = _Chat(found[-1] if found else home / f"{name}{_END}")
            with closing(self._disk.open(chat.path)) as file:
                chat.size = file.size
                chat.ended = not file.size or file.read(file.size - 1, 1) == b"\n"
        if chat.size >= FILE_BYTES or (
            chat.size and names.made_at(name) - names.made_at(chat.path.stem) > FILE_SECONDS
        ):
            self._make_room(chat.path.parent)
            # Behind the others by name too, whatever the clock says.
            chat = _Chat(chat.path.with_name(f"{max(name, chat.path.stem + '0')}{_END}"))
        self._chats[chat_key] = chat
        return chat

    def _make_room(self, home: Path) -> None:
        left = CHAT_BYTES - FILE_BYTES
        for path in reversed(_files(self._disk, home)):
            left -= self._disk.size(path)
            if left < 0:
                self._disk.remove(path)

    def _remove_old(self, before: float) -> int:
        gone = 0
        for chat in self._disk.names(self._folder):
            for path in _files(self._disk, self._folder / chat):
                if names.made_at(path.stem) + FILE_SECONDS < before:
                    self._disk.remove(path)
                    gone += 1
        return gone

    def _append(self, chat: _Chat, raw: bytes) -> None:
        raw = (b"" if chat.ended else b"\n") + raw
        self._disk.append(chat.path, raw)
        chat.size, chat.ended = chat.size + len(raw), True

    def _erase(self, item: _Remove) -> int:
        self.release(item.chat_key)
        changed = 0
        for path in _files(self._disk, self._folder / names.encode(item.chat_key)):
            raws = _lines(self._disk, path)
            if not any(b'"removed"' not in raw and _within(_name(raw), item.ranges) for raw in raws):
                continue
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


def _files(disk: Disk, home: Path) -> list[Path]:
    """Return the files of a chat, oldest first."""
    return [home / name for name in disk.names(home) if name.endswith(_END) and _ULID.match(name)]


def _name(raw: bytes) -> str:
    """The ULID that a line is about; "" where it is no line of ours."""
    found = _NAME.match(raw)
    return found[1].decode() if found is not None else ""


def _within(name: str, ranges: Collection[tuple[str, str]]) -> bool:
    return any(first <= name <= last for first, last in ranges)


def _erased(raws: Sequence[bytes], ranges: Collection[tuple[str, str]]) -> Iterator[bytes]:
    """The lines of a file without the words of those in these ranges, and of what is built on them."""
    gone = set[str]()
    for raw in raws:
        line, name = jsonl.loads(raw), _name(raw)
        if line is None:
            continue  # Cut off by a kill, in the middle of words.
        if _within(name, ranges) or line.get("base") in gone or name in gone:
            gone.add(name)
            line = {key: value for key, value in line.items() if key not in _WORDS} | {"removed": True}
        yield jsonl.dumps(line)


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
    if not _ULID.fullmatch(name):
        return None
    for home in (one for one in disk.names(folder) if not one.startswith(".")):
        told = [raws for path in _files(disk, folder / home) if _tells(raws := _lines(disk, path), name)]
        found = _found([[line for raw in raws if (line := jsonl.loads(raw))] for raws in told], name)
        if found.requests or found.tasks:
            found.chat_key = names.decode(home) or found.chat_key
            return found
    return None


def _tells(raws: Sequence[bytes], name: str) -> bool:
    wanted = name.encode()
    return any(wanted in raw for raw in raws)


def _lines(disk: Disk, path: Path) -> list[bytes]:
    with closing(disk.open(path)) as file:
        return list(pieces.lines(file))


def _found(files: Sequence[Sequence[Json]], name: str) -> FoundRequests:
    found = FoundRequests()
    answers = {line["of"]: line for lines in files for line in lines if "of" in line}
    for lines in files:
        bodies = _Bodies({line["id"]: line for line in lines if "id" in line})
        for line in lines:
            found.chat_key = line.get("chatKey", found.chat_key)
            if name not in {line.get("requestId"), line.get("task"), line.get("begun")}:
                continue
            if "begun" in line:
                found.tasks[line["begun"]] = line
            elif "id" in line:
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
            on.append(self._lines[on[-1]["base"]])
        body = self._last[1] if "base" in on[-1] else b""
        for one in reversed(on):
            body = _unpacked(one, body)
        self._last = (line["id"], body)
        return body
