"""Who listens on a port of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bot import ports


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell")
def test_a_port_that_is_held_names_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert ports.port_owner(server.getsockname()[1]) == os.getpid()


def test_a_port_that_nobody_holds_has_no_holder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert ports.port_owner(port) is None
    assert ports.port_owner(port, proc=tmp_path / "no-proc") is None


def test_a_holder_that_cannot_be_seen_is_not_named(tmp_path: Path) -> None:
    net = tmp_path / "net"
    net.mkdir()
    line = "   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1"
    (net / "tcp").write_text(f"  sl  local_address\n{line}\n")
    (tmp_path / "17" / "fd").mkdir(parents=True)
    (tmp_path / "not-a-process").mkdir()
    assert ports.port_owner(3000, proc=tmp_path) is None
    (tmp_path / "17" / "fd" / "3").symlink_to("socket:[4242]")
    assert ports.port_owner(3000, proc=tmp_path) == 17
    assert ports.port_owner(3001, proc=tmp_path) is None


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell")
@pytest.mark.parametrize(
    ("listen", "connect"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1")],
)
def test_the_user_at_the_other_end_of_a_connection_is_known(listen: str, connect: str) -> None:
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with (
        socket.create_server((listen, 0), family=family, dualstack_ipv6=listen == "::") as server,
        socket.create_connection((connect, server.getsockname()[1])),
    ):
        near, far = server.accept()
        with near:
            assert ports.user_of(near.getsockname()[:2], far[:2]) == os.getuid()
            assert ports.user_of(far[:2], far[:2]) is None
