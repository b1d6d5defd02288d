"""`shipmate run`, `shipmate chat` and `shipmate link`."""

from __future__ import annotations

import asyncio
import gc

import typer

from bot.cli.common import Defaults, Dir, Here, say


def run(root: Dir = Here, defaults: Defaults = False) -> None:
    """Run the gateway in the foreground."""
    gc.disable()  # until all modules are imported: looking through them again and again is a seventh of the start
    import bot.app
    import bot.rss_monitor

    bot.rss_monitor.one_heap()
    raise typer.Exit(asyncio.run(bot.app.run(root, defaults=defaults)))


def chat(root: Dir = Here) -> None:
    """Talk with Shipmate in this terminal."""
    import bot.app

    raise typer.Exit(asyncio.run(bot.app.chat(root)))


def link(root: Dir = Here) -> None:
    """Print a link that makes a browser an operator's. It works once."""
    import bot.app

    say(bot.app.link(root))
