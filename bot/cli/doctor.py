"""`shipmate doctor` connects to all services and checks everything that a gateway needs. For each problem, the command prints a remedy."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bot import configuration, discovery, errors, http_server, instance, text
from bot.cli import project
from bot.cli.commands import PYTHON
from bot.cli.common import HOME, AsJson, Defaults, Dir, Here, StderrLog, counted, say_rows
from bot.cli.project import access_list, named_operators
from bot.config import Settings, tokens_in_use
from bot.contracts.channel import Finding, Verdict
from bot.contracts.model import Model
from bot.core import sqlite_log
from bot.features.search import index
from bot.invocation import command, version_of
from bot.resources import space_of
from bot.system import SystemClock
from bot.telemetry.redaction import LogRedactor
from bot.tools.isolation import Isolation
from bot.tools.mcp.servers import START_SECONDS, McpServers

MAX_SKEW_SECONDS = 30.0
"""Max difference in seconds between the clocks of this machine and of a platform."""
TURN_SECONDS = 180.0
LOW, VERY_LOW = 0.10, 0.02
"""Min shares of the disk that must be free. Below `LOW` the check warns; below `VERY_LOW` the check fails."""

Turn = Annotated[
    bool, typer.Option("--turn", help="Also run one turn, which asks the model and stays in the log.")
]


def doctor(root: Dir = Here, defaults: Defaults = False, as_json: AsJson = False, turn: Turn = False) -> None:
    raise typer.Exit(asyncio.run(_examine(root, defaults=defaults, as_json=as_json, turn=turn)))


async def _examine(root: Path, *, defaults: bool, as_json: bool, turn: bool) -> int:
    verdicts, settings = set[str](), None
    try:
        settings = configuration.load(root, defaults=defaults)
        lines = _configuration("warn", settings.warnings)
    except errors.ConfigError as error:
        lines = _configuration("wrong", error.findings)
    redact = LogRedactor(settings.secrets if settings is not None else ())
    async for one in _findings(root, settings, lines, turn=turn):
        verdicts.add(one.verdict)
        facts = {key: redact(value) for key, value in asdict(one).items()}
        remedy = f"; {one.remedy}" if one.remedy else ""
        line = redact(" ".join(f"{one.verdict:<5}  {one.part}: {one.found}{remedy}".split("\n")))
        say_rows([(facts, line)], as_json=as_json)
    return 78 if "wrong" in verdicts else 75 if "later" in verdicts else 0


async def _findings(
    root: Path, settings: Settings | None, lines: list[Finding], *, turn: bool
) -> AsyncIterator[Finding]:
    """Run the checks. If ship.json is invalid, run only those that need no settings. `lines` are findings about ship.json."""
    own = version_of("shipmate", "from a folder, not installed")
    yield Finding("versions", "ok", f"shipmate {own}, Python {PYTHON}")
    embedded = settings is None or settings.engine.kind == "embedded"
    for one in (*lines, *permissions(root), disk(root), *(stored(root) if embedded else ())):
        yield one
    if settings is None:
        return
    yield Finding("configuration", "ok", "ship.json and the environment are valid")
    for one in (*(() if embedded else database(settings)), *operators(settings), *in_use(settings)):
        yield one
    yield await isolation(settings)
    for part in (model, servers, channels):
        async for one in part(settings):
            yield one
    if turn:
        yield await _test_turn(settings)


def _configuration(verdict: Verdict, lines: Iterable[str]) -> list[Finding]:
    parts = (line.partition(": ") for line in lines)
    return [Finding("configuration", verdict, key, rest) for key, _, rest in parts]


async def _test_turn(settings: Settings) -> Finding:
    """Start a gateway, send it a message from the terminal's channel, and check the answer."""
    import bot.app  # imports every library of the gateway

    word, answer, began = secrets.token_hex(3), io.StringIO(), time.monotonic()
    try:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as asked:
            asked.write(f"This is a test by `shipmate doctor`. Answer with this word alone: {word}\n")
            asked.seek(0)
            async with asyncio.timeout(TURN_SECONDS):
                await bot.app.chat(settings.root, stdin=asked, stdout=answer, chat_id="doctor")
    except errors.ShipmateError as error:
        return Finding("turn", "wrong", str(error))
    except TimeoutError:
        return Finding("turn", "later", f"no answer within {TURN_SECONDS:g} s", "see `shipmate logs`")
    if word in answer.getvalue():
        return Finding("turn", "ok", f"answered within {time.monotonic() - began:.1f} s")
    return Finding("turn", "wrong", f"not answered: {answer.getvalue().strip()}", "see `shipmate logs`")


def operators(settings: Settings) -> Iterator[Finding]:
    try:
        if not named_operators(settings):
            remedy = 'name yourself in ship.json, as in "operators": ["telegram:123"]'
            yield Finding("operators", "warn", "nobody", remedy)
    except errors.ConfigError as error:
        yield Finding("access list", "wrong", str(error))


def permissions(root: Path) -> Iterator[Finding]:
    """Check that other users can neither read nor change the project's files, and that this user can write them."""
    wanted = {".env": (0o077, "600"), "ship.json": (0o022, "go-w")}
    if (root / HOME / sqlite_log.FILE).exists():  # before the first start, .ship may have any permissions
        wanted = {HOME: (0o077, "700"), **wanted}
    found = dict[str, str]()
    for name, (refused, mode) in wanted.items():
        if (root / name).exists() and stat.S_IMODE((root / name).stat().st_mode) & refused:
            may = "read" if refused & 0o044 else "change"
            found[f"others may {may} {name}"] = f"run `chmod {mode} {name}`"
    if not os.access(root, os.W_OK):
        found["this user may not write here"] = "give it the folder with chown, on a writable file system"
    for words, remedy in found.items():
        yield Finding("permissions", "wrong", words, remedy)
    if not found:
        yield Finding("permissions", "ok", f"{HOME}, .env and ship.json are for this user alone")


def disk(root: Path) -> Finding:
    space = space_of(root)
    if space.share < VERY_LOW:
        remedy = "free some space: on a full disk the gateway accepts no messages, and loses none"
        return Finding("disk", "later", str(space), remedy)
    if space.share < LOW:
        return Finding("disk", "warn", str(space), "free some space before it is full")
    return Finding("disk", "ok", str(space))


def database(settings: Settings) -> Iterator[Finding]:
    """Check the PostgreSQL server, and list the processes of the cluster."""
    from bot.cluster.leadership import examine, hosts  # needs the optional PostgreSQL library

    url = settings.engine.database_url or ""
    try:
        version, trouble = examine(url)
    except errors.StorageError as error:
        remedy = "check engine.databaseUrl, and whether the server runs"
        yield Finding("database", "later", str(error), remedy)
        return
    if trouble:
        yield Finding("database", "wrong", trouble, "ask whoever runs the server")
    else:
        yield Finding("database", "ok", f"PostgreSQL {version}")
    found = [f"{name} {'leads' if leads else 'stands by'}" for name, leads in hosts(url)]
    yield Finding("cluster", "ok", "; ".join(found) or "no process is running")


def stored(root: Path) -> Iterator[Finding]:
    """Check that the log of the chats and the search index are readable."""
    restore = f"stop Shipmate, keep a copy of {HOME}, and restore a backup"
    rebuild = f"run `{command('index rebuild', root)}`: nothing is lost"
    parts: dict[str, tuple[str, Callable[[Path], str | None], Verdict, str]] = {
        "journal": (sqlite_log.FILE, sqlite_log.damage, "wrong", restore),
        "search index": (index.FILE, index.verdict, "warn", rebuild),
    }
    for part, (file, examine, verdict, remedy) in parts.items():
        path = root / HOME / file
        if not path.is_file():
            yield Finding(part, "ok", "none yet")
        elif trouble := examine(path):
            yield Finding(part, verdict, f"it cannot be used: {trouble}", remedy)
        else:
            yield Finding(part, "ok", f"intact, {text.byte_count(path.stat().st_size)}")


async def isolation(settings: Settings) -> Finding:
    shell = settings.shell
    if shell.isolation == "off":
        words, remedy = "off: commands have all rights of this user", 'set shell.isolation to "required"'
        return Finding("isolation", "warn", words, remedy)
    try:
        await Isolation(settings.root, network=shell.network).check()
    except (errors.ToolError, OSError):
        remedy = "install bubblewrap (apt install bubblewrap), and allow user namespaces"
        return Finding("isolation", "warn", "no sandbox is available, so no command runs", remedy)
    return Finding("isolation", "ok", "bubblewrap")


def in_use(settings: Settings) -> Iterator[Finding]:
    """Check that no process except this folder's gateway uses the channels' tokens and ports."""
    if instance.is_held(settings.home):
        yield Finding("gateway", "ok", "running in this folder")
        return
    found: list[Finding] = []
    tokens = tokens_in_use(settings.channels, discovery.manifests(), settings.enabled)
    try:
        with instance.tokens_held(tokens, settings.root):
            pass
    except (errors.Unavailable, errors.ConfigError) as error:
        key, _, rest = str(error).partition(": ")
        verdict: Verdict = "later" if isinstance(error, errors.Unavailable) else "wrong"
        found.append(Finding(key, verdict, *rest.split("; ", 1)))
    servers: dict[str, Any] = {f"channels.{name}.port": settings.channels[name] for name in settings.enabled}
    if settings.dashboard.enabled:
        servers["dashboard.port"] = settings.dashboard
    for key, one in servers.items():
        if getattr(one, "port", 0) and "port" in one.model_fields_set:
            try:
                socket.create_server(
                    (one.host, one.port), family=socket.AF_INET6 if ":" in one.host else socket.AF_INET
                ).close()
            except OSError as error:
                pid = http_server.port_owner(one.port)
                by = f" by process {pid}" if pid else ""
                words = f"{one.port} on {one.host} is taken{by} ({error.strerror})"
                found.append(Finding(key, "later", words, "stop it, or set another port"))
    yield from found or [Finding("gateway", "ok", "not running; its folder, tokens and ports are free")]


async def model(settings: Settings) -> AsyncIterator[Finding]:
    llm = settings.llm
    if llm.provider == "demo":
        words = f"the built-in demo ({llm.provider_reason})"
        yield Finding("model", "ok", words, "set ANTHROPIC_API_KEY for Claude")
        return
    asked = await asyncio.to_thread(project.model, llm.provider, llm.api_key, llm.base_url)
    try:
        await asked.check()
        yield Finding("model key", "ok", "the provider accepts it")
        prices = configuration.prices_of(llm)
        uses = {"llm.model": llm.model, "llm.fastModel": llm.fast_model}
        uses |= {f"llm.purposes.{one}.model": use.model for one, use in llm.purposes.items() if use.model}
        for key, name in uses.items():
            window = llm.context_window if key == "llm.model" else None
            yield await _describe_model(asked, key, name, window, prices.million(name))
    except errors.ModelRefused as error:
        remedy = "set llm.apiKey to a valid one"
        yield Finding("model key", "wrong", f"the provider refuses it: {error}", remedy)
    except errors.ModelMisconfigured as error:
        yield Finding("llm.baseUrl", "wrong", str(error), "set it to the address before /v1/messages")
    except errors.ModelError as error:
        words = f"the provider does not answer: {error}"
        yield Finding("model", "later", words, "see its status page; try again")
    finally:
        await asked.close()


async def _describe_model(
    asked: Model, key: str, name: str, configured: int | None, price: tuple[float, float] | None
) -> Finding:
    try:
        window = configured or (await asked.facts(name)).window
    except errors.ModelUnknown as error:
        return Finding(key, "wrong", f"the provider does not have {name}: {error}", "name one that it has")
    except errors.ModelError as error:
        return Finding(key, "later", f"the provider does not describe {name}: {error}", "try again")
    costs = "price unknown"
    if price is not None:
        costs = f"${price[0]:g} and ${price[1]:g} a million tokens read and written"
    if window is None and key == "llm.model":
        remedy = "set llm.contextWindow to the number of tokens"
        return Finding(key, "warn", f"{name}, {costs}; its context window is unknown", remedy)
    return Finding(key, "ok", f"{name}{f', reads {window:,} tokens' if window else ''}, {costs}")


async def servers(settings: Settings) -> AsyncIterator[Finding]:
    """Start or connect to each MCP server as the gateway does, and then close the connection."""
    made = McpServers(
        settings.mcp,
        ask=None,
        root=settings.root,
        clock=SystemClock(),
        log=StderrLog(),
        redact=LogRedactor(settings.secrets),
    )
    if not made.servers:
        return
    made.start()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS + 5.0):
                await asyncio.gather(*(one.settled.wait() for one in made.servers.values()))
        for name, server in made.servers.items():
            if server.state == "ready":
                yield Finding(f"mcp {name}", "ok", counted(len(server.tools), "tool"))
                for one in server.left_out:
                    yield Finding(f"mcp {name}", "warn", f"left out: {one}", "only the server can fix that")
            else:
                remedy = f"see the server's own output, and mcp.servers.{name} in ship.json; enabled: false turns it off"
                yield Finding(f"mcp {name}", "wrong", server.trouble or "it does not answer", remedy)
    finally:
        await made.close()


async def channels(settings: Settings) -> AsyncIterator[Finding]:
    """Let each channel check its platform and the people with access. Compare this machine's clock with the platform's."""
    known, clock, skew = discovery.manifests(), SystemClock(), None
    let_in: dict[str, list[str]] = {name: [] for name in known}
    with contextlib.suppress(errors.ConfigError):  # the finding "access list" reports this error
        lists = access_list(settings.root)
        let_in = {name: sorted(lists.allowed(name)) for name in known}
        for person in named_operators(settings):
            let_in.setdefault(person.channel, []).append(person.user_id)
    for name, reason in settings.reasons.items():
        examine = known[name].examine
        if name not in settings.enabled or examine is None:
            yield Finding(name, "ok", f"{'on' if name in settings.enabled else 'off'} ({reason})")
            continue
        channel = settings.channels[name]
        allow = dict.fromkeys((*getattr(channel, "allow", ()), *let_in[name]))
        found = await examine(channel.model_copy(update={"allow": list(allow)}))
        if found.time is not None and skew is None:
            skew = clock.now() - found.time
        for one in found.findings:
            yield one
    yield compared(skew)


def compared(ahead: float | None) -> Finding:
    """Check this machine's clock. `ahead` is the number of seconds by which this machine's clock is ahead of a platform's clock."""
    if ahead is None:
        return Finding("clock", "ok", "no platform was asked for the time")
    if abs(ahead) <= MAX_SKEW_SECONDS:
        return Finding("clock", "ok", f"within {MAX_SKEW_SECONDS:g} s of the platforms'")
    way = "ahead of" if ahead > 0 else "behind"
    words = f"{abs(ahead):,.0f} s {way} the platforms'"
    return Finding("clock", "wrong", words, "set it by NTP (timedatectl set-ntp true)")
