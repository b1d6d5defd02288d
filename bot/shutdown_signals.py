"""Handles signals: after SIGTERM or SIGINT the process ends within ten seconds with exit code 0. SIGHUP
never ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

STOPS = (signal.SIGINT, signal.SIGTERM)
LAST_RESORT = 9.6
"""Timeout in seconds after a stop. The process then exits even if a part hangs; accepted messages are
already in the log.
"""


def _leave(*_: object) -> None:
    os._exit(0)


def no_hangup(*_: object) -> None:
    """Ignore SIGHUP by means of a handler function. Unlike SIG_IGN, a handler function is not inherited by
    started programs.
    """


@contextlib.contextmanager
def draining(
    stop: asyncio.Event,
    hung_up: Callable[[], object] = no_hangup,
    leave: Callable[[], object] = _leave,
    seconds: float = LAST_RESORT,
) -> Iterator[None]:
    """Handle signals while the context is open. A stop sets `stop`, and `leave` is called if the process
    still runs `seconds` later. Further stops are ignored, even after the context has ended. SIGHUP calls
    `hung_up`.
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
        # Signals are blocked while the handler is replaced, because between the two handlers a signal would kill the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)
