"""Resource limits of one command: memory, processes, file size, CPU time and disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_BLOCK = 512
_ROOM = 'for one in {}; do ulimit ${{one%=*}} ${{one#*=}} 2>/dev/null; done; exec "$@"'
"""A limit that cannot be set is one that is lower already."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Of each process its memory (without what it only shares or maps) and processor time, and how large a file it may
    write; of all processes of a command together how many they are and how much of the disk they fill; of `/tmp` and of
    shared memory, which are the command's own and in memory, how much each holds. None: as the machine has it.
    """

    memory_mb: int | None = 4_096
    processes: int | None = 512
    file_mb: int | None = 1_024
    cpu_seconds: int | None = 600
    disk_mb: int | None = 4_096
    tmp_mb: int | None = 512

    def around(self, words: Sequence[str]) -> list[str]:
        """The words of a command that runs within these limits; no shell reads them."""
        wanted = {
            "-d": self.memory_mb and self.memory_mb * 1024,
            "-f": self.file_mb and self.file_mb * 1024 * 1024 // _BLOCK,
            "-t": self.cpu_seconds,
            # The number of processes has one letter in bash and another one in dash.
            "-u": self.processes,
            "-p": self.processes,
            "-c": 0,
        }
        given = " ".join(f"{letter}={most}" for letter, most in wanted.items() if most is not None)
        return ["/bin/sh", "-c", _ROOM.format(given), "sh", *words]
