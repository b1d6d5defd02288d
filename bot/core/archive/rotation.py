"""Rotation: moves the older half of a chat's main file into an archive file without losing or doubling a line.

    1. the marker file `<name>.rotating` records the number of the new archive and the size of the main file
    2. the older half of the main file is copied to `<name>.archive-<N>.jsonl`
    3. the newer half of the main file replaces the main file
    4. the marker file `<name>.rotating` is deleted

Before any write, recovery reads the marker file under the lock. If the main file still has the recorded size,
step 3 has not happened, and recovery deletes the new archive. Otherwise only step 4 is missing.
"""

from __future__ import annotations

import re
import threading
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from bot.contracts.environment import Disk, OpenFile
from bot.storage import file_names, jsonl

MAIN = ".jsonl"
_PATHS = 2_000  # max cached paths
_ARCHIVE = re.compile(r"(?P<name>[^.]*)\.archive-(?P<number>[1-9][0-9]{0,8})\.jsonl")


class ArchiveFiles:
    """Archive files of all chats in one folder."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self._disk = disk
        # Archive numbers by name. The folder is listed once; archives that other processes add later
        # are found because numbers only increase.
        self._numbers: dict[str, list[int]] | None = None
        self._guard = threading.Lock()
        # Paths are cached because each line needs several of them.
        self._path = lru_cache(_PATHS)(folder.joinpath)

    def main(self, name: str) -> Path:
        return self._path(f"{name}{MAIN}")

    def archive(self, name: str, number: int) -> Path:
        return self._path(f"{name}.archive-{number}{MAIN}")

    def marker(self, name: str) -> Path:
        return self._path(f"{name}.rotating")

    def chats(self) -> list[str]:
        """Return the base names of all chats that have an archive file."""
        listed = self._disk.names(self.folder)
        with self._guard:
            self._numbers = _archives(listed)
        mains = {file.removesuffix(MAIN) for file in listed if file.endswith(MAIN)}
        return sorted({name for name in mains if "." not in name} | set(_archives(listed)))

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a chat's rotated archives, oldest first, without the number of an
        interrupted rotation.
        """
        with self._guard:
            if self._numbers is None:
                self._numbers = _archives(self._disk.names(self.folder))
            found = self._numbers.get(name, [])
            while self._disk.size(self.archive(name, latest := found[-1] + 1 if found else 1)):
                found.append(latest)
                self._numbers[name] = found
            begun = self._begun(name) if found else None
            return [number for number in found if number != begun]

    def opened(self, name: str) -> tuple[OpenFile, list[int]]:
        """Open the main file and list its rotated archives. Without the lock, a rotation in between makes
        the reader see its lines twice, but never skip a line.
        """
        main = self._disk.open(self.main(name))
        try:
            return main, self.numbers(name)
        except OSError:
            main.close()
            raise

    def rotate(self, name: str) -> None:
        """Move the older half (rounded down) of the main file's lines into the next rotated archive."""
        data = self._disk.read(self.main(name))
        cut = 0
        for _ in range(data.count(b"\n") // 2):
            cut = data.index(b"\n", cut) + 1
        numbers = self.numbers(name)
        number = numbers[-1] + 1 if numbers else 1
        self._disk.replace(self.marker(name), jsonl.dumps({"archive": number, "size": len(data)}))
        self._disk.replace(self.archive(name, number), data[:cut])
        self._disk.replace(self.main(name), data[cut:])
        self._disk.remove(self.marker(name))

    def recover(self, name: str) -> None:
        """Finish or undo an interrupted rotation. Needs no free disk space."""
        if not self._disk.size(self.marker(name)):
            return
        begun = self._begun(name)
        if begun is not None:
            self._disk.remove(self.archive(name, begun))
            self._numbers = None
        self._disk.remove(self.marker(name))

    def _begun(self, name: str) -> int | None:
        """Return the number of an archive whose lines are all still in the main file, too."""
        marker = jsonl.loads(self._disk.read(self.marker(name)))
        if marker is None or self._disk.size(self.main(name)) != marker.get("size"):
            return None
        number = marker.get("archive")
        if not isinstance(number, int):
            return None
        copied = self._disk.read(self.archive(name, number))
        return number if self._disk.read(self.main(name)).startswith(copied) else None


def _archives(listed: list[str]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for file in listed:
        found = _ARCHIVE.fullmatch(file)
        if found is not None:
            numbers.setdefault(found["name"], []).append(int(found["number"]))
    for found_numbers in numbers.values():
        found_numbers.sort()
    return numbers


def chat_key(disk: Disk, name: str, paths: list[Path]) -> str | None:
    """Return the chatKey for a file name as text. Decodes the name; if the name is a hash, reads the first
    line that contains the chatKey.
    """
    plain = file_names.decode(name)
    if plain is not None:
        return plain
    for path in paths:
        with closing(disk.open(path)) as file:
            for raw in jsonl.lines(file):
                key = (jsonl.loads(raw) or {}).get("chatKey")
                if isinstance(key, str) and file_names.encode(key) == name:
                    return key
    return None
