"""The commands `allow`, `block` and `pending` for the access list, and `export` and `erase` for one person's data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot import config, errors
from bot.access_list import AccessList
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    StderrLog,
    Yes,
    complain,
    must_confirm,
    say,
    say_json,
    timestamp,
    when,
)
from bot.cli.project import access_list, changing, database, hint_of_folder, manifest_of, must_lead, refresh
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.invocation import command
from bot.system import SystemClock, SystemDisk, UlidSource

if TYPE_CHECKING:
    from bot.personal_data import PersonalData

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="For example slack or telegram.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The stable id, as `shipmate pending` shows it.")]
Person = Annotated[str, typer.Argument(metavar="PERSON", help="<channel>:<user id>, as telegram:123.")]


def allow(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    _changeable(channel, user_id, root).allow(channel, user_id)
    say(f"{channel}:{user_id} is allowed.")


def block(channel: Channel, user_id: Id, root: Dir = Here) -> None:
    _changeable(channel, user_id, root).block(channel, user_id)
    say(f"{channel}:{user_id} is blocked.")


def _changeable(channel: str, user_id: str, root: Path) -> AccessList:
    """Return the access list. Raises an error if this person's entry must not be changed."""
    if wrong := config.wrong_id(user_id, manifest_of(channel)):
        raise typer.BadParameter(f"found {user_id!r}; {wrong}")
    must_lead(root)
    hint_of_folder(root)
    return access_list(root)


def pending(root: Dir = Here, as_json: AsJson = False) -> None:
    hint_of_folder(root)
    found = access_list(root).pending()
    for one in found:
        if as_json:
            time = timestamp(one.ts / 1000)
            facts = {"channel": one.channel, "id": one.user_id, "ts": one.ts, "time": time}
            say_json(facts | ({"name": one.name} if one.name else {}))
        else:
            name = f"   # {one.name}" if one.name else ""
            say(f"{when(one.ts)}  {command(f'allow {one.channel} {one.user_id}', root)}{name}")
    if not found and not as_json:
        say("Nobody is waiting.")


def export(person: Person, root: Dir = Here) -> None:
    data = _data(person, root)
    refresh(root)
    if not asyncio.run(_print_all(data)):
        complain(f"Nothing is kept of {person}.")


async def _print_all(data: PersonalData) -> int:
    count = 0
    async for item in data.export():
        say_json(item)
        count += 1
    return count


def erase(person: Person, root: Dir = Here, yes: Yes = False) -> None:
    _data(person, root)
    must_confirm(f"remove everything of {person}", yes=yes)
    with changing(root, erasing=True) as disk:
        gone = asyncio.run(_data(person, root, disk).erase())
    if not gone:
        say(f"Nothing was kept of {person}.")
        return
    *most, last = (f"{count:,} {kind.value[count != 1]}" for kind, count in gone.items())
    say(f"Removed all that was kept of {person}: {' and '.join(filter(None, [', '.join(most), last]))}.")
    say(
        "Not touched: ship.json, files of the project, backups, and what others said about them or quoted. Event ids of the platform stay, "
        "so that no old message is answered again."
    )
    if database(root) is not None:
        say(
            "Logs, recorded requests and exports are per host; run this in the folders of the other hosts too."
        )


def _data(person: str, root: Path, disk: Disk | None = None) -> PersonalData:
    from bot.personal_data import PersonalData  # imports the core, which `allow` does not need

    try:
        ref = UserRef.parse(person)
    except errors.IdentityInvalid as error:
        raise typer.BadParameter(str(error)) from None
    manifest_of(ref.channel)
    if not (root / HOME).is_dir():
        raise errors.NotFound(f"there is no {HOME} in {str(root)!r}")
    hint_of_folder(root)
    return PersonalData(
        root / HOME,
        ref,
        disk=disk or SystemDisk(),
        clock=SystemClock(),
        ids=UlidSource(),
        log=StderrLog(),
        database=database(root),
    )
