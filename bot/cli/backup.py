"""`shipmate backup` and `shipmate restore`: everything that is kept, as one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot import errors
from bot.cli.common import HOME, Dir, Here, Yes, clustered, complain, counted, must_confirm, say
from bot.sizes import in_words

Target = Annotated[
    Path,
    typer.Argument(metavar="FILE", dir_okay=False, help="A new file outside of the project's folder."),
]
Source = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="What shipmate backup has written."),
]


def backup(file: Target, root: Dir = Here) -> None:
    """Write all of .ship to one file. The gateway may run."""
    from bot import backup as backups
    from bot.system import SystemClock, SystemDisk

    target = file.absolute()
    if target.exists():
        raise typer.BadParameter(f"{str(file)!r} is there already")
    if target.resolve().is_relative_to(root.resolve()):
        raise typer.BadParameter(
            f"{str(file)!r} is in the project's folder, where the bot's tools read; write it elsewhere"
        )
    if not target.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(target.parent)!r}")
    if not (root / HOME).is_dir():
        raise errors.NotFound(f"there is no {HOME} in {str(root)!r}")
    made = backups.write(
        root / HOME, target, disk=SystemDisk(), clock=SystemClock(), database=clustered(root)
    )
    say(
        f"Wrote {counted(made.files, 'file')}, {in_words(made.size)}, to {file}"
        + (" while the gateway runs." if made.running else ".")
    )
    say("ship.json, .env and the other files of the project are not in it.")


def restore(
    file: Source,
    root: Dir = Here,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved", help="The gateway has not run since the backup: what was open in it goes on here."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Put a backup back into a project that has no conversations yet."""
    from bot import backup as backups
    from bot.system import SystemDisk

    def confirm(brought: list[str]) -> None:
        if brought:
            say("\n".join(brought))
            must_confirm("put that back", yes=yes, warning="Whoever made the file decides what stands in it.")

    found = backups.restore(
        file, root / HOME, disk=SystemDisk(), moved=moved, database=clustered(root), confirm=confirm
    )
    say(
        f"Put back {counted(found.files, 'file')}, {in_words(found.size)}; the search index comes back at the start."
    )
    if not moved:
        complain(
            "What was open at the time of the backup is closed; people whose last message has no answer are told to send it "
            "again."
        )
