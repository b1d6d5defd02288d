"""What stands around a command: bubblewrap, or else name spaces and Landlock (`bot.tools.confine`), with the project's folder
and the system's programs and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors
from bot.offlimits import is_hidden
from bot.tools import confine, processes
from bot.tools.limits import Limits
from bot.tools.permissions.shell import plain

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
"""Entries of the project that are looked at for what has to be hidden."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FACTS = (
    "/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki/tls/certs",
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
)  # fmt: skip
_DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero")
_NET = ("/etc/hosts", "/etc/resolv.conf")
_CODE = Path(__file__).resolve().parents[2]
_CONFINE = confine.__file__
OURS = (Path(sys.prefix).resolve(), _CODE / "bot", _CODE / "channels")
"""Where the code of Shipmate is."""
MISSING = (
    "Commands run only where they are kept apart from the rest of the machine, and that is not to be had here: "
    "whoever runs me can install bubblewrap (apt install bubblewrap, dnf install bubblewrap), or allow name spaces to users "
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
    limits: Limits = field(default_factory=Limits)
    _works: dict[str, bool] = field(default_factory=dict)
    """Programs that were seen to work, and whether they can give a command a `/proc` of its own."""

    async def run(self, command: str, seconds: float) -> processes.Ended:
        """Run a command line; one that means the same without a shell is run without one.

        Raises `errors.ToolError` where it may not run here, OSError where it cannot be started.
        """
        root = self.root.resolve()
        before = await asyncio.to_thread(_own, root)
        words = list(plain(command) or (_shell(), "-c", command))
        if self.required:
            words = [*await self._around(root), *self.limits.around(words)]
        else:
            # Outside of a space of its own, all that the user runs would be counted.
            words = dataclasses.replace(self.limits, processes=None).around(words)
        notes: list[str] = []
        try:
            ended = await processes.run(words, folder=root, environment=ENVIRONMENT, seconds=seconds)
        finally:
            notes += _set_aside(root, before)
        return dataclasses.replace(ended, stderr="\n".join([ended.stderr, *notes])) if notes else ended

    async def _around(self, root: Path) -> list[str]:
        program = await self._program()
        if program is None:
            return await self._confined(root)
        masks = [word for one in await asyncio.to_thread(lambda: list(_hidden(root))) for word in _mask(one)]
        return [program, *_wall(root, network=self.network, proc=self._works[program]), *masks, "--"]

    async def _confined(self, root: Path) -> list[str]:
        """The same without bubblewrap. Raises `errors.ToolError` where that is not to be had either."""
        closed = await asyncio.to_thread(lambda: [one.path for one in _hidden(root)])
        words = _confinement(root, closed, network=self.network)
        if _CONFINE not in self._works:
            trial = [*_confinement(root, [], network=self.network), "true"]
            done = await processes.run(trial, folder=root, environment=ENVIRONMENT, seconds=10)
            if done.status != 0:
                raise errors.ToolError(MISSING)
            self._works[_CONFINE] = False
        return words

    async def _program(self) -> str | None:
        """Bubblewrap, where it is and does what it should; tried until it did once."""
        program = self.which("bwrap")
        if program is None or program in self._works:
            return program
        root = self.root.resolve()
        # Where a part of /proc is covered already, as in containers and hardened services, no new one may be mounted.
        for proc in (True, False):
            trial = [program, *_wall(root, network=self.network, proc=proc), "--", "true"]
            try:
                done = await processes.run(trial, folder=root, environment=ENVIRONMENT, seconds=10)
            except OSError:
                return None
            if done.status == 0:
                self._works[program] = proc
                return program
        return None


def _wall(root: Path, *, network: bool, proc: bool = True) -> Iterator[str]:
    """What a command sees and may do: the arguments of bubblewrap."""
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv")
    if network:
        yield "--share-net"
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    for folder in map(Path, _SYSTEM):
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.is_dir():
            yield from ("--ro-bind", str(folder), str(folder))
    for fact in map(Path, (*_FACTS, *(_NET if network else ()))):
        if fact.exists():
            yield from ("--ro-bind", str(fact.resolve()), str(fact))
    yield from ("--proc" if proc else "--tmpfs", "/proc", "--dev", "/dev", "--tmpfs", _OWN, "--tmpfs", "/run")
    yield from ("--bind", str(root), str(root), "--chdir", str(root))
    for ours in OURS:
        # What runs as ourselves after the next start is not for commands to change.
        if ours.is_relative_to(root) and ours != root and ours.is_dir():
            yield from ("--ro-bind", str(ours), str(ours))


def _confinement(root: Path, closed: Sequence[str], *, network: bool) -> list[str]:
    """The same as words that start `bot.tools.confine`."""
    facts = (*_SYSTEM, *_FACTS, *(_NET if network else ()))
    fixed = [str(ours) for ours in OURS if ours.is_relative_to(root) and ours != root and ours.is_dir()]
    spec = {
        "root": str(root),
        "read": [fact for fact in facts if Path(fact).exists()],
        "devices": [one for one in _DEVICES if Path(one).exists()],
        "closed": closed,
        "fixed": fixed,
        "network": network,
    }
    return [sys.executable, "-I", "-S", _CONFINE, json.dumps(spec)]


def _mask(entry: os.DirEntry[str]) -> Iterator[str]:
    """Arguments that put nothing in the place of an entry."""
    if entry.is_dir(follow_symlinks=False):
        yield from ("--tmpfs", entry.path, "--remount-ro", entry.path)
    else:
        yield from ("--ro-bind", os.devnull, entry.path)


def _hidden(root: Path) -> Iterator[os.DirEntry[str]]:
    """What does not exist for the model. Blocking."""
    left, seen = [root], 0
    while left:
        for entry in _entries(left.pop()):
            seen += 1
            if seen > VISITS:
                raise errors.ToolError("The project has too many files to hide what commands may not see.")
            if entry.is_symlink():
                continue  # what it leads to is hidden itself, or outside
            if is_hidden(entry.name):
                yield entry
            elif entry.is_dir(follow_symlinks=False):
                left.append(Path(entry.path))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where we may not look: a command may not either."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, PermissionError):
        return


def _shell() -> str:
    return "bash" if shutil.which("bash", path=PATH) is not None else "sh"


def _own(root: Path) -> frozenset[str]:
    """What of ours is in the project's folder itself."""
    return frozenset(path.name for path in root.iterdir() if is_hidden(path.name))


def _set_aside(root: Path, before: frozenset[str]) -> Iterator[str]:
    """A command must not give us settings or secrets of its making: what has such a name gets another one."""
    for name in sorted(_own(root) - before):
        aside = f"refused-{name.lstrip('.')}-{secrets.token_hex(3)}"
        (root / name).replace(root / aside)
        yield f"{name} may not be made by a command; it is {aside} now."


def described(ended: processes.Ended) -> str:
    """What a command that went well has printed."""
    parts: Sequence[str] = [ended.stdout.rstrip("\n")] if ended.stdout.strip() else []
    if ended.stderr.strip():
        parts = [*parts, f"stderr:\n{ended.stderr.rstrip()}"]
    return "\n".join(parts) or "It ended well and printed nothing."
