"""Builds the kernel filter (classic BPF) for system calls that no command may make.

The filter exists for x86_64 and aarch64; on other machines there is none.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_SET_ID = 0o6000
_MAKES = 0x40 | 0x400000
"""Flags O_CREAT and O_TMPFILE."""
_SPACES = 0x7E020000
"""Flags for new namespaces. The flag for the time namespace is missing, because `clone` does not support it."""
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FAMILIES = (1, 2, 10, 16)
"""Allowed socket families: Unix, IPv4, IPv6 and netlink. Other families reach things that no namespace
isolates, such as the host of a virtual machine.
"""

Numbers = Mapping[str, tuple[int | None, int | None]]
"""System calls with their numbers on x86_64 and on aarch64; None if the architecture lacks the call."""
FORBIDDEN: Numbers = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""System calls that are answered with EPERM."""
UNKNOWN: Numbers = {
    "clone3": (435, 435),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "msgget": (68, 186),
    "openat2": (437, 437),
    "shmget": (29, 194),
}
"""System calls that are answered with ENOSYS, so that libraries fall back to other calls. These calls either
keep their arguments in memory that the filter cannot read, or allocate memory that no limit counts.
"""
_JUDGED: Numbers = {
    "chmod": (90, None),
    "clone": (56, 220),
    "creat": (85, None),
    "fallocate": (285, 47),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "ioctl": (16, 29),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "socket": (41, 198),
    "unshare": (272, 97),
}
"""System calls that are refused for some arguments only."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor architecture: its audit constant, and the numbers of its system calls."""

    mark: int
    numbers: Mapping[str, int]


def _machine(mark: int, column: int) -> Architecture:
    calls = {**FORBIDDEN, **UNKNOWN, **_JUDGED}
    return Architecture(mark, {call: number for call in calls if (number := calls[call][column]) is not None})


MACHINES = {"x86_64": _machine(0xC000003E, 0), "aarch64": _machine(0xC00000B7, 1)}
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
"""System calls that set the mode of a file, with the index of the mode argument."""
_OPENS = {"open": (1, 2), "openat": (2, 3)}
"""System calls that set the mode only if they create a file, with the indices of the flags and of the mode."""

_Step = tuple[int, int, int, int]


def program(machine: str = platform.machine()) -> bytes | None:
    """Return the filter as bytes for the kernel; None for other architectures."""
    if machine not in MACHINES:
        return None
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(MACHINES[machine], machine))


def _steps(machine: Architecture, name: str) -> Iterable[_Step]:
    # System calls of another architecture have other numbers, so all of them are refused.
    yield from (
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, machine.mark),
        _refuse(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    )
    if name == "x86_64":
        yield from ((_AT_LEAST, 0, 1, 0x40000000), _refuse(errno.ENOSYS))
    for call in FORBIDDEN:
        yield from _of(machine, call, [_refuse(errno.EPERM)])
    for call in UNKNOWN:
        yield from _of(machine, call, [_refuse(errno.ENOSYS)])
    # Preallocation fills a disk faster than the usage check notices. Libraries fall back to writing.
    yield from _of(machine, "fallocate", [_refuse(errno.EOPNOTSUPP)])
    yield from _of(machine, "clone", _any(0, _SPACES))
    yield from _of(machine, "unshare", _any(0, _SPACES | _NEW_TIME))
    for call, at in _MODES.items():
        yield from _of(machine, call, _any(at, _SET_ID))
    for call, (flags, mode) in _OPENS.items():
        makes = [(_LOAD, 0, 0, _argument(flags)), (_ANY_OF, 0, 3, _MAKES)]
        yield from _of(machine, call, [*makes, *_any(mode, _SET_ID)])
    lines = [(_LOAD, 0, 0, _argument(1)), (_EQUAL, 1, 0, _TIOCSTI), (_EQUAL, 0, 1, _TIOCLINUX)]
    yield from _of(machine, "ioctl", [*lines, _refuse(errno.EPERM)])
    known = [(_EQUAL, len(_FAMILIES) - at, 0, one) for at, one in enumerate(_FAMILIES)]
    yield from _of(machine, "socket", [(_LOAD, 0, 0, _argument(0)), *known, _refuse(errno.EAFNOSUPPORT)])
    yield (_RETURN, 0, 0, _ALLOW)


def _of(machine: Architecture, call: str, body: list[_Step]) -> Iterable[_Step]:
    """Return the filter steps for one system call. The call is allowed unless `body` refuses it."""
    if call in machine.numbers:
        yield (_EQUAL, 0, len(body) + 1, machine.numbers[call])
        yield from body
        yield (_RETURN, 0, 0, _ALLOW)


def _any(at: int, bits: int) -> list[_Step]:
    """Return filter steps that refuse a call if an argument has any of these bits."""
    return [(_LOAD, 0, 0, _argument(at)), (_ANY_OF, 0, 1, bits), _refuse(errno.EPERM)]


def _argument(at: int) -> int:
    return _ARGUMENTS + 8 * at


def _refuse(number: int) -> _Step:
    return (_RETURN, 0, 0, _ERRNO | number)
