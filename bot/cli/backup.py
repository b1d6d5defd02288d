"""`shipmate backup`, `restore` and `migrate`: write `.ship` to one file, restore it, and move it to PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot import backup as backups
from bot import configuration, errors, instance
from bot.cli.common import HOME, Dir, Here, Yes, complain, counted, must_confirm, say
from bot.cli.project import database
from bot.core.sqlite_log import FILE
from bot.sizes import in_words
from bot.system import SystemClock, SystemDisk

Target = Annotated[
    Path, typer.Argument(metavar="FILE", dir_okay=False, help="A new file outside of the project folder.")
]
Source = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A file written by shipmate backup."),
]
Moved = Annotated[
    bool,
    typer.Option("--moved", help="The gateway has not run since the backup: continue its open work here."),
]
To = Annotated[str, typer.Option("--to", metavar="URL", help="postgresql://…, or embedded for the way back.")]


def backup(file: Target, root: Dir = Here) -> None:
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
    say(f"Wrote {counted(made.files, 'file')}, {in_words(made.size)}, to {file}{running}.")
    say("It does not contain ship.json, .env and other files of the project.")


def restore(file: Source, root: Dir = Here, moved: Moved = False, yes: Yes = False) -> None:
    def confirm(rights: list[str]) -> None:
        if rights:
            say("\n".join(rights))
            must_confirm("restore these", yes=yes, warning="Whoever made the file decides what they say.")

    found = backups.restore(
        file, root / HOME, disk=SystemDisk(), moved=moved, database=database(root), confirm=confirm
    )
    size = in_words(found.size)
    say(f"Restored {counted(found.files, 'file')}, {size}; the search index is rebuilt at the start.")
    if not moved:
        complain(
            "Work that was open at the time of the backup is closed. People whose last message has no answer are asked to send it again."
        )


def migrate(to: To, root: Dir = Here) -> None:
    from bot.cluster import transfer  # needs the optional PostgreSQL library

    path, moment = root / HOME / FILE, int(SystemClock().now())
    if to == "embedded":
        url = configuration.load(root).engine.database_url
        if url is None:
            raise typer.BadParameter("ship.json has no engine.databaseUrl to read the log from")
        aside, then = f"moved_{moment}", '"engine": {"kind": "embedded"}'
        with instance.locked(root / HOME):
            moved = transfer.to_file(url, path, aside)
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
