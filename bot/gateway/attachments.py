"""Files that people send: what of them holds text becomes an artifact, and its beginning goes to the model.

A file has its artifact under an id that follows from its message, and what became of it is a step of that message. So after
a crash nothing is fetched again, and the model is told the same. What was not read is said below the next answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from bot import errors, text
from bot.contracts.artifacts import Artifacts
from bot.contracts.base import Json, Level
from bot.contracts.channel import Channel, Files, Manifest
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.inbound import Attachment, Inbound, SeenFile
from bot.contracts.journal import StepRecord, Steps
from bot.gateway.file_text import Decoder, NoText

NO_ROOM = "I am short of memory just now and cannot take files; please send it again later."
REFUSED = SeenFile(why="memory was short", refused=True)
"""A file of a message of which nothing was fetched."""
NAMED = 10
"""So many of them are named: an album has no more."""
_KINDS = {
    "photo": "photos",
    "video": "videos",
    "audio": "audio files",
    "voice": "voice notes",
    "sticker": "stickers",
    "file": "files of this kind",
}


def may_hold_text(attachment: Attachment) -> bool:
    """True where its bytes are worth a look: what a platform calls a photo, say, never holds text."""
    return attachment.kind == "file" and attachment.ref is not None


def unseen(attachments: Sequence[Attachment], *, full: bool, log: Log) -> str:
    """The sentence about files that were not looked at; "" where nothing came along. While memory is `full`, none is
    taken.
    """
    if attachments and full:
        log.write("memory", "memory is short: files were refused", level="warn", files=len(attachments))
        return NO_ROOM
    return cannot_open(attachments)


def unread(attachments: Sequence[Attachment], seen: Sequence[SeenFile]) -> str:
    """The sentence about the files of a message that were not read; "" where all were, or nothing came along."""
    if any(one.refused for one in seen):
        return NO_ROOM
    both = list(zip(attachments, seen, strict=True))
    failed = [f"{_named(file)}: {one.why}" for file, one in both if one.why]
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    words = f"(I have not read {'; '.join(failed[:NAMED])}{more}.)" if failed else ""
    never = cannot_open([file for file, one in both if one.artifact is None and not one.why])
    return "\n".join(filter(None, (words, never)))


def cannot_open(attachments: Sequence[Attachment]) -> str:
    """A line that names them; "" where nothing came along."""
    if not attachments:
        return ""
    named = [_named(attachment) for attachment in attachments[:NAMED]]
    more = f" and {len(attachments) - NAMED} more" if len(attachments) > NAMED else ""
    kinds = " or ".join(dict.fromkeys(_KINDS[attachment.kind] for attachment in attachments))
    return f"(I cannot open {kinds}, so I have not looked at {', '.join(named)}{more}.)"


def _named(attachment: Attachment) -> str:
    kind = "voice note" if attachment.kind == "voice" else attachment.kind
    return f"the {kind} “{attachment.name}”" if attachment.name else f"the {kind}"


STEP = "attachment"
"""The name of the step, and what the artifact says of who has made it."""
HEAD = 2_000
"""Characters of a file that the model is shown."""
AT_ONCE = 16
UNDER_WAY = 32_000_000
"""Files under way at the same time, of all chats, and what they may have together: each takes some times its bytes of
memory.
"""
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_MOMENT = 10
"""The characters of a ULID that say when it was made."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`most` bytes of text in a file, `packed` bytes of one whose text is a part of it, `count` files of a message, `seconds` for
    all files of a message.
    """

    most: int = 1_000_000
    packed: int = 5_000_000
    count: int = 5
    seconds: float = 45.0


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a message; `name` is the id of its artifact and of its step."""

    inbound: Inbound
    attachment: Attachment
    name: str


class Memory(Protocol):
    """True where memory is too short for files (`bot.rss_monitor.RssMonitor`)."""

    @property
    def full(self) -> bool: ...


class FileReader:
    """Reads the files of messages, unless memory is short."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        *,
        steps: Steps,
        artifacts: Artifacts,
        redact: Redact,
        memory: Memory,
        clock: Clock,
        log: Log,
        limits: Limits = Limits(),
    ) -> None:
        self._channels = channels
        self._manifests = manifests
        self._steps = steps
        self._artifacts = artifacts
        self._redact = redact
        self._memory = memory
        self._clock = clock
        self._log = log
        self._limits = limits
        self._largest = max(limits.most, limits.packed)
        self._room = asyncio.Semaphore(max(1, min(AT_ONCE, UNDER_WAY // self._largest)))

    @property
    def full(self) -> bool:
        """True where memory is too short for any file."""
        return self._memory.full

    async def read(self, inbound: Inbound) -> tuple[SeenFile, ...]:
        """The outcome of each file of a message, in their order."""
        files, limits = inbound.attachments, self._limits
        text_at = [at for at, one in enumerate(files) if may_hold_text(one)]
        if not limits.count or not self._manifests[inbound.channel].files:
            text_at = []
        known = await self._known(inbound.request_id) if text_at else {}
        full = self._refused(inbound) if not known else any(one.refused for one in known.values())
        seen = [REFUSED if full else SeenFile() for _ in files]
        deadline = asyncio.get_running_loop().time() + limits.seconds
        for number, at in enumerate(text_at, 1):
            file = _File(inbound, files[at], artifact_id(inbound.request_id, at, files[at]))
            more = SeenFile(why=f"only {limits.count} files of a message are read")
            unfetched = REFUSED if full else more if number > limits.count else None
            seen[at] = await self._one(file, known.get(file.name), unfetched, deadline)
        return tuple(seen)

    def _refused(self, inbound: Inbound) -> bool:
        if not inbound.attachments or not self.full:
            return False
        self._log.write(
            "memory", "memory is short: files were refused", level="warn", files=len(inbound.attachments)
        )
        return True

    async def forget(self, inbound: Inbound) -> None:
        """Let go what was kept of a message's files."""
        try:
            await self._artifacts.forget(inbound.chat_key, (inbound.request_id,))
        except errors.StorageError as error:
            self._log.write("error", "a removed file is still kept", level="error", cause=str(error))

    # ------------------------------------------------------------ one file

    async def _one(
        self, file: _File, known: SeenFile | None, unfetched: SeenFile | None, deadline: float
    ) -> SeenFile:
        """Read one file. `known` is what became of it before a restart, `unfetched` what becomes of one that is not fetched."""
        if known is not None and known.artifact is None:
            return known
        if (kept := await self._kept(file)) is not None:
            return kept
        if known is not None:
            return SeenFile(why=errors.FileGone.why)  # what was kept of it has gone since
        began = self._clock.monotonic()
        seen = unfetched or await self._fetched(file, deadline)
        await self._record(file, self._clock.monotonic() - began, seen)
        return seen

    async def _fetched(self, file: _File, deadline: float) -> SeenFile:
        """Fetch a file, keep its text, and look at what is kept."""
        decoder = Decoder(self._limits.most)
        try:
            async with asyncio.timeout_at(deadline), self._room:
                await self._fetch(file, decoder)
                await self._keep(decoder, file)
        except NoText as error:
            self._write("a file holds no text", file, level="info", cause=error.why or None)
            return SeenFile(why=error.why)
        except errors.FileTooLarge as error:
            self._write("a file is too large", file, cause=str(error))
            return SeenFile(why=f"it is larger than {size_in_words(self._most(decoder))}")
        except (errors.FileFailed, errors.StorageError, TimeoutError) as error:
            self._write("a file was not read", file, cause=f"{type(error).__name__}: {error}")
            return SeenFile(
                why=error.why if isinstance(error, errors.FileFailed) else errors.FileUnreachable.why
            )
        self._write("a file was read", file, level="info")
        return await self._kept(file) or SeenFile(why=errors.FileFailed.why)

    async def _fetch(self, file: _File, decoder: Decoder) -> None:
        """Hand the bytes of a file on. What it is shows in its first piece, so of one that holds no text there is no more."""
        # Its manifest says that it is one.
        channel, size = cast("Files", self._channels[file.inbound.channel]), file.attachment.size or 0
        async with contextlib.aclosing(channel.fetch(file.attachment, most=self._largest)) as pieces:
            async for piece in pieces:
                decoder.take(piece)
                if max(size, decoder.size) > self._most(decoder):
                    raise errors.FileTooLarge(f"it has {max(size, decoder.size)} bytes")

    def _most(self, decoder: Decoder) -> int:
        return self._limits.packed if decoder.packed else self._limits.most

    async def _keep(self, decoder: Decoder, file: _File) -> None:
        """Put a text away without our secrets. Interrupted, it is done before anything else is: a removal finds it."""
        clean = await asyncio.to_thread(lambda: self._redact(text.clean(decoder.end())))
        putting = asyncio.ensure_future(
            self._artifacts.put(
                clean,
                chat_key=file.inbound.chat_key,
                request_id=file.inbound.request_id,
                tool=STEP,
                tool_use_id=file.name,
                artifact_id=file.name,
            )
        )
        try:
            await asyncio.shield(putting)
        except asyncio.CancelledError:
            await asyncio.wait([putting])
            raise

    async def _kept(self, file: _File) -> SeenFile | None:
        """The part of a file that is kept; None where nothing is."""
        try:
            page = await self._artifacts.read(file.name, file.inbound.chat_key, offset=0, limit=HEAD)
        except (errors.ToolError, errors.StorageError):
            return None
        return SeenFile(file.name, page.characters, page.lines, page.text)

    # ------------------------------------------------------------ what is on file

    async def _known(self, request_id: str) -> dict[str, SeenFile]:
        """The outcome of files of a message from before."""
        try:
            steps = await self._steps.steps(request_id)
        except errors.StorageError as error:
            self._log.write("error", "what is on file cannot be read", level="error", cause=str(error))
            return {}
        return {step.id: _recorded(step.id, step.result or {}) for step in steps if step.name == STEP}

    async def _record(self, file: _File, took: float, seen: SeenFile) -> None:
        refused = {"refused": True} if seen.refused else {}
        result = {"read": True} if seen.artifact is not None else {"read": False, "why": seen.why} | refused
        now = self._clock.now()
        step = StepRecord(file.inbound.request_id, file.name, "tool", STEP, now - took, now, result)
        try:
            await self._steps.begin_step(step)
        except errors.StorageError as error:
            self._log.write("error", "a step could not be recorded", level="error", cause=str(error))

    def _write(self, message: str, file: _File, *, level: Level = "warn", cause: str | None = None) -> None:
        self._log.write(
            "file",
            message,
            level=level,
            chat_key=file.inbound.chat_key,
            request_id=file.inbound.request_id,
            channel=file.inbound.channel,
            message_id=file.inbound.message_id,
            artifact=file.name,
            ref=file.attachment.ref,
            size=file.attachment.size,
            cause=cause,
        )


def artifact_id(request_id: str, at: int, attachment: Attachment) -> str:
    """The id of a file's artifact: a ULID of the moment of its message, always the same."""
    number = int.from_bytes(hashlib.sha256(f"{request_id} {at} {attachment.ref}".encode()).digest()[:_MOMENT])
    tail = "".join(_CROCKFORD[number >> shift & 31] for shift in range(75, -1, -5))
    return request_id[:_MOMENT] + tail


def size_in_words(size: int) -> str:
    """A number of bytes for people."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000_000:.3g} MB" if size >= 1_000_000 else f"{size / 1_000:.3g} kB"


def _recorded(name: str, result: Json) -> SeenFile:
    """The outcome that a step tells; of a file that was read, its name alone."""
    if result.get("read"):
        return SeenFile(name)
    why = str(result.get("why") or "")
    # Steps of earlier versions say it by the sentence alone.
    return SeenFile(why=why, refused=bool(result.get("refused")) or why == "memory was short")
