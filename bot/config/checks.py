"""Checks that no single model can make: rules between keys, ids of people, settings of features that are not built yet."""

from __future__ import annotations

import importlib.util
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from bot.config.findings import Loc, dotted, finding, shown
from bot.config.placeholders import FilledDocument
from bot.config.ship_file import (
    POSTGRESQL_BEFORE,
    Dashboard,
    Llm,
    Prompt,
    ShipFile,
    WebSearch,
)
from bot.contracts.channel import ChannelSettings, Manifest, is_loopback
from bot.words.times import zone

KEY_FORM = "sk-ant-"
STABLE = "names can be changed by anyone, so only stable ids count; `shipmate pending` shows those who asked"


def token_keys(manifest: Manifest, *, webhook: bool = False) -> dict[str, str]:
    """The tokens without which a channel cannot run, with its `webhook` or without: field name → key in ship.json."""
    needed = manifest.webhook_tokens if webhook and manifest.webhook_tokens else manifest.tokens
    return {
        name: field.alias or to_camel(name)
        for name, field in manifest.settings.model_fields.items()
        if name in needed or field.alias in needed
    }


def keys_in_use(settings: ChannelSettings, manifest: Manifest) -> dict[str, str]:
    """Those of a channel with these settings."""
    return token_keys(manifest, webhook=getattr(settings, "webhook", None) is not None)


def tokens_in_use(
    channels: Mapping[str, ChannelSettings], manifests: Mapping[str, Manifest], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """The tokens of some channels: key in ship.json → (token, address of the service that it is for)."""
    return {
        f"channels.{name}.{key}": (getattr(channels[name], token), getattr(channels[name], "base_url", name))
        for name in names
        for token, key in keys_in_use(channels[name], manifests[name]).items()
        if getattr(channels[name], token)
    }


def variable(channel: str, token: str) -> str:
    """The environment variable that a token is taken from where ship.json does not say: `SLACK_BOT_TOKEN`."""
    return f"{channel}_{token}".upper().replace("-", "_")


def engine(file: ShipFile, filled: FilledDocument) -> Iterator[str]:
    """Yield a finding for a database without an address, or without its client."""
    if file.engine.kind == "embedded":
        if file.engine.database_url is not None:
            yield finding(
                "engine.databaseUrl",
                "[hidden]",
                'null, as long as engine.kind is "embedded"',
                'remove it, or set engine.kind to "postgresql"',
            )
        return
    if ("engine", "databaseUrl") in filled.missing:
        return
    if urlsplit(file.engine.database_url or "").scheme not in {"postgresql", "postgres"}:
        yield finding(
            "engine.databaseUrl",
            "[hidden]" if file.engine.database_url else "nothing",
            "an address such as postgresql://user:password@host/shipmate",
            "set it to ${DATABASE_URL}, and that in the environment or in .env",
        )
    if importlib.util.find_spec("psycopg") is None:
        yield finding(
            "engine.kind",
            '"postgresql", whose client is not installed',
            "psycopg",
            "run `pip install 'psycopg[binary]>=3.3,<4'`",
        )


def timezone(name: str) -> Iterator[str]:
    """Yield a finding for an unknown time zone."""
    try:
        zone(name)
    except ValueError:
        yield finding(
            "schedule.timezone",
            shown(name),
            'a name of the tz database such as "Europe/Berlin"',
            "take one of /usr/share/zoneinfo; where that is missing, install the system's tzdata",
        )


def credential(key: str, value: str) -> Iterator[str]:
    """A token that cannot be one: white space, line ends, letters that no header can carry."""
    if not value.isascii() or not value.isprintable() or " " in value:
        yield finding(
            key,
            "[hidden] with white space or odd characters in it",
            "a token",
            "copy it again, without spaces",
        )


def fallbacks(llm: Llm, filled: FilledDocument) -> Iterator[str]:
    """Yield findings for models that stand in and cannot be asked, or would be asked with a key of another address."""
    for at, one in enumerate(llm.fallback):
        key = f"llm.fallback[{at}]"
        elsewhere = one.address(llm.base_url) != llm.base_url
        if not (one.model or one.api_key or elsewhere):
            yield finding(key, "nothing that the first is not", "another model, key or address", "name one")
        yield from base_url(f"{key}.baseUrl", one.base_url)
        if one.api_key:
            yield from credential(f"{key}.apiKey", one.api_key)
        elif elsewhere and ("llm", "fallback", at, "apiKey") not in filled.missing:
            yield finding(f"{key}.apiKey", "nothing", "a key, as that of llm goes nowhere else", "set it")


def search_engine(engine: WebSearch) -> Iterator[str]:
    """Yield a finding for an engine without what it needs."""
    needed = {"searxng": ("baseUrl", engine.base_url), "brave": ("apiKey", engine.api_key)}
    key, value = needed.get(engine.kind, ("", "nothing"))
    if not value:
        yield finding(f"tools.webSearch.{key}", "nothing", f"what {engine.kind} needs", "set it")


def base_url(key: str, address: str | None) -> Iterator[str]:
    """Yield a finding for an address that has what is added to it already."""
    found = re.search(r"/v1(?:/messages)?/*$", address or "")
    if found is not None:
        mend = f"write it without {found[0].rstrip('/')}"
        yield finding(key, shown(address), "the address before /v1/messages", mend)


def misshapen(name: str, settings: ChannelSettings, manifest: Manifest) -> Iterator[str]:
    """Tokens that are not of their platform's form, such as two that were swapped."""
    keys = keys_in_use(settings, manifest)
    forms = {token: form for token, form in manifest.token_forms.items() if token in keys}
    for token, form in forms.items():
        value = getattr(settings, token)
        if not value or any(credential("", value)) or re.fullmatch(form.pattern, value):
            continue
        other = next((keys[name] for name, its in forms.items() if re.fullmatch(its.pattern, value)), None)
        mend = f"this one looks like {other}: see whether the two are swapped" if other else "copy it again"
        yield finding(f"channels.{name}.{keys[token]}", "[hidden] of another form", form.example, mend)


def has_own_service(settings: ChannelSettings) -> bool:
    """True if a channel talks to another address than its platform's, where tokens may be of any form."""
    address = type(settings).model_fields.get("base_url")
    return address is not None and getattr(settings, "base_url", None) != address.default


def ports(dashboard: Dashboard, channels: Mapping[str, ChannelSettings]) -> Iterator[str]:
    """Two servers of ours on one port."""
    taken = {dashboard.port: "dashboard.port"} if dashboard.enabled and dashboard.port else {}
    for name, settings in channels.items():
        for key, place in ((name, settings), (f"{name}.webhook", getattr(settings, "webhook", None))):
            port = getattr(place, "port", None)
            if port and settings.enabled is not False:
                other = taken.setdefault(port, f"channels.{key}.port")
                if other != f"channels.{key}.port":
                    mend = "change one of the two, or set it to 0 for a free one"
                    yield finding(f"channels.{key}.port", shown(port), f"another port than {other}", mend)


def bind(key: str, host: str, token: str | None) -> Iterator[str]:
    """An address that others can reach needs a token."""
    if not is_loopback(host) and not token:
        yield finding(
            f"{key}.host",
            shown(host),
            "127.0.0.1, or a token with any other address",
            f"set {key}.token to a long random text, or host to 127.0.0.1",
        )


def channel(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument
) -> Iterator[str]:
    """Rules that hold for every channel, on or off."""
    key = f"channels.{name}"
    for index, entry in enumerate(_entries(filled, "channels", name, "allow")):
        loc: Loc = ("channels", name, "allow", index)
        if isinstance(entry, str) and entry != "*":
            yield from identity(dotted(loc), entry, manifest, hidden=filled.is_hidden(loc))
    host = getattr(settings, "host", None)
    if isinstance(host, str) and settings.enabled is not False:
        yield from bind(key, host, getattr(settings, "token", None))


def _entries(filled: FilledDocument, *loc: str) -> list[Any]:
    """A list as it stands in the file, also where another entry of it is wrong."""
    value: Any = filled.document
    for key in loc:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def allowed(settings: ChannelSettings) -> tuple[str, ...]:
    """The allow list of a channel, () where it has none."""
    entries = getattr(settings, "allow", ())
    return tuple(entry for entry in entries if isinstance(entry, str))


def servers(filled: FilledDocument) -> Iterator[str]:
    """MCP servers that are not reached in exactly one way."""
    section = filled.document.get("mcp")
    found = section.get("servers") if isinstance(section, dict) else None
    for name, server in found.items() if isinstance(found, dict) else ():
        if not isinstance(server, dict):
            continue
        loc: Loc = ("mcp", "servers", name)
        ways = [key for key in ("command", "url") if key in server or (*loc, key) in filled.missing]
        kind = server.get("type") or ("http" if "url" in ways else "stdio")
        expected = {"stdio": "command", "http": "url"}.get(str(kind))
        if expected is not None and ways != [expected]:
            either = not ways and "type" not in server
            yield finding(
                dotted(loc),
                " and ".join(ways) or "neither command nor url",
                "command or url" if either else f"{expected} alone",
                "say how the server is reached: command for a program, url for an address",
            )


def prompt_files(root: Path, prompt: Prompt) -> Iterator[str]:
    """Files of prompts that are not there."""
    for name, source in prompt.sources(root).items():
        if isinstance(source, Path) and not source.is_file():
            found = shown(str(source.relative_to(root)))
            yield finding(
                f"prompt.{name}", found, "a file in the project, or a text", "write it, or the text itself"
            )


def identity(
    key: str, entry: str, manifest: Manifest, *, prefix: str = "", hidden: bool = False
) -> Iterator[str]:
    """An id that cannot be a stable one of this platform, or that stands for many people."""
    found = shown(prefix + entry, hidden=hidden)
    if "@" in entry or not manifest.valid_id(entry):
        yield finding(key, found, f"a stable id of {manifest.name}", STABLE)
    elif entry in manifest.never_admit:
        yield finding(
            key, found, "the id of one person or channel", "this one stands for many people: remove it"
        )


def operators(manifests: Mapping[str, Manifest], filled: FilledDocument) -> Iterator[str]:
    for index, entry in enumerate(_entries(filled, "operators")):
        loc: Loc = ("operators", index)
        if isinstance(entry, str):
            yield from operator(dotted(loc), entry, manifests, hidden=filled.is_hidden(loc))


def operator(
    key: str, entry: str, manifests: Mapping[str, Manifest], *, hidden: bool = False
) -> Iterator[str]:
    """An operator is written `channel:ID`."""
    name, colon, person = entry.partition(":")
    if not colon or name not in manifests:
        expected = f"channel:ID with one of {', '.join(sorted(manifests))}"
        yield finding(key, shown(entry, hidden=hidden), expected, "write it as in telegram:123456789")
    else:
        yield from identity(key, person, manifests[name], prefix=f"{name}:", hidden=hidden)


def warnings(
    root: Path,
    channels: Mapping[str, ChannelSettings],
    on: Iterable[str],
    manifests: Mapping[str, Manifest],
    filled: FilledDocument,
) -> Iterator[str]:
    """Yield warnings about settings that work and still deserve a look."""
    try:
        mode = (root / ".env").stat().st_mode
    except OSError:
        mode = 0
    if mode & stat.S_IROTH:
        yield ".env: others on this machine can read it; run `chmod 600 .env`"
    yield from _left_over(root)
    if filled.document.get("engine", {}).get("kind") == POSTGRESQL_BEFORE:
        yield f'engine.kind: "{POSTGRESQL_BEFORE}" is read as "postgresql", its name by now; write that'
    for loc in filled.literal:
        yield f"{dotted(loc)}: the secret itself stands in ship.json; put it into .env and write ${{NAME}} here"
    for name in on:
        settings = channels[name]
        entries = allowed(settings)
        if "*" in entries:
            yield f'channels.{name}.allow: holds "*", so everyone who finds the bot can talk to it'
        if has_own_service(settings):
            yield from misshapen(name, settings, manifests[name])
    for key, address in addresses(channels):
        parts = urlsplit(address)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield f"{key}: is not encrypted, so tokens travel in the open; use https"


def _left_over(root: Path) -> Iterator[str]:
    """Yield a warning of what ShipMyAgent reads and Shipmate does not."""
    if (root / ".ship" / "mcp" / "mcp.json").is_file():
        yield (
            ".ship/mcp/mcp.json: is not read here; move what stands in its `servers` to mcp.servers of ship.json, where `sse` is "
            "http, and remove it"
        )


def misshapen_key(llm: Llm) -> Iterator[str]:
    """Yield a warning of a key that is of another form than the provider's, at the provider's own address."""
    own = llm.provider != "demo" and llm.base_url is None
    if own and llm.api_key and not llm.api_key.startswith(KEY_FORM):
        yield finding("llm.apiKey", "[hidden] of another form", f"{KEY_FORM}…", "copy it again")


def addresses(channels: Mapping[str, BaseModel]) -> Iterator[tuple[str, str]]:
    for name, settings in channels.items():
        address = getattr(settings, "base_url", None)
        if isinstance(address, str):
            yield f"channels.{name}.baseUrl", address
