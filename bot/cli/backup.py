"""`shipmate backup` and `shipmate restore`: write `.ship` to one file, and restore `.ship` from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot import backup as backups
from bot.cli.common import HOME, Dir, Here, Yes, complain, counted, must_confirm, say
from bot.cli.project import database, must_exist
from bot.sizes import in_words
from bot.system import SystemClock, SystemDisk

Target = Annotated[
    Path, typer.Argument(metavar="FILE", dir_okay=False, help="A new file outside of the project folder.")
]
Source = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A file written by shipmate backup."),
]


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
    must_exist(root)
    made = backups.write(root / HOME, target, disk=SystemDisk(), clock=SystemClock(), database=database(root))
    running = " while the gateway runs" if made.running else ""
    say(f"Wrote {counted(made.files, 'file')}, {in_words(made.size)}, to {file}{running}.")
    say("It does not contain ship.json, .env and other files of the project.")


def restore(
    file: Source,
    root: Dir = Here,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved", help="The gateway has not run since the backup: continue its open work here."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    def confirm(rights: list[str]) -> None:
        if rights:
            say("\n".join(rights))
            must_confirm("restore these", yes=yes, warning="Whoever made the file decides what they say.")

    found = backups.restore(
        file, root / HOME, disk=SystemDisk(), moved=moved, database=database(root), confirm=confirm
    )
    say(
        f"Restored {counted(found.files, 'file')}, {in_words(found.size)}; the search index is rebuilt at the start."
    )
    if not moved:
        complain(
            "Work that was open at the time of the backup is closed. People whose last message has no answer are asked to send it again."
        )
