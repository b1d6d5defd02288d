"""Removes what is older than the days for which a chat is kept: lines of the archive, sessions of the transcript, recorded requests,
files that the web page was sent.

Files change under the locks of their folders, each whole, so a kill leaves what the next run removes. A session that goes on loses its
old lines but for those that the model's view is built on; a conversation that comes back from the disk lets older turns go
(`Retention.since`), so that there are none. Everything here blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot import errors, ulids
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.core import file_names, jsonl
from bot.core.archive import rotation
from bot.history.transcript import reading, requests, sessions

EVERY = "*"
"""In the place of a chatKey: all chats that are not named."""
_DAY = 86_400.0
_PIECE = 1 << 20  # bytes of a session that are copied at once
_FILE = ".bin"


@dataclass(frozen=True, slots=True)
class Expired:
    """The files and lines of one chat that went: `told` are lines of sessions that go on. `name` is that of its files."""

    chat_key: ChatKey
    name: str
    days: int
    lines: int
    sessions: int
    told: int
    requests: int
    files: int


class Retention:
    """The days of the chats of one `.ship`. An entry counts for threads and topics of its chat too, unless they have their own."""

    def __init__(self, home: Path, days: Mapping[str, int], disk: Disk) -> None:
        self._days = dict(days)
        self._disk = disk
        self._archives = rotation.ArchiveFiles(home / "chats", disk)
        self._transcripts = home / "transcripts"
        self._of_page = (home / "sent", home / "received")
        """The web page's files, by chat."""

    @property
    def kept_without_end(self) -> bool:
        """True where no chat has days."""
        return not self._days

    def days(self, chat_key: ChatKey) -> int | None:
        """The days for which a chat is kept; None without end."""
        whole = ChatKey(chat_key.channel, chat_key.chat_id)
        found = (self._days.get(str(key)) for key in (chat_key, whole))
        return next((days for days in found if days is not None), self._days.get(EVERY))

    def since(self, chat_key: ChatKey, now: float) -> float:
        """The time (epoch seconds) of what is kept of a chat; 0.0 without end."""
        days = self.days(chat_key)
        return 0.0 if days is None else now - days * _DAY

    def expire(self, now: float, holds: Callable[[ChatKey], bool]) -> Iterator[Expired]:
        """Remove what is too old, chat by chat. `holds` tells whether a conversation is in memory: of such a one the current session
        stays. Raises OSError.
        """
        folders = {name for one in (self._transcripts, *self._of_page) for name in self._disk.names(one)}
        for name in sorted({*self._archives.chats(), *folders}):
            chat_key = self._key(name)
            days = None if chat_key is None else self.days(chat_key)
            if chat_key is None or days is None:
                continue
            before = int((now - days * _DAY) * 1000)
            lines = self._expire_archive(name, before)
            gone, told, records = self._expire_transcripts(name, before, current=not holds(chat_key))
            files = sum(self._expire_files(one / name, before) for one in self._of_page)
            if lines or gone or told or records or files:
                yield Expired(chat_key, name, days, lines, gone, told, records, files)

    def _key(self, name: str) -> ChatKey | None:
        paths = [self._archives.archive(name, number) for number in self._archives.numbers(name)]
        told = rotation.chat_key(self._disk, name, [*paths, self._archives.main(name)]) or file_names.decode(
            name
        )
        try:
            return None if told is None else ChatKey.parse(told)
        except errors.IdentityInvalid:
            return None  # a file that is no chat's

    def _expire_archive(self, name: str, before: int) -> int:
        with jsonl.locked(self._archives.folder):
            self._archives.recover(name)
            paths = [self._archives.archive(name, number) for number in self._archives.numbers(name)]
            return sum(self._expire_lines(path, before) for path in [*paths, self._archives.main(name)])

    def _expire_lines(self, path: Path, before: int) -> int:
        """Remove the beginning of a file up to its last line that is older than all behind it: one that came late goes with its
        neighbours. One that cannot be read goes with an older one behind it.
        """
        at = cut = count = gone = 0
        young = False
        with closing(self._disk.open(path)) as file:
            for raw in jsonl.lines(file):
                at, count = at + len(raw) + 1, count + bool(raw.strip())
                ts = (jsonl.loads(raw) or {}).get("ts")
                if not isinstance(ts, int | float):
                    continue
                if young := ts >= before:
                    break
                cut, gone = at, count
            rest = file.read(cut, file.size - cut) if cut and young else b""
        if not gone:
            return 0
        if rest:
            self._disk.replace(path, rest)
        else:
            self._disk.remove(path)
        return gone if young else count

    def _expire_transcripts(self, name: str, before: int, *, current: bool) -> tuple[int, int, int]:
        """Remove sessions and files of requests whose last line is older, and of other sessions the old lines. The current session,
        and the newest, by which it is told which that is, go last: with all others, where `current` may go.
        """
        home = self._transcripts / name
        with jsonl.locked(self._transcripts):
            stems = (one.removesuffix(".jsonl") for one in self._disk.names(home) if one.endswith(".jsonl"))
            known = sorted(stem for stem in stems if ulids.FORM.fullmatch(stem))
            old = [one for one in known if self.newest_ts(home, one) < before]
            if known and not (current and old == known):
                stay = {known[-1], sessions.current(self._disk, home, known)}
                old = [one for one in old if one not in stay]
            for one in old:
                self._disk.remove(home / f"{one}.jsonl")
            if old and old == known:
                self._disk.remove(home / sessions.POINTER)
            jsonl.tidy(self._disk, home)
            told = sum(self._cut(home, one, before) for one in known if one not in old)
        records = [
            path
            for path in requests.files_of(self._disk, home)
            if requests.newest_at(self._disk, path) * 1000 < before
        ]
        for path in records:
            self._disk.remove(path)
        return len(old), told, len(records)

    def _expire_files(self, home: Path, before: int) -> int:
        """Remove files of the web page; each is named by when it came."""
        found = (one.partition(".")[0] for one in self._disk.names(home) if one.endswith(_FILE))
        old = [one for one in found if ulids.FORM.fullmatch(one) and ulids.made_at(one) * 1000 < before]
        for one in old:
            self._disk.remove(home / f"{one}{_FILE}")
        return len(old)

    def _cut(self, home: Path, session: str, before: int) -> int:
        """Remove the lines of a session that are older and that nothing needs; how many. Those of its last day stay: a turn that a kill
        came behind is asked there for its end, be that long ago.
        """
        before = min(before, int(self.newest_ts(home, session) - _DAY * 1000))
        if ulids.made_at(session) * 1000 >= before:
            return 0
        path, count = home / f"{session}.jsonl", 0
        with closing(self._disk.open(path)) as file:
            gone = reading.expired(file, before)
            if not gone:
                return 0
            # A name that is tidied away where a kill leaves it.
            scratch = home / f".{session}.tmp"
            self._disk.replace(scratch, b"")
            at = 0
            for begin, end in [*gone, (file.size, file.size)]:
                for place in range(at, begin, _PIECE):
                    self._disk.append(scratch, file.read(place, min(_PIECE, begin - place)), sync=True)
                count += sum(
                    file.read(place, min(_PIECE, end - place)).count(b"\n")
                    for place in range(begin, end, _PIECE)
                )
                at = end
        self._disk.rename(scratch, path)
        return count

    def newest_ts(self, home: Path, session: str) -> float:
        """The time of a session's newest line (ms), or of its beginning where that is later."""
        with closing(self._disk.open(home / f"{session}.jsonl")) as file:
            return max(sessions.last_ts(file), ulids.made_at(session) * 1000)
