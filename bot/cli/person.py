"""`shipmate export` and `shipmate erase`: everything of one person, given out or removed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot import errors
from bot.cli.common import (
    HOME,
    Dir,
    Here,
    StderrLog,
    Yes,
    changing,
    clustered,
    complain,
    hint_of_folder,
    manifest_of,
    must_confirm,
    refresh,
    say,
    say_json,
)

if TYPE_CHECKING:
    from bot.contracts.environment import Disk
    from bot.personal_data import PersonalData

Person = Annotated[str, typer.Argument(metavar="PERSON", help="<channel>:<user id>, as telegram:123.")]


def export(person: Person, root: Dir = Here) -> None:
    """Everything that is kept of a person, one JSON object a line. The gateway may run."""
    data = _data(person, root)
    refresh(root)
    if not asyncio.run(_exported(data)):
        complain(f"Nothing is kept of {person}.")


def erase(
    person: Person,
    root: Dir = Here,
    yes: Yes = False,
) -> None:
    """Remove everything that is kept of a person; say what went. The gateway must be stopped. There is no way back."""
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
        "ship.json, files of the project and backups were not touched, nor what others said of them or passed on. Ids of the platform's "
        "events stay, so that no old message is answered once more."
    )
    if clustered(root):
        say(
            "Logs, recorded requests and exports are those of this host; run it in the folders of the others too."
        )


async def _exported(data: PersonalData) -> int:
    count = 0
    async for item in data.export():
        say_json(item)
        count += 1
    return count


def _data(person: str, root: Path, disk: Disk | None = None) -> PersonalData:
    from bot.contracts.identity import UserRef
    from bot.personal_data import PersonalData
    from bot.system import SystemClock, SystemDisk, UlidSource

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
        database=clustered(root),
    )
