"""Prints messages, the prompt and the sign of work to a terminal."""

from __future__ import annotations

from typing import TextIO

from bot import text

PROMPT = "› "
_CLEAR = "\r\x1b[K"


class Screen:
    """Prints messages; where a person types, also the prompt and the sign of work."""

    def __init__(self, stdout: TextIO, *, interactive: bool) -> None:
        self._out = stdout
        self._interactive = interactive and stdout.isatty()
        self._working = False

    def ready(self) -> None:
        """The cursor stands on a new line: at the start, and after the person pressed return."""
        self._write(self._sign())

    def working(self, *, on: bool) -> None:
        self._working = on
        self._write(_CLEAR + self._sign())

    def say(self, words: str) -> None:
        """Print a message over the sign, and the sign again."""
        self._write(_CLEAR)
        # What a model writes must not steer the terminal.
        safe = text.for_terminal(words)
        encoding = self._out.encoding or "utf-8"
        self._out.write(safe.encode(encoding, "replace").decode(encoding) + "\n")
        self._out.flush()
        self._write(self._sign())

    def leave(self) -> None:
        self._write(_CLEAR)

    def _sign(self) -> str:
        return "… " if self._working else PROMPT

    def _write(self, sign: str) -> None:
        if self._interactive:
            encoding = self._out.encoding or "utf-8"
            self._out.write(sign.encode(encoding, "replace").decode(encoding))
            self._out.flush()
