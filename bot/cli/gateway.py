"""`shipmate run`, `shipmate chat` and `shipmate link`: run the gateway, chat in the terminal, open the web chat."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.common import Defaults, Dir, Here, say


def run(root: Dir = Here, defaults: Defaults = False) -> None:
    gc.disable()  # disabled during the imports, because collecting takes a seventh of the start time
    import bot.app
    import bot.rss_monitor

    bot.rss_monitor.one_heap()
    raise typer.Exit(asyncio.run(bot.app.run(root, defaults=defaults)))


def start(path: Annotated[Path | None, typer.Argument()] = None, root: Dir = Here) -> None:
    run(path or root)


def chat(root: Dir = Here) -> None:
    import bot.app

    raise typer.Exit(asyncio.run(bot.app.chat(root)))


def link(root: Dir = Here) -> None:
    import bot.app

    say(bot.app.link(root))
