"""Finds the command by its name; turns an error into one line and an exit code, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from bot import errors
from bot.cli import versions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0, 2 wrong usage, 78 configuration, 75 try again later, 1 the rest."""
    sys.excepthook = _unexpected
    # A dump would have tokens, and what people have said.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _carry_out(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has gone, as in `shipmate logs | head`.
        code = _unheard(0)
    except OSError as error:
        if error.errno != errno.EIO:
            complain(f"shipmate: {error.strerror}: the output")
            code = 1
        # Else its terminal has gone.
        code = _unheard(code)
    return code


def _unheard(code: int) -> int:
    """The exit code; the interpreter must not flush once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _open_streams() -> None:
    """Somewhere to write for a process that was started without an output."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end


def _carry_out(words: list[str]) -> int:
    if say := versions.WITHOUT_PARSER.get(tuple(words)):
        say()
        return 0
    from typer.main import get_command

    from bot.cli.commands import naming

    try:
        return int(get_command(naming(words)).main(args=words, prog_name="shipmate") or 0)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            raise done.__context__ from None  # which the library takes for a failure
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
    """Report an unexpected error: one line here, the details in the log."""
    import traceback

    frames = [
        f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(trace)[-12:]
    ]
    place = _write_down(folder_of(sys.argv[1:]), error, frames)
    where = f"; details are in {place}" if place else f" in {frames[-1] if frames else 'nowhere'}"
    complain(f"shipmate: unexpected {kind.__name__}{where}")


def complain(line: str) -> None:
    """As `common.complain`, whose module imports the parser."""
    from bot.cli.common import complain

    complain(line)


def folder_of(words: list[str]) -> Path:
    """`--dir` once more: the error may have come before it was read."""
    for at, word in enumerate(words):
        if word == "--dir" and at + 1 < len(words):
            return Path(words[at + 1])
        if word.startswith("--dir="):
            return Path(word.removeprefix("--dir="))
    return Path()


def _write_down(root: Path, error: BaseException, frames: list[str]) -> str | None:
    from bot.cli.common import HOME
    from bot.system import SystemClock, SystemDisk, UlidSource
    from bot.telemetry import JsonlLog

    folder = root / HOME / "logs"
    if not folder.parent.is_dir():
        return None
    log = JsonlLog(folder, clock=SystemClock(), disk=SystemDisk(), ids=UlidSource())
    log.write("error", "unexpected error of the command line", level="error", error=error, frames=frames)
    log.close()
    return f"{HOME}/logs"
