"""A PostgreSQL server for tests, if PostgreSQL is installed. `python -m tests.postgres` starts a server and
prints its address.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

_PREFIX = "shipmate-postgres-"
MISSING = "PostgreSQL is not installed"


_WITH_US = (shutil.which("setpriv"), "--pdeathsig", "QUIT") if shutil.which("setpriv") else ()
"""Command prefix that ends the server when this process ends, even after SIGKILL."""


@functools.cache
def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; None if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += [one.parent for one in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)]
    return next((one for one in places if (one / "postgres").exists()), None)


@functools.cache
def no_network() -> str:
    """Return the reason why a server cannot have a network of its own; "" if it can."""
    if os.getuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "setpriv", "unshare"))):
        return "a network of its own takes root, ip, unshare, nsenter and setpriv"
    tried = subprocess.run(
        ("unshare", "--net", "ip", "link", "add", "type", "veth"), capture_output=True, text=True, check=False
    )
    return f"no network of its own is allowed here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(frozen=True, slots=True)
class Line:
    """A network link between this machine and a server. While the link is cut, connections are not refused;
    they get no answer at all.
    """

    url: str
    _end: tuple[str, ...]

    def cut(self) -> None:
        _called(*self._end, "down")

    def mend(self) -> None:
        _called(*self._end, "up")


class Postgres:
    """A PostgreSQL server with a data folder of its own, reached through a Unix socket in the folder.
    PostgreSQL refuses to run as root, so root starts the server as another user.
    """

    def __init__(self, *, durable: bool = False, apart: bool = False) -> None:
        """Create and start a server."""
        memory = Path("/dev/shm")
        folder = memory if memory.is_dir() else Path(tempfile.gettempdir())
        _remove_old(folder)
        self.home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        self._durable = durable
        self._apart = apart
        self._lines = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            user = next(name for name in ("postgres", "nobody") if _known(name))
            self._as = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
            shutil.chown(self.home, user)
        self._run(
            "initdb", "--auth=trust", "--username=shipmate", "--no-sync", "--encoding=UTF8", "--locale=C"
        )
        self.start()

    def url(self, schema: str = "") -> str:
        """Return the address of the database; with `schema`, connections use this schema."""
        path = f"&options={quote(f'-c search_path={schema}')}" if schema else ""
        return f"postgresql://shipmate@/postgres?host={quote(str(self.home), safe='')}{path}"

    def schema(self, name: str) -> str:
        """Create an empty schema and return its address; an existing schema of the same name is dropped."""
        with psycopg.connect(self.url(), autocommit=True) as db:
            db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}".encode())
        return self.url(name)

    def cpu(self) -> float:
        """Return the CPU seconds that all of the server's processes have used so far, including ended processes."""
        assert self._server is not None
        spent = sum(_times(self._server.pid))
        return spent + sum(sum(_times(pid)[:2]) for pid in _children(self._server.pid))

    def start(self) -> None:
        everywhere = "*" if self._apart else ""
        settings = (
            f"listen_addresses={everywhere}",
            f"unix_socket_directories={self.home}",
            "max_connections=40",
        )
        quick = () if self._durable else ("fsync=off", "full_page_writes=off")
        arguments = [part for one in (*settings, *quick) for part in ("-c", one)]
        self._server = subprocess.Popen(
            [*self._through(), self._program("postgres"), "-D", self.home / "data", *arguments],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            **({} if self._apart else self._as),
        )
        self._until_ready(self._server)

    def line(self) -> Line:
        """Add a network link to a server that was created with `apart`. The link disappears with the server."""
        assert self._server is not None
        inside = ("nsenter", "--net", "--target", str(self._server.pid))
        self._lines += 1
        # Use the address range reserved for benchmarks (198.18.0.0/15). Each test process can have two links.
        number = os.getpid() % 2**14 * 8 + self._lines * 4
        begin = f"198.{18 + (number >> 16)}.{number >> 8 & 255}"
        here, there = (f"{begin}.{(number & 255) + last}" for last in (1, 2))
        name, peer = f"pg{os.getpid()}x{self._lines}", f"line{self._lines}"
        ip = ("ip", "link", "add", name, "type", "veth", "peer", "name", peer, "netns", str(self._server.pid))
        _called(*ip)
        _called("ip", "addr", "add", f"{here}/30", "dev", name)
        _called("ip", "link", "set", name, "up")
        _called(*inside, "ip", "addr", "add", f"{there}/30", "dev", peer)
        made = Line(f"postgresql://shipmate@{there}/postgres", (*inside, "ip", "link", "set", peer))
        made.mend()
        return made

    def crash(self) -> None:
        """Kill all processes of the server, like a power failure."""
        assert self._server is not None
        for pid in (self._server.pid, *_children(self._server.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._over(self._server)

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._over(self._server)
        shutil.rmtree(self.home, ignore_errors=True)

    def log(self) -> str:
        """Return the address of an empty log."""
        from bot.core.postgres_log import prepared

        prepared(self.url()).close()
        with psycopg.connect(self.url(), autocommit=True) as db:
            tables = "events, keys, chats, usage, counts, facts, files, cluster_hosts"
            db.execute(f"TRUNCATE {tables} RESTART IDENTITY".encode())
            db.execute("UPDATE cluster_leader SET epoch = 0, holder = '', beats = 0, store = DEFAULT")
        return self.url()

    def _through(self) -> tuple[str, ...]:
        """Return the command prefix with which the server is started."""
        if not self._apart:
            return tuple(filter(None, _WITH_US))
        with (self.home / "data/pg_hba.conf").open("a", encoding="ascii") as file:
            file.write("host all all 0.0.0.0/0 trust\n")
        user, group = str(pwd.getpwnam(self._as["user"]).pw_uid), str(self._as["group"])
        who = ("--reuid", user, "--regid", group, "--clear-groups")
        return ("unshare", "--net", "setpriv", *who, "--pdeathsig", "QUIT")

    def _until_ready(self, server: subprocess.Popen[bytes]) -> None:
        """Wait for the output line that says that the server is ready."""
        assert server.stderr is not None
        said = b""
        for line in server.stderr:
            said += line
            if b"ready to accept connections" in line:
                self._reading = threading.Thread(target=_drop, args=(server.stderr,), daemon=True)
                self._reading.start()
                return
        raise RuntimeError(said.decode(errors="replace"))

    def _over(self, server: subprocess.Popen[bytes]) -> None:
        server.wait(20)
        self._reading.join(20)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._program(program), "-D", self.home / "data", *arguments],
            capture_output=True,
            text=True,
            check=False,
            **self._as,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)

    @staticmethod
    def _program(name: str) -> Path:
        folder = programs()
        assert folder is not None, MISSING
        return folder / name


@functools.cache
def shared() -> Postgres:
    """Return the server that all tests of this process share; the server stops when the process ends."""
    server = Postgres()
    Finalize(None, server.stop, exitpriority=1)  # a forked worker runs no other exit handlers
    return server


def lease(url: str, holder: str) -> None:
    """Record in the database that the process `holder` is the leader."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE cluster_leader SET holder = %s", (holder,))


def _remove_old(folder: Path) -> None:
    """Remove the data folders of servers whose tests were killed."""
    for home in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            note = home / "data/postmaster.pid"
            runs = note.exists() and Path(f"/proc/{int(note.read_text().split()[0])}").exists()
            if not runs and time.time() - home.stat().st_mtime > 3_600:
                shutil.rmtree(home, ignore_errors=True)


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _times(pid: int) -> list[float]:
    """Return a process's CPU seconds in user mode and in the kernel, then the same two numbers for its ended children."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return [0.0] * 4
    return [int(one) / os.sysconf("SC_CLK_TCK") for one in stat.rpartition(")")[2].split()[11:15]]


def _called(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _drop(stream: Any) -> None:
    with stream:
        for _ in stream:
            pass


if __name__ == "__main__":
    if programs() is None:
        sys.exit(MISSING)
    one = Postgres(durable=True)
    sys.stdout.write(f"{one.url()}\n")
    sys.stdout.flush()
    try:
        signal.pause()
    except KeyboardInterrupt:
        one.stop()
