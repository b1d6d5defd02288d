"""`shipmate index`: the search index, which can be made anew from the archive at any time."""

from __future__ import annotations

import typer

from bot.cli.common import HOME, Dir, Here, say

app = typer.Typer(help="The search index over the archive.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _index() -> None:
    """The search index over the archive."""


@app.command()
def rebuild(root: Dir = Here) -> None:
    """Make the search index anew from the archive. Works beside a running gateway."""
    from bot.history.search import index
    from bot.system import SystemClock, SystemDisk

    home, clock = root / HOME, SystemClock()
    if not (home / "chats").is_dir():
        say("No conversation yet.")
        return
    began = clock.monotonic()
    chats, lines = index.rebuild(home / "index.db", home / "chats", SystemDisk())
    say(f"{lines:,} lines of {chats:,} conversations, {clock.monotonic() - began:.1f} s")
