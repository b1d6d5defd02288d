"""Lists and runs the commands of `shipmate`. The commands that start a gateway are defined here. An error becomes one line of
output and an exit code.

The module of a command is imported only when the command is used, because some modules take seconds to import.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import importlib
import io
import os
import re
import resource
import sys
import tomllib
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from bot import errors
from bot.cli.common import HOME, AsJson, Defaults, Dir, Here, complain, say, say_rows
from bot.invocation import version_of

PYTHON = ".".join(map(str, sys.version_info[:3]))
COMMANDS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
HIDDEN = frozenset({"start"})
_WITH_NEGATIVE_IDS = frozenset({"allow", "block"})
"""Commands that accept an argument with a leading minus sign, such as the id of a Telegram group."""


class Commands(TyperGroup):
    """Command group that imports the module of a command when the command is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update(dict.fromkeys(COMMANDS))  # type: ignore[arg-type]  # the names are used for suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name]["at"].partition(":")
        found = getattr(importlib.import_module(f"bot.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            return get_command(found)
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        settings = {"ignore_unknown_options": cmd_name in _WITH_NEGATIVE_IDS}
        words, hidden = COMMANDS[cmd_name]["help"], cmd_name in HIDDEN
        alone.command(cmd_name, help=words, hidden=hidden, context_settings=settings)(found)
        return get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        shown = (
            (name, one["help"].partition(". ")[0]) for name, one in COMMANDS.items() if name not in HIDDEN
        )
        with formatter.section("Commands"):
            formatter.write_dl([(name, words.removesuffix(".")) for name, words in shown])


def _show_version(value: bool) -> None:
    if value:
        print(f"shipmate {version_of('shipmate')}")
        raise typer.Exit


app = typer.Typer(
    name="shipmate",
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def shipmate(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A self-hosted chat-bot gateway agent for Slack and Telegram."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return 0 for success, 2 for wrong usage, 78 for a configuration error, 75 for an
    error that may pass, 1 for every other error.
    """
    sys.excepthook = _unexpected
    # A core dump would contain tokens and messages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the process was started without this stream
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = 0
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except OSError as error:
        # A broken pipe: the program that reads our output has ended (`shipmate logs | head`). EIO: the terminal was closed.
        if not isinstance(error, BrokenPipeError) and error.errno != errno.EIO:
            complain(f"shipmate: {error.strerror}: the output")
            code = 1
        # Discard the rest of the output. Otherwise the interpreter would fail when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(words: list[str]) -> int:
    try:
        return int(get_command(app).main(args=words, prog_name="shipmate") or 0)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            raise done.__context__ from None  # typer wraps the error in an exception of its own
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except errors.ShipmateError as error:
        findings = error.findings if isinstance(error, errors.ConfigError) else [f"shipmate: {error}"]
        for line in findings:
            complain(line)
        return error.exit_code
    except OSError as error:
        reason = error.strerror or f"{error}"
        complain(f"shipmate: {reason}: {error.filename}" if error.filename else f"shipmate: {reason}")
        return 1


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an unexpected error: print one line on stderr, and write the details to the project's log if there is a project."""
    # This code parses `--dir` itself, because typer may not have parsed it before the error.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--dir", type=Path, default=Path())
    home = parser.parse_known_args(sys.argv[1:])[0].dir / HOME
    frames = [
        f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(trace)[-12:]
    ]
    where = f" in {frames[-1] if frames else 'nowhere'}"
    if home.is_dir():
        from bot.system import SystemClock, SystemDisk, UlidSource
        from bot.telemetry.log import JsonlLog

        log = JsonlLog(home / "logs", clock=SystemClock(), disk=SystemDisk(), ids=UlidSource())
        log.write("error", "unexpected error of the command line", level="error", error=error, frames=frames)
        log.close()
        where = f"; details are in {HOME}/logs"
    complain(f"shipmate: unexpected {kind.__name__}{where}")


# ------------------------------------------------------------ commands of the gateway


def run(root: Dir = Here, defaults: Defaults = False) -> None:
    gc.disable()  # during the imports, garbage collection would take a seventh of the start time
    import bot.app
    import bot.resources

    bot.resources.one_heap()
    raise typer.Exit(asyncio.run(bot.app.run(root, defaults=defaults)))


def start(path: Annotated[Path | None, typer.Argument()] = None, root: Dir = Here) -> None:
    run(path or root)


def chat(root: Dir = Here) -> None:
    import bot.app

    raise typer.Exit(asyncio.run(bot.app.chat(root)))


def link(root: Dir = Here) -> None:
    import bot.app

    say(bot.app.link(root))


def version(root: Dir = Here, as_json: AsJson = False) -> None:
    del root
    own, found = version_of("shipmate"), {name: version_of(name) for name in dependencies()}
    words = [f"shipmate {own}", f"Python {PYTHON}", *(f"  {name} {of}" for name, of in found.items())]
    facts = {"version": own, "python": PYTHON, "dependencies": found}
    say_rows([(facts, "\n".join(words))], as_json=as_json)


def dependencies() -> list[str]:
    """Return the packages that Shipmate requires, without extras; [] if Shipmate is not installed as a package."""
    try:
        needed = [line for line in requires("shipmate") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return []
    return sorted(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed)
