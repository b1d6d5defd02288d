"""The command line: `shipmate`, also `python -m bot`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""
_STOPS = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. See `bot.cli.entry`, whose import takes its time."""
    if arguments is None and len(sys.argv) == 1:
        sys.argv += _first_look()
    gateway = arguments is None and sys.argv[1:2] == ["run"]
    if gateway:
        # Until the gateway's own handlers stand there is nothing to drain: a stop is carried out at once.
        for number in _STOPS:
            signal.signal(number, lambda *_: os._exit(0))
        # A terminal that closes ends nothing. A function is not handed down to what is started, unlike SIG_IGN.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        from bot.cli import entry

        code = entry.main(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    if gateway:
        # It has drained: a second stop must not make it look as if it had been cut down.
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)
    return code


def _first_look() -> list[str]:
    """The words for a bare `shipmate` on a terminal, as `uvx shipmate` is one: a gateway on its defaults, in a folder of its
    own. [] where there is no terminal, or a project stands here: then the commands are shown.
    """
    if (
        not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())
        or Path("ship.json").exists()
    ):
        return []
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "shipmate"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    print(
        f"A first look, in {folder}. `shipmate init` sets up a folder of yours, `shipmate --help` shows all commands.",
        flush=True,
    )
    return ["run", "--defaults", "--dir", str(folder)]


__all__ = ["main"]
