"""Rules that a single pydantic model cannot check: relations between settings, and the platform-specific
form of people's ids.
"""

from __future__ import annotations

import importlib.util
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic.alias_generators import to_camel

from bot.config.findings import Loc, dotted, finding, shown
from bot.config.placeholders import FilledDocument
from bot.config.ship_file import Llm, ShipFile
from bot.contracts.channel import ChannelSettings, Manifest, is_loopback

KEY_FORM = "sk-ant-"
STABLE = "names can be changed by anyone, so only stable ids count; `shipmate pending` lists who asked"


def token_keys(manifest: Manifest, *, webhook: bool = False) -> dict[str, str]:
    """Return the tokens that a channel needs, as field name → key in ship.json. `webhook` tells whether the
    channel uses its webhook.
    """
    needed = manifest.webhook_tokens if webhook and manifest.webhook_tokens else manifest.tokens
    return {
        name: field.alias or to_camel(name)
        for name, field in manifest.settings.model_fields.items()
        if name in needed or field.alias in needed
    }


def keys_in_use(settings: ChannelSettings, manifest: Manifest) -> dict[str, str]:
    """Return the tokens that a channel with these settings needs."""
    return token_keys(manifest, webhook=getattr(settings, "webhook", None) is not None)


def tokens_in_use(
    channels: Mapping[str, ChannelSettings], manifests: Mapping[str, Manifest], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return the tokens of the named channels, as key in ship.json → (token, address of the service)."""
    return {
        f"channels.{name}.{key}": (getattr(channels[name], token), getattr(channels[name], "base_url", name))
        for name in names
        for token, key in keys_in_use(channels[name], manifests[name]).items()
        if getattr(channels[name], token)
    }


def variable(channel: str, token: str) -> str:
    """Return the default name of the environment variable for a token, such as `SLACK_BOT_TOKEN`."""
    return f"{channel}_{token}".upper().replace("-", "_")


def allowed(settings: ChannelSettings) -> tuple[str, ...]:
    """Return the allow list of a channel; () if the channel has no allow list."""
    return tuple(entry for entry in getattr(settings, "allow", ()) if isinstance(entry, str))


def file_rules(file: ShipFile, filled: FilledDocument) -> Iterator[str]:
    """Yield the findings for all sections of ship.json except the channels."""
    yield from _engine(file, filled)
    yield from bind("dashboard", file.dashboard.host, file.dashboard.token)
    yield from _model(file.llm, filled)
    yield from _servers(filled)
    if file.telemetry.otel.enabled and not _installed("opentelemetry.exporter.otlp.proto.http"):
        mend = "run `pip install 'opentelemetry-exporter-otlp-proto-http>=1.45,<2'`, or set it to false"
        yield finding("telemetry.otel.enabled", "true, and no library for it", "its library", mend)
    engine = file.tools.web_search
    needed = {"searxng": ("baseUrl", engine.base_url), "brave": ("apiKey", engine.api_key)}
    key, value = needed.get(engine.kind, ("", "nothing"))
    if not value:
        yield finding(f"tools.webSearch.{key}", "nothing", f"what {engine.kind} needs", "set it")


def _engine(file: ShipFile, filled: FilledDocument) -> Iterator[str]:
    key, address = "engine.databaseUrl", file.engine.database_url
    if file.engine.kind == "embedded":
        if address is not None:
            expected = 'null, as long as engine.kind is "embedded"'
            yield finding(key, "[hidden]", expected, 'remove it, or set engine.kind to "postgresql"')
        return
    if ("engine", "databaseUrl") in filled.missing:
        return
    if urlsplit(address or "").scheme not in {"postgresql", "postgres"}:
        expected = "an address such as postgresql://user:password@host/shipmate"
        mend = "set it to ${DATABASE_URL}, and that in the environment or in .env"
        yield finding(key, "[hidden]" if address else "nothing", expected, mend)
    if not _installed("psycopg"):
        mend = "run `pip install 'psycopg[binary]>=3.3,<4'`"
        yield finding("engine.kind", '"postgresql", whose client is not installed', "psycopg", mend)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def _model(llm: Llm, filled: FilledDocument) -> Iterator[str]:
    if llm.provider == "anthropic" and not llm.api_key and ("llm", "apiKey") not in filled.missing:
        yield finding("llm.apiKey", "nothing", "a key", 'set ANTHROPIC_API_KEY, or provider to "demo"')
    if llm.api_key and llm.provider != "demo":
        yield from credential("llm.apiKey", llm.api_key)
    for at, one in enumerate(llm.fallback):
        key = f"llm.fallback[{at}]"
        elsewhere = one.address(llm.base_url) != llm.base_url
        if not (one.model or one.api_key or elsewhere):
            yield finding(key, "nothing that the first is not", "another model, key or address", "name one")
        if one.api_key:
            yield from credential(f"{key}.apiKey", one.api_key)
        elif elsewhere and ("llm", "fallback", at, "apiKey") not in filled.missing:
            expected = "a key, since that of llm is not sent elsewhere"
            yield finding(f"{key}.apiKey", "nothing", expected, "set it")


def _servers(filled: FilledDocument) -> Iterator[str]:
    """Yield a finding for each MCP server that lacks the setting of its type (`command` or `url`) or has
    both settings.
    """
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
                "set command for a program, url for an address",
            )


def credential(key: str, value: str) -> Iterator[str]:
    """Yield a finding for a token with white space, line breaks or letters that an HTTP header cannot contain."""
    if not value.isascii() or not value.isprintable() or " " in value:
        found = "[hidden] with white space or odd characters in it"
        yield finding(key, found, "a token", "copy it again, without spaces")


def bind(key: str, host: str, token: str | None) -> Iterator[str]:
    """Yield a finding if the server listens on an address that other machines can reach, but has no token."""
    if not is_loopback(host) and not token:
        expected = "127.0.0.1, or a token with any other address"
        mend = f"set {key}.token to a long random text, or host to 127.0.0.1"
        yield finding(f"{key}.host", shown(host), expected, mend)


def ports(file: ShipFile, channels: Mapping[str, ChannelSettings]) -> Iterator[str]:
    """Yield a finding for each port that two servers share."""
    dashboard = file.dashboard
    taken = {dashboard.port: "dashboard.port"} if dashboard.enabled and dashboard.port else {}
    for name, settings in channels.items():
        for key, place in ((name, settings), (f"{name}.webhook", getattr(settings, "webhook", None))):
            port = getattr(place, "port", None)
            if port and settings.enabled is not False:
                other = taken.setdefault(port, f"channels.{key}.port")
                if other != f"channels.{key}.port":
                    mend = "change one of the two, or set it to 0 for a free one"
                    yield finding(f"channels.{key}.port", shown(port), f"another port than {other}", mend)


def channel(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument
) -> Iterator[str]:
    """Yield the findings for a channel's ids, address and tokens. A disabled channel may lack ids and tokens."""
    for index, entry in enumerate(_entries(filled, "channels", name, "allow")):
        loc: Loc = ("channels", name, "allow", index)
        if isinstance(entry, str) and entry != "*":
            yield from identity(dotted(loc), entry, manifest, hidden=filled.is_hidden(loc))
    host = getattr(settings, "host", None)
    if settings.enabled is not False:
        if isinstance(host, str):
            yield from bind(f"channels.{name}", host, getattr(settings, "token", None))
        if not _has_own_service(settings):
            yield from _misshapen(name, settings, manifest)
    keys = keys_in_use(settings, manifest)
    half = settings.enabled is None and any(getattr(settings, token) for token in keys)
    for token, key in keys.items():
        value = getattr(settings, token)
        if value and settings.enabled is not False:
            yield from credential(f"channels.{name}.{key}", value)
        elif half or (settings.enabled and ("channels", name, key) not in filled.missing):
            mend = f"set {variable(name, token)} and refer to it, or set enabled to false"
            yield finding(f"channels.{name}.{key}", "nothing", "a token", mend)


def _misshapen(name: str, settings: ChannelSettings, manifest: Manifest) -> Iterator[str]:
    """Yield a finding for each token that does not have its platform's form. Two swapped tokens are a typical cause."""
    keys = keys_in_use(settings, manifest)
    forms = {token: form for token, form in manifest.token_forms.items() if token in keys}
    for token, form in forms.items():
        value = getattr(settings, token)
        if not value or any(credential("", value)) or re.fullmatch(form.pattern, value):
            continue
        other = next((keys[name] for name, its in forms.items() if re.fullmatch(its.pattern, value)), None)
        mend = f"this one looks like {other}: see whether the two are swapped" if other else "copy it again"
        yield finding(f"channels.{name}.{keys[token]}", "[hidden] of another form", form.example, mend)


def _has_own_service(settings: ChannelSettings) -> bool:
    """Return True if a channel uses an address other than its platform's. The tokens for such an address may
    have any form.
    """
    address = type(settings).model_fields.get("base_url")
    return address is not None and getattr(settings, "base_url", None) != address.default


def _entries(filled: FilledDocument, *loc: str) -> list[Any]:
    """Return a list as the file has it, even if another entry of the list is invalid."""
    value: Any = filled.document
    for key in loc:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def identity(
    key: str, entry: str, manifest: Manifest, *, prefix: str = "", hidden: bool = False
) -> Iterator[str]:
    """Yield a finding for an id that is not a stable id of one person or channel on its platform."""
    found = shown(prefix + entry, hidden=hidden)
    if "@" in entry or not manifest.valid_id(entry):
        yield finding(key, found, f"a stable id of {manifest.name}", STABLE)
    elif entry in manifest.never_admit:
        expected = "the id of one person or channel"
        yield finding(key, found, expected, "this one stands for many people: remove it")


def operators(manifests: Mapping[str, Manifest], filled: FilledDocument) -> Iterator[str]:
    for index, entry in enumerate(_entries(filled, "operators")):
        loc: Loc = ("operators", index)
        if isinstance(entry, str):
            yield from operator(dotted(loc), entry, manifests, hidden=filled.is_hidden(loc))


def operator(
    key: str, entry: str, manifests: Mapping[str, Manifest], *, hidden: bool = False
) -> Iterator[str]:
    """Yield a finding for an operator that is not written as `channel:ID`."""
    name, colon, person = entry.partition(":")
    if not colon or name not in manifests:
        expected = f"channel:ID with one of {', '.join(sorted(manifests))}"
        yield finding(key, shown(entry, hidden=hidden), expected, "write it as in telegram:123456789")
    else:
        yield from identity(key, person, manifests[name], prefix=f"{name}:", hidden=hidden)


def prompt_files(root: Path, file: ShipFile) -> Iterator[str]:
    """Yield a finding for each prompt file that does not exist."""
    for name, source in file.prompt.sources(root).items():
        if isinstance(source, Path) and not source.is_file():
            found, expected = shown(str(source.relative_to(root))), "a file in the project, or a text"
            yield finding(f"prompt.{name}", found, expected, "write it, or the text itself")


def warnings(
    root: Path,
    file: ShipFile,
    filled: FilledDocument,
    *,
    channels: Mapping[str, ChannelSettings],
    enabled: Iterable[str],
    manifests: Mapping[str, Manifest],
) -> Iterator[str]:
    """Yield warnings about settings that are valid but risky or surprising."""
    yield from _file_warnings(root)
    for loc in filled.literal:
        yield f"{dotted(loc)}: ship.json contains the secret itself; put it into .env and write ${{NAME}} here"
    for name in enabled:
        if "*" in allowed(channels[name]):
            yield f'channels.{name}.allow: holds "*", so everyone who finds the bot can talk to it'
        if _has_own_service(channels[name]):
            yield from _misshapen(name, channels[name], manifests[name])
    for name, settings in channels.items():
        address = getattr(settings, "base_url", None)
        parts = urlsplit(address if isinstance(address, str) else "")
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield f"channels.{name}.baseUrl: is not encrypted, so anyone on the way can read tokens; use https"
    llm = file.llm
    own = llm.provider != "demo" and llm.base_url is None
    if own and llm.api_key and not llm.api_key.startswith(KEY_FORM):
        yield finding("llm.apiKey", "[hidden] of another form", f"{KEY_FORM}…", "copy it again")


def _file_warnings(root: Path) -> Iterator[str]:
    try:
        mode = (root / ".env").stat().st_mode
    except OSError:
        mode = 0
    if mode & stat.S_IROTH:
        yield ".env: others on this machine can read it; run `chmod 600 .env`"
    if (root / ".ship" / "mcp" / "mcp.json").is_file():
        yield (
            ".ship/mcp/mcp.json: is not read (ShipMyAgent read it); move its `servers` to mcp.servers of ship.json, where `sse` is "
            "http, and remove it"
        )
