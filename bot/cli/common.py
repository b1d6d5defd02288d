"""Options, output and loading that the commands share. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.contracts.identity import UserRef

if TYPE_CHECKING:
    from bot.access_list import AccessList
    from bot.config import Settings
    from bot.contracts.base import Level
    from bot.contracts.channel import Manifest
    from bot.contracts.environment import Disk
    from bot.contracts.model import Model
    from bot.core.sql_log import SqlLog

HOME = ".ship"

Dir = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", exists=True, file_okay=False, help="The project's folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Defaults = Annotated[
    bool, typer.Option("--defaults", help="Without ship.json take its defaults: the environment suffices.")
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Ask nothing.")]
Here = Path()

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def counted(number: int, thing: str) -> str:
    """So many of a thing: `1 turn`, `2 turns`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def say(line: str = "") -> None:
    print(printable(line))


def say_json(value: Any) -> None:
    say_raw(json.dumps(value, ensure_ascii=False))


def say_raw(line: str) -> None:
    """A line of JSON: unchanged for a program, safe for a terminal, in escapes where the output is not UTF-8."""
    from bot import text

    line = text.one_line(line)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], line)
    print(printable(line) if sys.stdout.isatty() else line)


def complain(line: str) -> None:
    """One line on stderr, without anything that looks like a token."""
    from bot.telemetry.redaction import LogRedactor

    print(printable(" ".join(LogRedactor()(line).split("\n"))), file=sys.stderr)


class StderrLog:
    """`contracts.environment.Log` for a command: what an operator should know goes to stderr."""

    def write(self, kind: str, message: str, *, level: Level = "info", **details: Any) -> None:
        del kind, details
        if level in {"warn", "error"}:
            complain(f"shipmate: {message}")


@contextlib.asynccontextmanager
async def events(root: Path) -> AsyncIterator[SqlLog | None]:
    """The log of the chats, to be read; None where there is none."""
    from bot.core.events import Codec
    from bot.core.sqlite_log import SqliteLog
    from bot.system import SystemClock, SystemDisk

    path, codec, clock = root / HOME / "shipmate.db", Codec(), SystemClock()
    log: SqlLog
    if (url := clustered(root)) is not None:
        from bot.core.postgres_log import PostgresLog

        cursors = root / HOME / "exports.json"
        log = PostgresLog(url, codec, cursors, epoch=None, disk=SystemDisk(), clock=clock, log=StderrLog())
    elif path.is_file():
        log = SqliteLog(path, codec, clock=clock, log=StderrLog())
    else:
        yield None
        return
    try:
        yield log
    finally:
        await log.close()


def must_confirm(what: str, *, yes: bool, warning: str = "There is no way back.") -> None:
    """Ask before something that is hard to undo: `what` begins with a verb. Raises `typer.Abort` where the answer is no, and
    `typer.BadParameter` where there is no terminal to ask at.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise typer.BadParameter(
            f"nobody can be asked here; give --yes to {what}. {warning}", param_hint="--yes"
        )
    typer.confirm(f"{what[:1].upper()}{what[1:]}? {warning}", abort=True)


def printable(words: str) -> str:
    """Text of others, safe to show in a terminal."""
    from bot import text

    return text.for_terminal(words)


def manifests() -> dict[str, Manifest]:
    from bot import discovery

    return discovery.manifests()


def manifest_of(channel: str) -> Manifest:
    """The manifest of a channel that a person names. Raises `typer.BadParameter` where there is none."""
    known = manifests()
    if channel not in known:
        raise typer.BadParameter(f"no channel is called {channel!r}; there are {', '.join(sorted(known))}")
    return known[channel]


def settings(root: Path, *, defaults: bool = False) -> Settings:
    from bot import configuration

    return configuration.load(root, defaults=defaults)


def hint_of_folder(root: Path) -> None:
    """Say that no gateway has run in a folder, which is then the wrong one as a rule. Raises `errors.ConfigError` where `.ship` is none."""
    from bot import config

    config.must_be_folder(root / HOME)
    if not (root / HOME / "logs").is_dir():
        complain(f"No gateway has run in {root.resolve()} yet; --dir names another folder.")


def is_clustered(root: Path) -> bool:
    """True where ship.json, of which nothing else has to be right, keeps the log of the chats in PostgreSQL."""
    try:
        engine = json.loads((root / "ship.json").read_bytes())["engine"]
        return bool(engine["kind"] == "postgresql")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def clustered(root: Path) -> str | None:
    """The address of the database where the log is in PostgreSQL. Raises `errors.ConfigError`."""
    return database(root) if is_clustered(root) else None


def must_lead(root: Path) -> None:
    """Raise `errors.NotFound` where the process that leads on a database has another folder than this one: what is written here
    would not be its own.
    """
    if not is_clustered(root):
        return
    from bot import instance
    from bot.cluster import leadership

    leader = next((one.holder for one in leadership.hosts(database(root)) if one.leads), "no process")
    if not leader.startswith(f"{socket.gethostname()}:{instance.holder(root / HOME) or None}:"):
        raise errors.NotFound(
            f"{leader} leads; run this in the folder of the process that leads, or send the command in a chat"
        )


@contextlib.contextmanager
def changing(root: Path, *, erasing: bool = False) -> Iterator[Disk]:
    """The disk of a command that changes what all hosts of a database have, which it may while no process runs. With `erasing` nothing
    stays of what it removes. Raises `errors.Unavailable`, `errors.StorageError` and OSError.
    """
    from bot.system import SystemDisk

    if not is_clustered(root):
        yield SystemDisk()
        return
    from bot import instance
    from bot.cluster import transfer
    from bot.cluster.shared_disk import SharedDisk

    url = database(root)
    with (
        instance.locked(root / HOME),
        contextlib.closing(SharedDisk(SystemDisk(), root / HOME, url, StderrLog())) as disk,
    ):
        transfer.must_be_stopped(url)
        disk.begin()
        yield disk
        if erasing:
            disk.erase()


def refresh(root: Path) -> None:
    """Fetch what all hosts of a database have, unless a process does so in this folder. Raises `errors.StorageError`."""
    if not is_clustered(root):
        return
    from bot import instance
    from bot.cluster.shared_disk import SharedDisk
    from bot.system import SystemDisk

    disk = SharedDisk(SystemDisk(), root / HOME, database(root), StderrLog())
    with contextlib.suppress(errors.Unavailable), instance.locked(root / HOME), contextlib.closing(disk):
        disk.fetch()


def database(root: Path) -> str:
    """The address of the database. Raises `errors.ConfigError`."""
    return settings(root).engine.database_url or ""


def access_list(root: Path) -> AccessList:
    """The access list of a folder. Raises `errors.ConfigError` where it cannot be read."""
    from bot import config
    from bot.access_list import FILE, AccessList
    from bot.system import SystemClock, SystemDisk

    config.must_be_folder(root / HOME)
    return AccessList(root / HOME / FILE, SystemDisk(), SystemClock())


def named_operators(config: Settings) -> list[UserRef]:
    """The operators of ship.json, and who became one by a code or a link. Raises `errors.ConfigError` where that cannot be read."""
    return sorted(config.operators | access_list(config.root).operators())


def model(**options: Any) -> Model:
    """A model with options of `bot.llm.factory.build_model`, which takes seconds. Trouble is told on stderr, unless a `log` is given."""
    import random

    from bot.llm.factory import build_model
    from bot.system import SystemClock, UlidSource

    defaults: dict[str, Any] = {"clock": SystemClock(), "ids": UlidSource(), "log": StderrLog()}
    rng = random.Random()  # noqa: S311 - how long to wait before asking again
    return build_model(rng=rng, **defaults | options)


def now() -> float:
    from bot.system import SystemClock

    return SystemClock().now()


def moment(value: str) -> datetime:
    """A time as a person writes it: ISO 8601 (UTC without a zone), or how long ago (`90s`, `15m`, `2h`, `3d`)."""
    ago = _AGO.fullmatch(value.strip())
    try:
        if ago:
            return datetime.fromtimestamp(now(), UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(value.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{value!r} is no time; write 2026-11-20T16:00, or 2h for two hours ago"
        ) from None


def milliseconds(value: str | None) -> int | None:
    return None if value is None else int(moment(value).timestamp() * 1000)


def timestamp(seconds: float) -> str:
    """A time (epoch seconds) as logs write it: ISO 8601, UTC, milliseconds."""
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(path: Path) -> str:
    """The text of a file that a person names. Raises `typer.BadParameter`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{str(path)!r} cannot be read as text: {type(error).__name__}") from None


def when(milliseconds: int) -> str:
    """Local time for a person."""
    try:
        local = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return "????-??-?? ??:??:??"
    return local.strftime("%Y-%m-%d %H:%M:%S")
