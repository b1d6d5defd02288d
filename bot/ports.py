"""Finds the owner of a port and the user at the other end of a connection (Linux, through /proc and netlink)."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2  # sock_diag(7), netlink(7)
_IPV4 = 4

Address = tuple[str, int]
"""Host and port of one end of a connection."""


def port_owner(port: int, proc: Path = Path("/proc")) -> int | None:
    """The process that listens on a TCP port; None where it cannot be seen."""
    listens = re.compile(rf"[0-9A-F]+:{port:04X}")
    sockets = {
        f"socket:[{fields[9]}]"
        for fields in _sockets(proc)
        if fields[3] == _LISTEN and listens.fullmatch(fields[1])
    }
    if not sockets:
        return None
    with contextlib.suppress(OSError):
        for process in proc.iterdir():
            if process.name.isdecimal() and not sockets.isdisjoint(_open_files(process)):
                return int(process.name)
    return None


def user_of(near: Address, far: Address, proc: Path = Path("/proc")) -> int | None:
    """The id of the user whose program is at the far end of a TCP connection of this machine; None where that cannot be
    seen: on another machine, behind a name space, on a system other than Linux.
    """
    try:
        return _asked(packed(near), packed(far))
    except OSError:
        return listed(packed(near), packed(far), proc)


def _asked(near: tuple[bytes, int], far: tuple[bytes, int]) -> int | None:
    """Ask the kernel for this one socket: its tables are long where there are many. Raises OSError where that cannot be."""
    if not hasattr(socket, "AF_NETLINK"):
        raise OSError(errno.EAFNOSUPPORT, "no netlink here")
    family = socket.AF_INET if len(far[0]) == _IPV4 else socket.AF_INET6
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
        said = kernel.recv(8192)
    kind = int.from_bytes(said[4:6], sys.byteorder)
    if kind == _ERROR:
        code = -int.from_bytes(said[16:20], sys.byteorder, signed=True)
        if code == errno.ENOENT:
            return None
        raise OSError(code, "the kernel does not say")
    state, uid, inode = said[17], *struct.unpack("=II", said[80:88])
    # Without an inode nobody holds the socket any more, and the kernel says 0 for its user.
    return uid if inode and state != int(_LISTEN, 16) else None


def listed(near: tuple[bytes, int], far: tuple[bytes, int], proc: Path) -> int | None:
    for fields in _sockets(proc):
        if fields[9] != "0" and (_read(fields[1]), _read(fields[2])) == (far, near):
            return int(fields[7])
    return None


def _sockets(proc: Path) -> Iterator[list[str]]:
    """The rows of the kernel's tables of TCP sockets."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
            yield from map(str.split, rows)


def packed(address: Address) -> tuple[bytes, int]:
    host = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return (mapped or host).packed, address[1]


def _read(field: str) -> tuple[bytes, int]:
    """An address as the kernel prints it: words of four bytes in the machine's order, then the port."""
    host, _, port = field.partition(":")
    packed = b"".join(int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8))
    mapped = packed[12:] if packed.startswith(b"\0" * 10 + b"\xff\xff") else packed
    return mapped, int(port, 16)


def _open_files(process: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for handle in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(handle.readlink()))
    return found
