"""The commands of `shipmate`. A command's module is imported only when the command is used, because some
modules take seconds to import.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "init": (
        "setup:init",
        "Set up a project folder. Writes ship.json, Agent.md, .env.example and .ship/. On a terminal it also asks for keys and tokens, tests each of them and writes .env.",
    ),
    "run": ("gateway:run", "Run the gateway in the foreground."),
    "chat": ("gateway:chat", "Chat with Shipmate in this terminal."),
    "link": ("gateway:link", "Print a single-use link that makes a browser an operator's."),
    "check": ("setup:check", "Validate ship.json and the environment, without connecting."),
    "doctor": (
        "doctor:doctor",
        "Diagnose the installation. Connects, checks tokens, model, disk, clock and files, and prints a remedy for each finding. Exit code 0, 75 or 78.",
    ),
    "backup": ("backup:backup", "Write all of .ship to one file. Works while the gateway runs."),
    "restore": ("backup:restore", "Restore a backup into a project without conversations."),
    "migrate": (
        "migrate:migrate",
        "Migrate to PostgreSQL, or back. Copies and compares log and shared files, and keeps the old log. Shipmate must be stopped.",
    ),
    "export": (
        "person:export",
        "Export all data of a person, one JSON object a line. Works while the gateway runs.",
    ),
    "erase": (
        "person:erase",
        "Erase all data of a person, and print what was removed. The gateway must be stopped. This cannot be undone.",
    ),
    "logs": ("logs:logs", "Show the operator's log."),
    "stats": (
        "stats:stats",
        "Show tokens, cache share, cost, errors and how long people wait. Totals include conversations that were removed.",
    ),
    "chats": ("history:chats", "List the conversations in the archive, most recent first."),
    "history": (
        "history:history",
        "Show one conversation, oldest first. With --search: the best matches first, then related messages without a matching word.",
    ),
    "replay": (
        "replay:replay",
        "Show the recorded requests to the model, byte for byte. Shows every request of a turn or a task, or sends them to another model or with another prompt. Runs no tool and delivers nothing.",
    ),
    "trace": (
        "trace:trace",
        "Show the path of one turn. Inbound message, model calls, tools, delivery and cost. Works while the gateway runs.",
    ),
    "memory": ("memory:app", "Read, edit and delete what is remembered."),
    "index": ("history:index_app", "Maintain the search index."),
    "allow": (
        "access:allow",
        "Allow a person, or the members of a channel in that channel, to talk to the bot.",
    ),
    "block": ("access:block", "Block a person, regardless of the allow lists."),
    "pending": ("access:pending", "List people who wrote to the bot and are not allowed."),
    "start": ("gateway:start", "As `run`, under its name in ShipMyAgent."),
    "version": ("versions:version", "Show the versions of Shipmate, Python and the dependencies."),
}
"""Commands by name: the module with the command's function or group, and the help text."""
HIDDEN = frozenset({"start"})
_SETTINGS: dict[str, dict[str, Any]] = {
    # The id of a Telegram group begins with a minus sign and must not be parsed as an option.
    "allow": {"ignore_unknown_options": True},
    "block": {"ignore_unknown_options": True},
}


class Commands(TyperGroup):
    """Command group that imports the module of a command when the command is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update(dict.fromkeys(COMMANDS))  # type: ignore[arg-type]  # only the names are needed, for suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        place, words = COMMANDS[cmd_name]
        module, _, name = place.partition(":")
        found = getattr(importlib.import_module(f"bot.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            return get_command(found)
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        alone.command(
            cmd_name, help=words, hidden=cmd_name in HIDDEN, context_settings=_SETTINGS.get(cmd_name)
        )(found)
        return get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, words.partition(". ")[0].removesuffix("."))
                    for name, (_, words) in COMMANDS.items()
                    if name not in HIDDEN
                ]
            )


def _show_version(value: bool) -> None:
    if value:
        from bot.invocation import version_of

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
