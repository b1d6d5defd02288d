"""`shipmate migrate`: log and shared files from `.ship` to PostgreSQL, and back."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.common import HOME, Dir, Here, now, say, settings


def migrate(
    to: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="postgresql://…, or embedded for the way back."),
    ],
    root: Dir = Here,
) -> None:
    """Move to PostgreSQL, or back. Log and shared files are copied and compared, and the old log is put aside. Shipmate must be stopped."""
    from bot import instance
    from bot.cluster import transfer

    path, moment = root / HOME / "shipmate.db", int(now())
    if to == "embedded":
        url = settings(root).engine.database_url
        if url is None:
            raise typer.BadParameter("ship.json names no engine.databaseUrl, where the log would be")
        with instance.locked(root / HOME):
            aside, moved = f"moved_{moment}", transfer.to_file(url, path, f"moved_{moment}")
        then = '"engine": {"kind": "embedded"}'
    elif to.startswith(("postgresql://", "postgres://")):
        if not path.is_file():
            raise typer.BadParameter(f"there is no log in {str(path)!r}")
        with instance.locked(root / HOME):
            old = path.with_name(f"{path.name}.moved-{moment}")
            aside, moved = old.name, transfer.to_postgres(path, to, old)
        then = '"engine": {"kind": "postgresql", "databaseUrl": "${DATABASE_URL}"}'
    else:
        raise typer.BadParameter("--to takes postgresql://… or embedded")
    for one in moved:
        say(f"{one.rows:>9,}  {one.table:<16} sha256 {one.sha256[:16]}")
    say(f"The same on both sides. The old log is kept as {aside}. Now write into ship.json: {then}")
