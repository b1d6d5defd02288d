"""Files of web chats: the files sent to browsers (`.ship/sent`) and the files that people uploaded
(`.ship/received`), kept so that their links work. Each file is `<chat>/<id>.bin`: a line of JSON, then
the bytes. All methods block and raise OSError.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.outbound import OutgoingFile
from bot.picture_head import picture_of

SENT, RECEIVED = "sent", "received"
ENDING = ".bin"
TOTAL = 500_000_000
"""Max bytes of all files in a folder. The oldest files are removed first."""
MOST, MOST_OF_CHAT = 10_000, 1_000
"""Max files in a folder, and max files of one chat, since the search for the oldest file reads all of them."""
OF_CHAT = 250_000_000
"""Max bytes of the uploads of one chat. The oldest uploads are removed first. The limit is higher than the
files of one message (`uploads`), which are kept before the message is sent.
"""
PARTS = Path("cache", "uploads")
"""Folder of incomplete files. These files are not copied to other hosts."""
PDF = "application/pdf"
HEAD = 256 * 1024
"""Bytes of a file in which the size of a picture is looked for. Photos hold other facts before it."""
MOST_PIXELS = 50_000_000
"""Max pixels of a picture that a browser displays, which are 200 MB of its memory. A larger picture is only saved."""
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID = re.compile(r"[0-9A-Z]{26}")


@dataclass(frozen=True, slots=True)
class ChatFile:
    """A file as a browser shows it. `id` is "" if the file is no longer kept."""

    id: str
    name: str
    size: int
    type: str = ""
    """MIME type, if a browser may display the file. Its bytes decide, not its name."""
    width: int = 0
    height: int = 0

    @classmethod
    def of(cls, id_: str, name: str, size: int, head: bytes) -> ChatFile:
        """Return a file that begins with the bytes of `head`."""
        if head.startswith(b"%PDF-"):
            return cls(id_, name, size, PDF)
        picture = picture_of(head)
        if picture is None or picture.width * picture.height > MOST_PIXELS:
            return cls(id_, name, size)
        return cls(id_, name, size, picture.type, picture.width, picture.height)

    def json(self) -> dict[str, Any]:
        return {name: fact for name, fact in asdict(self).items() if fact or name in {"id", "name", "size"}}


class ChatFiles:
    """The files of all chats in one folder of `.ship`. A chat can open only its own files."""

    def __init__(self, home: Path, disk: Disk, folder: str, *, of_chat: int = TOTAL) -> None:
        self._folder = home / folder
        self._parts = home / PARTS
        self._disk = disk
        self._of_chat = of_chat
        """Max bytes of the files of one chat."""
        self._keeping = threading.Lock()
        """Lock from the removal of old files until the new file is written, so that concurrent writes count
        each other.
        """

    def put(self, chat: ChatKey, name: str, file: OutgoingFile) -> ChatFile:
        """Keep the file of the message `name`. Keeping the same file again changes nothing."""
        path = self._path(chat, name)
        if path is None:
            raise OSError(0, "no name of a file")
        with self._keeping:
            self._make_room(path.parent, len(file.data))
            self._disk.replace(path, _head(file.name, file.mime_type) + file.data)
        return ChatFile.of(name, file.name, len(file.data), file.data[:HEAD])

    # -- files in pieces -------------------------------------------------------------------------------------

    def begin(self, id_: str, name: str, mime: str) -> None:
        """Create an incomplete file. `finish` keeps it once all its pieces are written."""
        self._disk.append(self._part(id_), _head(name, mime))

    def add(self, id_: str, data: bytes) -> None:
        self._disk.append(self._part(id_), data)

    def finish(self, chat: ChatKey, id_: str) -> None:
        """Keep a file whose pieces are all written."""
        part, path = self._part(id_), self._path(chat, id_)
        if path is None:
            raise OSError(0, "no name of a file")
        self._disk.sync(part)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._keeping:
            self._make_room(path.parent, part.stat().st_size)
            self._disk.rename(part, path)

    def drop(self, id_: str) -> None:
        """Remove an incomplete file."""
        self._disk.remove(self._part(id_))

    def remove(self, chat: ChatKey, id_: str) -> None:
        """Remove a file, if it exists."""
        if (path := self._path(chat, id_)) is not None:
            self._disk.remove(path)

    def drop_parts(self) -> None:
        """Remove the incomplete files that an earlier process left."""
        for part in self._parts.glob(f"*{ENDING}"):
            self._disk.remove(part)

    def _part(self, id_: str) -> Path:
        return self._parts / f"{id_}{ENDING}"

    # -- complete files --------------------------------------------------------------------------------------

    def find(self, chat: ChatKey, name: str) -> tuple[ChatFile, str] | None:
        """Return a file and its MIME type; None if there is no such file, or it is no longer kept."""
        if (found := self.open(chat, name)) is None:
            return None
        file, mime, data = found
        data.close()
        return file, mime

    def open(self, chat: ChatKey, name: str) -> tuple[ChatFile, str, BinaryIO] | None:
        """Return a file, its MIME type and its content, which the caller must close."""
        if (path := self._path(chat, name)) is None:
            return None
        with contextlib.ExitStack() as unless_whole:
            try:
                file = unless_whole.enter_context(path.open("rb"))
                line = file.readline(4_096)
                size = os.fstat(file.fileno()).st_size - len(line)
                head = json.loads(line)
                found = ChatFile.of(name, str(head["name"]), size, file.read(HEAD))
                mime = str(head["mimeType"])
                file.seek(len(line))
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                return None
            unless_whole.pop_all()
        return found, mime, file

    def _path(self, chat: ChatKey, name: str) -> Path | None:
        """Return the path of a file; None if `name` is no valid id."""
        if _ID.fullmatch(name) is None:
            return None
        return self._folder / str(chat).replace(":", "%3A") / f"{name}{ENDING}"

    def _make_room(self, chat: Path, more: int) -> None:
        for pattern, most, count in (
            (f"{chat.name}/*{ENDING}", self._of_chat, MOST_OF_CHAT),
            (f"*/*{ENDING}", TOTAL, MOST),
        ):
            kept = sorted(self._facts(pattern), key=lambda one: one[0].st_mtime)
            total = sum(facts.st_size for facts, _ in kept) + more
            for left, (facts, path) in zip(range(len(kept), 0, -1), kept, strict=True):
                if total <= most and left < count:
                    break
                self._disk.remove(path)
                total -= facts.st_size

    def _facts(self, pattern: str) -> Iterator[tuple[os.stat_result, Path]]:
        for path in self._folder.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # another call removed it meanwhile
                yield path.stat(), path


def new_id(moment: float) -> str:
    """Return the id of an upload that begins now: a ULID."""
    number = (int(moment * 1000) << 80) | secrets.randbits(80)
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def _head(name: str, mime: str) -> bytes:
    return json.dumps({"v": 1, "name": name, "mimeType": mime}).encode("ascii") + b"\n"
