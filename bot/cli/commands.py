"""The commands of `shipmate`, and their parser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import (
    access,
    backup,
    doctor,
    gateway,
    history,
    logs,
    memory,
    migrate,
    person,
    replay,
    setup,
    stats,
    trace,
    versions,
)
from bot.cli.common import AsJson, Dir, Here


def _without_commands() -> typer.Typer:
    return typer.Typer(
        name="shipmate",
        help="A self-hosted chat-bot gateway agent for Slack and Telegram.",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _without_commands()


def _show_version(value: bool) -> None:
    if value:
        versions.say_own()
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
app.add_typer(history.index_app)
# The id of a group in Telegram begins with a minus, and is no option.
app.command(context_settings={"ignore_unknown_options": True})(access.allow)
app.command(context_settings={"ignore_unknown_options": True})(access.block)
app.command()(access.pending)


@app.command(hidden=True)
def start(path: Annotated[Path | None, typer.Argument()] = None, root: Dir = Here) -> None:
    """As `run`, by the name that it has in ShipMyAgent."""
    gateway.run(path or root)


@app.command()
def version(root: Dir = Here, as_json: AsJson = False) -> None:
    """Version, Python and dependencies."""
    del root
    versions.say_all(as_json=as_json)


def naming(words: list[str]) -> typer.Typer:
    """The commands with no more of them than these words need: to make the parsers of all takes longer than to run most."""
    named = [one for one in app.registered_commands if one.callback and words[:1] == [one.callback.__name__]]
    if not named:
        return app
    alone = _without_commands()
    alone.callback()(shipmate)
    alone.registered_commands.extend(named)
    return alone
