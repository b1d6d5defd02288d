"""Handles signals: after SIGTERM or SIGINT the process ends within ten seconds with 0; SIGHUP never ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

STOPS = (signal.SIGINT, signal.SIGTERM)
LAST_RESORT = 9.6
"""Timeout after a stop, at which the process exits whatever hangs; accepted messages are in the log."""


def _leave(*_: object) -> None:
    os._exit(0)


def no_hangup(*_: object) -> None:
    """Ignore SIGHUP. Unlike SIG_IGN, a function is not inherited by started programs."""


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """For the block, a stop ends the process at once: there is nothing to drain before `draining`."""
    before = {number: signal.signal(number, _leave) for number in STOPS}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, no_hangup)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) in {_leave, no_hangup}:
                signal.signal(number, handler)


@contextlib.contextmanager
def draining(
    stop: asyncio.Event,
    hung_up: Callable[[], object] = no_hangup,
    leave: Callable[[], object] = _leave,
    seconds: float = LAST_RESORT,
) -> Iterator[None]:
    """For the block, a stop sets `stop`, and `leave` is called if the process still runs `seconds` later. Further stops, also after the
    block, are ignored. SIGHUP calls `hung_up`.
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
    if hears := signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, hung_up)
    taken = (*STOPS, signal.SIGHUP) if hears else STOPS
    try:
        yield
    finally:
        # Blocked meanwhile: between the two handlers a signal would kill the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)
