"""Reads attached files. Text becomes an artifact and the model sees its beginning; the model is shown
pictures directly.

An artifact's id is derived from its message, so a fetch that a crash interrupted is repeated under the same
id. Files that could not be read are listed below the next answer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from bot import errors, text, ulids
from bot.contracts.base import Level
from bot.contracts.channel import Channel, Files, Manifest
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.inbound import Attachment, Inbound
from bot.contracts.model import ShownFile, Transcriber
from bot.core.file_words import REFUSED, SeenFile, size_in_words
from bot.documents import parser_process
from bot.documents.decoder import Decoder
from bot.documents.pictures import LARGEST, fitting
from bot.picture_head import picture_of
from bot.storage.artifacts import ArtifactPage, ArtifactStore

STEP = "attachment"
"""Value of `tool` in the metadata of artifacts that hold attached files."""
HEAD = 2_000
"""Max characters of a file shown to the model."""
SILENCE = "nothing is said in it"
SECRETIVE = "it holds one of my own secrets"
TOGETHER = 10_000_000
"""Max total bytes of the pictures and PDFs of one message."""
_AT_ONCE = 262_144
_OVERLAP = 4_096
"""Bytes by which consecutive chunks of a picture overlap, so that a secret on their border is found."""
AT_ONCE = 16
UNDER_WAY = 64_000_000
"""Max total bytes of files that are being read in all chats; each file takes several times its size in memory."""
_MOMENT = 10
"""Characters of a ULID that encode its time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for attached files: `most` bytes of text in a file, `packed` bytes of a container format,
    `count` files per message, `seconds` for all files of a message.
    """

    most: int = 1_000_000
    packed: int = 5_000_000
    count: int = 5
    seconds: float = 45.0
    pictures: bool = True
    """True if pictures are shown to the model."""
    pages: int = 20
    """Max pages of a PDF shown to the model."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file of a message. `name` is the artifact id of the file's text."""

    inbound: Inbound
    attachment: Attachment
    name: str
    picture: str
    """Artifact id of the file's bytes if the file is a picture."""


class RssMonitor(Protocol):
    """Reports whether too little memory is free to read files (`bot.rss_monitor.RssMonitor`)."""

    @property
    def full(self) -> bool: ...


class FileReader:
    """Reads the attached files of messages."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        *,
        artifacts: ArtifactStore,
        redact: Redact,
        rss_monitor: RssMonitor,
        clock: Clock,
        log: Log,
        limits: Limits = Limits(),
        transcriber: Transcriber | None = None,
    ) -> None:
        self._channels = channels
        self._manifests = manifests
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
        """Return True if too little memory is free to read any file."""
        return self._rss_monitor.full

    async def read(self, inbound: Inbound) -> tuple[SeenFile, ...]:
        """Return the outcome of each file of a message, in order."""
        files, limits = inbound.attachments, self._limits
        text_at = [at for at, one in enumerate(files) if one.may_be_read and self._heard(one)]
        if not limits.count or not self._manifests[inbound.channel].files:
            text_at = []
        full = self._refused(inbound)
        seen = [REFUSED if full else SeenFile() for _ in files]
        deadline = asyncio.get_running_loop().time() + limits.seconds
        for number, at in enumerate(text_at, 1):
            name, picture = (artifact_id(inbound.request_id, at, files[at], kind) for kind in ("", "shown"))
            file = SentFile(inbound, files[at], name, picture)
            why = f"only {limits.count} files of a message are read"
            more = SeenFile(why=why, code="many", limit=limits.count)
            unfetched = REFUSED if full else more if number > limits.count else None
            room = TOGETHER - sum(one.shown.size for one in seen if one.shown is not None)
            seen[at] = await self._one(file, unfetched, deadline, room)
        return tuple(seen)

    def _heard(self, attachment: Attachment) -> bool:
        """Return True unless the attachment is a recording that cannot be transcribed."""
        return not attachment.spoken or self._transcriber is not None

    def _refused(self, inbound: Inbound) -> bool:
        if not inbound.attachments or not self.full:
            return False
        self._log.write(
            "memory", "memory is short: files were refused", level="warn", files=len(inbound.attachments)
        )
        return True

    async def forget(self, inbound: Inbound) -> None:
        """Delete the artifacts of a message's files."""
        try:
            await self._artifacts.forget(inbound.chat_key, (inbound.request_id,))
        except errors.StorageError as error:
            self._log.write("error", "a removed file is still kept", level="error", cause=str(error))

    # ------------------------------------------------------------ one file

    async def _one(self, file: SentFile, unfetched: SeenFile | None, deadline: float, room: int) -> SeenFile:
        """Return the outcome of reading one file. `unfetched` is the outcome if the file is not fetched,
        `room` the number of bytes left for the message's pictures.
        """
        return unfetched or await self._fetched(file, deadline, room)

    async def _fetched(self, file: SentFile, deadline: float, room: int) -> SeenFile:
        """Fetch a file, store its text or picture, and return the outcome."""
        decoder = Decoder(spoken=file.attachment.spoken)
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

    async def _fetch(self, file: SentFile, decoder: Decoder) -> None:
        """Stream a file's bytes to the decoder. The first chunk reveals the file type, so a file without
        text is not read further.
        """
        # The declared type guarantees that the channel can fetch files.
        channel, size = cast("Files", self._channels[file.inbound.channel]), file.attachment.size or 0
        async with contextlib.aclosing(channel.fetch(file.attachment, most=self._largest)) as pieces:
            async for piece in pieces:
                decoder.take(piece)
                if max(size, decoder.size) > self._most(decoder):
                    raise errors.FileTooLarge(f"it has {max(size, decoder.size)} bytes")

    def _most(self, decoder: Decoder) -> int:
        if decoder.kind == "picture":
            return LARGEST
        return self._limits.most if decoder.kind == "text" else self._limits.packed

    async def _keep(self, decoder: Decoder, file: SentFile, room: int) -> ShownFile | None:
        """Store a text with secrets redacted, or a picture that contains no secret."""
        if decoder.kind == "picture":
            return await self._keep_picture(decoder.data, file, room)
        if decoder.kind == "pdf":
            return await self._keep_pdf(decoder.data, file, room)
        if decoder.kind == "recording":
            if self._transcriber is None:
                raise errors.NoReadableText
            words = await self._transcriber.transcribe(decoder.data, decoder.recording_type())
            words = text.clean(words).strip()
            if not words:
                raise errors.NoReadableText(SILENCE, "silence")
        elif decoder.kind == "office":
            words = await parser_process.read_office(decoder.data, self._limits.most)
        else:
            words = await asyncio.to_thread(decoder.text)
        clean = await asyncio.to_thread(lambda: self._redact(text.clean(words)))
        await self._put(clean, file, file.name)
        return None

    async def _keep_pdf(self, data: bytes, file: SentFile, room: int) -> ShownFile | None:
        """Store the text of a PDF. A short PDF is shown to the model as well. Raises `errors.NoReadableText`
        if neither is possible.
        """
        found = await parser_process.read_pdf(data, self._limits.most)
        words = await asyncio.to_thread(lambda: self._redact(text.clean(found.text)))
        fits = found.pages <= self._limits.pages and len(data) <= min(room, parser_process.PDF_BYTES)
        # Text in a PDF is compressed, so secrets are found only after extraction.
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

    async def _shown(self, file: SentFile, data: bytes, kind: str, tokens: int) -> ShownFile:
        await self._put(base64.b64encode(data).decode(), file, file.picture)
        return ShownFile(file.picture, kind, len(data), tokens)

    async def _keep_picture(self, data: bytes, file: SentFile, room: int) -> ShownFile:
        """Store a picture in a form that the model can be shown. Raises `errors.NoReadableText`."""
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
        """Return True if the bytes contain none of our secrets; a picture's metadata could contain one."""
        pieces = (
            data[at : at + _AT_ONCE + _OVERLAP].decode("latin-1") for at in range(0, len(data), _AT_ONCE)
        )
        return all(self._redact(words) == words for words in pieces)

    async def _put(self, words: str, file: SentFile, name: str) -> None:
        await self._artifacts.put(
            words,
            chat_key=file.inbound.chat_key,
            request_id=file.inbound.request_id,
            tool=STEP,
            tool_use_id=file.name,
            artifact_id=name,
        )

    async def _kept(self, file: SentFile) -> SeenFile | None:
        """Return the stored text of a file and its metadata; None if no text was stored."""
        page = await self._page(file, file.name)
        return SeenFile(file.name, page.characters, page.lines, page.text) if page is not None else None

    async def _page(self, file: SentFile, artifact: str) -> ArtifactPage | None:
        try:
            return await self._artifacts.read(artifact, file.inbound.chat_key, offset=0, limit=HEAD)
        except (errors.ToolError, errors.StorageError):
            return None

    def _write(
        self, message: str, file: SentFile, *, level: Level = "warn", cause: str | None = None
    ) -> None:
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
    """Return the artifact id of a file: a ULID with the message's time that is always the same for the same
    message, position and kind.
    """
    named = f"{request_id} {at} {attachment.ref}{kind and ' '}{kind}"
    number = int.from_bytes(hashlib.sha256(named.encode()).digest()[:_MOMENT])
    return request_id[:_MOMENT] + ulids.written(number)[_MOMENT:]
