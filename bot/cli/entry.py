"""Runs one command. An error becomes one line of output and an exit code, never a traceback."""

from __future__ import annotations

import argparse
import errno
import io
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from typer.main import get_command

from bot import errors
from bot.cli.commands import app
from bot.cli.common import HOME, complain


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return 0 for success, 2 for wrong usage, 78 for a configuration error, 75 for an
    error that may pass, 1 for anything else.
    """
    sys.excepthook = _unexpected
    # A core dump would contain tokens and messages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the process was started without this stream
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open until the process ends
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = 0
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except OSError as error:
        # The reader has closed the pipe, for example in `shipmate logs | head`, or the terminal has been closed (EIO).
        if not isinstance(error, BrokenPipeError) and error.errno != errno.EIO:
            complain(f"shipmate: {error.strerror}: the output")
            code = 1
        # Otherwise the interpreter would flush stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(words: list[str]) -> int:
    try:
        return int(get_command(app).main(args=words, prog_name="shipmate") or 0)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            raise done.__context__ from None  # typer wraps the error in an exception of its own
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except errors.ConfigError as error:
        for line in error.findings:
            complain(line)
        return error.exit_code
    except errors.ShipmateError as error:
        complain(f"shipmate: {error}")
        return error.exit_code
    except OSError as error:
        reason = error.strerror or f"{error}"
        complain(f"shipmate: {reason}: {error.filename}" if error.filename else f"shipmate: {reason}")
        return 1


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an unexpected error: print one line on stderr, and write the details to the project's log if
    there is a project.
    """
    frames = [
        f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(trace)[-12:]
    ]
    where = f" in {frames[-1] if frames else 'nowhere'}"
    home = folder_of(sys.argv[1:]) / HOME
    if home.is_dir():
        from bot.system import SystemClock, SystemDisk, UlidSource
        from bot.telemetry import JsonlLog

        log = JsonlLog(home / "logs", clock=SystemClock(), disk=SystemDisk(), ids=UlidSource())
        log.write("error", "unexpected error of the command line", level="error", error=error, frames=frames)
        log.close()
        where = f"; details are in {HOME}/logs"
    complain(f"shipmate: unexpected {kind.__name__}{where}")


def folder_of(words: list[str]) -> Path:
    """Return the value of `--dir`. The error may have happened before typer parsed the option."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--dir", type=Path, default=Path())
    found: Path = parser.parse_known_args(words)[0].dir
    return found
