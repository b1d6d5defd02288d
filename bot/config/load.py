"""Loads ship.json, `.env` and the environment into `Settings`, or reports all mistakes at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from bot import errors, file_access, text
from bot.config import checks, ship_file
from bot.config.document import (
    HIDDEN,
    FilledDocument,
    Loc,
    dotted,
    finding,
    is_secret_key,
    read_env_file,
    read_ship_file,
)
from bot.contracts.channel import ChannelSettings, Manifest
from bot.contracts.identity import UserRef

FILE = "ship.json"
HOME = ".ship"
OPERATORS = "SHIPMATE_OPERATORS"
"""Name of the environment variable that lists operators if there is no ship.json, such as `telegram:123,
slack:U012`.
"""
MIN_SECRET = 8
"""Min characters of a secret. Redacting a shorter secret would hide ordinary words."""
SWITCHES = ("SMA_LOG_LLM_MESSAGES", "SMA_LOG_LLM_PAYLOAD")

TOO_DEEP = finding(FILE, "too many levels", "at most 100", "simplify it")
_OFF = frozenset({"0", "false", "no", "off"})
_ON = frozenset({"1", "true", "yes", "on"})


class Llm(ship_file.Llm):
    """The section `llm` of ship.json, with a provider chosen and with the environment's switches applied."""

    provider: Literal["anthropic", "demo"] = "demo"
    provider_reason: str = ""
    log_payload: bool = False

    @classmethod
    def of(cls, llm: ship_file.Llm, env: Mapping[str, str]) -> Llm:
        provider, reason = llm.provider, "ship.json says so"
        if provider is None:
            provider = "anthropic" if llm.api_key else "demo"
            reason = "a key is set" if llm.api_key else "no key is set"
        # If ship.json or the environment says `false`, texts are not logged.
        messages = llm.log_messages and env.get(SWITCHES[0], "1").lower() not in _OFF
        decided = {
            "provider": provider,
            "provider_reason": reason,
            "api_key": llm.api_key or None,
            "log_messages": messages,
            "log_payload": messages and env.get(SWITCHES[1], "0").lower() in _ON,
        }
        return cls.model_construct(**dict(llm) | decided)


class Settings(ship_file.ShipFile):
    """A valid configuration: the sections of ship.json, and values derived from them."""

    model_config = ConfigDict(defer_build=True)

    llm: Llm
    operators: frozenset[UserRef]  # type: ignore[assignment]  # the file has texts
    channels: Mapping[str, ChannelSettings] = Field(repr=False)
    """Settings of every known channel."""
    root: Path
    enabled: tuple[str, ...]
    """Names of the enabled channels."""
    reasons: Mapping[str, str]
    """Reason why each channel is enabled or disabled."""
    secrets: frozenset[str] = Field(repr=False)
    """All texts that must be redacted."""
    fingerprint: str
    """Hash of all settings in ship.json. Values from the environment are included, secrets are not."""
    warnings: tuple[str, ...]

    @property
    def web_search(self) -> ship_file.WebSearch | None:
        """Return the search engine of `web_search`; None if web search is off."""
        engine = self.tools.web_search
        on = self.llm.provider == "anthropic" if engine.kind == "auto" else engine.kind != "off"
        return engine if on else None

    @property
    def home(self) -> Path:
        """Return the path of the `.ship` folder."""
        return self.root / HOME


def must_be_folder(home: Path) -> None:
    """Raise `errors.ConfigError` if `.ship` is not a folder."""
    if home.exists() and not home.is_dir():
        raise errors.ConfigError(finding(HOME, "a file", "a folder", "move the file elsewhere"))


def load(
    root: Path,
    manifests: Mapping[str, Manifest],
    env: Mapping[str, str],
    also: Callable[[ship_file.ShipFile], Iterator[str]] = lambda _: iter(()),
    *,
    defaults: bool = False,
) -> Settings:
    """Return the configuration of the folder `root`. Raises `errors.ConfigError` with all findings.

    `also` is a function of a higher layer that yields further findings. If `defaults` is True, ship.json may be
    missing. If the last run was killed while a command ran, hidden files that this command created, such as ship.json,
    are renamed first.
    """
    root = root.absolute()
    must_be_folder(root / HOME)
    found: list[str] = []
    moved = file_access.sweep(root)
    variables = read_env_file(root / ".env", found)
    env = {**variables, **{name: value for name, value in env.items() if value}}
    default = {"operators": env.get(OPERATORS, "").replace(",", " ").split()} if defaults else None
    try:
        filled = FilledDocument(_with_credentials(read_ship_file(root / FILE, default), manifests), env)
    except RecursionError:
        raise errors.ConfigError(TOO_DEEP) from None
    secrets = filled.secrets | {value for name, value in variables.items() if is_secret_key(name)}
    secrets = {secret for secret in secrets if len(secret) >= MIN_SECRET}
    expected = "use letters, digits and _ in the name"
    found += [finding(dotted(loc), "${ without a name in }", "${NAME}", expected) for loc in filled.malformed]
    file = _validated(filled, manifests, found)
    channels: dict[str, ChannelSettings] = {name: getattr(file.channels, name) for name in manifests}
    state = {name: _state(name, channels[name], item, filled) for name, item in manifests.items()}
    enabled = tuple(name for name, (on, _) in state.items() if on)
    llm = Llm.of(file.llm, env)
    found += _missing(file, llm, filled, enabled, manifests)
    for name in SWITCHES:
        if env.get(name, "1").lower() not in _OFF | _ON:
            found.append(finding(name, "another value", "0 or 1", "change it in the environment"))
    known = {line.split(": ")[0] for line in found}
    rules = (*checks.rules(root, file, channels, filled, manifests), *also(file))
    found += [line for line in rules if line.split(": ")[0] not in known]
    if found:
        raise errors.ConfigError(*(_without(line, secrets) for line in dict.fromkeys(found)))
    document = _without(json.dumps(filled.document, sort_keys=True), secrets)
    derived = {
        "root": root,
        "llm": llm,
        "operators": frozenset(map(UserRef.parse, file.operators)),
        "channels": channels,
        "enabled": enabled,
        "reasons": {name: reason for name, (_, reason) in state.items()},
        "secrets": frozenset(secrets),
        "fingerprint": hashlib.sha256(document.encode()).hexdigest()[:16],
        "warnings": (
            *(f"{name} was made by a command; it is {new} now" for name, new in moved.items()),
            *checks.warnings(root, filled, channels=channels, enabled=enabled, manifests=manifests),
        ),
    }
    return Settings.model_construct(**dict(file) | derived)


def _with_credentials(document: dict[str, Any], manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    """Return the document with a section for every channel. Each missing credential gets the placeholder of its default
    variable.
    """
    llm, channels = document.get("llm", {}), document.get("channels", {})
    if isinstance(llm, dict):
        llm = {"apiKey": "${ANTHROPIC_API_KEY}", **llm}
    if isinstance(channels, dict):
        channels = dict(channels)
        for name, manifest in manifests.items():
            # Tokens for both modes, with and without webhook, are redacted: an unused token is still a secret.
            tokens = checks.token_keys(manifest) | checks.token_keys(manifest, webhook=True)
            usual = {key: f"${{{checks.variable(name, token)}}}" for token, key in tokens.items()}
            section = channels.get(name, {})
            channels[name] = usual | section if isinstance(section, dict) else section
    return {**document, "llm": llm, "channels": channels}


def _validated(filled: FilledDocument, manifests: Mapping[str, Manifest], found: list[str]) -> Any:
    """Return the file as a model. A section with invalid values (for channels: a single channel) is reported and
    replaced by its defaults, so that the other sections are checked too.
    """
    model: Any = ship_file.with_channels(tuple((name, item.settings) for name, item in manifests.items()))
    for _ in range(2):
        try:
            return model.model_validate_json(json.dumps(filled.document), by_alias=True, by_name=False)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                if not (loc := item["loc"]):  # pydantic refuses deeply nested JSON
                    raise errors.ConfigError(TOO_DEEP) from None
                known = _keys_at(model, loc[:-1])
                found.append(checks.from_error(dict(item), known=known, hidden=filled.is_hidden(loc)))
                in_channel = loc[0] == "channels" and len(loc) > 1
                within, key = (
                    (filled.document["channels"], loc[1]) if in_channel else (filled.document, loc[0])
                )
                within.pop(str(key), None)
            channels = filled.document.get("channels", {})
            filled.document["channels"] = {name: {} for name in manifests} | channels
    raise errors.ConfigError(*found)


def _keys_at(model: Any, loc: Loc) -> list[str]:
    """Return the keys that the object at `loc` may have."""
    for part in loc:
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        model = fields.get(str(part))
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return [str(field.alias) for field in model.model_fields.values()]


def _state(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument
) -> tuple[bool, str]:
    """Return True if a channel is enabled, and the reason for the result."""
    if settings.enabled is not None:
        return settings.enabled, "ship.json says so"
    for token, key in checks.keys_in_use(settings, manifest).items():
        if not getattr(settings, token):
            missing = filled.missing.get(("channels", name, key))
            return False, f"{missing} is not set" if missing else f"{key} is empty"
    return True, "its tokens are set" if manifest.tokens else "it needs no token"


def _missing(
    file: Any, llm: Llm, filled: FilledDocument, enabled: Iterable[str], manifests: Mapping[str, Manifest]
) -> Iterator[str]:
    """Yield a finding for each unset variable that an enabled feature needs."""
    for loc, name in filled.missing.items():
        match loc:
            case ("llm", _, *_):
                needed = llm.provider == "anthropic"
            case ("channels", str(channel), key, *_) if channel in manifests:
                settings, manifest = getattr(file.channels, channel), manifests[channel]
                tokens = checks.token_keys(manifest) | checks.token_keys(manifest, webhook=True)
                used = checks.keys_in_use(settings, manifest).values()
                needed = channel in enabled and (key in used or key not in tokens.values())
            case ("engine", _, *_):
                needed = file.engine.kind == "postgresql"
            case ("mcp", "servers", server, *_):
                needed = server not in file.mcp.servers or file.mcp.servers[server].enabled
            case _:
                needed = True
        if needed:
            found = f"${{{name}}}, which is set neither in the environment nor in .env"
            yield finding(dotted(loc), found, "a value", f"set {name}, or turn the feature off")


def _without(line: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, HIDDEN)
    return line


def leaves(settings: Settings) -> dict[str, Any]:
    """Return all values by their full key in ship.json, such as `llm.model`."""
    found: dict[str, Any] = {}

    def add(loc: tuple[str, ...], value: Any) -> None:
        if isinstance(value, BaseModel):
            value = value.model_dump(by_alias=True)
        if isinstance(value, tuple) and any(isinstance(one, dict) for one in value):
            value = {str(at): one for at, one in enumerate(value)}
        if isinstance(value, Mapping):
            for name, inner in value.items():
                add((*loc, name), inner)
        else:
            found[".".join(loc)] = value

    for name in (*ship_file.ShipFile.model_fields, "channels"):
        if name != "schema_":
            add((to_camel(name),), getattr(settings, name))
    return found


def shown_leaves(settings: Settings) -> dict[str, str]:
    """Return all values as JSON, by their full key in ship.json. Secrets are hidden. Values of keys that usually
    contain secrets are hidden too.
    """
    return {key: _shown(key, value, settings.secrets) for key, value in leaves(settings).items()}


def _shown(key: str, value: Any, secrets: Iterable[str]) -> str:
    parts = key.split(".")
    private = parts[:2] == ["mcp", "servers"] and {"env", "headers"} & set(parts[3:])
    if value and (private or any(map(is_secret_key, parts))):
        return HIDDEN
    if isinstance(value, frozenset):
        value = sorted(map(str, value))
    value = list(value) if isinstance(value, tuple) else value
    return json.dumps(text.deep(value, lambda words: _without(words, secrets)), ensure_ascii=False)
