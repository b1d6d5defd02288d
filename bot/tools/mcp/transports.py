"""Transports to MCP servers: the SDK's stdio and streamable HTTP. Results are converted (`definitions.mended`), the
environment is clean, and no code runs that a chat could change.

A stdio server runs with the gateway's rights, outside the sandbox. The server's command and environment must not name files of
the project, or paths where a command could create files. After the server's name, a project folder is allowed as an argument,
because it is only data for the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from bot import text
from bot.tools.mcp.definitions import mended
from bot.tools.permissions.protected_code import ProtectedCode

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

LONGEST = 8 * 2**20  # Max bytes of an HTTP answer, and of an event in a streamed answer
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0
_INHERITED = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
]
"""Environment variables that a server inherits from the gateway. None of them contains a secret."""
_BETWEEN = re.compile(r"[\s=:,;|&<>()'\"]+")
"""Pattern of separators between several paths in one word, as in `--path=/a:/b` or in a script."""
_VERBS = frozenset({"dlx", "exec", "run", "start", "tool", "x"})
"""Subcommands of package launchers (such as `npm exec`) that run a program."""
_SWITCHES = frozenset({"-c", "-e", "-i", "-m", "-q", "-y", "--", "--quiet", "--rm", "--yes"})
"""Options that may stand directly before the server's name. Any other option takes a value."""
_ROOTS = frozenset({"-C", "-f", "--directory", "--prefix", "--project", "--cwd", "--file", "--makefile"})
"""Options of package launchers that name a folder or file whose code is run."""


@contextlib.asynccontextmanager
async def process(
    words: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    said: Callable[[str], object],
    ended: Callable[[], object],
) -> AsyncIterator[TransportStreams]:
    """Run a server process inside the `with` block. `said` gets the server's stderr. `ended` is called when the server's stdout
    ends. After the block, the process group is killed unless the process ends by itself. Raises OSError.
    """
    from mcp.client import stdio

    # Some servers print logs to stdout. The SDK skips such lines, but logs a traceback for each. Turn these tracebacks off.
    logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)
    read, write = os.pipe()
    stderr = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stderr), os.fdopen(read, "rb")
    )

    async def listen() -> None:
        while piece := await stderr.read(4_096):
            said(piece.decode("utf-8", "replace"))

    task = asyncio.create_task(listen())
    server = stdio.StdioServerParameters(
        command=words[0],
        args=list(words[1:]),
        # The SDK adds further variables to the environment. Empty values override them.
        env=dict.fromkeys(stdio.get_default_environment(), "") | dict(env),
        cwd=folder,
        encoding_error_handler="replace",
    )
    try:
        with os.fdopen(write, "w") as errlog:
            async with stdio.stdio_client(server, errlog) as streams, _relayed(streams, ended) as relayed:
                errlog.close()
                yield relayed
    finally:
        task.cancel()
        pipe.close()


def _reread(error: pydantic.ValidationError) -> Any:
    """If the SDK refused a line only because it contains half a surrogate pair (such as a cut emoji), return the message in the
    line. Otherwise return the error.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    with contextlib.suppress(ValueError, TypeError):
        line = text.clean(json.dumps(json.loads(error.errors()[0]["input"]), ensure_ascii=False))
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    return error


@contextlib.asynccontextmanager
async def _relayed(streams: TransportStreams, ended: Callable[[], object]) -> AsyncIterator[TransportStreams]:
    """Convert the results that a server sends. `ended` is called when the server closes its stream."""
    import anyio
    from mcp_types import JSONRPCResponse

    read, write = streams
    heard, relayed = anyio.create_memory_object_stream[Any](0)

    async def relay() -> None:
        async with heard:
            async for received in read:
                one = _reread(received) if isinstance(received, pydantic.ValidationError) else received
                message = getattr(one, "message", None)
                if isinstance(message, JSONRPCResponse):
                    message.result = await asyncio.to_thread(mended, message.result)
                await heard.send(one)
        ended()

    task = asyncio.create_task(relay())
    try:
        yield relayed, write
    finally:
        task.cancel()
        await asyncio.wait([task])
        relayed.close()


@contextlib.asynccontextmanager
async def address(url: str, headers: Mapping[str, str]) -> AsyncIterator[TransportStreams]:
    """Connect to a server over HTTP inside the `with` block. Redirects are not followed. Proxies from the environment
    are not used. Answers that are compressed or too large are refused.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.ReadError("a compressed answer, which was not asked for")
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                body = bytearray()
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > LONGEST:
                        await response.aclose()
                        raise httpx2.ReadError(f"an answer of more than {LONGEST:,} bytes")
                response = httpx2.Response(
                    response.status_code, headers=response.headers, content=bytes(body)
                )
            return response

    limits = httpx2.Timeout(CONNECT_SECONDS, read=SILENCE_SECONDS)
    sent = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=limits, trust_env=False, transport=Bounded()) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST) as streams,
        _relayed(streams, lambda: None) as relayed,
    ):
        yield relayed


# ------------------------------------------------------------ code that a chat can change


def placed(root: Path, word: str) -> str:
    """Return an argument that begins with `.` or `..` as an absolute path, resolved against the project's folder.
    Return other arguments unchanged.
    """
    dots = word.partition("/")[0] in {".", ".."}
    return os.path.normpath(root / word) if dots else word


def fixed_environment(ours: ProtectedCode, folder: Path) -> dict[str, str]:
    """Return the inherited environment variables, without those that name a path which a chat can change. If HOME names such a
    path, set it to `folder`, because programs run code from HOME.
    """
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    kept = {name: value for name, value in env.items() if name == "PATH" or not any(_changeable(value, ours))}
    return {"HOME": str(folder)} | kept if "HOME" in env else kept


def changeable_code(
    args: Sequence[str], values: Iterable[str], ours: ProtectedCode, env: Mapping[str, str]
) -> str | None:
    """Return the first argument or variable that makes the server run code that a chat can change; None if there is none. `env`
    is the server's environment; it is used to expand variable names. This call blocks the thread.
    """
    named, before = False, ""
    for word in args:
        at_home = re.sub(r"(?<![^\s=:'\"])~(?=/|\s|$)", lambda _: env.get("HOME", "~"), word)
        filled_in = re.sub(
            r"\$(?:\{(\w+)\}|(\w+))", lambda name: env.get(name[1] or name[2], name[0]), at_home
        )
        places = [place for one in dict.fromkeys((word, filled_in)) for place in _changeable(one, ours)]
        if places and not (named and before not in _ROOTS and all(place.is_dir() for place in places)):
            return word
        option = word.startswith("-") or (before.startswith("-") and before not in _SWITCHES)
        named = named or not (option or word in _VERBS)
        before = word
    return next((value for value in values if any(_changeable(value, ours))), None)


def _changeable(word: str, ours: ProtectedCode) -> Iterator[Path]:
    """Yield those paths in a word whose files a tool or a command can change."""
    for part in dict.fromkeys((word, word.partition("=")[2], *_BETWEEN.split(word))):
        path = placed(ours.root, part)
        if os.path.isabs(path) and "\0" not in path and ours.changeable(Path(path)):  # noqa: PTH117 - a text
            yield Path(path)
