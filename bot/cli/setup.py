"""`shipmate init` and `shipmate check`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot import errors
from bot.cli.common import (
    HOME,
    AsJson,
    Defaults,
    Dir,
    Here,
    Yes,
    complain,
    manifest_of,
    manifests,
    named_operators,
    say,
    say_json,
    settings,
)
from bot.invocation import command

if TYPE_CHECKING:
    from bot.cli.credentials import Credentials
    from bot.contracts.channel import Manifest


def init(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", file_okay=False, help="The project's folder.")
    ] = None,
    root: Annotated[Path, typer.Option("--dir", metavar="DIR", help="The same.", file_okay=False)] = Here,
    name: Annotated[str | None, typer.Option(help="The bot's name.")] = None,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="CHANNEL:ID", help="Who may approve; may be given again.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Say how to connect slack or telegram.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Set up a project's folder. Write ship.json, Agent.md, .env.example and .ship/; on a terminal ask for keys and tokens, try each, and write .env."""
    from bot import config
    from bot.cli import credentials

    known = manifests()
    root = folder or root
    config.must_be_folder(root / HOME)
    operators = tuple(operator or ())
    for line in _doubts(operators, known):
        raise typer.BadParameter(line, param_hint="--operator")
    if connect is not None:
        manifest_of(connect)
    asks = sys.stdin.isatty() and not yes
    earlier = credentials.name(root)
    if earlier and name and name != earlier:
        complain(f"The bot's name stays {earlier!r}: it can be changed in ship.json.")
    name = earlier or name
    if asks:
        name = name or typer.prompt("The bot's name", default="shipmate")
    title = str(name or "shipmate").strip()
    if not title or not title.isprintable() or len(title) > 80:
        raise typer.BadParameter("a name is one line of at most 80 characters", param_hint="--name")
    found = credentials.ask(root, title, known) if asks else credentials.Credentials()
    found.operators += operators
    if asks:
        found.operators += _more_operators(root, found, known)
    _write(root, title, tuple(found.operators), known)
    credentials.keep(root, found, known)
    if earlier and not asks:
        say()
        credentials.tell(root, known)
    if channels := [connect] if connect is not None else [] if asks or earlier else list(known):
        _tell_how(root, title, [known[one] for one in channels])
    _show_next(root)


def _tell_how(root: Path, name: str, channels: Iterable[Manifest]) -> None:
    """Say how to get the tokens of channels."""
    from bot.cli import credentials

    file = credentials.document(root)
    for manifest in channels:
        if words := manifest.connect(name, credentials.posts_to(file, manifest.name)):
            say(f"\n{words}")
    say("\nPut what you get into .env, or run init on a terminal, where it asks for each.")


def _doubts(operators: tuple[str, ...], known: Mapping[str, Manifest]) -> list[str]:
    from bot import config

    return [line for entry in operators for line in config.operator("operator", entry, known)]


def _more_operators(root: Path, found: Credentials, known: Mapping[str, Manifest]) -> tuple[str, ...]:
    """Ask for operators where nobody is one, or nobody on a channel that was connected now."""
    from bot.cli import credentials

    people = {*found.operators, *credentials.operators(root)}
    without = [one for one in found.channels if not any(person.startswith(f"{one}:") for person in people)]
    if people and not without:
        return ()
    where = f" Nobody is one on {' and '.join(without)} yet." if without else ""
    say(f"Operators may approve what the bot asks for and use operators' commands.{where}")
    say("Write each as telegram:123456789 or slack:U0123456789, with commas between; empty for nobody yet.")
    while True:
        words = typer.prompt("Operators", default="", show_default=False)
        entries = tuple(entry.strip() for entry in words.split(",") if entry.strip())
        doubts = _doubts(entries, known)
        if not doubts:
            return entries
        for line in doubts:
            say(line)


def _write(root: Path, name: str, operators: tuple[str, ...], known: Mapping[str, Manifest]) -> None:
    from bot import config, system
    from bot.cli import starter

    disk = system.SystemDisk()
    home = root / HOME
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


def _show_next(root: Path) -> None:
    from bot import instance

    say()
    if instance.is_held(root / HOME):
        say("Shipmate runs in this folder. It reads tokens and keys at a start: stop it, and run it again.")
    say(f"Next: {command('check', root)}, then {command('run', root)}")


def check(root: Dir = Here, defaults: Defaults = False, as_json: AsJson = False) -> None:
    """Validate ship.json and the environment, without connecting."""
    from bot.core.sqlite_log import FILE, damage

    found = settings(root, defaults=defaults)
    path = found.home / FILE
    if found.engine.kind == "embedded" and path.exists() and (why := damage(path)):
        raise errors.StorageError(f"{path}: {why}")
    for line in found.warnings:
        complain(f"warning: {line}")
    llm = found.llm
    others = [
        f"{one.model or llm.model} at {one.address(llm.base_url) or 'api.anthropic.com'}"
        for one in llm.fallback
    ]
    engine = found.web_search
    search = "off" if engine is None else "the provider's" if engine.kind == "auto" else engine.kind
    if as_json:
        say_json(
            {
                "name": found.name,
                "provider": found.llm.provider,
                "providerReason": found.llm.provider_reason,
                "model": found.llm.model,
                "fallback": others,
                "webSearch": search,
                "channels": {
                    name: {"on": name in found.enabled, "reason": reason}
                    for name, reason in found.reasons.items()
                },
                "operators": list(map(str, named_operators(found))),
                "warnings": list(found.warnings),
            }
        )
        return
    say(f"{found.name}: ship.json is fine.")
    model = f", model {found.llm.model}" if found.llm.provider != "demo" else ""
    say(f"  provider {found.llm.provider}{model} ({found.llm.provider_reason})")
    say(f"  fallback {', '.join(others) or 'none'}")
    say(f"  web search {search}")
    for name, reason in found.reasons.items():
        say(f"  channel {name} {'on' if name in found.enabled else 'off'} ({reason})")
    say(f"  operators {', '.join(map(str, named_operators(found))) or 'none'}")
