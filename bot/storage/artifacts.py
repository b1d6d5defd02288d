"""Stores artifacts: texts that are too large for the model's context, mostly tool results. Each artifact is a file: a line of
JSON metadata, then the text. Artifacts do not change, except the transcript of a running subagent task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import regex

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk, Ids, Log
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ANYBODYS, ORIGIN, Provenance, unpacked
from bot.storage import jsonl
from bot.storage.jsonl import on_disk
from bot.system import ULID, JumpSafeClock, ulid_time


@dataclass(frozen=True, slots=True)
class ArtifactPage:
    """The characters of an artifact from `offset` up to `end`, with the numbers of their first and last line (from 1).
    `characters`, `lines` and `origin` describe the whole artifact.
    """

    text: str
    offset: int
    end: int
    line: int
    last: int
    characters: int
    lines: int
    origin: Provenance = ANYBODYS


@dataclass(frozen=True, slots=True)
class ArtifactMatch:
    """A match in an artifact: line number (from 1), character offset in the artifact, and the part of the line around the match."""

    line: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ArtifactMatches:
    """The result of a search. `total` counts all matches from the offset at which the search began. `next` is the offset of the
    first match that is not in `found`; None if `found` has all matches.
    """

    found: tuple[ArtifactMatch, ...]
    total: int
    next: int | None
    origin: Provenance = ANYBODYS


LARGEST = 10_000_000
"""Max bytes of an artifact's text. If a text is longer, only its beginning and its end are stored."""
CHAT_BYTES = 100_000_000
CHAT_COUNT = 1_000  # Max artifacts per chat. Above the limit, the oldest artifacts are deleted.
APART = 2_000
"""Min characters between two matches in one line. A nearer match is ignored, because the first match's excerpt contains it."""
SHOWN = 240  # Max characters of an excerpt, including the match
_END = ".txt"
_ABOUT = 4096  # max bytes of the metadata line that are read
_FRAMING = 24  # characters of a match's line number and marks, in addition to the match's text
_DAY = 86_400.0


class ArtifactStore:
    """Stores artifacts in `folder/<encoded chatKey>/<id>.txt`. A chat can read only its own artifacts. Methods raise
    `errors.StorageError`.
    """

    def __init__(self, folder: Path, *, disk: Disk, ids: Ids, clock: Clock, log: Log) -> None:
        self.folder = folder
        self._disk = disk
        self._ids = ids
        self._clock = clock
        self._steady = JumpSafeClock(clock)
        self._log = log

    @on_disk("an artifact cannot be written", alone=True)
    def put(
        self,
        words: str,
        *,
        chat_key: ChatKey,
        request_id: str,
        tool: str,
        tool_use_id: str,
        artifact_id: str | None = None,
        origin: Provenance = ANYBODYS,
    ) -> str:
        """Store a text as an artifact and return its id. An artifact with the id `artifact_id` is replaced. Redact secrets before
        this call. If the text exceeds `LARGEST`, a note replaces its middle.
        """
        artifact_id = artifact_id or self._ids.ulid()
        path, kept = self._path(chat_key, artifact_id), _kept(text.clean(words))
        body = kept.encode()
        about: Json = {
            "v": 1,
            "chatKey": str(chat_key),
            "requestId": request_id,
            "tool": tool,
            "toolUseId": tool_use_id,
            "ts": int(self._clock.now() * 1000),
            ORIGIN: origin.packed(),
            "characters": len(kept),
            "lines": kept.count("\n") + (not kept.endswith("\n")),
            "bytes": len(body),
        }
        self._disk.replace(path, jsonl.dumps(about) + body)
        try:
            self._make_room(path)
        except OSError as error:
            # The new artifact is stored. The next call deletes the old artifacts.
            self._log.write("storage", "old artifacts cannot be removed", level="warn", cause=str(error))
        return artifact_id

    @on_disk("an artifact cannot be read")
    def read(self, artifact_id: str, chat_key: ChatKey, *, offset: int, limit: int) -> ArtifactPage:
        """Return a page of at most `limit` characters that begins at `offset`. Pages are cut between graphemes. A page before
        the end of the text has at least one grapheme. Raises `errors.ToolError` if this chat has no such artifact.
        """
        words, origin = self._whole(artifact_id, chat_key)
        start = text.border(words, min(offset, len(words)))
        end = text.border(words, start + limit)
        end = end if end > start else text.border_after(words, start + 1)
        shown, line = words[start:end], 1 + words.count("\n", 0, start)
        last = line + shown.count("\n") - shown.endswith("\n")
        lines = words.count("\n") + (not words.endswith("\n"))
        return ArtifactPage(shown, start, end, line, last, len(words), lines, origin)

    @on_disk("an artifact cannot be read")
    def grep(
        self, artifact_id: str, chat_key: ChatKey, words: str, *, offset: int, limit: int
    ) -> ArtifactMatches:
        """Search an artifact for the literal text `words` (one line, without case) from `offset` on. The matches have at most
        `limit` characters in total; the first match may have more. Raises the errors of `read`.
        """
        whole, origin = self._whole(artifact_id, chat_key)
        return _matches(whole, words, offset, limit, origin)

    @on_disk("artifacts cannot be read")
    def made(self, chat_key: ChatKey, requests: Collection[str]) -> dict[str, list[tuple[str, str]]]:
        """Return the artifacts of these turns as (id, tool). The keys are the turns' request ids."""
        found: dict[str, list[tuple[str, str]]] = {}
        for path, about in self._of(chat_key, requests):
            found.setdefault(about["requestId"], []).append((path.stem, str(about.get("tool"))))
        return found

    @on_disk("artifacts cannot be removed", alone=True)
    def forget(self, chat_key: ChatKey, requests: Collection[str]) -> int:
        """Delete the artifacts of these turns; return the number of deleted artifacts."""
        gone = [path for path, _ in self._of(chat_key, requests)]
        for path in gone:
            self._disk.remove(path)
        return len(gone)

    @on_disk("old artifacts cannot be removed")
    def sweep(self, days: float) -> int:
        """Delete artifacts older than `days`; return the number of deleted artifacts."""
        before, gone = self._steady.now() - days * _DAY, 0
        for name in self._disk.names(self.folder):
            if name == jsonl.LOCK:
                continue
            with jsonl.locked(self.folder):
                jsonl.tidy(self._disk, self.folder / name)
                old = [one for one in self._all(self.folder / name) if ulid_time(one.stem) < before]
                for path in old:
                    self._disk.remove(path)
                gone += len(old)
        return gone

    def _path(self, chat_key: ChatKey, artifact_id: str) -> Path:
        return self.folder / jsonl.file_name(chat_key) / f"{artifact_id}{_END}"

    def _make_room(self, newest: Path) -> None:
        paths = [path for path in self._all(newest.parent) if path != newest]
        sizes = {path: self._disk.size(path) for path in paths}
        total = sum(sizes.values()) + self._disk.size(newest)
        for place, path in enumerate(paths):
            if len(paths) - place < CHAT_COUNT and total <= CHAT_BYTES:
                return
            self._disk.remove(path)
            total -= sizes[path]

    def _all(self, folder: Path) -> list[Path]:
        found = self._disk.names(folder)
        return [folder / name for name in found if ULID.fullmatch(name.removesuffix(_END))]

    def _of(self, chat_key: ChatKey, requests: Collection[str]) -> Iterator[tuple[Path, Json]]:
        for path in self._all(self._path(chat_key, "").parent):
            about = what_of(self._disk, path)
            if about.get("requestId") in requests:
                yield path, about

    def _whole(self, artifact_id: str, chat_key: ChatKey) -> tuple[str, Provenance]:
        known = ULID.fullmatch(artifact_id) is not None
        raw = self._disk.read(self._path(chat_key, artifact_id)) if known else b""
        if not raw:
            raise errors.ToolError(
                f"This chat has no artifact {text.preview(artifact_id, 40)!r}: the id is not exact, or it was too old and "
                "has been removed. Take the id from a tool result you see, or call the tool that made it again."
            )
        first, _, body = raw.partition(b"\n")
        about = jsonl.loads(first) or {}
        if about.get("chatKey") != str(chat_key) or about.get("bytes") != len(body):
            raise errors.ToolError(
                f"The artifact {artifact_id} is damaged and cannot be read. Call the tool that made it again."
            )
        return body.decode("utf-8", "replace"), unpacked(about.get(ORIGIN))


def what_of(disk: Disk, path: Path) -> Json:
    """Return an artifact's metadata; {} if the artifact has none. Raises OSError."""
    with disk.open(path) as file:
        first, _, _ = file.read(_ABOUT).partition(b"\n")
    return jsonl.loads(first) or {}


def _kept(words: str) -> str:
    raw = words.encode()
    if len(raw) <= LARGEST:
        return words
    half = LARGEST // 2
    begin = text.border(words, len(raw[:half].decode("utf-8", "ignore")))
    end = text.border_after(words, len(words) - len(raw[-half:].decode("utf-8", "ignore")))
    note = f"\n[… {end - begin} characters left out here: the result was too large to be kept whole …]\n"
    return words[:begin] + note + words[end:]


def _matches(words: str, wanted: str, offset: int, limit: int, origin: Provenance) -> ArtifactMatches:
    pattern = regex.compile(regex.escape(wanted), regex.IGNORECASE | regex.FULLCASE)
    found, total, following = list[ArtifactMatch](), 0, None
    line, counted, shown = 1, 0, -APART
    for match in pattern.finditer(words, min(offset, len(words)), concurrent=True):
        at = match.start()
        between = words.count("\n", counted, at)
        if not between and at - shown < APART:
            continue
        line, counted, shown, total = line + between, at, at, total + 1
        begin = max(words.rfind("\n", 0, at) + 1, text.border(words, at - (SHOWN - len(wanted)) // 3))
        end = words.find("\n", at)
        part = text.head(words[begin : end if end >= 0 else len(words)], SHOWN)
        before = "…" if words[max(0, begin - 1) : begin] not in {"", "\n"} else ""
        rest = begin + len(part)
        behind = "…" if words[rest : rest + 1] not in {"", "\n"} else ""
        limit -= len(part) + _FRAMING
        if following is None and (limit >= 0 or not found):
            found.append(ArtifactMatch(line, at, f"{before}{part}{behind}"))
        elif following is None:
            following = at
    return ArtifactMatches(tuple(found), total, following, origin)
