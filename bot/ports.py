"""Finds the process that listens on a port, and the user at the other end of a connection (only Linux, using
/proc and netlink).
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
import struct
import sys
from pathlib import Path

LISTEN = 10  # TCP_LISTEN
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2  # sock_diag(7), netlink(7)

Address = tuple[str, int]
"""Host and port of one end of a connection."""


def port_owner(port: int, proc: Path = Path("/proc")) -> int | None:
    """Return the pid of the process that listens on a TCP port; None if the pid cannot be read."""
    listens = re.compile(rf" *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ {LISTEN:02X} .*", re.ASCII)
    sockets = set[str]()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = (proc / "net" / table).read_text(encoding="ascii").splitlines()
            sockets |= {f"socket:[{row.split()[9]}]" for row in rows if listens.fullmatch(row)}
    if not sockets:
        return None
    with contextlib.suppress(OSError):
        for process in proc.iterdir():
            if process.name.isdecimal() and not sockets.isdisjoint(_open_files(process)):
                return int(process.name)
    return None


def _open_files(process: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for handle in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(handle.readlink()))
    return found


def user_of(near: Address, far: Address) -> int | None:
    """Return the uid of the program at the far end of a local TCP connection. Return None if the kernel does
    not report the uid: for a program on another machine or in another network namespace, or on a system
    other than Linux.
    """
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        return _ask_kernel(_packed(near), _packed(far))
    except OSError:
        return None


def _ask_kernel(near: tuple[bytes, int], far: tuple[bytes, int]) -> int | None:
    family = socket.AF_INET if len(far[0]) == 4 else socket.AF_INET6
    wanted = struct.pack(
        "=BBBxI2s2s16s16sI8s",
        family,
        socket.IPPROTO_TCP,
        0,
        0xFFFFFFFF,
        far[1].to_bytes(2, "big"),
        near[1].to_bytes(2, "big"),
        far[0],
        near[0],
        0,
        b"\xff" * 8,
    )
    head = struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(head + wanted)
        answer = kernel.recv(8192)
    if int.from_bytes(answer[4:6], sys.byteorder) == _ERROR:
        raise OSError(errno.ENOENT, "the kernel has no such socket")
    state, uid, inode = answer[17], *struct.unpack("=II", answer[80:88])
    # If a socket has no inode, its program has closed it. The kernel then reports user 0.
    return uid if inode and state != LISTEN else None


def _packed(address: Address) -> tuple[bytes, int]:
    host = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return (mapped or host).packed, address[1]
