"""Builds the kernel filter (classic BPF) that refuses dangerous system calls of commands.

The filter exists for x86_64 and aarch64. Other machines get no filter.
"""

from __future__ import annotations

import errno
import platform
import struct
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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
"""Allowed socket families: Unix, IPv4, IPv6 and netlink. No namespace isolates what other families reach, such as the
host of a virtual machine.
"""

CALLS: Mapping[str, Mapping[str, Sequence[int]]] = tomllib.loads(
    Path(__file__).with_name("syscalls.toml").read_text(encoding="ascii")
)
"""System calls with their numbers on x86_64 and on aarch64, by table. The number is -1 if the architecture lacks the call."""
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Audit constant of each architecture, and its column in `CALLS`."""
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
"""System calls that set the mode of a file, each with the index of its mode argument."""
_OPENS = {"open": (1, 2), "openat": (2, 3)}
"""System calls that set the mode only if they create a file, each with the indices of its flags and mode arguments."""

_Step = tuple[int, int, int, int]


def program(machine: str = platform.machine()) -> bytes | None:
    """Return the filter in the kernel's binary format; None for other architectures."""
    if machine not in MACHINES:
        return None
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(*MACHINES[machine]))


def _steps(mark: int, column: int) -> Iterable[_Step]:
    # Other architectures have other system call numbers, so all calls in the conventions of other architectures are refused.
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
            # A call without refusing steps is allowed.
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
