"""`shipmate allow`, `shipmate block` and `shipmate pending`: change and show the access lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot import config
from bot.access_list import AccessList
from bot.cli.common import AsJson, Dir, Here, say, say_json, timestamp, when
from bot.cli.project import access_list, hint_of_folder, manifest_of, must_lead
from bot.invocation import command

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="For example slack or telegram.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The stable id, as `shipmate pending` shows it.")]


def allow(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    _changeable(channel, user_id, root).allow(channel, user_id)
    say(f"{channel}:{user_id} is allowed.")


def block(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    _changeable(channel, user_id, root).block(channel, user_id)
    say(f"{channel}:{user_id} is blocked.")


def pending(root: Dir = Here, as_json: AsJson = False) -> None:
    found = access_list(root).pending()
    hint_of_folder(root)
    for one in found:
        if as_json:
            facts = {
                "channel": one.channel,
                "id": one.user_id,
                "ts": one.ts,
                "time": timestamp(one.ts / 1000),
            }
            say_json(facts | ({"name": one.name} if one.name else {}))
        else:
            name = f"   # {one.name}" if one.name else ""
            say(f"{when(one.ts)}  {command(f'allow {one.channel} {one.user_id}', root)}{name}")
    if not found and not as_json:
        say("Nobody is waiting.")


def _changeable(channel: str, user_id: str, root: Path) -> AccessList:
    """Return the access list if this person's entry may be changed."""
    for line in config.identity("ID", user_id, manifest_of(channel)):
        raise typer.BadParameter(line.removeprefix("ID: "))
    must_lead(root)
    lists = access_list(root)
    hint_of_folder(root)
    return lists
