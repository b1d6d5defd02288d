"""Handles signals. After SIGTERM or SIGINT the process ends within ten seconds with exit code 0. SIGHUP never ends the
process.
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
"""Timeout in seconds after a stop signal. The process then exits even if a part hangs. No accepted message is lost,
because the log contains it.
"""


def _leave(*_: object) -> None:
    os._exit(0)


def no_hangup(*_: object) -> None:
    """Ignore SIGHUP in a handler function. Programs that Shipmate starts do not inherit a handler function; they would
    inherit SIG_IGN.
    """


@contextlib.contextmanager
def draining(
    stop: asyncio.Event,
    hung_up: Callable[[], object] = no_hangup,
    leave: Callable[[], object] = _leave,
    seconds: float = LAST_RESORT,
) -> Iterator[None]:
    """Handle signals while the context is open. A stop signal sets `stop`; if the process still runs `seconds` later,
    `leave` is called. Further stop signals are ignored, even after the context has ended. SIGHUP calls `hung_up`.
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
        # Between the old and the new handler, a signal would kill the process. Therefore signals are blocked meanwhile.
        signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, taken)
