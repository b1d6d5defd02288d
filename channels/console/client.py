"""Client side of the console channel: `shipmate chat`."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import tzlocal

from bot import text, words
from bot.words import say
from channels.console.manifest import socket_path

PROMPT = "› "
_WORKING = "… "
_CLEAR = "\r\x1b[K"
QUIET = 0.3
"""An answer counts as complete if the gateway reports no running work and sends no message for this many seconds."""
_LONGEST = 1_000_000  # Max bytes of a person's message
_LINE = 1 << 22  # Max bytes of one line of the protocol


class Screen:
    """Prints messages. If `interactive`, also prints the prompt or the working indicator below the messages."""

    def __init__(self, stdout: TextIO, *, interactive: bool) -> None:
        self._out = stdout
        self.interactive = interactive and stdout.isatty()
        """True if a person reads the output. A program that reads the output gets only the messages."""
        self._below = PROMPT

    def working(self, *, on: bool) -> None:
        self._below = _WORKING if on else PROMPT
        self.prompt(_CLEAR)

    def prompt(self, before: str = "") -> None:
        if self.interactive:
            self._write(before + self._below)

    def say(self, words: str) -> None:
        clear, below = (_CLEAR, self._below) if self.interactive else ("", "")
        shown = text.for_terminal(words)  # `for_terminal` removes control sequences
        self._write(f"{clear}{shown}\n{below}")

    def leave(self) -> None:
        if self.interactive:
            self._write(_CLEAR)

    def _write(self, words: str) -> None:
        encoding = self._out.encoding or "utf-8"
        self._out.write(words.encode(encoding, "replace").decode(encoding))
        self._out.flush()


async def read_lines(stdin: TextIO) -> AsyncIterator[str]:
    """Yield each line of `stdin` without its line break. No thread is used, because a blocked thread would delay the exit."""
    loop, descriptor = asyncio.get_running_loop(), stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while True:
        readable = asyncio.Event()
        # Selectors refuse a regular file. If `stdin` is a regular file, it is always readable.
        with contextlib.suppress(PermissionError):
            loop.add_reader(descriptor, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
        if not (data := os.read(descriptor, 1 << 16)):
            break
        *whole, rest = (rest + decoder.decode(data)).split("\n")
        for line in whole:
            yield line.rstrip("\r")
    if rest:
        yield rest


async def converse(
    home: Path,
    *,
    stdin: TextIO,
    stdout: TextIO,
    chat_id: str = "local",
    quiet: float = QUIET,
    outlived: bool = True,
) -> int:
    """Connect standard input and output to the gateway of `home` until the input ends. Return the exit code.

    In a terminal, Ctrl-C stops the running turn; Ctrl-D or a second Ctrl-C ends the client. Each line from a pipe is a message,
    which is sent after the previous line is answered. `outlived` is True if the gateway keeps running after the client ends.
    """
    screen = Screen(stdout, interactive=stdin.isatty())
    try:
        path = await asyncio.to_thread(socket_path, home)
        reader, writer = await asyncio.open_unix_connection(path, limit=_LINE)
    except OSError:
        screen.say(say("console.unreachable"))
        return 1
    try:
        return await _Conversation(writer, screen, quiet, home, outlived=outlived).run(reader, stdin, chat_id)
    finally:
        writer.close()


@dataclass(eq=False)
class _Conversation:
    writer: asyncio.StreamWriter
    screen: Screen
    quiet: float
    home: Path
    _: KW_ONLY
    outlived: bool
    _confirmations: dict[str, asyncio.Future[bool]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _messages: int = 0
    _working: bool = False
    _unanswered: bool = False  # True after a message is sent, until the next message is received
    _asked: bool = False
    """True while a turn waits for a person's decision. The gateway reports no work for such a turn."""
    _failed: bool = False
    _interrupts: int = 0
    _stopping: bool = False

    async def run(self, reader: asyncio.StreamReader, stdin: TextIO, chat_id: str) -> int:
        try:
            zone = tzlocal.get_localzone_name()
        except (OSError, ValueError, LookupError):
            zone = None  # the system has no time zone, or two different ones
        self._write({"hello": {"chat": chat_id, "language": words.reader().language, "zone": zone}})
        listening = asyncio.create_task(self._listen(reader))
        typing = asyncio.create_task(self._type(stdin))
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):  # only the main thread receives signals
            loop.add_signal_handler(signal.SIGINT, self._interrupt, typing)
        try:
            await asyncio.wait({listening, typing}, return_when=asyncio.FIRST_COMPLETED)
            gone = not typing.done()
        finally:
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
            listening.cancel()
            typing.cancel()
            await asyncio.gather(listening, typing, return_exceptions=True)
        if gone:
            self.screen.say(say("console.gone"))
        if self.screen.interactive and self._in_flight and not self._stopping:
            self.screen.say(say("console.waits" if self.outlived and not gone else "console.put_off"))
        self.screen.leave()
        return int(gone or self._failed)

    @property
    def _in_flight(self) -> bool:
        return self._working or self._unanswered or self._asked

    def _interrupt(self, typing: asyncio.Task[None]) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            typing.cancel()
        elif self._in_flight:
            self.screen.say(say("console.stopping"))
            self._stopping = True
            self._post("/stop")
        else:
            self.screen.say(say("console.leaving"))

    # -- from the person -------------------------------------------------------------------------------------

    async def _type(self, stdin: TextIO) -> None:
        async for line in read_lines(stdin):
            self.screen.prompt()
            self._interrupts = 0
            self._stopping = False
            if not line.strip():
                continue
            if len(line.encode("utf-8", "replace")) > _LONGEST:
                self._fail(say("console.too_long"))
                continue
            before = self._messages
            self._unanswered, self._asked = True, False
            confirmed = self._post(line)
            if not stdin.isatty() and await confirmed:
                await self._answered(before)

    def _post(self, words: str) -> asyncio.Future[bool]:
        """Send a message. The returned future is True if the gateway accepts the message."""
        key = secrets.token_hex(16)
        confirmed = self._confirmations[key] = asyncio.get_running_loop().create_future()
        self._write({"id": key, "text": words})
        return confirmed

    async def _answered(self, before: int) -> None:
        """Wait until a message has arrived, the gateway reports no work, and nothing has followed for `quiet` seconds."""
        async with self._changed:
            seen = before
            while self._working or self._messages > seen or seen == before:
                await self._changed.wait_for(lambda: self._messages > before and not self._working)
                seen = self._messages
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.quiet):
                        await self._changed.wait()

    def _write(self, line: dict[str, Any]) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps(line).encode("ascii") + b"\n")

    # -- from the gateway ------------------------------------------------------------------------------------

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                async with self._changed:
                    self._hear(json.loads(line))
                    self._changed.notify_all()

    def _hear(self, line: dict[str, Any]) -> None:
        if "name" in line and self.screen.interactive:
            folder = self.home.parent.resolve().name
            self.screen.say(say("console.greeting", name=line["name"], folder=folder))
        if "message" in line:
            self._messages += 1
            self._unanswered, self._asked = False, bool(line["message"].get("asks"))
            self.screen.say(line["message"]["text"])
        if "working" in line:
            self._working = bool(line["working"])
            self.screen.working(on=self._working)
        if "error" in line:
            self._fail(line["error"])
        confirmed = self._confirmations.pop(line.get("id", ""), None)
        if confirmed is not None and not confirmed.done():
            taken = bool(line.get("taken"))
            self._unanswered = self._unanswered and taken
            confirmed.set_result(taken)

    def _fail(self, sentence: str) -> None:
        self._failed = True
        self.screen.say(sentence)
