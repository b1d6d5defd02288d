"""Runs commands in a bubblewrap sandbox. The sandbox contains the project's folder and the system's
programs, and nothing else.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import select
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors, file_access
from bot.file_access import is_hidden
from bot.tools import processes, seccomp
from bot.tools.command_limits import CommandLimits, CommandUsage
from bot.tools.permissions.patterns import literal_words
from bot.tools.permissions.protected_code import CLOSED, ProtectedCode, protected_code
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
VISITS = 500_000
"""Max entries of the project's folder searched for hidden names. Folders above this limit are masked as a whole."""
ARGUMENTS = 8_000
"""Max arguments used for masks; bubblewrap accepts 9,000 arguments in all."""
_NOTES = 10
"""Max lines of each kind in the notes on a command."""
_TWINS = 100
"""Max hard links of protected files that are made read-only individually. Above it, the top-level folders of
the links are made read-only.
"""
_LAST = 5_000
"""Timeout in milliseconds for processes that a finished command left running."""
_MB = 1024 * 1024
_KILLED_FIRST = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"'
_READ_ONLY_PROC = (
    "/proc/sys",
    "/proc/bus",
    "/proc/driver",
    "/proc/fs",
    "/proc/irq",
    "/proc/pressure",
    "/proc/tty",
)
_MASKED_PROC = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/mtrr",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/vmallocinfo",
)
"""Parts of /proc that show information about the whole machine, or can change the machine."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_NETWORK_ETC = ("/etc/hosts", "/etc/resolv.conf")
CROWDED = (
    "The project's folder itself has thousands of names that commands may not see, such as .env_1: too many to hide here. "
    "Tell the person to move them into a folder, and go on without commands."
)
MISSING = (
    "Commands run only in a sandbox, and bubblewrap 0.7 or newer, which makes it, is missing or does not work here. Whoever runs me "
    "can install it (apt install bubblewrap, dnf install bubblewrap) and allow users to create namespaces. Tell the person, and go on "
    "without commands."
)


@dataclass(slots=True)
class Isolation:
    """Runs commands in the project's folder. If `required` is False, commands run without a sandbox.
    `network` gives commands the machine's network.
    """

    root: Path
    required: bool = True
    network: bool = False
    which: Callable[[str], str | None] = shutil.which
    limits: CommandLimits = field(default_factory=CommandLimits)
    code: ProtectedCode | None = None
    """The protected code; determined by the first command if not given."""
    vetting: Vetting | None = None
    _works: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs that passed a trial run, each with the optional parts of the sandbox that work on this machine."""
    _running: int = 0
    _own: file_access.HiddenNames = field(default_factory=dict)
    """Hidden names at the top of the project's folder when the first of the running commands started. No
    command created these names.
    """
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    leaving: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, command: str, seconds: float) -> processes.CommandResult:
        """Run a command line. A command line without characters that a shell interprets is run without a
        shell.

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
            around.callback(close, handles)
            handles.append(os.dup(info))
            if self.required:
                words = [*await self.sandbox(root, handles, notes, instructs), *self.limits.around(words)]
            else:
                # Without a process namespace, the limit on processes would count all processes of the user.
                words = dataclasses.replace(self.limits, processes=None).around(words)
            usage = await asyncio.to_thread(CommandUsage, root, self.limits)
            # If memory runs out, the kernel kills a command before it kills the gateway.
            words = ["/bin/sh", "-c", _KILLED_FIRST, "sh", *words]
            ended = await processes.run(
                words, folder=root, environment=ENVIRONMENT, seconds=seconds, watch=usage, handles=handles
            )
        return dataclasses.replace(ended, stderr="\n".join([ended.stderr, *notes])) if notes else ended

    @contextlib.asynccontextmanager
    async def _watched(self, root: Path, notes: list[str]) -> AsyncIterator[tuple[int, InstructionFileSet]]:
        """Record hidden names and instruction files before a command, and reject hidden names and
        instruction files that the command creates. Such names and files are rejected when the command
        ends, when another command starts and, if the process was killed, at the next start. Yields a file
        descriptor and the instruction files. Bubblewrap writes to the descriptor the pid of the sandbox's
        first process; all other processes of the sandbox end with that process.
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
            # The check completes even if the turn is stopped meanwhile.
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
                    f"{name} may not be made by a command; it is {aside} now."
                    for name, aside in moved.items()
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

    async def sandbox(
        self, root: Path, handles: list[int], notes: list[str], instructs: InstructionFileSet
    ) -> list[str]:
        """Return the words that start bubblewrap around a command. The command inherits `handles`; the
        descriptors that bubblewrap's arguments need are added to `handles`. Raises `errors.ToolError` if
        no sandbox is possible.
        """
        program = await self._program()
        if program is None:
            raise errors.ToolError(MISSING)
        found = await asyncio.to_thread(lambda: self._covered(root, instructs).fitting())
        if found is None:
            raise errors.ToolError(CROWDED)
        notes += found.notes(root)
        masks = _handle_of(b"".join(os.fsencode(word) + b"\0" for word in found.words()), handles)
        calls = seccomp.program()
        return [
            program,
            *arguments(root, self.limits, network=self.network, parts=self._works[program]),
            *("--info-fd", str(handles[0])),
            *(() if calls is None else ("--seccomp", str(_handle_of(calls, handles)))),
            *("--args", str(masks), "--"),
        ]

    def _covered(self, root: Path, instructs: InstructionFileSet) -> PathMasks:
        """Return the paths that commands cannot see and the paths that commands cannot change. This call
        blocks the thread.
        """
        found = find(root, self._own)
        masked = {mask.path for mask in found.masks}
        # Only file tools may change instruction files, because they ask for approval.
        standing = [one for one in instructs.files if not _within(one, masked)]
        sealed = (*map(str, self._ours().standing()), *standing)
        covered = masked.union(sealed)
        others = [(path, node) for path, node in found.others if not _within(path, covered)]
        # The code is searched for hard links only if the project contains hard links.
        nodes = self._ours().linked() | instructs.nodes if others else frozenset()
        twins = [path for path, node in others if node in nodes]
        shared: tuple[str, ...] = ()
        if len(twins) > _TWINS:
            tops = (path[len(str(root)) + 1 :].split("/", 1)[0] for path in twins)
            shared, twins = tuple(dict.fromkeys(f"{root}/{top}" for top in tops)), []
        return dataclasses.replace(found, sealed=(*sealed, *twins, *shared), shared=shared)

    async def check(self) -> None:
        """Raise `errors.ToolError` if bubblewrap is missing or does not work on this machine."""
        if await self._program() is None:
            raise errors.ToolError(MISSING)

    async def _program(self) -> str | None:
        """Return the path of bubblewrap if a trial run succeeds. Until a trial has succeeded once, each call
        repeats the trial.
        """
        program = self.which("bwrap")
        if program is None or program in self._works:
            return program
        if await asyncio.to_thread(self._ours().changeable, Path(program)):
            return None  # PATH leads into the project's folder, where a command may have put it
        root = self.root.resolve()
        # In containers and hardened services, parts of /proc are masked already, so a new /proc cannot be mounted. Older versions
        # of bubblewrap cannot disable user namespaces; the filter of system calls forbids them too.
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


def arguments(root: Path, limits: CommandLimits, *, network: bool, parts: Sequence[str]) -> Iterator[str]:
    """Return the arguments of bubblewrap that define what a command can see and do."""
    size = ("--size", str(limits.tmp_mb * _MB)) if limits.tmp_mb is not None else ()
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
    if "alone" in parts:
        yield from ("--unshare-user", "--disable-userns")
    if network:
        yield "--share-net"
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    for folder in map(Path, _SYSTEM):
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    for fact in map(Path, (*_ETC, *(_NETWORK_ETC if network else ()))):
        if fact.exists():
            yield from ("--ro-bind", str(fact.resolve()), str(fact))
    if "proc" in parts:
        yield from ("--proc", "/proc", *_proc())
    else:
        yield from ("--tmpfs", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - its own
    yield from (*size, "--tmpfs", _TMP, "--tmpfs", "/run", "--remount-ro", "/run")
    yield from ("--bind", str(root), str(root), "--chdir", str(root))
    yield from ("--remount-ro", "/")


def _proc() -> Iterator[str]:
    """Return the bubblewrap arguments that mask machine-wide parts of /proc, which a root user could change."""
    for path in map(Path, _READ_ONLY_PROC):
        if path.exists():
            yield from ("--ro-bind", str(path), str(path))
    for path in map(Path, _MASKED_PROC):
        if path.exists():
            yield from Mask(str(path), folder=path.is_dir()).words()


def _handle_of(data: bytes, handles: list[int]) -> int:
    """Return the descriptor of an open file with this content; the descriptor is added to `handles`."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        handles.append(os.dup(file.fileno()))
    return handles[-1]


def _wait_for(first: int) -> None:
    """Wait until the first process of a sandbox has ended. All other processes of the sandbox have ended
    then too. This call blocks the thread.
    """
    with os.fdopen(first, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):
        process = os.pidfd_open(json.loads(file.read())["child-pid"])
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            ended.poll(_LAST)
        finally:
            os.close(process)


def close(handles: list[int]) -> None:
    while handles:
        os.close(handles.pop())


@dataclass(frozen=True, slots=True)
class Mask:
    """A path that appears empty to commands."""

    path: str
    folder: bool

    def words(self) -> tuple[str, ...]:
        """Return the arguments of bubblewrap for this mask."""
        if self.folder:
            return ("--tmpfs", self.path, "--remount-ro", self.path)
        return ("--ro-bind", os.devnull, self.path)


@dataclass(frozen=True, slots=True)
class PathMasks:
    """The paths in a project's folder that commands cannot see or cannot change."""

    root: str = ""
    masks: tuple[Mask, ...] = ()
    whole: frozenset[str] = frozenset()
    """Folders that are masked as a whole, because they contain too many hidden names or too many entries to search."""
    sealed: tuple[str, ...] = ()
    """Read-only paths: code that Shipmate runs after the next start, and instruction files."""
    shared: tuple[str, ...] = ()
    """Read-only folders that contain too many hard links of protected files."""
    others: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Files with several hard links, each with its device and inode."""

    def pins(self) -> list[str]:
        """Return the folders above masked or read-only paths, outermost first. Each of these folders becomes
        a mount point. Otherwise a command could move the folder, with its content, to a place that the
        masks of another command do not cover.
        """
        above: set[str] = set()
        sealed = frozenset(self.sealed)
        for kept in (*(mask.path for mask in self.masks), *self.sealed):
            path = kept.rpartition("/")[0]
            if _within(path, sealed):
                continue  # commands cannot move anything in a read-only folder
            while len(path) > len(self.root) and path not in above:
                above.add(path)
                path = path.rpartition("/")[0]
        return sorted(above)

    def words(self) -> list[str]:
        """Return the arguments of bubblewrap for all masks and read-only paths."""
        pinned = [word for path in self.pins() for word in ("--bind", path, path)]
        fixed = [word for path in self.sealed for word in ("--ro-bind", path, path)]
        return [*pinned, *fixed, *(word for mask in self.masks for word in mask.words())]

    def fitting(self) -> PathMasks | None:
        """Return masks that need at most `ARGUMENTS` arguments. To save arguments, top-level folders are
        masked as a whole; the folder with the most masks comes first. Returns None if the top of the
        project alone needs too many.
        """
        here = self
        while len(here.words()) > ARGUMENTS:
            inner = (mask.path[len(self.root) + 1 :] for mask in here.masks)
            most = collections.Counter(path.split("/", 1)[0] for path in inner if "/" in path)
            if not most:
                return None
            folder = f"{self.root}/{most.most_common(1)[0][0]}"
            kept = (mask for mask in here.masks if not mask.path.startswith(f"{folder}/"))
            masks = (*kept, Mask(folder, folder=True))
            here = dataclasses.replace(here, masks=masks, whole=here.whole | {folder})
        return here

    def notes(self, root: Path) -> Iterator[str]:
        """Yield a line for the model on each folder that is masked or read-only as a whole."""
        for path in sorted(self.whole)[:_NOTES]:
            shown = os.path.relpath(path, root)
            yield f"{shown} is empty for commands: it has too many files, or too many that they may not see."
        for path in self.shared[:_NOTES]:
            yield f"{os.path.relpath(path, root)} cannot be changed by commands: it shares files (hard links) with what Shipmate runs on."


def _within(path: str, places: AbstractSet[str]) -> bool:
    """Return True if a path is one of these places, or is inside one."""
    while path and path not in places:
        path = path.rpartition("/")[0]
    return bool(path)


def find(root: Path, own: Collection[str]) -> PathMasks:
    """Return masks for all hidden names below the project's top folder, and for those hidden names at the
    top that are in `own`. This call blocks the thread.
    """
    masks: list[Mask] = []
    whole: set[str] = set()
    linked: set[tuple[int, int]] = set()
    left: collections.deque[str] = collections.deque([str(root)])
    others: list[tuple[str, tuple[int, int]]] = []
    seen = 0
    while left:
        folder = left.popleft()
        if seen > VISITS:
            masks.append(Mask(folder, folder=True))
            whole.add(folder)
            continue
        for entry in _entries(folder):
            seen += folder != str(root)
            if entry.is_symlink():
                if is_hidden(entry.name):
                    masks += _target(root, entry.path)
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_hidden(entry.name):
                if folder != str(root) or entry.name in own:
                    masks.append(Mask(entry.path, folder=is_folder))
                    linked |= _linked(entry)
            elif is_folder:
                left.append(entry.path)
            else:
                others += [(entry.path, node) for node in _linked(entry)]
            if seen > VISITS and folder != str(root):
                masks = [mask for mask in masks if not mask.path.startswith(f"{folder}/")]
                left = collections.deque(one for one in left if not one.startswith(f"{folder}/"))
                masks.append(Mask(folder, folder=True))
                whole.add(folder)
                break
    masks += [Mask(path, folder=False) for path, node in others if node in linked]
    return PathMasks(str(root), tuple(masks), frozenset(whole), others=tuple(others))


def _target(root: Path, link: str) -> Iterator[Mask]:
    """Return a mask of a symlink's target, if the target is in the project under a name that is not hidden."""
    real = Path(os.path.realpath(link))
    if real != root and real.exists() and not file_access.hidden(root, real):
        yield Mask(str(real), folder=real.is_dir())


def _linked(entry: os.DirEntry[str]) -> set[tuple[int, int]]:
    """Return device and inode of a file with several hard links; nothing for other files."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return set()
    other = found.st_nlink > 1 and stat.S_ISREG(found.st_mode)
    return {(found.st_dev, found.st_ino)} if other else set()


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Return the entries of a folder. Returns none if the folder cannot be listed, because commands cannot
    list such a folder either.
    """
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
