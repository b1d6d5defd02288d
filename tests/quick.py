"""Fast start of real processes: each process is forked from one process that has already imported
everything.

Importing the platforms' libraries takes seconds of CPU, a fork takes milliseconds. Otherwise a forked process
is like any other: it has a pid, an environment, pipes and signals of its own. Tests of the start itself do
not use forks (`Process.fresh`).

`python -m tests.quick SOCKET` runs the forking process. Each connection to the socket requests one process:
it sends a line of JSON with `argv` and `env`, and the file descriptors for stdin, stdout and stderr. The
answer is one line with the pid and, at the end of the process, one line with the exit code.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from typer.main import get_command

from bot import cli, config, discovery
from bot.contracts.tools import ToolInput
from bot.core import events, feature
from bot.features import claims
from bot.tools import builtin, dispatch

WARM = (
    "bot.app",
    *(f"bot.cli.{one.name}" for one in pkgutil.iter_modules(cli.__path__)),
    "bot.testing.clock",
    "bot.testing.faults",
    "channels.console.adapter",
    "channels.slack.adapter",
    "channels.telegram.adapter",
    "channels.web.adapter",
    "channels.console.manifest",
    "channels.slack.manifest",
    "channels.telegram.manifest",
    "channels.web.manifest",
    "bot.cluster.transfer",
    "bot.llm.client",
    "bot.llm.demo",
    *(f"bot.tools.builtin.{one.name}" for one in pkgutil.iter_modules(builtin.__path__)),
    "anthropic",
    "anyio._backends._asyncio",
    "apscheduler.triggers.interval",
    "certifi",
    "dotenv",
    "httpcore2",
    "mcp",
    "mcp.client.streamable_http",
    "slack_bolt.async_app",
    "slack_bolt.adapter.socket_mode.aiohttp",
    "snowballstemmer.porter_stemmer",
    "telegram.ext",
    "truststore",
)
"""Modules that a gateway or a command imports in its first second."""


class Forked:
    """A forked process with the parts of `asyncio.subprocess.Process` that the tests need."""

    def __init__(
        self,
        pid: int,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        line: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._end = asyncio.create_task(self._ended(*line))

    async def _ended(self, told: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        try:
            self.returncode = int(await told.readline())
        finally:
            writer.close()
        await writer.wait_closed()
        return self.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        # The process may have ended before its exit code arrived here.
        with contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)


async def start(argv: Sequence[str], env: Mapping[str, str], given: bytes = b"") -> Forked:
    """Start `python -m` with these arguments and this environment. `given` is the complete stdin."""
    address = await asyncio.to_thread(prepare)
    words = _stdin(given)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    request = json.dumps({"argv": list(argv), "env": dict(env)}).encode() + b"\n"
    socket.send_fds(connection, [request[:1]], [words, out_end, err_end])
    connection.sendall(request[1:])
    os.close(words)
    os.close(out_end)
    os.close(err_end)
    line = await asyncio.open_unix_connection(sock=connection)
    return Forked(int(await line[0].readline()), await _reader(out), await _reader(err), line)


async def run(*argv: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> tuple[int, bytes, str]:
    """Run `python -m bot` with these arguments; return the exit code, stdout and stderr."""
    process = await start(["bot", *argv], {**os.environ, **(env or {})}, given)
    out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    return await process.wait(), out, err.decode()


def _stdin(given: bytes) -> int:
    """Return a file descriptor to read `given` from. `given` must fit into a pipe's buffer."""
    if not given:
        return os.open(os.devnull, os.O_RDONLY)
    end, into = os.pipe()
    os.write(into, given)
    os.close(into)
    return end


async def _reader(end: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb")
    )
    return reader


@functools.cache
def prepare() -> str:
    """Start the forking process of this test run, once; return its socket."""
    folder = tempfile.TemporaryDirectory(prefix="quick-")
    address = f"{folder.name}/socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.quick", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        env=_untraced(),
    )

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    assert process.stdout is not None
    assert process.stdout.readline() == b"listening\n"
    return address


def _untraced() -> dict[str, str]:
    """Return the environment without coverage variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def _serve(address: str) -> Sequence[str]:
    """Fork a process for each connection, until stdin closes."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        for name in WARM:
            importlib.import_module(name)
        _make_once()
        gc.collect()
        gc.freeze()
        running: dict[int, socket.socket] = {}
        ended, wake = socket.socketpair()
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())
        while sys.stdin not in (ready := select.select([server, sys.stdin, ended], [], [])[0]):
            if ended in ready:
                ended.recv(1 << 16)
                _tell(running)
            if server in ready and (begun := _begin(server.accept()[0], running)) is not None:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (server, ended, wake, *running.values()):
                    one.close()
                return begun
    sys.exit(0)


def _make_once() -> None:
    """Fill the caches whose content is the same in every process."""
    from bot.cli import commands
    from channels.telegram import bot_api

    vars(commands)["get_command"] = functools.cache(get_command)
    vars(commands)["get_command"](commands.app)
    for kind in events.KINDS:
        events.decode(kind, "{}")
    manifests = discovery.manifests()
    feature.found()
    claims.languages("")
    for name in claims.PROMISES:
        claims.promises(name)
    bot_api.tls()
    for model in ToolInput.__subclasses__():
        dispatch.input_schema(model)
    with tempfile.TemporaryDirectory() as nothing:
        config.load(Path(nothing), manifests, {}, defaults=True)


def _tell(running: dict[int, socket.socket]) -> None:
    """Collect the ended processes and send each exit code to the client that requested the process, if the
    client is still connected.
    """
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as connection, contextlib.suppress(OSError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _begin(connection: socket.socket, running: dict[int, socket.socket]) -> Sequence[str] | None:
    """Fork the requested process. In the forked process, return its arguments; in this process, return None."""
    data, ends, *_ = socket.recv_fds(connection, 1 << 16, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    request = json.loads(data)
    pid = os.fork()
    if pid:
        for end in ends:
            os.close(end)
        running[pid] = connection
        with contextlib.suppress(OSError):
            connection.sendall(f"{pid}\n".encode())
        return None
    connection.close()
    os.environ.clear()
    os.environ.update(request["env"])
    for have, want in zip(ends, range(3), strict=True):
        os.dup2(have, want)
        os.close(have)
    # Python has cached the kind of the old files (such as a terminal), so open the new ones again.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    return list(request["argv"])


def _run(module: str, arguments: Sequence[str], leave: _Leaving) -> None:
    """Run a module in this process as `python -m` would."""
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        leave.code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        leave.code = 1 if isinstance(end.code, str) else end.code or 0


class _Leaving:
    """Ends a forked process without Python's cleanup. The cleanup would free all imported modules, which
    copies the memory pages shared with the other processes. That takes half of a short process's CPU
    time.
    """

    def __init__(self) -> None:
        self.code: int = 1
        self._forks = os.getpid()
        atexit.register(
            self
        )  # registered first, so called last: after all other handlers, and after all threads have ended

    def __call__(self) -> None:
        if os.getpid() != self._forks:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


if __name__ == "__main__":
    last = _Leaving()
    module, *arguments = _serve(sys.argv[1])
    _run(module, arguments, last)
