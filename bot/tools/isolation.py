"""Runs commands in a bubblewrap sandbox. The sandbox contains only the project's folder and the system's programs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import select
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors, file_access
from bot.config.ship_file import ShellLimits
from bot.file_access import is_hidden
from bot.tools import processes, seccomp
from bot.tools.permissions.patterns import literal_words
from bot.tools.permissions.protected_code import CLOSED, ProtectedCode, protected_code
from bot.tools.processes import LimitCheck
from bot.vetting import NOT_VETTED, InstructionFileSet, Vetting

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TMP = "/tmp"  # noqa: S108 - an in-memory file system of the command's own
ENVIRONMENT: Mapping[str, str] = {
    "PATH": PATH,
    "HOME": _TMP,
    "TMPDIR": _TMP,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
"""All environment variables that a command gets."""
ARGUMENTS = 8_000
"""Max arguments that hide or protect paths. Bubblewrap accepts 9,000 arguments in total."""
FILES = 500_000
"""Max files that one command may create."""
_SHARE = 2
"""Divisor of the free bytes and of the free inodes. A command may use at most half of each."""
_OURS = 4
"""Number of processes that the sandbox needs for itself."""
_NOTES = 10
"""Max lines of each kind of note about a command."""
_TWINS = 100
"""Max hard links of protected files that are made read-only one by one. Above it, the links' top-level folders become
read-only.
"""
_LAST = 5_000
"""Timeout in milliseconds for processes that a command leaves running when it ends."""
_MB = 1024 * 1024
_BLOCK = 512
_KILLED_FIRST = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"'
_ROOM = 'for one in {}; do ulimit ${{one%=*}} ${{one#*=}} 2>/dev/null; done; exec "$@"'
"""Shell line that sets the limits. Errors are ignored, because a limit that cannot be set is already lower."""
_READ_ONLY_PROC = "sys bus driver fs irq pressure tty"
_MASKED_PROC = """
    acpi asound kallsyms kcore key-users keys kmsg latency_stats mtrr sched_debug scsi slabinfo sysrq-trigger timer_list
    vmallocinfo
"""
"""Paths in /proc that show information about the whole machine or can change the machine."""
_SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /libx32"
_ETC = """
    alternatives ca-certificates group ld.so.cache ld.so.conf ld.so.conf.d localtime mime.types nsswitch.conf passwd
    pki/tls/certs ssl/certs ssl/openssl.cnf
"""
_NETWORK_ETC = " hosts resolv.conf"
CROWDED = (
    "The project's folder has thousands of names that commands may not see, such as .env_1: too many to hide here. "
    "Tell the person to move them out of the project, and go on without commands."
)
MISSING = (
    "Commands run only in a sandbox, and bubblewrap 0.7 or newer, which makes it, is missing or does not work here. Whoever runs me "
    "can install it (apt install bubblewrap, dnf install bubblewrap) and allow users to create namespaces. Tell the person, and go on "
    "without commands."
)


def _limited(limits: ShellLimits, words: Sequence[str]) -> list[str]:
    wanted = {
        "-d": limits.memory_mb and limits.memory_mb * 1024,
        "-f": limits.file_mb and limits.file_mb * _MB // _BLOCK,
        "-t": limits.cpu_seconds,
        # The `ulimit` option for the number of processes has different letters in bash and dash.
        "-u": limits.processes,
        "-p": limits.processes,
        "-c": 0,
    }
    given = " ".join(f"{letter}={most}" for letter, most in wanted.items() if most is not None)
    return ["/bin/sh", "-c", _ROOM.format(given), "sh", *words]


def _watch(limits: ShellLimits, root: Path) -> LimitCheck:
    """Return a check of two limits that the kernel does not enforce: the number of root's processes, and disk space."""
    before = os.statvfs(root)
    room = min((limits.disk_mb or 0) * _MB, before.f_bavail * before.f_frsize // _SHARE)
    places = min(FILES, before.f_favail // _SHARE)

    def exceeded(pid: int) -> str | None:
        if limits.processes is not None and _threads(pid) > limits.processes + _OURS:
            return f"it had more than {limits.processes} processes"
        now = os.statvfs(root)
        if limits.disk_mb is not None and (before.f_bavail - now.f_bavail) * now.f_frsize > room:
            return f"it had written more than {max(1, room // _MB):,} MB"
        if before.f_favail and before.f_favail - now.f_favail > places:
            return f"it had made more than {places:,} files"
        return None

    return exceeded


def _threads(pid: int) -> int:
    left, count = [pid], 0
    while left:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{left.pop()}/task").iterdir():
                count += 1
                with contextlib.suppress(OSError):
                    left += map(int, (thread / "children").read_bytes().split())
    return count


@dataclass(slots=True)
class Isolation:
    """Runs commands in the project's folder. If `required` is False, commands run without a sandbox. If `network` is
    True, commands can use the machine's network.
    """

    root: Path
    required: bool = True
    network: bool = False
    which: Callable[[str], str | None] = shutil.which
    limits: ShellLimits = field(default_factory=ShellLimits)
    code: ProtectedCode | None = None
    """The protected code. If not given, the first command determines it."""
    vetting: Vetting | None = None
    _works: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs that passed a trial run, each with the optional features of the sandbox that work on this machine."""
    _running: int = 0
    _own: file_access.HiddenNames = field(default_factory=dict)
    """Hidden names that were at the top of the project's folder before any of the running commands started. No command
    created these names.
    """
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    leaving: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, command: str, seconds: float) -> processes.CommandResult:
        """Run a command line. The command runs without a shell if it contains no character that a shell interprets.

        Raises `errors.ToolError` if commands cannot run here, and OSError if the command cannot be started.
        """
        root = self.root.resolve()
        if self._ours().closed:
            raise errors.ToolError(f"{CLOSED}.")
        shell = "bash" if shutil.which("bash", path=PATH) is not None else "sh"
        words = list(literal_words(command) or (shell, "-c", command))
        notes: list[str] = []
        async with contextlib.AsyncExitStack() as around:
            handles: list[int] = []
            info, instructs = await around.enter_async_context(self._watched(root, notes))
            around.callback(_close, handles)
            handles.append(os.dup(info))
            if self.required:
                words = [*await self.sandbox(root, handles, instructs), *_limited(self.limits, words)]
            else:
                # Without a process namespace, the limit on processes would count all processes of the user.
                words = _limited(self.limits.model_copy(update={"processes": None}), words)
            # If memory runs out, the kernel kills a command before it kills the gateway.
            words = ["/bin/sh", "-c", _KILLED_FIRST, "sh", *words]
            watch = await asyncio.to_thread(_watch, self.limits, root)
            ended = await processes.run(
                words, folder=root, environment=ENVIRONMENT, seconds=seconds, watch=watch, handles=handles
            )
        return dataclasses.replace(ended, stderr="\n".join([ended.stderr, *notes])) if notes else ended

    @contextlib.asynccontextmanager
    async def _watched(self, root: Path, notes: list[str]) -> AsyncIterator[tuple[int, InstructionFileSet]]:
        """Record hidden names and instruction files before a command, and reject those that the command creates. They
        are rejected when the command ends, when another command starts and, if the process was killed, at the next
        start. Yields a file descriptor and the instruction files. Bubblewrap writes to the descriptor the pid of the
        sandbox's first process. All other processes of the sandbox end with that process.
        """
        async with self._turn:
            if not self._running:
                self._own = await asyncio.to_thread(file_access.hidden_names, root)
                await asyncio.to_thread(file_access.save_names, root, self._own)
            first, info = os.pipe()
            self._running += 1
        begun: asyncio.Task[InstructionFileSet] | None = None
        try:
            async with self._turn:
                begun = asyncio.create_task(asyncio.to_thread(self._vetted().begin))
                instructs = await asyncio.shield(begun)
                await asyncio.to_thread(file_access.set_aside, root, self._own)
            yield info, instructs
        finally:
            os.close(info)
            task = asyncio.create_task(self._left(root, notes, first, begun))
            # The check completes even if the turn is stopped in the meantime.
            self.leaving.add(task)
            task.add_done_callback(self.leaving.discard)
            await asyncio.shield(task)

    async def _left(
        self, root: Path, notes: list[str], first: int, begun: asyncio.Task[InstructionFileSet] | None
    ) -> None:
        await asyncio.to_thread(_wait_for, first)
        if begun is not None:
            await asyncio.wait([begun])  # a stopped turn does not stop the check
        async with self._turn:
            try:
                moved = await asyncio.to_thread(file_access.set_aside, root, self._own)
                lines = [
                    f"{name} may not be made by a command; it is {to} now." for name, to in moved.items()
                ]
                more = len(lines) - _NOTES
                notes += [*lines[:_NOTES], *([f"So it is with {more:,} names more."] if more > 0 else [])]
            finally:
                self._running -= 1
                planted = await asyncio.to_thread(self._vetted().end, last=not self._running)
                notes += [f"{path}: {NOT_VETTED}." for path in planted[:_NOTES]]
                if not self._running:
                    await asyncio.to_thread(file_access.save_names, root, None)

    def _ours(self) -> ProtectedCode:
        if self.code is None:
            self.code = protected_code(self.root)
        return self.code

    def _vetted(self) -> Vetting:
        if self.vetting is None:
            self.vetting = Vetting(self.root)
        return self.vetting

    async def sandbox(self, root: Path, handles: list[int], instructs: InstructionFileSet) -> list[str]:
        """Return the words of a command line that starts bubblewrap. The caller appends the command. The command
        inherits the descriptors in `handles`. Descriptors for bubblewrap's arguments are added to `handles`. Raises
        `errors.ToolError` if no sandbox is possible.
        """
        program = await self._program()
        if program is None:
            raise errors.ToolError(MISSING)
        found = await asyncio.to_thread(self._covered, root, instructs)
        if len(found) > ARGUMENTS:
            raise errors.ToolError(CROWDED)
        covered = _handle_of(b"".join(os.fsencode(word) + b"\0" for word in found), handles)
        calls = seccomp.program()
        return [
            program,
            *arguments(root, self.limits, network=self.network, parts=self._works[program]),
            *("--info-fd", str(handles[0])),
            *(() if calls is None else ("--seccomp", str(_handle_of(calls, handles)))),
            *("--args", str(covered), "--"),
        ]

    def _covered(self, root: Path, instructs: InstructionFileSet) -> list[str]:
        """Return bubblewrap's arguments that hide some paths and make others read-only. Shipmate's code and instruction
        files become read-only, because only file tools ask for approval before they change them. This call blocks the
        thread.
        """
        masks, others = find(root, self._own)
        sealed = [str(path) for path in self._ours().sealed if path.exists()]
        sealed += [one for one in instructs.files if not _within(one, masks)]
        covered = {*masks, *sealed}
        others = {path: node for path, node in others.items() if not _within(path, covered)}
        # The code is searched for hard links only if the project contains hard links.
        nodes = self._ours().linked() | instructs.nodes if others else frozenset()
        twins = [path for path, node in others.items() if node in nodes]
        if len(twins) > _TWINS:
            tops = (path[len(str(root)) + 1 :].split("/", 1)[0] for path in twins)
            twins = [f"{root}/{top}" for top in dict.fromkeys(tops)]
        sealed += twins
        # Each folder above a hidden or read-only path becomes a mount point. Otherwise a command could move the folder
        # to a path that the next command's arguments do not hide.
        above, fixed = set[str](), frozenset(sealed)
        for path in (*masks, *sealed):
            folder = path.rpartition("/")[0]
            # Commands cannot move anything in a read-only folder.
            while len(folder) > len(str(root)) and folder not in above and not _within(folder, fixed):
                above.add(folder)
                folder = folder.rpartition("/")[0]
        words = [word for path in sorted(above) for word in ("--bind", path, path)]
        words += [word for path in sealed for word in ("--ro-bind", path, path)]
        return words + [word for path, folder in masks.items() for word in _mask(path, folder=folder)]

    async def check(self) -> None:
        """Raise `errors.ToolError` if bubblewrap is missing or does not work on this machine."""
        if await self._program() is None:
            raise errors.ToolError(MISSING)

    async def _program(self) -> str | None:
        """Return the path of bubblewrap if a trial run succeeds. Each call repeats the trial until one succeeds."""
        program = self.which("bwrap")
        if program is None or program in self._works:
            return program
        if await asyncio.to_thread(self._ours().changeable, Path(program)):
            return None  # PATH leads into the project's folder, where a command may have put it
        root = self.root.resolve()
        # In containers and hardened services, parts of /proc are already hidden, so a new /proc cannot be mounted.
        # Older versions of bubblewrap cannot disable user namespaces; the filter of system calls forbids them too.
        for parts in (("proc", "alone"), ("proc",), ("alone",), ()):
            trial = [program, *arguments(root, self.limits, network=self.network, parts=parts), "--", "true"]
            try:
                done = await processes.run(trial, folder=root, environment=ENVIRONMENT, seconds=10)
            except OSError:
                return None
            if done.status == 0:
                self._works[program] = parts
                return program
        return None


def arguments(root: Path, limits: ShellLimits, *, network: bool, parts: Sequence[str]) -> Iterator[str]:
    """Return the arguments of bubblewrap that define what a command can see and do."""
    size = ("--size", str(limits.tmp_mb * _MB)) if limits.tmp_mb is not None else ()
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
    if "alone" in parts:
        yield from ("--unshare-user", "--disable-userns")
    if network:
        yield "--share-net"
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    for folder in map(Path, _SYSTEM.split()):
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    for fact in _existing("/etc", _ETC + (_NETWORK_ETC if network else "")):
        yield from ("--ro-bind", str(fact.resolve()), str(fact))
    yield from _proc() if "proc" in parts else ("--tmpfs", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - its own
    yield from (*size, "--tmpfs", _TMP, "--tmpfs", "/run", "--remount-ro", "/run")
    yield from ("--bind", str(root), str(root), "--chdir", str(root))
    yield from ("--remount-ro", "/")


def _proc() -> Iterator[str]:
    yield from ("--proc", "/proc")
    for path in _existing("/proc", _READ_ONLY_PROC):
        yield from ("--ro-bind", str(path), str(path))
    for path in _existing("/proc", _MASKED_PROC):
        yield from _mask(str(path), folder=path.is_dir())


def _existing(folder: str, names: str) -> list[Path]:
    return [path for name in names.split() if (path := Path(folder, name)).exists()]


def _mask(path: str, *, folder: bool) -> tuple[str, ...]:
    return ("--tmpfs", path, "--remount-ro", path) if folder else ("--ro-bind", os.devnull, path)


def _handle_of(data: bytes, handles: list[int]) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        handles.append(os.dup(file.fileno()))
    return handles[-1]


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


def _wait_for(first: int) -> None:
    """Wait until the first process of a sandbox has ended, which ends all other processes of the sandbox too. This call
    blocks the thread.
    """
    with os.fdopen(first, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):
        process = os.pidfd_open(json.loads(file.read())["child-pid"])
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            ended.poll(_LAST)
        finally:
            os.close(process)


def _within(path: str, places: Collection[str]) -> bool:
    while path and path not in places:
        path = path.rpartition("/")[0]
    return bool(path)


def find(root: Path, own: Collection[str]) -> tuple[dict[str, bool], dict[str, tuple[int, int]]]:
    """Return the paths that commands may not see, each with True for a folder. They are all hidden names below the top
    folder, and the hidden names in `own` at the top. Return also the other files that have several hard links, each
    with its device and inode. This call blocks the thread.
    """
    masks: dict[str, bool] = {}
    others: dict[str, tuple[int, int]] = {}
    linked: set[tuple[int, int]] = set()
    left = [str(root)]
    while left:
        folder = left.pop()
        for entry in _entries(folder):
            hidden = is_hidden(entry.name)
            if entry.is_symlink():
                real = Path(os.path.realpath(entry.path)) if hidden else root
                # The link's target may be a file of the project whose name is not hidden.
                if real != root and real.exists() and not file_access.hidden(root, real):
                    masks[str(real)] = real.is_dir()
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and not hidden:
                left.append(entry.path)
                continue
            if hidden and folder == str(root) and entry.name not in own:
                continue
            node = _shared(entry)
            if hidden:
                masks[entry.path] = is_folder
                linked |= {node} if node is not None else set()
            elif node is not None:
                others[entry.path] = node
    return masks | {path: False for path, node in others.items() if node in linked}, others


def _shared(entry: os.DirEntry[str]) -> tuple[int, int] | None:
    """Return device and inode of a file with several hard links; None for other files."""
    with contextlib.suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
            return found.st_dev, found.st_ino
    return None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; [] if the folder cannot be listed. Commands cannot list such a folder either."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
