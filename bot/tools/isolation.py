"""Isolates commands: bubblewrap, or else name spaces and Landlock (`bot.tools.confine`), with the project's folder and the
system's programs and nothing else.
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
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors, hidden_paths
from bot.hidden_paths import is_hidden
from bot.instruction_files import InstructionFileSet
from bot.tools import confine, processes, seccomp
from bot.tools.command_limits import CommandLimits, CommandUsage
from bot.tools.permissions.patterns import literal_words
from bot.tools.permissions.protected_code import CLOSED, ProtectedCode, protected_code
from bot.vetting import NOT_VETTED, Vetting

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OWN = "/tmp"  # noqa: S108 - inside it is a folder of the command's own
ENVIRONMENT: Mapping[str, str] = {
    "PATH": PATH,
    "HOME": _OWN,
    "TMPDIR": _OWN,
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
"""All that a command knows of ours."""
VISITS = 500_000
"""Entries below the project's folder that are looked at for what has to be hidden."""
ARGUMENTS = 8_000
"""Arguments for what is hidden; bubblewrap takes 9,000 in all."""
_TOLD = 10
_MANY = 100
"""Other names of files of ours that are kept one by one; where there are more, the folders at the top that have them are."""
_LAST = 5_000
"""Milliseconds for the processes of a command that has ended to be gone."""
_MB = 1024 * 1024
_FIRST_TO_GO = 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"'
_SETTINGS = ("/proc/sys", "/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/tty")
_SECRETS = (
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
"""Parts of /proc that reveal the whole machine, or change it."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FACTS = (
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
DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero")
_NET = ("/etc/hosts", "/etc/resolv.conf")
CONFINE = confine.__file__
CROWDED = (
    "The project's folder itself has thousands of names that commands may not see, such as .env_1: too many to hide here. "
    "Tell the person to move them into a folder, and go on without commands."
)
MISSING = (
    "Commands run only where they are kept apart from the rest of the machine, and that is not to be had here: "
    "whoever runs me can install bubblewrap 0.7 or newer (apt install bubblewrap, dnf install bubblewrap), or allow name spaces to users "
    "on a kernel that has Landlock. Tell the person, and go on without commands."
)


@dataclass(slots=True)
class Isolation:
    """Runs commands in the project's folder. Without `required` they run as they are where nothing can stand around
    them; `network` gives them that of this machine.
    """

    root: Path
    required: bool = True
    network: bool = False
    which: Callable[[str], str | None] = shutil.which
    limits: CommandLimits = field(default_factory=CommandLimits)
    code: ProtectedCode | None = None
    """Paths of the folder that commands may not change; found if not given."""
    vetting: Vetting | None = None
    """Decides which instruction files hold."""
    _works: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Programs that were seen to work, and what of the wall they can build here."""
    _running: int = 0
    _own: hidden_paths.HiddenNames = field(default_factory=dict)
    """Our hidden names in the folder when the first of the running commands began."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    leaving: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, command: str, seconds: float) -> processes.CommandResult:
        """Run a command line; one that means the same without a shell is run without one.

        Raises `errors.ToolError` where it may not run here, OSError where it cannot be started.
        """
        root = self.root.resolve()
        if self._ours().closed:
            raise errors.ToolError(f"{CLOSED}.")
        words = list(literal_words(command) or (_shell(), "-c", command))
        notes: list[str] = []
        async with contextlib.AsyncExitStack() as around:
            handles: list[int] = []
            told, instructs = await around.enter_async_context(self._watched(root, notes))
            around.callback(_close, handles)
            handles.append(os.dup(told))
            if self.required:
                words = [*await self.around(root, handles, notes, instructs), *self.limits.around(words)]
            else:
                # Outside of a space of its own, all that the user runs would be counted.
                words = dataclasses.replace(self.limits, processes=None).around(words)
            usage = await asyncio.to_thread(CommandUsage, root, self.limits)
            # Where memory gives out, the system ends a command before it ends us.
            words = ["/bin/sh", "-c", _FIRST_TO_GO, "sh", *words]
            ended = await processes.run(
                words, folder=root, environment=ENVIRONMENT, seconds=seconds, watch=usage, handles=handles
            )
        return dataclasses.replace(ended, stderr="\n".join([ended.stderr, *notes])) if notes else ended

    @contextlib.asynccontextmanager
    async def _watched(self, root: Path, notes: list[str]) -> AsyncIterator[tuple[int, InstructionFileSet]]:
        """Snapshot the instruction files before a command, and set aside files of our names that it makes: when it
        ends, when another one begins, and after a kill at the next start. The command's first process is written to
        the handle that this yields; the others end with it.
        """
        async with self._turn:
            if not self._running:
                self._own = await asyncio.to_thread(hidden_paths.hidden_names, root)
                await asyncio.to_thread(hidden_paths.save_names, root, self._own)
            first, tell = os.pipe()
            self._running += 1
        begun: asyncio.Task[InstructionFileSet] | None = None
        try:
            async with self._turn:
                begun = asyncio.create_task(asyncio.to_thread(self._vetted().begin))
                instructs = await asyncio.shield(begun)
                await asyncio.to_thread(hidden_paths.set_aside, root, self._own)
            yield tell, instructs
        finally:
            os.close(tell)
            task = asyncio.create_task(self._left(root, notes, first, begun))
            # It is done to its end, also where the turn is stopped meanwhile.
            self.leaving.add(task)
            task.add_done_callback(self.leaving.discard)
            await asyncio.shield(task)

    async def _left(
        self, root: Path, notes: list[str], first: int, begun: asyncio.Task[InstructionFileSet] | None
    ) -> None:
        await asyncio.to_thread(_wait_for, first)
        if begun is not None:
            await asyncio.wait([begun])  # where the turn was stopped meanwhile, it goes on
        async with self._turn:
            try:
                moved = await asyncio.to_thread(hidden_paths.set_aside, root, self._own)
                told = [
                    f"{name} may not be made by a command; it is {aside} now."
                    for name, aside in moved.items()
                ]
                more = len(told) - _TOLD
                notes += [*told[:_TOLD], *([f"So it is with {more:,} names more."] if more > 0 else [])]
            finally:
                self._running -= 1
                planted = await asyncio.to_thread(self._vetted().end, last=not self._running)
                notes += [f"{path}: {NOT_VETTED}." for path in planted[:_TOLD]]
                if not self._running:
                    await asyncio.to_thread(hidden_paths.remove_saved_names, root)

    def _ours(self) -> ProtectedCode:
        if self.code is None:
            self.code = protected_code(self.root)
        return self.code

    def _vetted(self) -> Vetting:
        if self.vetting is None:
            self.vetting = Vetting(self.root)
        return self.vetting

    async def around(
        self, root: Path, handles: list[int], notes: list[str], instructs: InstructionFileSet
    ) -> list[str]:
        found = await asyncio.to_thread(self._covered, root, instructs)
        program = await self._program()
        if program is not None:
            fits = await asyncio.to_thread(found.fitting)
            if fits is not None:
                notes += fits.notes(root)
                masks = _handed(handles, b"".join(os.fsencode(word) + b"\0" for word in fits.words()))
                wall = wall_of(root, self.limits, network=self.network, parts=self._works[program])
                told = ["--info-fd", str(handles[0])]
                return [program, *wall, *told, *_filtered(handles), "--args", str(masks), "--"]
        notes += found.notes(root)
        return await self._confined(root, found, handles)

    def _covered(self, root: Path, instructs: InstructionFileSet) -> PathMasks:
        """Paths that commands cannot see, and paths that they cannot change. Blocking."""
        found = find(root, self._own)
        closed = {mask.path for mask in found.masks}
        standing = [one for one in instructs.files if not _within(one, closed)]
        # What tells the model what to do is changed by file tools, which ask.
        sealed = (*map(str, self._ours().standing()), *standing)
        twins = self._twins(found, instructs, closed.union(sealed))
        shared: tuple[str, ...] = ()
        if len(twins) > _MANY:
            shared = tuple(
                dict.fromkeys(f"{root}/{one[len(str(root)) + 1 :].split('/', 1)[0]}" for one in twins)
            )
            twins = []
        return dataclasses.replace(found, sealed=(*sealed, *twins, *shared), shared=shared)

    def _twins(self, found: PathMasks, instructs: InstructionFileSet, covered: AbstractSet[str]) -> list[str]:
        """Other names, outside of what is covered, of what instructs and of the code. Blocking."""
        others = [(path, node) for path, node in found.others if not _within(path, covered)]
        if not others:
            return []  # the code is looked through only where there may be some
        nodes = self._ours().linked() | instructs.linked
        return [path for path, node in others if node in nodes]

    async def _confined(self, root: Path, found: PathMasks, handles: list[int]) -> list[str]:
        """The same without bubblewrap. Raises `errors.ToolError` where that is not to be had either."""
        if not await self._confines(root):
            raise errors.ToolError(CROWDED if found.fitting() is None else MISSING)
        return confinement(root, found, handles, self.limits, network=self.network)

    async def _confines(self, root: Path) -> bool:
        """Tell if name spaces and Landlock do what they should; tried until they did once."""
        if CONFINE not in self._works:
            trying = [os.open(os.devnull, os.O_WRONLY)]
            try:
                trial = [*confinement(root, PathMasks(), trying, self.limits, network=self.network), "true"]
                done = await processes.run(
                    trial, folder=root, environment=ENVIRONMENT, seconds=10, handles=trying
                )
            finally:
                _close(trying)
            if done.status != 0:
                return False
            self._works[CONFINE] = ()
        return True

    async def name(self) -> str:
        """The name of what stands around commands here. Raises `errors.ToolError` where nothing can."""
        if await self._program() is not None:
            return "bubblewrap"
        if not await self._confines(self.root.resolve()):
            raise errors.ToolError(MISSING)
        return "name spaces and Landlock"

    async def _program(self) -> str | None:
        """Bubblewrap, where it is and does what it should; tried until it did once."""
        program = self.which("bwrap")
        if program is None or program in self._works:
            return program
        if await asyncio.to_thread(self._ours().changeable, Path(program)):
            return None  # PATH leads into the project's folder, where a command may have put it
        root = self.root.resolve()
        # Where a part of /proc is covered already, as in containers and hardened services, no new one may be mounted;
        # older ones cannot close the door to name spaces, which the filter of calls closes too.
        for parts in (("proc", "alone"), ("proc",), ("alone",), ()):
            trial = [program, *wall_of(root, self.limits, network=self.network, parts=parts), "--", "true"]
            try:
                done = await processes.run(trial, folder=root, environment=ENVIRONMENT, seconds=10)
            except OSError:
                return None
            if done.status == 0:
                self._works[program] = parts
                return program
        return None


def wall_of(root: Path, limits: CommandLimits, *, network: bool, parts: Sequence[str]) -> Iterator[str]:
    """Arguments of bubblewrap: what a command sees and may do."""
    room = ("--size", str(limits.tmp_mb * _MB)) if limits.tmp_mb is not None else ()
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
    if "alone" in parts:
        yield from ("--unshare-user", "--disable-userns")
    if network:
        yield "--share-net"
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    yield from _system(network=network)
    if "proc" in parts:
        yield from ("--proc", "/proc", *_kernel())
    else:
        yield from ("--tmpfs", "/proc", "--remount-ro", "/proc")
    yield from ("--dev", "/dev", *room, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - its own
    yield from (*room, "--tmpfs", _OWN, "--tmpfs", "/run", "--remount-ro", "/run")
    yield from ("--bind", str(root), str(root), "--chdir", str(root))
    yield from ("--remount-ro", "/")


def _system(*, network: bool) -> Iterator[str]:
    for folder in map(Path, _SYSTEM):
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    for fact in map(Path, (*_FACTS, *(_NET if network else ()))):
        if fact.exists():
            yield from ("--ro-bind", str(fact.resolve()), str(fact))


def _kernel() -> Iterator[str]:
    """Arguments that hide the machine's own parts of /proc: root, who owns them, could set them."""
    for path in map(Path, _SETTINGS):
        if path.exists():
            yield from ("--ro-bind", str(path), str(path))
    for path in map(Path, _SECRETS):
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.exists():
            yield from ("--ro-bind", os.devnull, str(path))


def _filtered(handles: list[int]) -> list[str]:
    program = seccomp.program()
    return [] if program is None else ["--seccomp", str(_handed(handles, program))]


def _handed(handles: list[int], data: bytes) -> int:
    """An open file with this in it, for who is started next."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        handles.append(os.dup(file.fileno()))
    return handles[-1]


def _wait_for(first: int) -> None:
    """Wait until the first process of a command's space has ended: then all in it have. Blocking."""
    with os.fdopen(first, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):
        process = os.pidfd_open(json.loads(file.read())["child-pid"])
        try:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            ended.poll(_LAST)
        finally:
            os.close(process)


def _close(handles: list[int]) -> None:
    while handles:
        os.close(handles.pop())


def confinement(
    root: Path, found: PathMasks, handles: list[int], limits: CommandLimits, *, network: bool
) -> list[str]:
    """The same as words that start `bot.tools.confine`."""
    facts = (*_SYSTEM, *_FACTS, *(_NET if network else ()))
    spec = {
        "root": str(root),
        "read": [fact for fact in facts if Path(fact).exists()],
        "devices": [one for one in DEVICES if Path(one).exists()],
        "pinned": found.pins(),
        "closed": [one.path for one in found.masks],
        "fixed": found.sealed,
        "network": network,
        "room": limits.tmp_mb and limits.tmp_mb * _MB,
        "processes": limits.processes,
        "told": handles[0],
        "filter": (seccomp.program() or b"").hex(),
    }
    handle = _handed(handles, json.dumps(spec).encode("ascii"))
    return [sys.executable, "-I", "-S", CONFINE, str(handle)]


@dataclass(frozen=True, slots=True)
class Mask:
    """A covered path: a folder, or anything else."""

    path: str
    folder: bool

    def words(self) -> tuple[str, ...]:
        """Arguments that put nothing in its place."""
        if self.folder:
            return ("--tmpfs", self.path, "--remount-ro", self.path)
        return ("--ro-bind", os.devnull, self.path)


@dataclass(frozen=True, slots=True)
class PathMasks:
    """Hidden paths in a project's folder, and folders that are covered as a whole: they have too much
    of it, or too much to be looked through.
    """

    root: str = ""
    masks: tuple[Mask, ...] = ()
    whole: frozenset[str] = frozenset()
    sealed: tuple[str, ...] = ()
    """Paths that run as ourselves after the next start, or that instruct: not for commands to change."""
    shared: tuple[str, ...] = ()
    """Sealed paths with too many files that are ours under another name."""
    others: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Files that have other names too, with device and inode."""

    def pins(self) -> list[str]:
        """The folders on the way to what is covered or sealed, the outermost first. Each is held in its place, or a command could
        move it, with what is in it, to where another command does not cover it.
        """
        above: set[str] = set()
        sealed = frozenset(self.sealed)
        for kept in (*(mask.path for mask in self.masks), *self.sealed):
            path = kept.rpartition("/")[0]
            if _within(path, sealed):
                continue  # nothing in there moves
            while len(path) > len(self.root) and path not in above:
                above.add(path)
                path = path.rpartition("/")[0]
        return sorted(above)

    def words(self) -> list[str]:
        """Arguments of bubblewrap."""
        pinned = [word for path in self.pins() for word in ("--bind", path, path)]
        fixed = [word for path in self.sealed for word in ("--ro-bind", path, path)]
        return [*pinned, *fixed, *(word for mask in self.masks for word in mask.words())]

    def fitting(self) -> PathMasks | None:
        """The same with no more arguments than bubblewrap takes: whole folders are covered, those with the most of it
        first. None where the folder itself has too many.
        """
        here = self
        while len(here.words()) > ARGUMENTS:
            most = collections.Counter(
                mask.path[len(self.root) + 1 :].split("/", 1)[0]
                for mask in here.masks
                if "/" in mask.path[len(self.root) + 1 :]
            )
            if not most:
                return None
            folder = f"{self.root}/{most.most_common(1)[0][0]}"
            kept = (mask for mask in here.masks if not mask.path.startswith(f"{folder}/"))
            masks = (*kept, Mask(folder, folder=True))
            here = dataclasses.replace(here, masks=masks, whole=here.whole | {folder})
        return here

    def notes(self, root: Path) -> Iterator[str]:
        """A line for each folder that is covered as a whole."""
        for path in sorted(self.whole)[:_TOLD]:
            shown = os.path.relpath(path, root)
            yield f"{shown} is empty for commands: it has too many files, or too many that they may not see."
        for path in self.shared[:_TOLD]:
            yield f"{os.path.relpath(path, root)} cannot be changed by commands: it shares files (hard links) with what Shipmate runs on."


def _within(path: str, places: AbstractSet[str]) -> bool:
    """True if a path is one of these places, or inside one."""
    while path and path not in places:
        path = path.rpartition("/")[0]
    return bool(path)


def find(root: Path, own: Collection[str]) -> PathMasks:
    """Hidden paths below the root, and at its top those of ours that are no command's. Blocking."""
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
        for entry in _entries(Path(folder)):
            seen += folder != str(root)
            if entry.is_symlink():
                masks += _led(root, entry)
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


def _led(root: Path, entry: os.DirEntry[str]) -> Iterator[Mask]:
    """The target of a link with a hidden name, where it lies inside the root under another name."""
    if not is_hidden(entry.name):
        return
    real = Path(os.path.realpath(entry.path))
    if real != root and real.exists() and not hidden_paths.hidden(root, real):
        yield Mask(str(real), folder=real.is_dir())


def _linked(entry: os.DirEntry[str]) -> set[tuple[int, int]]:
    """Device and number of a file that has other names too."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return set()
    other = found.st_nlink > 1 and stat.S_ISREG(found.st_mode)
    return {(found.st_dev, found.st_ino)} if other else set()


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; none where we may not look, as a command may not either."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


def _shell() -> str:
    return "bash" if shutil.which("bash", path=PATH) is not None else "sh"


def described(ended: processes.CommandResult) -> str:
    """Return the output of a command that succeeded."""
    parts: Sequence[str] = [ended.stdout.rstrip("\n")] if ended.stdout.strip() else []
    if ended.stderr.strip():
        parts = [*parts, f"stderr:\n{ended.stderr.rstrip()}"]
    return "\n".join(parts) or "It ended well and printed nothing."
