"""`shipmate doctor`: connects, looks at everything that a gateway needs, and says what to do for each finding."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.cli import common
from bot.cli.common import (
    HOME,
    AsJson,
    Defaults,
    Dir,
    Here,
    access_list,
    manifests,
    named_operators,
    say,
    say_json,
    settings,
)
from bot.contracts.examination import Finding, Verdict
from bot.invocation import command, installed_version
from bot.sizes import in_words

if TYPE_CHECKING:
    from bot.config import Settings
    from bot.contracts.base import Level
    from bot.contracts.model import Model
    from bot.tools.ports import Answer, Question

WRONG, LATER = 78, 75
CLOCK_SECONDS = 30.0
"""So far the clocks of this machine and of a platform may differ."""
TURN_SECONDS = 180.0
LOW, VERY_LOW = 0.10, 0.02
"""Parts of the disk that should be free."""
_MARKS = {"ok": "ok   ", "warn": "warn ", "later": "later", "wrong": "wrong"}


Turn = Annotated[
    bool,
    typer.Option(
        "--turn", help="Play one turn too, as `shipmate chat` would: it asks the model and is kept."
    ),
]


def doctor(root: Dir = Here, defaults: Defaults = False, as_json: AsJson = False, turn: Turn = False) -> None:
    """Connect, look whether all is well, and say what to do. Tokens, model, disk, clock and files. Exit code 0, 75 or 78."""
    raise typer.Exit(asyncio.run(_examine(root, defaults=defaults, as_json=as_json, turn=turn)))


async def _examine(root: Path, *, defaults: bool, as_json: bool, turn: bool) -> int:
    from bot.telemetry import LogRedactor

    seen, redact = set[str](), LogRedactor()
    try:
        config = settings(root, defaults=defaults)
        redact, found = LogRedactor(config.secrets), _with_settings(config, turn=turn)
    except errors.ConfigError as error:
        found = _without_settings(root, error)
    async for one in found:
        seen.add(one.verdict)
        if as_json:
            say_json({key: redact(value) for key, value in asdict(one).items()})
        else:
            remedy = f"; {one.remedy}" if one.remedy else ""
            say(redact(" ".join(f"{_MARKS[one.verdict]}  {one.part}: {one.found}{remedy}".split("\n"))))
    return WRONG if "wrong" in seen else LATER if "later" in seen else 0


async def _without_settings(root: Path, error: errors.ConfigError) -> AsyncIterator[Finding]:
    """Find what can be found although ship.json is wrong."""
    yield versions()
    for line in error.findings:
        key, _, rest = line.partition(": ")
        yield Finding("configuration", "wrong", key if rest else line, rest)
    for one in (*permissions(root), *disk(root), *stored(root)):
        yield one


async def _with_settings(config: Settings, *, turn: bool) -> AsyncIterator[Finding]:
    yield versions()
    yield Finding("configuration", "ok", "ship.json and the environment hold together")
    for line in config.warnings:
        key, _, rest = line.partition(": ")
        yield Finding("configuration", "warn", key if rest else line, rest)
    try:
        if not named_operators(config):
            yield Finding(
                "operators",
                "warn",
                "nobody",
                'name yourself in ship.json, as in "operators": ["telegram:123"]',
            )
    except errors.ConfigError as error:
        yield Finding("access list", "wrong", str(error))
    for one in (*permissions(config.root), *disk(config.root)):
        yield one
    for one in stored(config.root) if config.engine.kind == "embedded" else database(config):
        yield one
    yield await isolation(config)
    for one in free(config):
        yield one
    for part in (model, servers, channels):
        async for one in part(config):
            yield one
    if turn:
        yield await _played(config)


async def _played(config: Settings) -> Finding:
    """One turn, from the terminal's door through gateway, model and MCP servers back to it."""
    import bot.app

    word, answer, began = secrets.token_hex(3), io.StringIO(), time.monotonic()
    asked = io.StringIO(f"This is a test by `shipmate doctor`. Answer with this word alone: {word}\n")
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await bot.app.chat(config.root, stdin=asked, stdout=answer, chat_id="doctor")
    except errors.ShipmateError as error:
        return Finding("turn", "wrong", str(error))
    except TimeoutError:
        return Finding("turn", "later", f"no answer within {TURN_SECONDS:g} s", "see `shipmate logs`")
    if word in answer.getvalue():
        return Finding("turn", "ok", f"answered within {time.monotonic() - began:.1f} s")
    return Finding("turn", "wrong", f"not answered: {answer.getvalue().strip()}", "see `shipmate logs`")


def versions() -> Finding:
    from bot.cli.versions import dependencies

    needed, own = dependencies(), installed_version("shipmate") or "from a folder, not installed"
    missing = [name for name in needed if installed_version(name) is None]
    python = ".".join(map(str, sys.version_info[:3]))
    if missing:
        return Finding(
            "versions", "wrong", f"not installed: {', '.join(missing)}", "install shipmate again, with pip"
        )
    return Finding("versions", "ok", f"shipmate {own}, Python {python}")


def permissions(root: Path) -> Iterator[Finding]:
    """Files that others on this machine may read or change."""
    wanted = [(".env", 0o077, "600"), ("ship.json", 0o022, "go-w")]
    if (
        root / HOME / "shipmate.db"
    ).exists():  # before the first start there is nothing to read, and that closes it
        wanted.insert(0, (HOME, 0o077, "700"))
    told: list[Finding] = []
    for name, refused, mode in wanted:
        try:
            file = (root / name).stat()
        except OSError:
            continue
        if file.st_uid not in {os.getuid(), 0}:
            found = f"{name} belongs to another user"
            told.append(Finding("permissions", "wrong", found, f"run `chown -R $(id -un) {name}`"))
        elif stat.S_IMODE(file.st_mode) & refused:
            found = f"others may {'read' if refused & 0o044 else 'change'} {name}"
            told.append(Finding("permissions", "wrong", found, f"run `chmod {mode} {name}`"))
    if not os.access(root, os.W_OK):
        if os.statvfs(root).f_flag & os.ST_RDONLY:
            found, remedy = "the file system is read-only", "mount it so that it can be written"
        else:
            found, remedy = "this user may not write here", "give it the folder with chown"
        told.append(Finding("permissions", "wrong", found, remedy))
    yield from told or [Finding("permissions", "ok", f"{HOME}, .env and ship.json are for this user alone")]


def disk(root: Path) -> Iterator[Finding]:
    from bot.disk_reserve import space_of

    space = space_of(root)
    if space.share < VERY_LOW:
        yield Finding(
            "disk", "later", str(space), "make room: on a full disk it takes nothing in, and loses nothing"
        )
    elif space.share < LOW:
        yield Finding("disk", "warn", str(space), "make room before it is full")
    else:
        yield Finding("disk", "ok", str(space))


def database(config: Settings) -> Iterator[Finding]:
    """The server that has the log of the chats."""
    from bot.cluster.leadership import examine, hosts

    url = config.engine.database_url or ""
    try:
        version, trouble = examine(url)
    except errors.StorageError as error:
        yield Finding("database", "later", str(error), "look at engine.databaseUrl, and whether it runs")
        return
    if trouble:
        yield Finding("database", "wrong", trouble, "ask whoever runs the server")
    else:
        yield Finding("database", "ok", f"PostgreSQL {version}")
    found = [f"{one.holder} {'leads' if one.leads else 'stands by'}" for one in hosts(url)]
    yield Finding("cluster", "ok", "; ".join(found) or "no process is running")


def stored(root: Path) -> Iterator[Finding]:
    """The log of the chats and the search index."""
    from bot.core import sqlite_log
    from bot.features.search.index import FILE as INDEX
    from bot.features.search.index import verdict

    journal, index = root / HOME / sqlite_log.FILE, root / HOME / INDEX
    if not journal.is_file():
        yield Finding("journal", "ok", "none yet")
    elif damage := sqlite_log.damage(journal):
        remedy = f"stop Shipmate, keep a copy of {HOME}, and restore a backup"
        yield Finding("journal", "wrong", f"it cannot be used: {damage}", remedy)
    else:
        yield Finding("journal", "ok", f"whole, {in_words(journal.stat().st_size)}")
    if not index.is_file():
        yield Finding("search index", "ok", "none yet")
    elif why := verdict(index):
        yield Finding("search index", "warn", why, f"run `{command('index rebuild', root)}`: nothing is lost")
    else:
        yield Finding("search index", "ok", f"whole, {in_words(index.stat().st_size)}")


async def isolation(config: Settings) -> Finding:
    from bot.tools.isolation import Isolation

    if config.shell.isolation == "off":
        return Finding(
            "isolation",
            "warn",
            "off: commands may do all that this user may",
            'set shell.isolation to "required"',
        )
    try:
        name = await Isolation(config.root, network=config.shell.network).name()
    except (errors.ToolError, OSError):
        return Finding(
            "isolation",
            "warn",
            "nothing can stand around commands here, so none runs",
            "install bubblewrap (apt install bubblewrap), or allow users to make name spaces",
        )
    return Finding("isolation", "ok", name)


def free(config: Settings) -> Iterator[Finding]:
    """Look whether another process holds the folder, a token or a port. A gateway that runs here holds them rightly."""
    from bot import instance
    from bot.config import tokens_in_use

    if instance.is_held(config.home):
        yield Finding("gateway", "ok", "runs on this folder")
        return
    held = [_token_held(config, tokens_in_use(config.channels, manifests(), config.enabled))]
    servers: dict[str, Any] = {"dashboard.port": config.dashboard} if config.dashboard.enabled else {}
    servers |= {f"channels.{name}.port": config.channels[name] for name in config.enabled}
    held += [
        _port_held(key, one.host, one.port)
        for key, one in servers.items()
        if getattr(one, "port", 0) and "port" in one.model_fields_set
    ]
    told = [one for one in held if one is not None]
    yield from told or [Finding("gateway", "ok", "not running; its folder, tokens and ports are free")]


def _token_held(config: Settings, tokens: dict[str, tuple[str, str]]) -> Finding | None:
    from bot import instance

    try:
        with instance.tokens_held(tokens, config.root):
            return None
    except (errors.Unavailable, errors.ConfigError) as error:
        key, _, rest = str(error).partition(": ")
        verdict: Verdict = "later" if isinstance(error, errors.Unavailable) else "wrong"
        return Finding(key, verdict, *rest.split("; ", 1))


def _port_held(key: str, host: str, port: int) -> Finding | None:
    from bot import ports

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            pid = ports.port_owner(port)
            by = f" by process {pid}" if pid else ""
            return Finding(
                key,
                "later",
                f"{port} on {host} is taken{by} ({error.strerror})",
                "stop it, or set another port",
            )
    return None


async def model(config: Settings) -> AsyncIterator[Finding]:
    llm = config.llm
    if llm.provider == "demo":
        yield Finding(
            "model", "ok", f"the built-in demo ({llm.provider_reason})", "set ANTHROPIC_API_KEY for Claude"
        )
        return
    asked = await asyncio.to_thread(
        common.model, provider=llm.provider, api_key=llm.api_key, base_url=llm.base_url
    )
    try:
        await asked.check()
        yield Finding("model key", "ok", "the provider takes it")
    except errors.ModelRefused as error:
        yield Finding(
            "model key", "wrong", f"the provider refuses it: {error}", "set llm.apiKey to one that holds"
        )
        return
    except errors.ModelMisconfigured as error:
        yield Finding("llm.baseUrl", "wrong", str(error), "set it to the address before /v1/messages")
        return
    except errors.ModelError as error:
        yield Finding(
            "model", "later", f"the provider does not answer: {error}", "see its status page; try again"
        )
        return
    else:
        from bot.configuration import prices_of

        uses = [(f"llm.purposes.{one}.model", use.model) for one, use in llm.purposes.items() if use.model]
        for key, name in (("llm.model", llm.model), ("llm.fastModel", llm.fast_model), *uses):
            window, price = llm.context_window if key == "llm.model" else None, prices_of(llm).million(name)
            async for one in _of_model(asked, key, name, window, price):
                yield one
    finally:
        await asked.close()


async def _of_model(
    asked: Model, key: str, name: str, configured: int | None, price: tuple[float, float] | None
) -> AsyncIterator[Finding]:
    try:
        facts = await asked.facts(name)
    except errors.ModelUnknown as error:
        yield Finding(key, "wrong", f"the provider does not have {name}: {error}", "name one that it has")
        return
    except errors.ModelError as error:
        yield Finding(key, "later", f"the provider does not tell of {name}: {error}", "try again")
        return
    window = configured or facts.window
    costs = (
        "price unknown"
        if price is None
        else f"${price[0]:g} and ${price[1]:g} a million tokens read and written"
    )
    if window is not None or key != "llm.model":
        reads = f", reads {window:,} tokens" if window else ""
        yield Finding(key, "ok", f"{name}{reads}, {costs}")
    else:
        remedy = "set llm.contextWindow to the number of tokens"
        yield Finding(key, "warn", f"{name}, {costs}; how much it reads is not known", remedy)


class _NobodyAsked:
    """`tools.ports.Questions` where no person has a turn."""

    async def ask(self, question: Question) -> Answer:
        from bot.tools.ports import Answer

        del question
        return Answer("nobody")


async def servers(config: Settings) -> AsyncIterator[Finding]:
    """MCP servers, each started or connected to as a gateway does it, and ended again."""
    from bot.system import SystemClock
    from bot.telemetry import LogRedactor
    from bot.tools.mcp.server import START_SECONDS
    from bot.tools.mcp.servers import McpServers

    made = McpServers(
        config.mcp,
        questions=_NobodyAsked(),
        root=config.root,
        clock=SystemClock(),
        log=_Unlogged(),
        redact=LogRedactor(config.secrets),
    )
    if not made.servers:
        return
    made.start()
    try:
        settled = [asyncio.create_task(one.settled.wait()) for one in made.servers.values()]
        await asyncio.wait(settled, timeout=START_SECONDS + 5.0)
        for task in settled:
            task.cancel()
        for name, server in made.servers.items():
            if server.state == "ready":
                yield Finding(f"mcp {name}", "ok", common.counted(len(server.tools), "tool"))
                for one in server.left_out:
                    yield Finding(f"mcp {name}", "warn", f"left out: {one}", "only the server can mend that")
            else:
                remedy = f"see what the server itself says, and mcp.servers.{name} in ship.json; enabled: false turns it off"
                yield Finding(f"mcp {name}", "wrong", server.trouble or "it does not answer", remedy)
    finally:
        await made.close()


class _Unlogged:
    """`contracts.environment.Log` of parts whose findings say it all."""

    def write(self, kind: str, message: str, *, level: Level = "info", **details: Any) -> None: ...


async def channels(config: Settings) -> AsyncIterator[Finding]:
    from bot.system import SystemClock

    known, clock = manifests(), SystemClock()
    let_in = _let_in(config)
    told: float | None = None
    for name, reason in config.reasons.items():
        examine = known[name].examine
        if name not in config.enabled:
            yield Finding(name, "ok", f"off ({reason})")
        elif examine is None:
            yield Finding(name, "ok", f"on ({reason})")
        else:
            channel = config.channels[name]
            allow = dict.fromkeys(
                (*getattr(channel, "allow", ()), *sorted(let_in(name)), *_operators(config, name))
            )
            found = await examine(channel.model_copy(update={"allow": list(allow)}))
            if found.time is not None and told is None:
                told = clock.now() - found.time
            for one in found.findings:
                yield one
    yield compared(told)


def _operators(config: Settings, channel: str) -> list[str]:
    try:
        return [one.user_id for one in named_operators(config) if one.channel == channel]
    except errors.ConfigError:
        return []  # a finding says so


def _let_in(config: Settings) -> Callable[[str], frozenset[str]]:
    """The ids that were let in at run time, by channel; none where their file cannot be read, which `run` says."""
    try:
        return access_list(config.root).allowed
    except errors.ConfigError:
        return lambda _: frozenset()


def compared(ahead: float | None) -> Finding:
    """The clock of this machine, which is so many seconds ahead of a platform's."""
    if ahead is None:
        return Finding("clock", "ok", "no platform was asked for the time")
    if abs(ahead) <= CLOCK_SECONDS:
        return Finding("clock", "ok", f"within {CLOCK_SECONDS:g} s of the platforms'")
    way = "ahead of" if ahead > 0 else "behind"
    return Finding(
        "clock",
        "wrong",
        f"{abs(ahead):,.0f} s {way} the platforms'",
        "set it by NTP (timedatectl set-ntp true)",
    )
