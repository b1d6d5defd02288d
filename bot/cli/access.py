"""`shipmate allow`, `shipmate block`, `shipmate pending`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    hint_of_folder,
    manifests,
    must_lead,
    say,
    say_json,
    timestamp,
    when,
)
from bot.invocation import command

if TYPE_CHECKING:
    from bot.access_list import AccessList

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="slack or telegram, for instance.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The stable id, as `shipmate pending` shows it.")]


def allow(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    """Let a person, or the members of a channel in it, talk to the bot."""
    _known(channel, user_id)
    must_lead(root)
    _lists(root).allow(channel, user_id)
    hint_of_folder(root)
    say(f"{channel}:{user_id} is allowed.")


def block(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    """Refuse a person, whatever the allow lists say."""
    _known(channel, user_id)
    must_lead(root)
    _lists(root).block(channel, user_id)
    hint_of_folder(root)
    say(f"{channel}:{user_id} is blocked.")


def pending(root: Dir = Here, as_json: AsJson = False) -> None:
    """List people who wrote to the bot and are not let in."""
    asked = _lists(root).pending()
    hint_of_folder(root)
    if as_json:
        for item in asked:
            time = timestamp(datetime.fromtimestamp(item.ts / 1000, UTC))
            named = {"name": item.name} if item.name else {}
            say_json({"channel": item.channel, "id": item.user_id, "ts": item.ts, "time": time} | named)
    elif not asked:
        say("Nobody waits.")
    else:
        for item in asked:
            name = f"   # {item.name}" if item.name else ""
            say(f"{when(item.ts)}  {command(f'allow {item.channel} {item.user_id}', root)}{name}")


def _lists(root: Path) -> AccessList:
    from bot import access_list, system

    return access_list.AccessList(root / HOME / access_list.FILE, system.SystemDisk(), system.SystemClock())


def _known(channel: str, user_id: str) -> None:
    from bot import config

    known = manifests()
    if channel not in known:
        raise typer.BadParameter(f"no channel is called {channel!r}; there are {', '.join(sorted(known))}")
    for line in config.identity("ID", user_id, known[channel]):
        raise typer.BadParameter(line.removeprefix("ID: "))
