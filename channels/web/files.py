"""Stores the files of web chats: files that the bot sent (`.ship/sent`) and files that people uploaded (`.ship/received`). A
stored file `<chat>/<id>.bin` has a line of JSON before its bytes. All methods except `fetch` block and raise OSError.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from bot import errors
from bot.contracts.channel import FILE_PIECE
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Attachment, OutgoingFile
from bot.picture_head import picture_of
from channels.http_api import file_name
from channels.web.manifest import KEYS

SENT, RECEIVED = "sent", "received"
TOTAL = 500_000_000  # Max bytes of all files in a folder. The oldest files are removed first.
MOST, MOST_OF_CHAT = 10_000, 1_000
"""Max files in a folder, and max files of one chat. The limits keep the search for the oldest file fast."""
OF_CHAT = 250_000_000
"""Max bytes of one chat's uploads. One message needs less, but files of unsent messages use up this limit too."""
LARGEST = 20_000_000  # Max bytes of an upload; Telegram has the same limit for bots
MOST_FILES = 10  # Max files of one message
PARTS = Path("cache", "uploads")
"""Folder of incomplete uploads. Incomplete uploads are not copied when the bot moves to another host."""
PARTS_OF_CHAT, PARTS_IN_ALL = 3, 16
"""Max incomplete uploads of one chat, and of all chats. The oldest incomplete uploads are dropped first."""
PDF = "application/pdf"
HEAD = 256 * 1024
"""Bytes at a file's beginning that are searched for a picture's size. In photos, other data may precede the size."""
MOST_PIXELS = 50_000_000
"""Max pixels of a picture that browsers display; 50 million pixels need 200 MB of memory. A larger picture can only be saved."""
_ID = re.compile(r"[0-9A-Z]{26}")
_KINDS: dict[str, Literal["photo", "video", "audio"]] = {"image": "photo", "video": "video", "audio": "audio"}
_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,80}")


@dataclass(frozen=True, slots=True)
class ChatFile:
    """A file in the form that browsers receive. `id` is "" if the file is no longer stored."""

    id: str
    name: str
    size: int
    type: str = ""
    """MIME type if browsers may display the file, otherwise "". The file's bytes decide, not its name."""
    width: int = 0
    height: int = 0
    mime: str = ""  # MIME type that the sender gave

    @classmethod
    def of(cls, id_: str, name: str, size: int, head: bytes, mime: str) -> ChatFile:
        """Return the description of a file that begins with the bytes `head`."""
        if head.startswith(b"%PDF-"):
            return cls(id_, name, size, PDF, mime=mime)
        picture = picture_of(head)
        if picture is None or picture.width * picture.height > MOST_PIXELS:
            return cls(id_, name, size, mime=mime)
        return cls(id_, name, size, picture.type, picture.width, picture.height, mime)

    def attachment(self, user: str) -> Attachment:
        kind, mime = _KINDS.get(self.mime.partition("/")[0], "file"), self.mime or None
        return Attachment(
            kind=kind, name=self.name or None, size=self.size, mime=mime, ref=f"{user}:{self.id}"
        )

    def json(self) -> dict[str, Any]:
        facts = asdict(self).items()
        return {
            name: one for name, one in facts if name in {"id", "name", "size"} or (one and name != "mime")
        }


class ChatFiles:
    """Files of all chats in one folder of `.ship`. Each chat can open only its own files."""

    def __init__(self, home: Path, disk: Disk, folder: str, *, of_chat: int = TOTAL) -> None:
        self._folder = home / folder
        self._disk = disk
        self._of_chat = of_chat  # Max bytes of one chat's files
        self._writing = threading.Lock()

    def put(self, chat: ChatKey, name: str, file: OutgoingFile) -> ChatFile:
        """Store a file of the message `name`. If the file is stored already, nothing changes."""
        if (path := self._path(chat, name)) is None:
            raise OSError(0, "no name of a file")
        with self._writing:
            self._make_room(path.parent, len(file.data))
            self._disk.replace(path, _head(file.name, file.mime_type) + file.data)
        return ChatFile.of(name, file.name, len(file.data), file.data[:HEAD], file.mime_type)

    def find(self, chat: ChatKey, name: str) -> ChatFile | None:
        """Return a file's description; None if the file is not stored."""
        if (found := self.open(chat, name)) is None:
            return None
        found[1].close()
        return found[0]

    def open(self, chat: ChatKey, name: str) -> tuple[ChatFile, BinaryIO] | None:
        """Return a file's description and its content, which the caller must close. Return None if the file is not stored."""
        if (path := self._path(chat, name)) is None:
            return None
        with contextlib.ExitStack() as unless_whole:
            try:
                file = unless_whole.enter_context(path.open("rb"))
                line = file.readline(4_096)
                size, head = os.fstat(file.fileno()).st_size - len(line), json.loads(line)
                found = ChatFile.of(name, str(head["name"]), size, file.read(HEAD), str(head["mimeType"]))
                file.seek(len(line))
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                return None
            unless_whole.pop_all()
        return found, file

    def _path(self, chat: ChatKey, name: str) -> Path | None:
        """Return the path of the file with the id `name`; None if the id is invalid."""
        if _ID.fullmatch(name) is None:
            return None
        return self._folder / str(chat).replace(":", "%3A") / f"{name}.bin"

    def _make_room(self, chat: Path, more: int) -> None:
        limits = ((f"{chat.name}/*.bin", self._of_chat, MOST_OF_CHAT), ("*/*.bin", TOTAL, MOST))
        for pattern, most, count in limits:
            kept = _oldest_first(self._folder, pattern)
            total = sum(facts.st_size for _, facts in kept) + more
            for left, (path, facts) in zip(range(len(kept), 0, -1), kept, strict=True):
                if total <= most and left < count:
                    break
                self._disk.remove(path)
                total -= facts.st_size


class Uploads(ChatFiles):
    """Files that people upload. A file arrives in pieces, so that each piece fits the size limit of requests and can be sent
    again. `user` is the id of a browser. A restart of the gateway drops incomplete uploads.
    """

    def __init__(self, home: Path, disk: Disk) -> None:
        super().__init__(home, disk, RECEIVED, of_chat=OF_CHAT)
        self._parts = home / PARTS

    def begin(self, user: str, name: str, mime: str, size: int) -> str:
        """Begin an upload of `size` bytes. Return its id."""
        id_ = secrets.token_hex(13).upper()
        name, mime = file_name(re.sub(r"[/\\]", "", name)), mime.partition(";")[0].strip().lower()
        head = _head(name, mime if _TYPE.fullmatch(mime) else "", size=size)
        with self._writing:
            for pattern, most in ((f"*.{user}", PARTS_OF_CHAT), ("*", PARTS_IN_ALL)):
                parts = _oldest_first(self._parts, pattern)
                for part, _ in parts[: max(0, len(parts) + 1 - most)]:
                    self._disk.remove(part)
            part = self._parts / f"{id_}.{user}"
            with self._removed_on_failure(part):
                self._disk.append(part, head)
        return id_

    def add(self, user: str, id_: str, at: int, data: bytes) -> int | None:
        """Append a piece that begins at the offset `at`. If `at` is not the number of bytes stored so far, store nothing.
        Return the number of bytes stored. Return None if the upload does not exist. Raises ValueError if the pieces have more
        bytes than announced. An OSError ends the upload.
        """
        part, path = self._parts / f"{id_}.{user}", self._path(KEYS.encode({"chat": user}), id_)
        with self._writing:
            if path is None or not part.is_file():
                return None
            with part.open("rb") as file:
                line = file.readline()
                have, size = os.fstat(file.fileno()).st_size - len(line), int(json.loads(line)["size"])
            if at != have:
                return have
            if have + len(data) > size:
                raise ValueError("more bytes than announced")
            with self._removed_on_failure(part):
                self._disk.append(part, data)
                if have + len(data) == size:
                    self._disk.sync(part)
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._make_room(path.parent, part.stat().st_size)
                    self._disk.rename(part, path)
        return have + len(data)

    @contextlib.contextmanager
    def _removed_on_failure(self, part: Path) -> Iterator[None]:
        """Remove an incomplete upload if the disk refuses a write, because nobody knows how many bytes were written. On a full
        disk, this also frees space.
        """
        try:
            yield
        except OSError:
            self._disk.remove(part)
            raise

    def drop_parts(self) -> None:
        for part, _ in _oldest_first(self._parts, "*"):
            self._disk.remove(part)

    def remove(self, user: str, id_: str) -> None:
        if (path := self._path(KEYS.encode({"chat": user}), id_)) is not None:
            with self._writing:
                self._disk.remove(self._parts / f"{id_}.{user}")
                self._disk.remove(path)

    def of_user(self, user: str, ids: Iterable[str]) -> list[ChatFile | None]:
        """Return the descriptions of uploaded files; None for a file that is not stored."""
        chat = KEYS.encode({"chat": user})
        return [self.find(chat, id_) for id_ in ids]

    def shown(self, ref: object, name: object, size: object) -> ChatFile:
        """Return the description of a file in an archived message. The file itself may no longer be stored."""
        user, _, id_ = str(ref).partition(":")
        kept = self.find(ChatKey(KEYS.name, user), id_) if user and id_ else None
        if kept is not None:
            return kept
        return ChatFile("", name if isinstance(name, str) else "", size if isinstance(size, int) else 0)

    async def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file, as `contracts.channel.Channel.fetch` specifies."""
        user, _, id_ = (attachment.ref or "").partition(":")
        try:
            found = await asyncio.to_thread(self.open, ChatKey(KEYS.name, user), id_) if user else None
            if found is None:
                raise errors.FileGone("the page's file is not kept any more")
            with found[1] as file:
                left = most
                while piece := await asyncio.to_thread(file.read, min(FILE_PIECE, left) or 1):
                    if not left:
                        raise errors.FileTooLarge(f"it has more than {most} bytes")
                    left -= len(piece)
                    yield piece
        except OSError as failure:
            raise errors.FileUnreachable(f"the page's file cannot be read ({failure.strerror})") from None


def _oldest_first(folder: Path, pattern: str) -> list[tuple[Path, os.stat_result]]:
    found = [(path, path.stat()) for path in folder.glob(pattern)]
    return sorted(found, key=lambda one: one[1].st_mtime_ns)


def _head(name: str, mime: str, **more: int) -> bytes:
    return json.dumps({"v": 1, "name": name, "mimeType": mime, **more}).encode("ascii") + b"\n"
