"""Opens a project folder's settings, access list, event log and cluster database for the commands.

The settings and the core are imported inside functions, because most commands do not need all of them.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bot import config, errors, instance
from bot.cli.common import HOME, StderrLog, complain
from bot.config import Settings
from bot.contracts.channel import Manifest
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.contracts.model import Model
from bot.core.access import ACCESS_FILE, AccessList
from bot.system import SystemClock, SystemDisk, UlidSource

if TYPE_CHECKING:
    from bot.cluster.shared_disk import SharedDisk
    from bot.core.archive_files import ChatStore
    from bot.core.event_log import EventLog


def manifest_of(channel: str, known: Mapping[str, Manifest] | None = None) -> Manifest:
    """Return the manifest of a channel that the user names. Raises `typer.BadParameter`."""
    from bot import discovery

    known = known or discovery.manifests()
    if channel not in known:
        raise typer.BadParameter(f"no channel is called {channel!r}; there are {', '.join(sorted(known))}")
    return known[channel]


def hint_of_folder(root: Path) -> None:
    """Print a hint if no gateway has ever run in the folder, because it is probably the wrong folder. Raises
    `errors.ConfigError` if `.ship` is a file.
    """
    config.must_be_folder(root / HOME)
    if not (root / HOME / "logs").is_dir():
        complain(f"No gateway has run in {root.resolve()} yet; --dir names another folder.")


def archive(root: Path) -> ChatStore:
    from bot.core.archive_files import ChatStore

    return ChatStore(root / HOME / "chats", disk=SystemDisk(), log=StderrLog())


def access_list(root: Path) -> AccessList:
    """Return the access list of a folder. Raises `errors.ConfigError` if the list cannot be read."""
    config.must_be_folder(root / HOME)
    return AccessList(root / HOME / ACCESS_FILE, SystemDisk(), SystemClock())


def named_operators(settings: Settings) -> list[UserRef]:
    """Return the operators that ship.json or the access list names. Raises `errors.ConfigError` if the list cannot be read."""
    return sorted(settings.operators | access_list(settings.root).operators())


def model(provider: str, api_key: str | None, base_url: str | None, **options: Any) -> Model:
    """Return a model. Further options are passed to `build_model`. The model logs to stderr unless `log` is given."""
    from bot.llm import build_model  # imports the provider's library, which takes seconds

    defaults: dict[str, Any] = {"clock": SystemClock(), "ids": UlidSource(), "log": StderrLog()}
    rng = random.Random()  # noqa: S311 - jitter between retries
    return build_model(provider=provider, api_key=api_key, base_url=base_url, rng=rng, **defaults | options)


def database(root: Path) -> str | None:
    """Return the address of the database that contains the log; None if the log is a file. Raises `errors.ConfigError`."""
    try:
        if json.loads((root / "ship.json").read_bytes())["engine"]["kind"] != "postgresql":
            return None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    from bot import configuration

    return configuration.load(root).engine.database_url or ""


@contextlib.asynccontextmanager
async def event_log(root: Path) -> AsyncIterator[EventLog | None]:
    """Open the event log for reading; yield None if there is no log."""
    from bot.core import sqlite_log

    path, url, clock = root / HOME / sqlite_log.FILE, database(root), SystemClock()
    log: EventLog
    if url is not None:
        from bot.core.postgres_log import PostgresLog

        cursors = root / HOME / "exports.json"
        log = PostgresLog(url, cursors, epoch=None, disk=SystemDisk(), clock=clock, log=StderrLog())
    elif path.is_file():
        log = sqlite_log.SqliteLog(path, clock=clock, log=StderrLog())
    else:
        yield None
        return
    try:
        yield log
    finally:
        await log.close()


def must_lead(root: Path) -> None:
    """Raise `errors.NotFound` if the cluster's leader uses another folder. Otherwise the user would change files
    that the leader does not read.
    """
    if (url := database(root)) is None:
        return
    from bot.cluster import leadership

    leader = next((name for name, leads in leadership.hosts(url) if leads), "no process")
    if not leader.startswith(f"{socket.gethostname()}:{instance.holder(root / HOME) or None}:"):
        raise errors.NotFound(
            f"{leader} leads; run this in the folder of the leader, or use the command in a chat"
        )


@contextlib.contextmanager
def changing(root: Path, *, erasing: bool = False) -> Iterator[Disk]:
    """Yield a disk on which the files shared by a cluster can be changed. No process of the cluster may run. With `erasing`,
    deleted rows are also purged from the database. Raises `errors.Unavailable`, `errors.StorageError` and OSError.
    """
    if (url := database(root)) is None:
        yield SystemDisk()
        return
    from bot.cluster import transfer

    with _shared(root, url) as disk:
        transfer.must_be_stopped(url)
        disk.begin()
        yield disk
        if erasing:
            disk.erase()


def refresh(root: Path) -> None:
    """Fetch the shared files of a cluster. If a gateway runs in this folder, do nothing, because the gateway fetches
    them. Raises `errors.StorageError`.
    """
    if (url := database(root)) is not None:
        with contextlib.suppress(errors.Unavailable), _shared(root, url) as disk:
            disk.fetch()


@contextlib.contextmanager
def _shared(root: Path, url: str) -> Iterator[SharedDisk]:
    from bot.cluster.shared_disk import SharedDisk  # needs the optional PostgreSQL library

    disk = SharedDisk(SystemDisk(), root / HOME, url, StderrLog())
    with instance.locked(root / HOME), contextlib.closing(disk):
        yield disk
