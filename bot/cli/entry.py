"""Finds the command by its name; turns an error into one line and an exit code, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from bot import errors
from bot.cli import (
    access,
    backup,
    doctor,
    gateway,
    history,
    index,
    logs,
    memory,
    migrate,
    person,
    replay,
    setup,
    stats,
    trace,
)
from bot.cli.common import HOME, AsJson, Dir, Here, complain, say, say_json

app = typer.Typer(
    name="shipmate",
    help="A self-hosted chat-bot gateway agent for Slack and Telegram.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        from bot.invocation import version_of

        say(f"shipmate {version_of('shipmate')}")
        raise typer.Exit


@app.callback()
def shipmate(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command()(setup.init)
app.command()(gateway.run)
app.command()(gateway.chat)
app.command()(gateway.link)
app.command()(setup.check)
app.command()(doctor.doctor)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(migrate.migrate)
app.command()(person.export)
app.command()(person.erase)
app.command()(logs.logs)
app.command()(stats.stats)
app.command()(history.chats)
app.command()(history.history)
app.command()(replay.replay)
app.command()(trace.trace)
app.add_typer(memory.app)
app.add_typer(index.app, name="index")
# The id of a group in Telegram begins with a minus, and is no option.
app.command(context_settings={"ignore_unknown_options": True})(access.allow)
app.command(context_settings={"ignore_unknown_options": True})(access.block)
app.command()(access.pending)


@app.command()
def version(root: Dir = Here, as_json: AsJson = False) -> None:
    """Version, Python and dependencies."""
    del root
    from importlib.metadata import PackageNotFoundError, requires

    from bot.invocation import version_of

    try:
        names = [line.split(";")[0].strip() for line in requires("shipmate") or () if "extra ==" not in line]
    except PackageNotFoundError:
        names = []
    dependencies = {name: version_of(name) for name in sorted(map(_bare, names))}
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        say_json({"version": version_of("shipmate"), "python": python, "dependencies": dependencies})
        return
    say(f"shipmate {version_of('shipmate')}")
    say(f"Python {python}")
    for name, found in dependencies.items():
        say(f"  {name} {found}")


def _bare(requirement: str) -> str:
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), None)
    return requirement[:end]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0, 2 wrong usage, 78 configuration, 75 try again later, 1 the rest."""
    sys.excepthook = _unexpected
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
    try:
        return int(typer.main.get_command(app).main(args=words, prog_name="shipmate") or 0)
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
    place = _write_down(_folder(sys.argv[1:]), error, frames)
    where = f"; details are in {place}" if place else f" in {frames[-1] if frames else 'nowhere'}"
    complain(f"shipmate: unexpected {kind.__name__}{where}")


def _folder(words: list[str]) -> Path:
    """`--dir` once more: the error may have come before it was read."""
    for at, word in enumerate(words):
        if word == "--dir" and at + 1 < len(words):
            return Path(words[at + 1])
        if word.startswith("--dir="):
            return Path(word.removeprefix("--dir="))
    return Path()


def _write_down(root: Path, error: BaseException, frames: list[str]) -> str | None:
    from bot.system import SystemClock, SystemDisk, UlidSource
    from bot.telemetry import JsonlLog

    folder = root / HOME / "logs"
    if not folder.parent.is_dir():
        return None
    log = JsonlLog(folder, clock=SystemClock(), disk=SystemDisk(), ids=UlidSource())
    log.write("error", "unexpected error of the command line", level="error", error=error, frames=frames)
    log.close()
    return f"{HOME}/logs"
