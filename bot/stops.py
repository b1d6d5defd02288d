"""SIGTERM and SIGINT: at whatever moment they come, the process ends within ten seconds, with 0."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

STOPS = (signal.SIGINT, signal.SIGTERM)
LAST_RESORT = 9.6
"""Seconds after a stop at which the process ends, whatever hangs: what was taken in is in the journal."""


def _leave(*_: object) -> None:
    os._exit(0)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """In the block a stop ends the process at once: there is nothing to drain yet. `draining` takes over in it."""
    before = {number: signal.signal(number, _leave) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _leave:
                signal.signal(number, handler)


@contextlib.contextmanager
def draining(
    stop: asyncio.Event, leave: Callable[[], object] = _leave, seconds: float = LAST_RESORT
) -> Iterator[None]:
    """In the block a stop sets `stop`, and `leave` is called where the process has not ended `seconds` after it; a
    second stop changes nothing, and neither does one that comes after the block.
    """
    loop = asyncio.get_running_loop()
    last_resort = threading.Timer(seconds, leave)
    last_resort.daemon = True

    def stopped() -> None:
        if not stop.is_set():
            stop.set()
            last_resort.start()

    for number in STOPS:
        loop.add_signal_handler(number, stopped)
    try:
        yield
    finally:
        # Blocked meanwhile: between the two handlers a stop would kill.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        for number in STOPS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
