"""Redirects the `logging` and `warnings` output of libraries to the operator's log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bot.contracts.base import Level
from bot.contracts.environment import Log
from bot.normalize import describe

# At level INFO these libraries log addresses that contain a token.
TALKATIVE = ("httpx", "httpx2", "httpcore", "httpcore2", "slack_sdk", "slack_bolt", "telegram")


class LogHandler(logging.Handler):
    def __init__(self, log: Log, *, messages: bool) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warn"
        extra: dict[str, Any] = {"logger": record.name, "where": f"{record.module}:{record.lineno}"}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            extra["error"] = describe(error) if self._messages else type(error).__name__
            frames = traceback.extract_tb(error.__traceback__)[-6:]
            extra["frames"] = [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames]
        self._log.write("library", self._words(record), level=level, **extra)

    def _words(self, record: logging.LogRecord) -> str:
        if not self._messages:
            # A library's warning may contain an event and thereby a person's message.
            return f"{record.name} reports a {record.levelname.lower()}"
        try:
            return record.getMessage()
        except (TypeError, ValueError, KeyError):
            return str(record.msg)


@contextmanager
def bridged(log: Log, *, messages: bool = True) -> Iterator[None]:
    """Write the warnings and errors of libraries as log lines of kind `library`. `messages=False` leaves out
    the message text.
    """
    root = logging.getLogger()
    handler = LogHandler(log, messages=messages)
    before = {name: logging.getLogger(name).level for name in TALKATIVE}
    root.addHandler(handler)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        root.removeHandler(handler)
