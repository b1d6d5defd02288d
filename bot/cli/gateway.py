"""The commands `run` (the gateway), `chat` (in the terminal), `link` (to open the web chat) and `version`."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.common import AsJson, Defaults, Dir, Here, say, say_json
from bot.invocation import version_of

PYTHON = ".".join(map(str, sys.version_info[:3]))


def run(root: Dir = Here, defaults: Defaults = False) -> None:
    gc.disable()  # during the imports, garbage collection would take a seventh of the start time
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


def version(root: Dir = Here, as_json: AsJson = False) -> None:
    del root
    own, found = version_of("shipmate"), {name: version_of(name) for name in dependencies()}
    if as_json:
        say_json({"version": own, "python": PYTHON, "dependencies": found})
        return
    say("\n".join([f"shipmate {own}", f"Python {PYTHON}", *(f"  {name} {of}" for name, of in found.items())]))


def dependencies() -> list[str]:
    """Return the packages that Shipmate requires, without extras; [] if Shipmate is not installed as a package."""
    try:
        needed = [line for line in requires("shipmate") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return []
    return sorted(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed)
