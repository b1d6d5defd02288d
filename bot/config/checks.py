"""Checks that settings fit each other, and that ids and tokens have the forms of their platforms. Each violation gives
a finding: one line with the key, the value found, the value expected and the remedy.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic.alias_generators import to_camel

from bot.config.document import HIDDEN, FilledDocument, Loc, dotted, finding, is_secret_key, shown
from bot.config.ship_file import Llm, ShipFile
from bot.contracts.channel import ChannelSettings, Manifest, is_loopback

STABLE = "names can be changed by anyone, so only stable ids count; `shipmate pending` lists who asked"
MOVED = {
    "adapters": 'write "channels" in place of it, as in "channels": {"telegram": {"botToken": "${TELEGRAM_BOT_TOKEN}"}}',
    "start": 'write {"host": …, "port": …} into channels.web',
    "permissions.exec_shell": "write a rule such as run_shell(git status) into permissions.allow",
}
"""Remedies for keys that only ShipMyAgent, Shipmate's predecessor, had in ship.json."""
_SUBJECT = re.compile(r"^\w+ should (?:be|have) ")
"""Pattern of the beginning of pydantic's error messages, such as “Input should be a valid string”."""


def from_error(error: Mapping[str, Any], *, known: Collection[str], hidden: bool) -> str:
    """Return the finding for an error of pydantic. `known` are the keys allowed in the object that contains the error."""
    loc: Loc = tuple(error["loc"])
    key, kind = dotted(loc), error["type"]
    if kind == "extra_forbidden":
        names = {name.lower(): name for name in known}
        near = difflib.get_close_matches(str(loc[-1]).lower().replace("_", ""), names, n=1)
        mend = f'did you mean "{names[near[0]]}"?' if near else "remove it"
        expected = f"one of {', '.join(sorted(known))}" if known else "no key here"
        return finding(key, "an unknown key", expected, MOVED.get(key, mend))
    if kind == "missing":
        return finding(key, "nothing", "a value", f'add "{loc[-1]}"')
    found = shown(error["input"], hidden=hidden or any(map(is_secret_key, loc)))
    if kind == "value_error":
        return " ".join(f"{key}: found {found}; {error['ctx']['error']}".split())
    expected = _SUBJECT.sub("", error["msg"]).replace("'", '"')
    return finding(key, found, expected, "change it in ship.json")


def token_keys(manifest: Manifest, *, webhook: bool = False) -> dict[str, str]:
    """Return the key in ship.json of each token that a channel needs, by field name. `webhook` is True if the channel
    uses its webhook.
    """
    needed = manifest.webhook_tokens if webhook and manifest.webhook_tokens else manifest.tokens
    fields = manifest.settings.model_fields
    return {
        name: fields[name].alias or to_camel(name)
        for name in fields
        if {name, fields[name].alias}.intersection(needed)
    }


def keys_in_use(settings: ChannelSettings, manifest: Manifest) -> dict[str, str]:
    """Return the key in ship.json of each token that a channel with these settings needs, by field name."""
    return token_keys(manifest, webhook=getattr(settings, "webhook", None) is not None)


def tokens_in_use(
    channels: Mapping[str, ChannelSettings], manifests: Mapping[str, Manifest], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return (token, address of the service) for each token of the named channels, by key in ship.json."""
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


def rules(
    root: Path,
    file: ShipFile,
    channels: Mapping[str, ChannelSettings],
    filled: FilledDocument,
    manifests: Mapping[str, Manifest],
) -> Iterator[str]:
    """Yield the findings for a file whose values have valid types."""
    for at, entry in enumerate(file.operators):
        loc: Loc = ("operators", at)
        yield from operator(dotted(loc), entry, manifests, hidden=filled.is_hidden(loc))
    yield from _engine(file, filled)
    yield from _bind("dashboard", file.dashboard.host, file.dashboard.token)
    yield from _model(file.llm, filled)
    yield from _servers(file, filled)
    if file.telemetry.otel.enabled and not _installed("opentelemetry.exporter.otlp.proto.http"):
        mend = "run `pip install 'opentelemetry-exporter-otlp-proto-http>=1.45,<2'`, or set it to false"
        yield finding("telemetry.otel.enabled", "true, and no library for it", "its library", mend)
    search = file.tools.web_search
    needed = {"searxng": ("baseUrl", search.base_url), "brave": ("apiKey", search.api_key)}
    key, value = needed.get(search.kind, ("", "not needed"))
    if not value:
        yield finding(f"tools.webSearch.{key}", "nothing", f"what {search.kind} needs", "set it")
    for name, manifest in manifests.items():
        yield from _channel(name, channels[name], manifest, filled)
    for name, source in file.prompt.sources(root).items():
        if isinstance(source, Path) and not source.is_file():
            found, expected = shown(str(source.relative_to(root))), "a file in the project, or a text"
            yield finding(f"prompt.{name}", found, expected, "write it, or the text itself")


def _engine(file: ShipFile, filled: FilledDocument) -> Iterator[str]:
    key, address = "engine.databaseUrl", file.engine.database_url
    if file.engine.kind == "embedded":
        if address is not None:
            expected = 'null, as long as engine.kind is "embedded"'
            yield finding(key, HIDDEN, expected, 'remove it, or set engine.kind to "postgresql"')
        return
    unset = ("engine", "databaseUrl") in filled.missing
    if not unset and urlsplit(address or "").scheme not in {"postgresql", "postgres"}:
        expected = "an address such as postgresql://user:password@host/shipmate"
        mend = "set it to ${DATABASE_URL}, and that in the environment or in .env"
        yield finding(key, HIDDEN if address else "nothing", expected, mend)
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
        yield from _credential("llm.apiKey", llm.api_key)
    for at, one in enumerate(llm.fallback):
        key = f"llm.fallback[{at}]"
        elsewhere = one.address(llm.base_url) != llm.base_url
        if one.api_key:
            yield from _credential(f"{key}.apiKey", one.api_key)
        elif elsewhere and ("llm", "fallback", at, "apiKey") not in filled.missing:
            expected = "a key, since that of llm is not sent elsewhere"
            yield finding(f"{key}.apiKey", "nothing", expected, "set it")


def _servers(file: ShipFile, filled: FilledDocument) -> Iterator[str]:
    """Yield a finding for each MCP server that does not have exactly one of `command` and `url`, as its type requires."""
    for name, server in file.mcp.servers.items():
        loc = ("mcp", "servers", name)
        ways = [key for key in ("command", "url") if getattr(server, key) or (*loc, key) in filled.missing]
        expected = {"stdio": "command", "http": "url"}[server.type or ("http" if "url" in ways else "stdio")]
        if ways != [expected]:
            found = " and ".join(ways) or "neither command nor url"
            alone = f"{expected} alone" if ways or server.type else "command or url"
            yield finding(dotted(loc), found, alone, "set command for a program, url for an address")


def _credential(key: str, value: str) -> Iterator[str]:
    """Yield a finding for a token that cannot be part of an HTTP header."""
    if not value.isascii() or not value.isprintable() or " " in value:
        found = "[hidden] with white space or odd characters in it"
        yield finding(key, found, "a token", "copy it again, without spaces")


def _bind(key: str, host: str, token: str | None) -> Iterator[str]:
    """Yield a finding if a server that other machines can reach has no token."""
    if not is_loopback(host) and not token:
        expected = "127.0.0.1, or a token with any other address"
        mend = f"set {key}.token to a long random text, or host to 127.0.0.1"
        yield finding(f"{key}.host", shown(host), expected, mend)


def _channel(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument
) -> Iterator[str]:
    """Yield the findings for a channel's ids, address and tokens. A disabled channel may lack tokens."""
    for at, entry in enumerate(allowed(settings)):
        loc: Loc = ("channels", name, "allow", at)
        if entry != "*":
            yield from identity(dotted(loc), entry, manifest, hidden=filled.is_hidden(loc))
    if settings.enabled is False:
        return
    if isinstance(host := getattr(settings, "host", None), str):
        yield from _bind(f"channels.{name}", host, getattr(settings, "token", None))
    if not _has_own_service(settings):
        yield from _misshapen(name, settings, manifest)
    keys = keys_in_use(settings, manifest)
    half = settings.enabled is None and any(getattr(settings, token) for token in keys)
    for token, key in keys.items():
        if value := getattr(settings, token):
            yield from _credential(f"channels.{name}.{key}", value)
        elif half or (settings.enabled and ("channels", name, key) not in filled.missing):
            mend = f"set {variable(name, token)} and refer to it, or set enabled to false"
            yield finding(f"channels.{name}.{key}", "nothing", "a token", mend)


def _misshapen(name: str, settings: ChannelSettings, manifest: Manifest) -> Iterator[str]:
    """Yield a finding for each token that does not have its platform's form. Two swapped tokens are a typical cause."""
    keys = keys_in_use(settings, manifest)
    forms = {token: form for token, form in manifest.token_forms.items() if token in keys}
    for token, form in forms.items():
        value = getattr(settings, token)
        if not value or any(_credential("", value)) or re.fullmatch(form.pattern, value):
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


def identity(
    key: str, entry: str, manifest: Manifest, *, prefix: str = "", hidden: bool = False
) -> Iterator[str]:
    """Yield a finding if `entry` is not the stable id of one person or channel on the platform."""
    found = shown(prefix + entry, hidden=hidden)
    if "@" in entry or not manifest.valid_id(entry):
        yield finding(key, found, f"a stable id of {manifest.name}", STABLE)
    elif entry in manifest.never_admit:
        expected = "the id of one person or channel"
        yield finding(key, found, expected, "this one stands for many people: remove it")


def operator(
    key: str, entry: str, manifests: Mapping[str, Manifest], *, hidden: bool = False
) -> Iterator[str]:
    """Yield a finding if `entry`, which names an operator, is not written as `channel:ID`."""
    name, colon, person = entry.partition(":")
    if not colon or name not in manifests:
        expected = f"channel:ID with one of {', '.join(sorted(manifests))}"
        yield finding(key, shown(entry, hidden=hidden), expected, "write it as in telegram:123456789")
    else:
        yield from identity(key, person, manifests[name], prefix=f"{name}:", hidden=hidden)


def warnings(
    root: Path,
    filled: FilledDocument,
    *,
    channels: Mapping[str, ChannelSettings],
    enabled: Iterable[str],
    manifests: Mapping[str, Manifest],
) -> Iterator[str]:
    """Yield warnings about settings that are valid but risky or surprising."""
    env = root / ".env"
    if env.exists() and env.stat().st_mode & stat.S_IROTH:
        yield ".env: others on this machine can read it; run `chmod 600 .env`"
    if (root / ".ship" / "mcp" / "mcp.json").is_file():
        yield (
            ".ship/mcp/mcp.json: is not read (ShipMyAgent read it); move its `servers` to mcp.servers of ship.json, where `sse` is "
            "http, and remove it"
        )
    for loc in filled.literal:
        yield f"{dotted(loc)}: ship.json contains the secret itself; put it into .env and write ${{NAME}} here"
    for name in enabled:
        if "*" in allowed(channels[name]):
            yield f'channels.{name}.allow: holds "*", so everyone who finds the bot can talk to it'
        if _has_own_service(channels[name]):
            yield from _misshapen(name, channels[name], manifests[name])
    for name, settings in channels.items():
        parts = urlsplit(str(getattr(settings, "base_url", "")))
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield f"channels.{name}.baseUrl: is not encrypted, so anyone on the way can read tokens; use https"
