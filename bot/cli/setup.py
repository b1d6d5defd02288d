"""`shipmate init` and `shipmate check`: set up a project, and check its configuration."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from bot import config, configuration, discovery, errors, instance
from bot.cli import credentials, starter
from bot.cli.common import HOME, AsJson, Defaults, Dir, Here, Yes, complain, say, say_json
from bot.cli.credentials import Credentials, Folder
from bot.cli.project import manifest_of, named_operators
from bot.contracts.channel import Manifest
from bot.core.sqlite_log import FILE, damage
from bot.invocation import command
from bot.system import SystemDisk


def init(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", file_okay=False, help="The project folder.")
    ] = None,
    root: Annotated[Path, typer.Option("--dir", metavar="DIR", help="The same.", file_okay=False)] = Here,
    name: Annotated[str | None, typer.Option(help="The bot's name.")] = None,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="CHANNEL:ID", help="Who may approve; can be repeated.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Print how to connect slack or telegram.")
    ] = None,
    yes: Yes = False,
) -> None:
    known, root = discovery.manifests(), folder or root
    config.must_be_folder(root / HOME)
    for line in _mistakes(operator or (), known):
        raise typer.BadParameter(line, param_hint="--operator")
    if connect is not None:
        manifest_of(connect, known)
    asks, project = sys.stdin.isatty() and not yes, Folder(root)
    title = _title(project, name, asks=asks)
    found = credentials.ask(project, title, known) if asks else Credentials()
    found.operators += operator or ()
    if asks:
        found.operators += _more_operators(project, found, known)
    _write(root, title, found.operators, known)
    credentials.save(project, found, known)
    explained = [connect] if connect is not None else [] if asks or project.exists else list(known)
    for channel in explained:
        if words := project.instructions(known[channel], title):
            say(f"\n{words}")
    if explained:
        say("\nPut the tokens into .env, or run init on a terminal, where it asks for each.")
    say()
    if instance.is_held(root / HOME):
        say("Shipmate is running in this folder. It reads tokens and keys at the start: restart it.")
    say(f"Next: {command('check', root)}, then {command('run', root)}")


def _title(project: Folder, given: str | None, *, asks: bool) -> str:
    """Return the bot's name: the name in an existing ship.json, the given name, or the name that the user types."""
    if project.name and given and given != project.name:
        complain(f"The bot's name stays {project.name!r}: change it in ship.json.")
    name = project.name or given
    if not name:
        name = str(typer.prompt("The bot's name", default="shipmate")) if asks else "shipmate"
    name = name.strip()
    if not name or not name.isprintable() or len(name) > 80:
        raise typer.BadParameter("a name is one line of at most 80 characters", param_hint="--name")
    return name


def _mistakes(operators: Iterable[str], known: Mapping[str, Manifest]) -> list[str]:
    return [line for entry in operators for line in config.operator("operator", entry, known)]


def _more_operators(project: Folder, found: Credentials, known: Mapping[str, Manifest]) -> list[str]:
    """Ask for operators if there are none, or if a newly connected channel has none."""
    people = {*found.operators, *project.operators}
    without = [one for one in found.channels if not any(person.startswith(f"{one}:") for person in people)]
    if people and not without:
        return []
    where = f" There is none on {' and '.join(without)} yet." if without else ""
    say(f"Operators may approve what the bot asks for, and use operators' commands.{where}")
    say("Write them as telegram:123456789 or slack:U0123456789, separated by commas; empty for nobody yet.")
    while True:
        words = typer.prompt("Operators", default="", show_default=False)
        entries = [entry.strip() for entry in words.split(",") if entry.strip()]
        mistakes = _mistakes(entries, known)
        if not mistakes:
            return entries
        for line in mistakes:
            say(line)


def _write(root: Path, name: str, operators: list[str], known: Mapping[str, Manifest]) -> None:
    """Write the files of a new project. Existing files are kept."""
    disk, home = SystemDisk(), root / HOME
    root.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o700, exist_ok=True)
    home.chmod(0o700)
    files = {
        "ship.json": starter.ship_json(name, operators, known),
        "Agent.md": starter.AGENT,
        ".env.example": starter.env_example(known),
        f"{HOME}/.gitignore": starter.GITIGNORE,
    }
    for file, content in files.items():
        if (root / file).exists():
            say(f"kept   {file}")
        else:
            disk.replace(root / file, content.encode())
            say(f"wrote  {file}")
    starter.hide_from_git(root, disk)
    config.write_schema(home / "schema", known, disk)
    say(f"wrote  {HOME}/schema/")


def check(root: Dir = Here, defaults: Defaults = False, as_json: AsJson = False) -> None:
    found = configuration.load(root, defaults=defaults)
    path = found.home / FILE
    if found.engine.kind == "embedded" and path.exists() and (why := damage(path)):
        raise errors.StorageError(f"{path}: {why}")
    for line in found.warnings:
        complain(f"warning: {line}")
    llm, engine, operators = found.llm, found.web_search, list(map(str, named_operators(found)))
    fallback = [
        f"{one.model or llm.model} at {one.address(llm.base_url) or 'api.anthropic.com'}"
        for one in llm.fallback
    ]
    search = "off" if engine is None else "the provider's" if engine.kind == "auto" else engine.kind
    if as_json:
        say_json(
            {
                "name": found.name,
                "provider": llm.provider,
                "providerReason": llm.provider_reason,
                "model": llm.model,
                "fallback": fallback,
                "webSearch": search,
                "channels": {
                    name: {"on": name in found.enabled, "reason": reason}
                    for name, reason in found.reasons.items()
                },
                "operators": operators,
                "warnings": list(found.warnings),
            }
        )
        return
    say(f"{found.name}: ship.json is valid.")
    model = f", model {llm.model}" if llm.provider != "demo" else ""
    say(f"  provider {llm.provider}{model} ({llm.provider_reason})")
    say(f"  fallback {', '.join(fallback) or 'none'}")
    say(f"  web search {search}")
    for name, reason in found.reasons.items():
        say(f"  channel {name} {'on' if name in found.enabled else 'off'} ({reason})")
    say(f"  operators {', '.join(operators) or 'none'}")
