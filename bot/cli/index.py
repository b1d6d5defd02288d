"""`shipmate index`: the search index, which can be made anew from the archive at any time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import typer

from bot.cli.common import HOME, Dir, Here, say

app = typer.Typer(help="The search index over the archive.", no_args_is_help=True, rich_markup_mode=None)
_SLICE = 20_000


@app.callback()
def _index() -> None:
    """The search index over the archive."""


@app.command()
def rebuild(root: Dir = Here) -> None:
    """Make the search index anew from the archive. Works beside a running gateway."""
    from bot import errors
    from bot.system import SystemClock

    home, clock = root / HOME, SystemClock()
    if not (home / "chats").is_dir():
        say("No conversation yet.")
        return
    began = clock.monotonic()
    try:
        chats, lines = _rebuilt(home)
    except sqlite3.Error as error:
        raise errors.StorageError(f"the search index cannot be made: {error}") from error
    say(f"{lines:,} lines of {chats:,} conversations, {clock.monotonic() - began:.1f} s")


def _rebuilt(home: Path) -> tuple[int, int]:
    from bot.history import indexfile
    from bot.history.index import Index
    from bot.system import SystemDisk

    index = Index.opened(home / "index.db", home / "chats", SystemDisk())
    try:
        indexfile.make_anew(index.db)
        for _ in index.all(_SLICE):
            pass
        return index.counted()
    finally:
        index.close()
