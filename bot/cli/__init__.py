"""The command line `shipmate`, which is also `python -m bot`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_STOPS = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `bot.cli.commands` is imported after the signal handlers are set, because
    importing it takes time.
    """
    if arguments is None and len(sys.argv) == 1:
        sys.argv += _first_look()
    gateway = arguments is None and sys.argv[1:2] in (["run"], ["start"])
    if gateway:
        # No turn runs before the gateway sets its own handlers, so until then a signal may end the process at once.
        for number in _STOPS:
            signal.signal(number, lambda *_: os._exit(0))
        # This handler keeps the process alive when the terminal closes. Unlike SIG_IGN, it is not inherited by child
        # processes.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        from bot.cli import commands

        code = commands.main(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    if gateway:
        # All turns have ended, so a second signal must not change the exit code.
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)
    return code


def _first_look() -> list[str]:
    """Return the arguments to use if the user gives none, as in `uvx shipmate`. These arguments start a gateway with default settings in
    the user's data folder. Return [], which shows the help, if there is no terminal or if the current folder is a project.
    """
    terminals = all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if not terminals or Path("ship.json").exists():
        return []
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "shipmate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    print(
        f"A first look, in {folder}. `shipmate init` sets up a folder of yours, `shipmate --help` shows all commands.",
        flush=True,
    )
    return ["run", "--defaults", "--dir", str(folder)]
