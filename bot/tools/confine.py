"""Confines a command without bubblewrap, by name spaces and Landlock.

It is run as a program, `python -I -S confine.py HANDLE WORD…`, and imports nothing but the standard library. What is open
under HANDLE is JSON: `root` may be read and written, `read` be read and run from, `devices` be used, `closed` (in the root) does
not exist, `pinned` (folders above that) stay in their place, `fixed` (in the root) cannot be written; `network` is that of the
machine; `room` are the bytes of /tmp and as many of /dev/shm, `processes` how many there may be; into `told` it writes who the first process of the command's space is; `filter` the program that
forbids system calls, in hex. It ends as the command does, with 125 where it cannot stand around it: then nothing was run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import stat
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

CANNOT = 125
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_PDEATHSIG, _SECCOMP, _CAPBSET_DROP, _NO_NEW_PRIVS = 1, 22, 24, 38
_FILTER = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_FILES = 100_000
"""Most files of an in-memory file system: each takes memory too."""
_FEWEST_PIDS = 301
"""The kernel knows no smaller limit of a space of processes; the number counts from its beginning."""
_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls of Landlock, the same on every architecture."""
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_IOCTL = 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights on files that Landlock can restrict, by version."""
_SCOPED = 6
"""The version from which on signals and abstract sockets can be kept inside."""
_LAST_CAPABILITY = 63
_OWN = ("/tmp", "/dev/shm")  # noqa: S108 - they are empty, and nobody else sees them

_libc = ctypes.CDLL(None, use_errno=True)


def _must(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if one is None else os.fsencode(one) for one in (source, target, kind, data)]
    _must(_libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]))


def _bind(source: str, target: str, *, writable: bool = True) -> None:
    _mount(source, target, None, _BIND | _REC)
    if not writable:
        _mount("none", target, None, _BIND | _REMOUNT | _RDONLY | _NOSUID)


def _attributes(path: str, *, on: int = 0, off: int = 0) -> None:
    """Set and clear attributes of a mount and of all below it."""
    wanted = struct.pack("=QQQQ", on, off, 0, 0)
    place = ctypes.c_char_p(os.fsencode(path))
    _must(
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, place, _AT_RECURSIVE, wanted, ctypes.c_size_t(len(wanted)))
    )


def _alone(*, network: bool) -> None:
    """Name spaces of its own, in which we are who we were."""
    user, group = os.getuid(), os.getgid()
    flags = _NEWUSER | _NEWNS | _NEWPID | _NEWIPC | _NEWUTS | (0 if network else _NEWNET)
    _must(_libc.unshare(flags))
    for name, words in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(words, encoding="ascii")


def _elsewhere(spec: dict[str, Any]) -> list[str]:
    """The folders at the top of the machine in which nothing is that a command needs."""
    needed = {Path(path).parts[1] for path in (*spec["read"], *spec["devices"])} | {"proc", "sys", "tmp"}
    with os.scandir("/") as entries:
        names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
    return [f"/{name}" for name in names if name not in needed]


def _put_back(path: str, handle: int) -> None:
    """Have what is open in its place again, where all around it was taken away."""
    place = Path(path)
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    _bind(f"/proc/self/fd/{handle}", path)


def _furnish(spec: dict[str, Any]) -> None:
    """An empty /tmp, the root, and nothing in the place of what is closed or not needed."""
    root, empty = spec["root"], _elsewhere(spec)
    # Some facts are links to what is kept elsewhere.
    facts = [str(Path(fact).resolve()) for fact in spec["read"]]
    facts = [fact for fact in facts if any(fact.startswith(f"{path}/") for path in empty)]
    _mount("none", "/", None, _REC | _PRIVATE)
    kept = {path: os.open(path, os.O_PATH) for path in (root, *spec["fixed"], *facts)}
    # Landlock does not look at who changes modes, owners and times: nothing but the root may be changed at all.
    _attributes("/", on=_ATTR_RDONLY | _ATTR_NOSUID)
    # A socket is connected to through its file, which Landlock does not look at: nobody's may be there.
    for path in empty:
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, "mode=755")
    room = f",size={spec['room']}" if spec["room"] else ""
    for path in _OWN:
        if Path(path).is_dir():
            _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"mode=1777,nr_inodes={_FILES}{room}")
    for path in (*facts, root):
        _put_back(path, kept[path])
    # Where it could not be written before, it still cannot.
    with contextlib.suppress(OSError):
        _attributes(root, off=_ATTR_RDONLY)
    for path in spec["pinned"]:
        _hold(path)
    for path in spec["fixed"]:
        _bind(f"/proc/self/fd/{kept[path]}", path, writable=False)
    for path in spec["closed"]:
        _close(path)
    for handle in kept.values():
        os.close(handle)


def _hold(path: str) -> None:
    """Keep a folder in its place. One that is gone by now has nothing to hide."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _bind(path, path)


def _close(path: str) -> None:
    """Put nothing in the place of what is there, and not of what is gone by now."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            _mount("tmpfs", path, "tmpfs", _RDONLY | _NOSUID | _NODEV)
        else:
            _bind(os.devnull, path, writable=False)
    except (FileNotFoundError, NotADirectoryError):
        return


def _landlock(spec: dict[str, Any]) -> None:
    """Nothing may be done with any file that is not named."""
    version = _must(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))
    rights = _RIGHTS[min(version, 5)]
    scoped = struct.pack("=QQQ", rights, 0, 3) if version >= _SCOPED else struct.pack("=Q", rights)
    rules = _must(_libc.syscall(_CREATE, scoped, ctypes.c_size_t(len(scoped)), 0))
    look = _EXECUTE | _READ_FILE | _READ_DIR
    allowed = [(path, look) for path in spec["read"]] + [
        (path, rights) for path in (spec["root"], *_OWN) if Path(path).is_dir()
    ]
    allowed += [(path, _READ_FILE | _WRITE_FILE | _IOCTL) for path in spec["devices"]]
    for path, may in allowed:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        what = (
            may
            if Path(path).is_dir()
            else may & ~_READ_DIR & (_EXECUTE | _WRITE_FILE | _READ_FILE | _IOCTL | 1 << 14)
        )
        _must(_libc.syscall(_ADD, rules, 1, struct.pack("=Qi", what & rights, handle), 0))
        os.close(handle)
    _must(_libc.syscall(_RESTRICT, rules, 0))
    os.close(rules)


def _harmless() -> None:
    """No capability, now or after any program is started; and it does not outlive who started it."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _must(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))


def _filter(program: bytes) -> None:
    """Forbid system calls, now and after any program is started."""
    if program:
        steps = ctypes.create_string_buffer(program, len(program))
        handed = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
        _must(_libc.prctl(_SECCOMP, _FILTER, ctypes.c_char_p(handed), 0, 0))


def _count(most: int | None) -> None:
    """Let there be so many processes here, also of root, where the kernel can say it (6.14); who started us counts too."""
    if most is not None:
        with contextlib.suppress(OSError):
            Path("/proc/sys/kernel/pid_max").write_text(str(max(_FEWEST_PIDS, most)), encoding="ascii")


def _become(words: list[str]) -> NoReturn:
    _must(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    try:
        os.execvp(words[0], words)  # noqa: S606 - this is what it is for
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {error.strerror}\n")
        os._exit(127)


def _begin(spec: dict[str, Any], words: list[str]) -> NoReturn:
    """Be the first process of a space of its own: when it ends, so does all that is in it."""
    _must(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _count(spec["processes"])
    _harmless()
    _landlock(spec)
    os.chdir(spec["root"])
    _filter(bytes.fromhex(spec["filter"]))
    child = os.fork()
    if child == 0:
        _become(words)
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(_code(status))


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main(spec: dict[str, Any], words: list[str]) -> NoReturn:
    """Run the words, and end as they do, or with who started us."""
    try:
        _must(_libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        _alone(network=spec["network"])
        _furnish(spec)
        first = os.fork()
        if first == 0:
            os.close(spec["told"])
            _begin(spec, words)
        os.write(spec["told"], json.dumps({"child-pid": first}).encode("ascii"))
        os.close(spec["told"])
    except OSError as error:
        sys.stderr.write(f"the command cannot be kept apart: {error.strerror}\n")
        os._exit(CANNOT)
    os._exit(_code(os.waitpid(first, 0)[1]))


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "rb") as _handed:
        _spec = json.load(_handed)
    main(_spec, sys.argv[2:])
