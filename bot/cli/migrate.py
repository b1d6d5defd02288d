"""`shipmate migrate`: moves the log and the shared files from `.ship` to PostgreSQL, and back."""

from __future__ import annotations

from typing import Annotated

import typer

from bot import configuration, instance
from bot.cli.common import HOME, Dir, Here, say
from bot.core.sqlite_log import FILE
from bot.system import SystemClock


def migrate(
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="postgresql://…, or embedded for the way back.")
    ],
    root: Dir = Here,
) -> None:
    from bot.cluster import transfer  # needs the optional PostgreSQL library

    path, moment = root / HOME / FILE, int(SystemClock().now())
    if to == "embedded":
        url = configuration.load(root).engine.database_url
        if url is None:
            raise typer.BadParameter("ship.json has no engine.databaseUrl to read the log from")
        aside = f"moved_{moment}"
        with instance.locked(root / HOME):
            moved = transfer.to_file(url, path, aside)
        then = '"engine": {"kind": "embedded"}'
    elif to.startswith(("postgresql://", "postgres://")):
        if not path.is_file():
            raise typer.BadParameter(f"there is no log in {str(path)!r}")
        aside = f"{path.name}.moved-{moment}"
        with instance.locked(root / HOME):
            moved = transfer.to_postgres(path, to, path.with_name(aside))
        then = '"engine": {"kind": "postgresql", "databaseUrl": "${DATABASE_URL}"}'
    else:
        raise typer.BadParameter("--to takes postgresql://… or embedded")
    for one in moved:
        say(f"{one.rows:>9,}  {one.table:<16} sha256 {one.sha256[:16]}")
    say(f"Both sides are identical. The old log is kept as {aside}. Now write into ship.json: {then}")
