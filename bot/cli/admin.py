"""Commands that change a project: `allow`, `block` and `pending` for the access list, `export` and `erase` for one
person's data, and `backup`, `restore` and `migrate` for all of `.ship`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot import config, errors, instance, text
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    StderrLog,
    Yes,
    complain,
    counted,
    must_confirm,
    say,
    say_json,
    say_rows,
    timestamp,
    when,
)
from bot.cli.project import access_list, changing, database, hint_of_folder, manifest_of, must_lead, refresh
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.core.access import AccessList
from bot.invocation import command
from bot.system import SystemClock, SystemDisk, UlidSource

if TYPE_CHECKING:
    from bot.personal_data import PersonalData

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="For example slack or telegram.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The stable id, as `shipmate pending` shows it.")]
Person = Annotated[str, typer.Argument(metavar="PERSON", help="A person, such as telegram:123.")]
Target = Annotated[
    Path, typer.Argument(metavar="FILE", dir_okay=False, help="A new file outside of the project folder.")
]
Source = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A file written by shipmate backup."),
]
Moved = Annotated[
    bool, typer.Option("--moved", help="Continue open work. The gateway has not run since the backup.")
]
To = Annotated[str, typer.Option("--to", metavar="URL", help="postgresql://…, or `embedded` to move back.")]


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
    rows = []
    for one in access_list(root).pending():
        time, name = timestamp(one.ts / 1000), {"name": one.name} if one.name else {}
        line = f"{when(one.ts)}  {command(f'allow {one.channel} {one.user_id}', root)}"
        facts = {"channel": one.channel, "id": one.user_id, "ts": one.ts, "time": time, **name}
        rows.append((facts, f"{line}   # {one.name}" if one.name else line))
    say_rows(rows, "Nobody is waiting.", as_json=as_json)


def export(person: Person, root: Dir = Here) -> None:
    data = _data(person, root)
    refresh(root)

    async def print_all() -> int:
        count = 0
        async for item in data.export():
            say_json(item)
            count += 1
        return count

    if not asyncio.run(print_all()):
        complain(f"Nothing is kept of {person}.")


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
    disk = disk or SystemDisk()
    return PersonalData(root / HOME, ref, disk, SystemClock(), UlidSource(), StderrLog(), database(root))


def backup(file: Target, root: Dir = Here) -> None:
    from bot import backup as backups  # imports the core, which `allow` does not need

    target = file.absolute()
    if target.exists():
        raise typer.BadParameter(f"{str(file)!r} exists already")
    if target.resolve().is_relative_to(root.resolve()):
        raise typer.BadParameter(
            f"{str(file)!r} is in the project folder, which the bot's tools can read; write it elsewhere"
        )
    if not target.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(target.parent)!r}")
    if not (root / HOME).is_dir():
        raise errors.NotFound(f"there is no {HOME} in {str(root)!r}")
    made = backups.write(root / HOME, target, disk=SystemDisk(), clock=SystemClock(), database=database(root))
    running = " while the gateway runs" if made.running else ""
    say(f"Wrote {counted(made.files, 'file')}, {text.byte_count(made.size)}, to {file}{running}.")
    say("It does not contain ship.json, .env and other files of the project.")


def restore(file: Source, root: Dir = Here, moved: Moved = False, yes: Yes = False) -> None:
    def confirm(rights: list[str]) -> None:
        if rights:
            say("\n".join(rights))
            must_confirm("restore these", yes=yes, warning="Whoever made the file decides what they say.")

    from bot import backup as backups

    found = backups.restore(
        file, root / HOME, disk=SystemDisk(), moved=moved, database=database(root), confirm=confirm
    )
    size = text.byte_count(found.size)
    say(f"Restored {counted(found.files, 'file')}, {size}; the search index is rebuilt at the start.")
    if not moved:
        complain(
            "Work that was open at the time of the backup is closed. People whose last message has no answer are asked to send it again."
        )


def migrate(to: To, root: Dir = Here) -> None:
    from bot import configuration
    from bot.cluster import transfer  # needs the optional PostgreSQL library
    from bot.core.sqlite_log import FILE

    path, moment = root / HOME / FILE, int(SystemClock().now())
    if to == "embedded":
        url = configuration.load(root).engine.database_url
        if url is None:
            raise typer.BadParameter("ship.json has no engine.databaseUrl to read the log from")
        aside, then = f"moved_{moment}", '"engine": {"kind": "embedded"}'
        with instance.locked(root / HOME):
            moved = transfer.to_file(url, path, aside, StderrLog())
    elif to.startswith(("postgresql://", "postgres://")):
        if not path.is_file():
            raise typer.BadParameter(f"there is no log in {str(path)!r}")
        aside = f"{path.name}.moved-{moment}"
        then = '"engine": {"kind": "postgresql", "databaseUrl": "${DATABASE_URL}"}'
        with instance.locked(root / HOME):
            moved = transfer.to_postgres(path, to, path.with_name(aside))
    else:
        raise typer.BadParameter("--to takes postgresql://… or embedded")
    for one in moved:
        say(f"{one.rows:>9,}  {one.table:<16} sha256 {one.sha256[:16]}")
    say(f"Both sides are identical. The old log is kept as {aside}. Now write into ship.json: {then}")
