"""Runs commands in a bubblewrap sandbox, which contains only the project's folder and the system's programs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import platform
import select
import shutil
import signal
import stat
import struct
import tempfile
import tomllib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot import errors, file_access, text
from bot.config.ship_file import ShellLimits
from bot.file_access import is_hidden
from bot.tools.file_guard import Command, FileGuard, InstructionFileSet
from bot.tools.permissions.patterns import literal_words
from bot.tools.permissions.protected_code import CLOSED, ProtectedCode, protected_code

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
"""Max files that one command may create. Empty files use no bytes, but a disk without free inodes takes no messages."""
_SHARE = 2
"""Divisor of the free bytes and of the free inodes. A command may use at most half of each."""
_OURS = 4
"""Number of processes that the sandbox needs for itself."""
_LAST = 5_000
"""Timeout in milliseconds for processes that a command leaves running when it ends."""
KEPT = 512 * 1024
"""Max bytes kept from the beginning of each output stream of a command. The same number is kept from the stream's end."""
LAST_WORDS = 2.0
"""Timeout in seconds for reading output after the command has ended."""
REAP = 10.0
"""Timeout in seconds for a killed process to exit."""
LOOK = 0.05
"""Interval in seconds between usage checks."""
_MB = 1024 * 1024
_BLOCK = 512
_KILLED_FIRST = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"'
_ROOM = 'for one in {}; do ulimit ${{one%=*}} ${{one#*=}} 2>/dev/null; done; exec "$@"'
"""Shell line that sets the limits. Errors are ignored: if a limit cannot be set, a lower one already applies."""
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


class Isolation:
    """Runs commands in the project's folder. If `required` is False, commands run without a sandbox. If `network` is
    True, commands can use the machine's network.
    """

    def __init__(
        self,
        root: Path,
        *,
        required: bool = True,
        network: bool = False,
        which: Callable[[str], str | None] = shutil.which,
        limits: ShellLimits | None = None,
        code: ProtectedCode | None = None,
        guard: FileGuard | None = None,
    ) -> None:
        self.root, self.required, self.network, self.which = root, required, network, which
        self.limits = limits or ShellLimits()
        self.code = code or protected_code(root)
        self.guard = guard or FileGuard(root)
        self._works: tuple[str, tuple[str, ...]] | None = None
        """Path of the bubblewrap program that passed a trial run, and the sandbox's optional features that work with this program."""
        self.leaving: set[asyncio.Task[list[str]]] = set()

    async def run(self, command: str, seconds: float, guarded: Command | None = None) -> CommandResult:
        """Run a command line. The command runs without a shell if it contains no character that a shell interprets.
        `guarded` is the provenance of the text that the command may write.

        Raises `errors.ToolError` if commands cannot run here, and OSError if the command cannot be started.
        """
        root = self.root.resolve()
        if self.code.closed:
            raise errors.ToolError(f"{CLOSED}.")
        shell = "bash" if shutil.which("bash", path=PATH) is not None else "sh"
        words = list(literal_words(command) or (shell, "-c", command))
        notes: list[str] = []
        async with self._watched(guarded or Command(), notes) as (info, instructs):
            handles = [os.dup(info)]
            try:
                if self.required:
                    words = [*await self.sandbox(root, handles, instructs), *_limited(self.limits, words)]
                else:
                    # Without a sandbox, the limit on processes would count all processes of the user, so it is not set.
                    words = _limited(self.limits.model_copy(update={"processes": None}), words)
                # If memory runs out, the kernel kills a command before it kills the gateway.
                words = ["/bin/sh", "-c", _KILLED_FIRST, "sh", *words]
                watch = await asyncio.to_thread(_watch, self.limits, root)
                ended = await run_process(words, root, seconds, watch, handles)
            finally:
                for handle in handles:
                    os.close(handle)
        return replace(ended, stderr="\n".join([ended.stderr, *notes])) if notes else ended

    @contextlib.asynccontextmanager
    async def _watched(
        self, command: Command, notes: list[str]
    ) -> AsyncIterator[tuple[int, InstructionFileSet]]:
        """Guard the project's files during a command. The guard ends when the command ends, or at the next start if the
        process was killed. Yields a file descriptor and the instruction files. Bubblewrap writes the pid of the sandbox's
        first process to the descriptor. All other processes of the sandbox end with that process.
        """
        first, info = os.pipe()
        begun = asyncio.create_task(asyncio.to_thread(self.guard.begin, command))

        async def left() -> list[str]:
            await asyncio.wait([begun])
            await asyncio.to_thread(_wait_for, first)
            return await asyncio.to_thread(self.guard.end, command)

        try:
            yield info, await asyncio.shield(begun)
        finally:
            os.close(info)
            # `left` runs as a task of its own, so that it completes even if the turn is stopped meanwhile.
            task = asyncio.create_task(left())
            self.leaving.add(task)
            task.add_done_callback(self.leaving.discard)
            notes += await asyncio.shield(task)

    async def sandbox(self, root: Path, handles: list[int], instructs: InstructionFileSet) -> list[str]:
        """Return the words of a command line that starts bubblewrap. The caller appends the command, and lets
        the process inherit the file descriptors in `handles`. This method adds a descriptor to `handles` for each file from which
        bubblewrap reads arguments or the filter. Raises `errors.ToolError` if no sandbox is possible.
        """
        program, parts = await self.check()
        found = await asyncio.to_thread(self._covered, root, instructs)
        if len(found) > ARGUMENTS:
            raise errors.ToolError(CROWDED)
        covered = _handle_of(b"".join(os.fsencode(word) + b"\0" for word in found), handles)
        calls = syscall_filter()
        return [
            program,
            *arguments(root, self.limits, network=self.network, parts=parts),
            *("--info-fd", str(handles[0])),
            *(() if calls is None else ("--seccomp", str(_handle_of(calls, handles)))),
            *("--args", str(covered), "--"),
        ]

    def _covered(self, root: Path, instructs: InstructionFileSet) -> list[str]:
        """Return bubblewrap's arguments that hide some paths and make others read-only. Shipmate's code and instruction
        files become read-only, because only file tools ask for approval before they change them.
        """
        masks, others = find(root, self.guard.own or ())
        sealed = [str(path) for path in self.code.sealed if path.exists()]
        sealed += [one for one in instructs.files if not _within(one, masks)]
        covered = {*masks, *sealed}
        others = {path: node for path, node in others.items() if not _within(path, covered)}
        sealed += [path for path, node in others.items() if node in instructs.nodes]
        # The code is searched for hard links only if the project contains hard links. There may be thousands of hard
        # links to the code, so each top-level folder that contains one becomes read-only as a whole.
        nodes = self.code.linked() if others else frozenset()
        tops = {path[len(str(root)) + 1 :].split("/", 1)[0] for path, node in others.items() if node in nodes}
        sealed += [f"{root}/{top}" for top in sorted(tops)]
        # Each folder above a hidden or read-only path becomes a mount point. Otherwise a command could move the folder
        # to a path that the next command's arguments do not hide. Commands cannot move anything in a read-only folder.
        folders = {folder for path in (*masks, *sealed) for folder in Path(path).parents}
        inside, fixed = (str(one) for one in folders if root in one.parents), frozenset(sealed)
        above = [folder for folder in inside if not _within(folder, fixed)]
        words = [word for path in sorted(above) for word in ("--bind", path, path)]
        words += [word for path in sealed for word in ("--ro-bind", path, path)]
        return words + [word for path, folder in masks.items() for word in _mask(path, folder=folder)]

    async def check(self) -> tuple[str, tuple[str, ...]]:
        """Return the path of bubblewrap and its optional features that work here. Raises `errors.ToolError` if bubblewrap is
        missing, or if no trial run of it has succeeded on this machine.
        """
        program = self.which("bwrap")
        # PATH may lead into the project's folder, where a command could have put a program named `bwrap`.
        if program is None or await asyncio.to_thread(self.code.changeable, Path(program)):
            raise errors.ToolError(MISSING)
        if self._works is not None and self._works[0] == program:
            return self._works
        root = self.root.resolve()
        # In containers and hardened services, parts of /proc are already hidden, so a new /proc cannot be mounted. Older
        # versions of bubblewrap cannot disable user namespaces; the filter of system calls also forbids user namespaces.
        for parts in (("proc", "alone"), ("proc",), ("alone",), ()):
            trial = [program, *arguments(root, self.limits, network=self.network, parts=parts), "--", "true"]
            with contextlib.suppress(OSError):
                if (await run_process(trial, root, seconds=10)).status == 0:
                    self._works = program, parts
                    return self._works
        raise errors.ToolError(MISSING)


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


LimitCheck = Callable[[int], str | None]
"""Function that gets a command's pid and returns the name of the limit that the command has exceeded; None if it exceeds none."""


def _watch(limits: ShellLimits, root: Path) -> LimitCheck:
    """Return a check of limits that the kernel does not enforce: processes of the user root, disk space, number of files."""
    before = os.statvfs(root)
    room = min((limits.disk_mb or 0) * _MB, before.f_bavail * before.f_frsize // _SHARE)
    files = min(FILES, before.f_favail // _SHARE)

    def exceeded(pid: int) -> str | None:
        if limits.processes is not None and _threads(pid) > limits.processes + _OURS:
            return f"it had more than {limits.processes} processes"
        now = os.statvfs(root)
        if limits.disk_mb is not None and (before.f_bavail - now.f_bavail) * now.f_frsize > room:
            return f"it had written more than {max(1, room // _MB):,} MB"
        if before.f_favail and before.f_favail - now.f_favail > files:
            return f"it had made more than {files:,} files"
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


# ------------------------------------------------------------ arguments of bubblewrap


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


def _within(path: str, places: Collection[str]) -> bool:
    while path and path not in places:
        path = path.rpartition("/")[0]
    return bool(path)


_Node = tuple[int, int]
"""Device and inode of a file."""


def find(root: Path, own: Collection[str]) -> tuple[dict[str, bool], dict[str, _Node]]:
    """Return the paths that commands must not see, each with True for a folder: all hidden names below the top folder, and the
    hidden names in `own` at the top. Return also the other files that have several hard links, each with its device and inode.
    This call blocks the thread.
    """
    masks: dict[str, bool] = {}
    nodes: dict[str, _Node] = {}
    left = [str(root)]
    while left:
        folder = left.pop()
        entries = list[os.DirEntry[str]]()
        # Skip an unreadable folder, because commands cannot list it either. After any other failure the command is not run.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            entries += os.scandir(folder)
        for entry in entries:
            hidden = is_hidden(entry.name)
            if hidden and entry.is_symlink():
                real = Path(os.path.realpath(entry.path))
                # Hide also the target of a hidden link, if the target's own name in the project is not hidden.
                if real != root and real.exists() and not file_access.hidden(root, real):
                    masks[str(real)] = real.is_dir()
            elif entry.is_dir(follow_symlinks=False) and not hidden:
                left.append(entry.path)
            elif not entry.is_symlink() and not (hidden and folder == str(root) and entry.name not in own):
                if hidden:
                    masks[entry.path] = entry.is_dir(follow_symlinks=False)
                with contextlib.suppress(OSError):
                    state = entry.stat(follow_symlinks=False)
                    if state.st_nlink > 1 and stat.S_ISREG(state.st_mode):
                        nodes[entry.path] = state.st_dev, state.st_ino
    linked = {nodes[path] for path in masks if path in nodes}
    others = {path: node for path, node in nodes.items() if path not in masks}
    return masks | {path: False for path, node in others.items() if node in linked}, others


# ------------------------------------------------------------ processes


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. `status` is negative if a signal ended the command. `late` means that the command was
    stopped at its time limit. If another limit stopped the command, `over` names that limit.
    """

    status: int
    stdout: str
    stderr: str
    late: bool = False
    over: str | None = None


class _Process(asyncio.SubprocessProtocol):
    """Keeps the beginning and the end of each output stream. `exited` is set when the process ends, even if a child process
    still has the pipes open. `silent` is set when the pipes are closed.
    """

    def __init__(self) -> None:
        self._outputs = {fd: [bytearray(), bytearray()] for fd in (1, 2)}
        self._lost = {1: 0, 2: 0}
        self.exited, self.silent = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        head, tail = self._outputs[fd]
        room = max(0, KEPT - len(head))
        head += data[:room]
        tail += data[room:]
        if len(tail) > 2 * KEPT:
            self._lost[fd] += len(tail) - KEPT
            del tail[:-KEPT]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.silent.set()

    def words(self, fd: int) -> str:
        head, tail = self._outputs[fd]
        lost = self._lost[fd] + max(0, len(tail) - KEPT)
        between = f"\n[… {lost} bytes left out …]\n".encode() if lost else b""
        return text.without_escapes((head + between + tail[-KEPT:]).decode("utf-8", "replace"))


async def run_process(
    words: Sequence[str],
    folder: Path,
    seconds: float,
    watch: LimitCheck = lambda _: None,
    handles: Sequence[int] = (),
) -> CommandResult:
    """Run a command without input, in its own process group. The group is killed when the command ends, at the time
    limit, when `watch` reports an exceeded limit or fails, or when the caller is cancelled. The command inherits only
    the descriptors in `handles`. Raises OSError if the command cannot be started or watched.
    """
    loop = asyncio.get_running_loop()
    how = {"cwd": folder, "env": dict(ENVIRONMENT), "pass_fds": tuple(handles), "start_new_session": True}
    start = asyncio.create_task(
        loop.subprocess_exec(_Process, *words, stdin=asyncio.subprocess.DEVNULL, **how)  # type: ignore[arg-type]
    )
    cancelled: asyncio.CancelledError | None = None
    while not start.done():  # if the start were cancelled, the command's processes could remain
        try:
            await asyncio.wait([start])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and start.exception() is not None:
        raise cancelled
    transport, process = start.result()
    group, deadline, over = transport.get_pid(), loop.time() + seconds, None
    try:
        if cancelled is not None:
            raise cancelled
        while not (process.exited.is_set() or over) and loop.time() < deadline:
            over = await asyncio.to_thread(watch, group)
            await _until(process.exited, 0 if over else min(LOOK, deadline - loop.time()))
        over = None if process.exited.is_set() else over
        late = not (process.exited.is_set() or over)
        _kill(group)
        # A process that left the group may keep the pipes open. Do not wait for such a process.
        await _until(process.silent, LAST_WORDS)
    finally:
        _kill(group)
        try:
            await _until(process.exited, REAP)  # otherwise a zombie process would remain
        finally:
            transport.close()
    status = transport.get_returncode()
    return CommandResult(
        -signal.SIGKILL if status is None else status, process.words(1), process.words(2), late, over
    )


async def _until(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _wait_for(first: int) -> None:
    with os.fdopen(first, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):
        process = os.pidfd_open(json.loads(file.read())["child-pid"])
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            ended.poll(_LAST)
        finally:
            os.close(process)


# ------------------------------------------------------------ filter of system calls

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_SET_ID = 0o6000
_MAKES = 0x40 | 0x400000
"""Flags of `open` that create a file: O_CREAT and O_TMPFILE."""
_SPACES = 0x7E020000
"""Flags of `clone` for new namespaces, except the time namespace, which `clone` does not support."""
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FAMILIES = (1, 2, 10, 16)
"""Allowed socket families: Unix, IPv4, IPv6 and netlink. Other families are refused, because they reach targets that no
namespace isolates, such as the host of a virtual machine.
"""

CALLS: Mapping[str, Mapping[str, Sequence[int]]] = tomllib.loads(
    Path(__file__).with_name("syscalls.toml").read_text(encoding="ascii")
)
"""Tables of system calls, each with its numbers on x86_64 and on aarch64; -1 if the architecture lacks the call."""
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Audit constant of each architecture, and its column in `CALLS`."""
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
"""System calls that set the mode of a file, each with the index of its mode argument."""
_OPENS = {"open": (1, 2), "openat": (2, 3)}
"""System calls that set the mode only if they create a file, each with the indices of its flags and mode arguments."""

_Step = tuple[int, int, int, int]


def syscall_filter(machine: str = platform.machine()) -> bytes | None:
    """Return the filter in the kernel's binary format (classic BPF); None for architectures other than x86_64 and aarch64."""
    if machine not in MACHINES:
        return None
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(*MACHINES[machine]))


def _steps(mark: int, column: int) -> Iterator[_Step]:
    # A call in the convention of another architecture has another number, so the filter refuses all such calls.
    yield from ((_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, mark), _refuse(errno.ENOSYS), (_LOAD, 0, 0, _NUMBER))
    if column == 0:
        yield from ((_AT_LEAST, 0, 1, 0x40000000), _refuse(errno.ENOSYS))
    bodies = {call: [_refuse(errno.EPERM)] for call in CALLS["forbidden"]}
    bodies |= {call: [_refuse(errno.ENOSYS)] for call in CALLS["unknown"]}
    # `fallocate` fills a disk faster than the usage check notices. If the call is refused, libraries write zeros instead.
    bodies["fallocate"] = [_refuse(errno.EOPNOTSUPP)]
    bodies |= {"clone": _any(0, _SPACES), "unshare": _any(0, _SPACES | _NEW_TIME)}
    bodies |= {call: _any(at, _SET_ID) for call, at in _MODES.items()}
    for call, (flags, mode) in _OPENS.items():
        makes = [(_LOAD, 0, 0, _argument(flags)), (_ANY_OF, 0, 3, _MAKES)]
        bodies[call] = [*makes, *_any(mode, _SET_ID)]
    lines = [(_LOAD, 0, 0, _argument(1)), (_EQUAL, 1, 0, _TIOCSTI), (_EQUAL, 0, 1, _TIOCLINUX)]
    bodies["ioctl"] = [*lines, _refuse(errno.EPERM)]
    known = [(_EQUAL, len(_FAMILIES) - at, 0, one) for at, one in enumerate(_FAMILIES)]
    bodies["socket"] = [(_LOAD, 0, 0, _argument(0)), *known, _refuse(errno.EAFNOSUPPORT)]
    for numbers in CALLS.values():
        for call, columns in numbers.items():
            # A call for which the filter has no refusing steps is allowed.
            if (number := columns[column]) >= 0:
                body = bodies[call]
                yield from ((_EQUAL, 0, len(body) + 1, number), *body, (_RETURN, 0, 0, _ALLOW))
    yield (_RETURN, 0, 0, _ALLOW)


def _any(at: int, bits: int) -> list[_Step]:
    return [(_LOAD, 0, 0, _argument(at)), (_ANY_OF, 0, 1, bits), _refuse(errno.EPERM)]


def _argument(at: int) -> int:
    return _ARGUMENTS + 8 * at


def _refuse(number: int) -> _Step:
    return (_RETURN, 0, 0, _ERRNO | number)
