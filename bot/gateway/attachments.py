"""Files that people send: what of them holds text becomes an artifact, and its beginning goes to the model; pictures are shown to it.

A file has its artifact under an id that follows from its message, and what became of it is a step of that message. So after
a crash nothing is fetched again, and the model is told the same. What was not read is said below the next answer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast, get_args

from bot import errors, text, ulids
from bot.contracts.artifacts import ArtifactPage, Artifacts
from bot.contracts.base import Json, Level
from bot.contracts.channel import Channel, Files, Manifest
from bot.contracts.environment import Clock, Log, Redact, storage_errors_logged
from bot.contracts.inbound import Attachment, Inbound, SeenFile, ShownFile
from bot.contracts.journal import StepRecord, Steps
from bot.contracts.model import Transcriber
from bot.documents import pdf
from bot.documents.decoder import Decoder
from bot.documents.pictures import LARGEST, fitting, picture_of
from bot.words import paragraph, say

GONE = SeenFile(why=errors.FileGone.why, code="gone")
REFUSED = SeenFile(why="memory was short", refused=True, code="memory")
"""A file of a message of which nothing was fetched."""
UNSEEN = SeenFile(why="the provider refuses it", code="unseen")
UNSEEN_BY_MODEL = SeenFile(why="the model sees no files", code="blind")
NAMED = 10
"""So many of them are named: an album has no more."""


def unseen(attachments: Sequence[Attachment], *, full: bool, log: Log) -> str:
    """The sentence about files that were not looked at; "" where nothing came along. While memory is `full`, none is
    taken.
    """
    if attachments and full:
        log.write("memory", "memory is short: files were refused", level="warn", files=len(attachments))
        return say("files.no_room")
    return cannot_open(attachments)


def unread(attachments: Sequence[Attachment], seen: Sequence[SeenFile]) -> str:
    """The sentence about the files of a message that were not read; "" where all were, or nothing came along."""
    if any(one.refused for one in seen):
        return say("files.no_room")
    both = list(zip(attachments, seen, strict=True))
    failed = [
        say("files.unread_one", file=_named(file), reason=_reason(one)) for file, one in both if one.why
    ]
    words = say("files.unread", files=_listed(failed)) if failed else ""
    never = cannot_open([file for file, one in both if not one.read and not one.why])
    return "\n".join(filter(None, (words, never)))


def cannot_open(attachments: Sequence[Attachment]) -> str:
    """A line that names them, but for voice notes, for which there is another; "" where nothing came along."""
    if not attachments:
        return ""
    kinds: dict[str, list[str]] = {}
    for attachment in attachments:
        kinds.setdefault(attachment.kind, []).append(_named(attachment))
    return paragraph(
        *(
            say(f"files.cannot_{kind}", count=len(named), names=_listed(named))
            for kind, named in kinds.items()
        )
    )


def _listed(named: Sequence[str]) -> str:
    first = ", ".join(named[:NAMED])
    return say("files.more", names=first, count=len(named) - NAMED) if len(named) > NAMED else first


def _named(attachment: Attachment) -> str:
    return f"“{attachment.name}”" if attachment.name else say("files.nameless")


def _reason(seen: SeenFile) -> str:
    """The reason why a file was not read, for people."""
    if not seen.code:
        return seen.why
    return say(f"files.why_{seen.code}", count=seen.limit, size=size_in_words(seen.limit))


STEP = "attachment"
"""The name of the step, and what the artifact says of who has made it."""
HEAD = 2_000
"""Characters of a file that the model is shown."""
SILENCE = "nothing is said in it"
SECRETIVE = "it holds one of my own secrets"
TOGETHER = 10_000_000
"""Bytes of the pictures and PDFs of one message."""
_AT_ONCE = 262_144
_OVERLAP = 4_096
"""Bytes of a picture in which secrets are looked for at once, and those of the next that are looked at with them."""
AT_ONCE = 16
UNDER_WAY = 64_000_000
"""Files under way at the same time, of all chats, and what they may have together: each takes some times its bytes of
memory.
"""
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
    pictures: bool = True
    """True where pictures are shown to the model."""
    pages: int = 20
    """Pages of a PDF that is shown to it."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a message; `name` is the id of the artifact with its text and of its step."""

    inbound: Inbound
    attachment: Attachment
    name: str
    picture: str
    """The id of the artifact with its bytes, where it is a picture."""


class RssMonitor(Protocol):
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
        rss_monitor: RssMonitor,
        clock: Clock,
        log: Log,
        limits: Limits = Limits(),
        transcriber: Transcriber | None = None,
    ) -> None:
        self._channels = channels
        self._manifests = manifests
        self._steps = steps
        self._artifacts = artifacts
        self._redact = redact
        self._rss_monitor = rss_monitor
        self._clock = clock
        self._log = log
        self._limits = limits
        self._transcriber = transcriber
        self._largest = max(limits.most, limits.packed, LARGEST)
        self._room = asyncio.Semaphore(max(1, min(AT_ONCE, UNDER_WAY // self._largest)))

    @property
    def full(self) -> bool:
        """True where memory is too short for any file."""
        return self._rss_monitor.full

    async def read(self, inbound: Inbound) -> tuple[SeenFile, ...]:
        """The outcome of each file of a message, in their order."""
        files, limits = inbound.attachments, self._limits
        text_at = [at for at, one in enumerate(files) if one.may_be_read and self._heard(one)]
        if not limits.count or not self._manifests[inbound.channel].files:
            text_at = []
        known = await self._earlier_outcomes(inbound.request_id) if text_at else {}
        full = self._refused(inbound) if not known else any(one.refused for one in known.values())
        seen = [REFUSED if full else SeenFile() for _ in files]
        deadline = asyncio.get_running_loop().time() + limits.seconds
        for number, at in enumerate(text_at, 1):
            name, picture = (artifact_id(inbound.request_id, at, files[at], kind) for kind in ("", "shown"))
            file = _File(inbound, files[at], name, picture)
            why = f"only {limits.count} files of a message are read"
            more = SeenFile(why=why, code="many", limit=limits.count)
            unfetched = REFUSED if full else more if number > limits.count else None
            room = TOGETHER - sum(one.shown.size for one in seen if one.shown is not None)
            seen[at] = await self._one(file, known.get(file.name), unfetched, deadline, room)
        return tuple(seen)

    def _heard(self, attachment: Attachment) -> bool:
        """True of what need not be heard, and of a recording where somebody hears it."""
        return not attachment.spoken or self._transcriber is not None

    def _refused(self, inbound: Inbound) -> bool:
        if not inbound.attachments or not self.full:
            return False
        self._log.write(
            "memory", "memory is short: files were refused", level="warn", files=len(inbound.attachments)
        )
        return True

    async def forget(self, inbound: Inbound) -> None:
        """Let go what was kept of a message's files."""
        with storage_errors_logged(self._log, "a removed file is still kept"):
            await self._artifacts.forget(inbound.chat_key, (inbound.request_id,))

    # ------------------------------------------------------------ one file

    async def _one(
        self, file: _File, known: SeenFile | None, unfetched: SeenFile | None, deadline: float, room: int
    ) -> SeenFile:
        """Read one file. `known` is what became of it before a restart, `unfetched` what becomes of one that is not fetched,
        `room` the bytes of pictures that the message may still have.
        """
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

    async def _fetched(self, file: _File, deadline: float, room: int) -> SeenFile:
        """Fetch a file, keep its text or the picture that it is, and look at what is kept."""
        decoder = Decoder(self._limits.most, spoken=file.attachment.spoken)
        try:
            async with asyncio.timeout_at(deadline), self._room:
                await self._fetch(file, decoder)
                shown = await self._keep(decoder, file, room)
        except errors.NoReadableText as error:
            self._write("a file holds no text", file, level="info", cause=error.why or None)
            return SeenFile(why=error.why, code=error.code, limit=error.limit)
        except errors.FileTooLarge as error:
            self._write("a file is too large", file, cause=str(error))
            most = self._most(decoder)
            return SeenFile(why=f"it is larger than {size_in_words(most)}", code="size", limit=most)
        except (errors.FileFailed, errors.StorageError, TimeoutError) as error:
            self._write("a file was not read", file, cause=f"{type(error).__name__}: {error}")
            failed = error if isinstance(error, errors.FileFailed) else errors.FileUnreachable()
            return SeenFile(why=failed.why, code=failed.code)
        self._write("a file was read", file, level="info")
        kept = await self._kept(file)
        if kept is None and shown is None:
            return SeenFile(why=errors.FileFailed.why, code="failed")
        return dataclasses.replace(kept or SeenFile(), shown=shown)

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
        if decoder.pictured:
            return LARGEST
        packed = decoder.packed or decoder.documented or decoder.sound is not None
        return self._limits.packed if packed else self._limits.most

    async def _keep(self, decoder: Decoder, file: _File, room: int) -> ShownFile | None:
        """Put a text away without our secrets, or a picture that has none of them."""
        if decoder.pictured:
            return await self._keep_picture(decoder.data, file, room)
        if decoder.documented:
            return await self._keep_pdf(decoder.data, file, room)
        if self._transcriber is not None and (kind := decoder.sound) is not None:
            said = text.clean(await self._transcriber.transcribe(decoder.data, kind)).strip()
            if not said:
                raise errors.NoReadableText(SILENCE, "silence")
            await self._put(await asyncio.to_thread(self._redact, said), file, file.name)
            return None
        await self._put(
            await asyncio.to_thread(lambda: self._redact(text.clean(decoder.end()))), file, file.name
        )
        return None

    async def _keep_pdf(self, data: bytes, file: _File, room: int) -> ShownFile | None:
        """Put the text of a PDF away; one that is short is shown too. Raises `errors.NoReadableText` where it would be neither."""
        found = await pdf.read(data, self._limits.most)
        words = await asyncio.to_thread(lambda: self._redact(text.clean(found.text)))
        fits = found.pages <= self._limits.pages and len(data) <= min(room, pdf.SHOWN_BYTES)
        # Its text is packed: a secret in it shows only here.
        clean = words == found.text and await asyncio.to_thread(self._clean, data)
        if not words.strip() and not (fits and clean):
            raise (
                errors.NoReadableText(SECRETIVE, "secret")
                if fits
                else errors.NoReadableText(
                    f"it has {found.pages} pages and no text that could be read", "pages", found.pages
                )
            )
        shown = await self._shown(file, data, "application/pdf", found.tokens) if fits and clean else None
        if words.strip():
            await self._put(words, file, file.name)
        return shown

    async def _shown(self, file: _File, data: bytes, kind: str, tokens: int) -> ShownFile:
        await self._put(base64.b64encode(data).decode(), file, file.picture)
        return ShownFile(file.picture, kind, len(data), tokens)

    async def _keep_picture(self, data: bytes, file: _File, room: int) -> ShownFile:
        """Keep a picture as it can be shown. Raises `errors.NoReadableText`."""
        if not self._limits.pictures:
            raise errors.NoReadableText
        data = await fitting(data, room)
        picture = picture_of(data)
        if picture is None:
            raise errors.NoReadableText
        if len(data) > room:
            raise errors.NoReadableText(
                f"the pictures of one message may have {size_in_words(TOGETHER)} together",
                "pictures",
                TOGETHER,
            )
        if not await asyncio.to_thread(self._clean, data):
            raise errors.NoReadableText(SECRETIVE, "secret")
        return await self._shown(file, data, picture.type, picture.tokens)

    def _clean(self, data: bytes) -> bool:
        """True if bytes hold no secret of ours, as what a file says beside what it shows may."""
        pieces = (
            data[at : at + _AT_ONCE + _OVERLAP].decode("latin-1") for at in range(0, len(data), _AT_ONCE)
        )
        return all(self._redact(words) == words for words in pieces)

    async def _put(self, words: str, file: _File, name: str) -> None:
        await self._artifacts.put(
            words,
            chat_key=file.inbound.chat_key,
            request_id=file.inbound.request_id,
            tool=STEP,
            tool_use_id=file.name,
            artifact_id=name,
        )

    async def _kept(self, file: _File) -> SeenFile | None:
        """The part of a file's text that is kept; None where nothing is."""
        page = await self._page(file, file.name)
        return SeenFile(file.name, page.characters, page.lines, page.text) if page is not None else None

    async def _page(self, file: _File, artifact: str) -> ArtifactPage | None:
        try:
            return await self._artifacts.read(artifact, file.inbound.chat_key, offset=0, limit=HEAD)
        except (errors.ToolError, errors.StorageError):
            return None

    # ------------------------------------------------------------ what is on file

    async def _earlier_outcomes(self, request_id: str) -> dict[str, SeenFile]:
        """The outcome of files of a message from before."""
        try:
            steps = await self._steps.steps(request_id)
        except errors.StorageError as error:
            self._log.write("error", "what is on file cannot be read", level="error", cause=str(error))
            return {}
        return {step.id: _recorded(step.id, step.result or {}) for step in steps if step.name == STEP}

    async def _record(self, file: _File, took: float, seen: SeenFile) -> None:
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


def artifact_id(request_id: str, at: int, attachment: Attachment, kind: str = "") -> str:
    """The id of a file's artifact of a kind: a ULID of the moment of its message, always the same."""
    named = f"{request_id} {at} {attachment.ref}{kind and ' '}{kind}"
    number = int.from_bytes(hashlib.sha256(named.encode()).digest()[:_MOMENT])
    return request_id[:_MOMENT] + ulids.written(number)[_MOMENT:]


def size_in_words(size: int) -> str:
    """A number of bytes for people."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000_000:.3g} MB" if size >= 1_000_000 else f"{size / 1_000:.3g} kB"


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
