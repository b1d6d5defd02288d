"""Files of messages. `FileReader` reads the files that people attach, and stores their text as artifacts. `OutgoingFiles`
stores the files that outbox rows will send.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import functools
import hashlib
import re
import unicodedata
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from bot import documents, errors, text
from bot.contracts.messages import REFUSED, Attachment, Inbound, OutgoingFile, SeenFile
from bot.contracts.model import ShownFile
from bot.core.chats import Chats
from bot.core.events import StoredFile
from bot.core.services import Services
from bot.documents import LARGEST, FileType
from bot.llm.transcription import HttpTranscriber
from bot.picture_head import picture_of
from bot.resources import RssMonitor
from bot.system import ulid_of
from bot.words import paragraph, say

STEP = "attachment"  # Value of `tool` in the metadata of artifacts that hold attached files
HEAD = 2_000  # Max characters that the model is shown from the beginning of a file's text
SILENCE = "nothing is said in it"
SECRETIVE = "it holds one of my own secrets"
TOGETHER = 10_000_000  # Max total bytes of pictures and PDFs that the model sees of one message
_AT_ONCE = 262_144
_OVERLAP = 4_096
"""Bytes that two consecutive chunks of a file share, so that a secret that crosses the border is found."""
READ_SECONDS = 45.0  # Timeout in seconds for reading all files of one message
AT_ONCE = 16
UNDER_WAY = 64_000_000
"""Max total bytes of files that are read at the same time, in all chats. Reading a file needs several times its size in memory."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file of a message. `name` is the artifact id for its text, `picture` the artifact id for the bytes shown to the
    model. `room` is the number of bytes left for the message's pictures and PDFs.
    """

    inbound: Inbound
    attachment: Attachment
    name: str
    picture: str
    room: int


class FileReader:
    """Reads the files attached to messages. The model gets the beginning of a file's text. It gets pictures and short PDFs as
    files. An artifact's id is derived from its message, so a read that a crash interrupted is repeated with the same id.
    """

    def __init__(self, services: Services, rss_monitor: RssMonitor) -> None:
        self._services = services
        self._limits = limits = services.settings.files
        speech = limits.transcription
        self._transcriber: HttpTranscriber | None = None
        if speech.base_url is not None:
            self._transcriber = HttpTranscriber(speech.base_url, speech.model, speech.api_key)
        self._rss_monitor = rss_monitor
        self._largest = max(limits.max_bytes, limits.max_packed_bytes, LARGEST)
        self._room = asyncio.Semaphore(max(1, min(AT_ONCE, UNDER_WAY // self._largest)))

    async def read(self, inbound: Inbound) -> tuple[SeenFile, ...]:
        """Return the result of reading each file of a message, in the message's order."""
        files, limits = inbound.attachments, self._limits
        if files and self._rss_monitor.full:
            self._services.log.write(
                "memory", "memory is short: files were refused", level="warn", files=len(files)
            )
            return (REFUSED,) * len(files)
        seen, number, room = list[SeenFile](), 0, TOGETHER
        deadline = asyncio.get_running_loop().time() + READ_SECONDS
        can_fetch = limits.per_message > 0 and self._services.manifests[inbound.channel].files
        for at, one in enumerate(files):
            if not (can_fetch and one.may_be_read and (self._transcriber is not None or not one.spoken)):
                seen.append(SeenFile())
                continue
            number += 1
            if number > limits.per_message:
                why = f"only {limits.per_message} files of a message are read"
                seen.append(SeenFile(why=why, code="many", limit=limits.per_message))
                continue
            name, picture = (artifact_id(inbound.request_id, at, one, kind) for kind in ("", "shown"))
            outcome = await self._read(SentFile(inbound, one, name, picture, room), deadline)
            room -= outcome.shown.size if outcome.shown is not None else 0
            seen.append(outcome)
        return tuple(seen)

    async def forget(self, inbound: Inbound) -> None:
        try:
            await self._services.artifacts.forget(inbound.chat_key, (inbound.request_id,))
        except errors.StorageError as error:
            self._services.log.write("error", "a removed file is still kept", level="error", cause=str(error))

    async def _read(self, file: SentFile, deadline: float) -> SeenFile:
        message, cause = "a file was read", ""
        try:
            async with asyncio.timeout_at(deadline), self._room:
                seen = await self._keep(await self._fetch(file), file)
        except errors.NoReadableText as error:
            message, cause = "a file holds no text", error.why
            seen = SeenFile(why=error.why, code=error.code, limit=error.limit)
        except errors.FileTooLarge as error:
            most = self._limits.max_bytes
            message, cause = "a file is too large", str(error)
            seen = SeenFile(why=f"it is larger than {size_in_words(most)}", code="size", limit=most)
        except (errors.FileFailed, errors.StorageError, TimeoutError) as error:
            message, cause = "a file was not read", f"{type(error).__name__}: {error}"
            failed = error if isinstance(error, errors.FileFailed) else errors.FileUnreachable()
            seen = SeenFile(why=failed.why, code=failed.code)
        self._services.log.write(
            "file",
            message,
            level="warn" if cause else "info",
            chat_key=file.inbound.chat_key,
            request_id=file.inbound.request_id,
            channel=file.inbound.channel,
            message_id=file.inbound.message_id,
            artifact=file.name,
            ref=file.attachment.ref,
            size=file.attachment.size,
            cause=cause or None,
        )
        return seen

    async def _fetch(self, file: SentFile) -> tuple[FileType, bytes]:
        data, size = bytearray(), file.attachment.size or 0
        kind: FileType = "recording" if file.attachment.spoken else "text"
        # `read` calls this only if the manifest says that the channel can fetch files.
        channel = self._services.channels[file.inbound.channel]
        async with contextlib.aclosing(channel.fetch(file.attachment, most=self._largest)) as pieces:
            async for piece in pieces:
                begins = len(data) < documents.SAMPLE
                data += piece
                if begins and kind != "recording":
                    kind = documents.type_of(bytes(data[:16]))
                    if kind == "text" and len(data) >= documents.SAMPLE:
                        documents.check_text(bytes(data[: documents.SAMPLE]))
                limits = {"text": self._limits.max_bytes, "picture": LARGEST}
                most = limits.get(kind, self._limits.max_packed_bytes)
                if max(size, len(data)) > most:
                    why = f"it is larger than {size_in_words(most)}"
                    raise errors.NoReadableText(why, "size", most)
        return kind, bytes(data)

    async def _keep(self, found: tuple[FileType, bytes], file: SentFile) -> SeenFile:
        (kind, data), artifacts, chat = found, self._services.artifacts, file.inbound.chat_key
        seen, words, shown = SeenFile(), "", None
        if kind == "picture":
            data, shown = await self._picture(data, file)
        elif kind == "pdf":
            words, shown = await self._pdf(data, file)
        else:
            words = await asyncio.to_thread(self._cleaned, await self._text(kind, data))
        put = functools.partial(artifacts.put, chat_key=chat, request_id=file.inbound.request_id, tool=STEP)
        if words.strip() or shown is None:
            await put(words, tool_use_id=file.name, artifact_id=file.name)
            page = await artifacts.read(file.name, chat, offset=0, limit=HEAD)
            seen = SeenFile(file.name, page.characters, page.lines, page.text)
        if shown is not None:
            packed = base64.b64encode(data).decode()
            await put(packed, tool_use_id=file.name, artifact_id=file.picture)
        return replace(seen, shown=shown)

    async def _text(self, kind: FileType, data: bytes) -> str:
        if kind == "recording" and self._transcriber is not None:
            said = await self._transcriber.transcribe(data, documents.recording_type(data))
            if words := text.clean(said).strip():
                return words
            raise errors.NoReadableText(SILENCE, "silence")
        if kind == "office":
            return await documents.read_office(data, self._limits.max_bytes)
        documents.check_text(data[: documents.SAMPLE])
        decoded = await asyncio.to_thread(documents.decode, data)
        if decoded is None:
            raise errors.NoReadableText
        return decoded

    async def _pdf(self, data: bytes, file: SentFile) -> tuple[str, ShownFile | None]:
        """Return the text of a PDF. The PDF itself is shown too if it is short and contains no secret. Raises
        `errors.NoReadableText` if the PDF has no text and cannot be shown.
        """
        found = await documents.read_pdf(data, self._limits.max_bytes)
        words = await asyncio.to_thread(self._cleaned, found.text)
        fits = found.pages <= self._limits.pdf_pages and len(data) <= min(file.room, documents.PDF_BYTES)
        # Text in a PDF is compressed, so secrets are found only after extraction.
        if fits and words == found.text and await asyncio.to_thread(self._is_clean, data):
            return words, ShownFile(file.picture, "application/pdf", len(data), found.tokens)
        if words.strip():
            return words, None
        if fits:
            raise errors.NoReadableText(SECRETIVE, "secret")
        why = f"it has {found.pages} pages and no text that could be read"
        raise errors.NoReadableText(why, "pages", found.pages)

    async def _picture(self, data: bytes, file: SentFile) -> tuple[bytes, ShownFile]:
        if not self._limits.pictures:
            raise errors.NoReadableText
        data = await documents.fitting(data, file.room)
        picture = picture_of(data)
        if picture is None:
            raise errors.NoReadableText
        if len(data) > file.room:
            why = f"the pictures of one message may have {size_in_words(TOGETHER)} together"
            raise errors.NoReadableText(why, "pictures", TOGETHER)
        if not await asyncio.to_thread(self._is_clean, data):
            raise errors.NoReadableText(SECRETIVE, "secret")
        return data, ShownFile(file.picture, picture.type, len(data), picture.tokens)

    def _cleaned(self, words: str) -> str:
        return self._services.redact(text.clean(words))

    def _is_clean(self, data: bytes) -> bool:
        """Return True if the bytes contain none of the bot's secrets. A picture's metadata could contain a secret."""
        pieces = (
            data[at : at + _AT_ONCE + _OVERLAP].decode("latin-1") for at in range(0, len(data), _AT_ONCE)
        )
        return all(self._services.redact(words) == words for words in pieces)


def artifact_id(request_id: str, at: int, attachment: Attachment, kind: str = "") -> str:
    """Return the artifact id for a file: a ULID with the message's time. Equal messages, positions and kinds give equal ids."""
    named = f"{request_id} {at} {attachment.ref}{kind and ' '}{kind}"
    digest = hashlib.sha256(named.encode()).digest()
    # The first ten characters of a ULID are its time.
    return request_id[:10] + ulid_of(int.from_bytes(digest[:10]))[10:]


# ------------------------------------------------------------ sentences for people

NAMED = 10
"""Max file names in one sentence. No album has more files."""


def unread(files: Iterable[tuple[Sequence[Attachment], Sequence[SeenFile]]]) -> str:
    """Return sentences that tell which files of several messages were not read; "" if all were read."""
    return "\n".join(filter(None, (_unread(attachments, seen) for attachments, seen in files)))


def _unread(attachments: Sequence[Attachment], seen: Sequence[SeenFile]) -> str:
    if any(one.refused for one in seen):
        return say("files.no_room")
    both = list(zip(attachments, seen, strict=True))
    failed = list[str]()
    for file, one in both:
        if one.why:
            size = size_in_words(one.limit)
            why = say(f"files.why_{one.code}", count=one.limit, size=size) if one.code else one.why
            failed.append(say("files.unread_one", file=_named(file), reason=why))
    never: dict[str, list[str]] = {}
    for file, one in both:
        if not one.read and not one.why:
            never.setdefault(file.kind, []).append(_named(file))
    kinds = [
        say(f"files.cannot_{kind}", count=len(named), names=_listed(named)) for kind, named in never.items()
    ]
    words = say("files.unread", files=_listed(failed)) if failed else ""
    return "\n".join(filter(None, (words, paragraph(*kinds) if kinds else "")))


def _listed(named: Sequence[str]) -> str:
    first = ", ".join(named[:NAMED])
    return say("files.more", names=first, count=len(named) - NAMED) if len(named) > NAMED else first


def _named(attachment: Attachment) -> str:
    return f"“{attachment.name}”" if attachment.name else say("files.nameless")


def size_in_words(size: int) -> str:
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000_000:.3g} MB" if size >= 1_000_000 else f"{size / 1_000:.3g} kB"


# ------------------------------------------------------------ files that are sent

LONGEST_NAME = 120  # Max characters of a file name that is sent to a platform
MOST_WAITING = 200_000_000  # Max total bytes of the files that wait to be sent
PIECE = 32_768
"""Number of bytes of a file that are searched for secrets at a time. The regex search of one piece blocks all Python threads."""
LONGEST_SECRET = 8_192
"""Number of bytes by which two searched pieces of a file overlap, so that no secret is split between them."""
_UNSAFE = re.compile(
    r'[\x00-\x1f\x7f-\x9f"\\/:*?<>|\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]'
)
"""Pattern of unsafe characters: they have a special meaning in paths or headers, or invisibly change the order of a text."""


def shown_name(name: str) -> str:
    """Return the name under which a file is sent. It has no unsafe characters and at most `LONGEST_NAME` characters. A
    shortened name keeps its extension.
    """
    name = _UNSAFE.sub("_", unicodedata.normalize("NFC", text.clean(name))).strip(" .")
    stem, dot, ending = name.rpartition(".")
    if len(name) > LONGEST_NAME and dot and len(ending) <= 20:
        return f"{text.head(stem, LONGEST_NAME - len(ending) - 1)}.{ending}"
    return text.head(name, LONGEST_NAME) or "file"


@dataclass(eq=False)
class OutgoingFiles:
    """Stores outgoing files in `.ship/outgoing`. A file's name is its SHA-256. A file is written to disk before its row is queued,
    and deleted once no outbox row refers to it. The disk is only used on worker threads, because it blocks.
    """

    services: Services
    chats: Chats

    def __post_init__(self) -> None:
        self.folder = self.services.settings.home / "outgoing"
        self._alone = asyncio.Lock()
        """Lock for storing files and queuing their rows, and for deleting a file that no row refers to."""
        self._started = False

    async def start(self) -> None:
        """Allow `sweep` to delete files. Call this after all chats with unsent rows are loaded."""
        self._started = True
        await self.sweep()

    async def check(self, channel: str, file: OutgoingFile) -> None:
        """Raise `errors.FileRefused` if a file has an invalid size or contains a secret, or if the channel cannot send files."""
        sender = self.services.channels[channel]
        if not sender.largest_file:
            raise errors.FileRefused("this chat cannot show files")
        most = min(self.services.settings.delivery.max_file_mb * 1_000_000, sender.largest_file)
        size = len(file.data)
        if not 0 < size <= most:
            raise errors.FileRefused(
                f"{file.name} has {size:,} bytes, and a file that is sent has 1 to {most:,}"
            )
        name, path = self.services.redact(file.name), self.services.redact(file.path)
        if (name, path) != (file.name, file.path) or await self._holds_secret(file.data):
            raise errors.FileRefused(f"{name} holds a secret of this installation")

    async def _holds_secret(self, data: bytes) -> bool:
        wide = {codecs.BOM_UTF16_LE: ["utf-16-le"], codecs.BOM_UTF16_BE: ["utf-16-be"]}.get(data[:2])

        def shows_secret(piece: bytes) -> bool:
            for encoding in wide or ("utf-8", "latin-1"):
                words = piece.decode(encoding, "replace")
                if self.services.redact(words) != words:
                    return True
                if (
                    "\ufffd" not in words[4:-4]
                ):  # ignore both ends, since a piece may begin or end inside a character
                    return False
            return False

        for begin in range(0, len(data), PIECE):
            if await asyncio.to_thread(shows_secret, data[begin : begin + PIECE + LONGEST_SECRET]):
                return True
        return False

    @contextlib.asynccontextmanager
    async def kept(self, files: Sequence[OutgoingFile]) -> AsyncIterator[list[StoredFile]]:
        """Store files, and keep them during the `with` block. The block queues the rows that refer to the files, and must not await
        anything. Raises `errors.FileRefused`.
        """
        found = [
            StoredFile(shown_name(one.name), one.mime_type, len(one.data), await _digest(one.data), one.path)
            for one in files
        ]
        if found and sum(self._sizes().values()) + sum(one.size for one in found) > MOST_WAITING:
            raise errors.FileRefused("too many files wait for their platforms")
        async with self._alone:
            try:
                for one, file in zip(found, files, strict=True):
                    await asyncio.to_thread(self.services.disk.replace, self.folder / one.sha256, file.data)
            except OSError as error:
                words = "a file cannot be kept for sending"
                self.services.log.write("storage", words, level="error", cause=str(error))
                raise errors.FileRefused("the disk does not take the file") from error
            yield found

    async def load(self, stored: StoredFile) -> OutgoingFile:
        """Return the stored file of an outbox row. Raises `errors.FileRefused` if the file is missing or damaged."""
        try:
            data = await asyncio.to_thread(self.services.disk.read, self.folder / stored.sha256)
        except OSError as error:
            raise errors.FileRefused(f"the kept file cannot be read: {error.strerror}") from error
        if await _digest(data) != stored.sha256:
            raise errors.FileRefused("the kept file is gone or damaged")
        return OutgoingFile(stored.name, stored.mime_type, data, stored.path)

    async def sweep(self) -> None:
        """Delete files that no outbox row refers to."""
        if not self._started:
            return
        try:
            for name in await asyncio.to_thread(self.services.disk.names, self.folder):
                async with self._alone:
                    if name not in self._sizes():
                        await asyncio.to_thread(self.services.disk.remove, self.folder / name)
        except OSError as error:
            self.services.log.write("storage", "a file that was sent stays", level="warn", cause=str(error))

    def _sizes(self) -> dict[str, int]:
        rows = (row for chat in self.chats for row in chat.outbox.values())
        return {row.file.sha256: row.file.size for row in rows if row.file is not None}


async def _digest(data: bytes) -> str:
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
