"""`shipmate allow`, `shipmate block`, `shipmate pending`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.common import (
    AsJson,
    Dir,
    Here,
    access_list,
    hint_of_folder,
    manifest_of,
    must_lead,
    say,
    say_json,
    timestamp,
    when,
)
from bot.invocation import command

if TYPE_CHECKING:
    from pathlib import Path

    from bot.access_list import AccessList

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="slack or telegram, for instance.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The stable id, as `shipmate pending` shows it.")]


def allow(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    """Let a person, or the members of a channel in it, talk to the bot."""
    _list_for(channel, user_id, root).allow(channel, user_id)
    say(f"{channel}:{user_id} is allowed.")


def block(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    """Refuse a person, whatever the allow lists say."""
    _list_for(channel, user_id, root).block(channel, user_id)
    say(f"{channel}:{user_id} is blocked.")


def pending(root: Dir = Here, as_json: AsJson = False) -> None:
    """List people who wrote to the bot and are not let in."""
    asked = access_list(root).pending()
    hint_of_folder(root)
    if as_json:
        for item in asked:
            time = timestamp(item.ts / 1000)
            named = {"name": item.name} if item.name else {}
            say_json({"channel": item.channel, "id": item.user_id, "ts": item.ts, "time": time} | named)
    elif not asked:
        say("Nobody waits.")
    else:
        for item in asked:
            name = f"   # {item.name}" if item.name else ""
            say(f"{when(item.ts)}  {command(f'allow {item.channel} {item.user_id}', root)}{name}")


def _list_for(channel: str, user_id: str, root: Path) -> AccessList:
    """The access list, for a change of what it says of this person."""
    from bot import config

    for line in config.identity("ID", user_id, manifest_of(channel)):
        raise typer.BadParameter(line.removeprefix("ID: "))
    must_lead(root)
    known = access_list(root)
    hint_of_folder(root)
    return known
