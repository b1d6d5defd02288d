"""Checks the forms of ids, addresses and tokens in the settings, which types cannot express."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from pydantic.alias_generators import to_camel

from bot import errors
from bot.config.document import FilledDocument, Loc, dotted, finding, shown
from bot.contracts.channel import ChannelSettings, Manifest, is_loopback
from bot.contracts.identity import ChatKey
from bot.words.times import zone

_SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?")

# ------------------------------------------------------------ values. Each function returns the value, or raises ValueError


def address(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("expected an address such as https://example.org/; write it in full")
    return value


def model_address(value: str) -> str:
    found = re.search(r"/v1(?:/messages)?/*$", value)
    if found is not None:
        raise ValueError(f"expected the address before /v1/messages; write it without {found[0].rstrip('/')}")
    return value


def time_zone(value: str) -> str:
    try:
        zone(value)
    except ValueError:
        raise ValueError(
            'expected a name of the tz database such as "Europe/Berlin"; '
            "use one of /usr/share/zoneinfo; if that is missing, install the system's tzdata"
        ) from None
    return value


def title(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("expected one line of text; write a short name")
    return value


def chat_key(value: str) -> str:
    if value != "*":
        try:
            ChatKey.parse(value)
        except errors.IdentityInvalid:
            raise ValueError('expected a chatKey, as `shipmate chats` shows it, or "*"') from None
    return value


def server_name(value: str) -> str:
    if not _SERVER.fullmatch(value) or "__" in value:
        raise ValueError(
            "expected at most 32 of A-Z, a-z, 0-9, _ and -, a letter or digit at both ends, no __; rename it"
        )
    return value


def credential(value: str) -> str:
    """Refuse a token that cannot be part of an HTTP header."""
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("expected a token without white space and odd characters; copy it again")
    return value


def must_be_installed(module: str, package: str) -> None:
    """Raise ValueError if an optional library is missing."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a package that contains the module is missing
        found = None
    if found is None:
        raise ValueError(f"expected its library; run `pip install '{package}'`")


# ------------------------------------------------------------ ids


def wrong_id(entry: str, manifest: Manifest) -> str:
    """Return what is wrong with the platform's id of a person or channel; "" for a valid id."""
    if "@" in entry or not manifest.valid_id(entry):
        return (
            f"expected a stable id of {manifest.name}; names can be changed by anyone, so only stable ids count; "
            "`shipmate pending` lists who asked"
        )
    if entry in manifest.never_admit:
        return "expected the id of one person or channel; this one stands for many people: remove it"
    return ""


def wrong_operator(entry: str, manifests: Mapping[str, Manifest]) -> str:
    """Return what is wrong with the name of an operator, written as `channel:ID`; "" for a valid name."""
    name, colon, person = entry.partition(":")
    if not colon or name not in manifests:
        known = ", ".join(sorted(manifests))
        return f"expected channel:ID with one of {known}; write it as in telegram:123456789"
    return wrong_id(person, manifests[name])


def allowed(settings: ChannelSettings) -> tuple[str, ...]:
    """Return the allow list of a channel; () if the channel has no allow list."""
    return tuple(entry for entry in getattr(settings, "allow", ()) if isinstance(entry, str))


# ------------------------------------------------------------ channels


def token_keys(manifest: Manifest, *, webhook: bool = False) -> dict[str, str]:
    """Return the key in ship.json of each token that a channel needs, by field name. `webhook` is True if the channel
    uses its webhook.
    """
    needed = manifest.webhook_tokens if webhook and manifest.webhook_tokens else manifest.tokens
    return {name: to_camel(name) for name in needed}


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


def bind(key: str, host: str, token: str | None) -> Iterator[str]:
    """Yield a finding if a server that other machines can reach has no token."""
    if not is_loopback(host) and not token:
        expected = "127.0.0.1, or a token with any other address"
        mend = f"set {key}.token to a long random text, or host to 127.0.0.1"
        yield finding(f"{key}.host", shown(host), expected, mend)


def channel(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument
) -> Iterator[str]:
    """Yield the findings for a channel's ids, address and tokens. A disabled channel may lack tokens."""
    for at, entry in enumerate(allowed(settings)):
        loc: Loc = ("channels", name, "allow", at)
        if entry != "*" and (wrong := wrong_id(entry, manifest)):
            yield f"{dotted(loc)}: found {shown(entry, hidden=filled.is_hidden(loc))}; {wrong}"
    if settings.enabled is False:
        return
    if isinstance(host := getattr(settings, "host", None), str):
        yield from bind(f"channels.{name}", host, getattr(settings, "token", None))
    keys = keys_in_use(settings, manifest)
    half = settings.enabled is None and any(getattr(settings, token) for token in keys)
    for token, key in keys.items():
        if value := getattr(settings, token):
            try:
                credential(value)
            except ValueError as error:
                yield f"channels.{name}.{key}: found [hidden]; {error}"
        elif half or (settings.enabled and ("channels", name, key) not in filled.missing):
            mend = f"set {variable(name, token)} and refer to it, or set enabled to false"
            yield finding(f"channels.{name}.{key}", "nothing", "a token", mend)
