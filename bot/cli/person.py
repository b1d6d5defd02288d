"""`shipmate export` and `shipmate erase`: export or erase all data of one person."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bot import errors
from bot.cli.common import HOME, Dir, Here, StderrLog, Yes, complain, must_confirm, say, say_json
from bot.cli.project import changing, database, hint_of_folder, manifest_of, must_exist, refresh
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.personal_data import PersonalData
from bot.system import SystemClock, SystemDisk, UlidSource

Person = Annotated[str, typer.Argument(metavar="PERSON", help="<channel>:<user id>, as telegram:123.")]


def export(person: Person, root: Dir = Here) -> None:
    data = _data(person, root)
    refresh(root)
    if not asyncio.run(_exported(data)):
        complain(f"Nothing is kept of {person}.")


async def _exported(data: PersonalData) -> int:
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
    went = f"{', '.join(most)} and {last}" if most else last
    say(f"Removed all that was kept of {person}: {went}.")
    say(
        "Not touched: ship.json, files of the project, backups, and what others said about them or quoted. Event ids of the platform stay, "
        "so that no old message is answered again."
    )
    if database(root) is not None:
        say(
            "Logs, recorded requests and exports are per host; run this in the folders of the other hosts too."
        )


def _data(person: str, root: Path, disk: Disk | None = None) -> PersonalData:
    try:
        ref = UserRef.parse(person)
    except errors.IdentityInvalid as error:
        raise typer.BadParameter(str(error)) from None
    manifest_of(ref.channel)
    must_exist(root)
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
