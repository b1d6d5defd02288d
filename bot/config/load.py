"""Loads ship.json, `.env` and the environment into `Settings`, or reports all mistakes at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from bot import errors, hidden_paths, text
from bot.config import checks, ship_file
from bot.config.findings import HIDDEN, Loc, dotted, finding, from_error, is_secret_key
from bot.config.placeholders import (
    FilledDocument,
    fill,
    read_env_file,
    read_text,
)
from bot.contracts.channel import ChannelSettings, Manifest
from bot.contracts.identity import UserRef
from bot.invocation import command

FILE = "ship.json"
HOME = ".ship"
OPERATORS = "SHIPMATE_OPERATORS"
"""Name of the environment variable that lists operators if there is no ship.json, such as `telegram:123,
slack:U012`.
"""
MIN_SECRET = 8
"""Min characters of a secret. Redacting a shorter secret would hide ordinary words."""
SWITCHES = ("SMA_LOG_LLM_MESSAGES", "SMA_LOG_LLM_PAYLOAD")

_OFF = frozenset({"0", "false", "no", "off"})
_ON = frozenset({"1", "true", "yes", "on"})


class Llm(ship_file.Llm):
    """The section `llm` of ship.json, after the provider is chosen and the environment's switches are applied."""

    provider: Literal["anthropic", "demo"] = "demo"
    provider_reason: str = ""
    log_payload: bool = False

    @classmethod
    def of(cls, llm: ship_file.Llm, env: Mapping[str, str]) -> Llm:
        provider, reason = llm.provider, "ship.json says so"
        if provider is None:
            provider = "anthropic" if llm.api_key else "demo"
            reason = "a key is set" if llm.api_key else "no key is set"
        # `false` in one place overrides `true` in the other.
        messages = llm.log_messages and env.get(SWITCHES[0], "1").lower() not in _OFF
        decided = {
            "provider": provider,
            "provider_reason": reason,
            "api_key": llm.api_key or None,
            "log_messages": messages,
            "log_payload": messages and env.get(SWITCHES[1], "0").lower() in _ON,
        }
        return cls.model_construct(**dict(llm) | decided)


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid configuration. `channels` has every known channel, `enabled` has the names of the enabled
    channels, and `reasons` says why each channel is enabled or disabled. `secrets` has everything that
    must be redacted.
    """

    root: Path
    name: str
    llm: Llm
    channels: Mapping[str, ChannelSettings] = field(repr=False)
    enabled: tuple[str, ...]
    reasons: Mapping[str, str]
    operators: frozenset[UserRef]
    context: ship_file.Context
    prompt: ship_file.Prompt
    history: ship_file.History
    queue: ship_file.Queue
    delivery: ship_file.Delivery
    permissions: ship_file.Permissions
    tools: ship_file.Tools
    shell: ship_file.Shell
    subagents: ship_file.Subagents
    skills: ship_file.Skills
    mcp: ship_file.Mcp
    budgets: ship_file.Budgets
    log: ship_file.Log
    telemetry: ship_file.Telemetry
    schedule: ship_file.Schedule
    dashboard: ship_file.Dashboard
    files: ship_file.Files
    memory: ship_file.Memory
    engine: ship_file.Engine
    secrets: frozenset[str] = field(repr=False)
    fingerprint: str = ""
    """Hash of ship.json, with the values from the environment and without secrets."""
    warnings: tuple[str, ...] = ()

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

    `also` is a function of a higher layer that yields further findings. With `defaults` ship.json may be missing, because the environment
    suffices. A command of a killed run may have replaced files such as ship.json; these replacements are
    first renamed.
    """
    root = root.absolute()
    must_be_folder(root / HOME)
    found: list[str] = []
    moved = hidden_paths.sweep(root)
    variables = read_env_file(root / ".env", found)
    env = {**variables, **{name: value for name, value in env.items() if value}}
    try:
        without = {"operators": env.get(OPERATORS, "").replace(",", " ").split()} if defaults else None
        raw = _with_defaults(_read(root / FILE, without), manifests)
        filled = fill(raw, env)
    except RecursionError:
        raise errors.ConfigError(finding(FILE, "too many levels", "at most 100", "simplify it")) from None
    secrets = filled.secrets | {value for name, value in variables.items() if is_secret_key(name)}
    secrets = {secret for secret in secrets if len(secret) >= MIN_SECRET}
    expected = "use letters, digits and _ in the name"
    found += [finding(dotted(loc), "${ without a name in }", "${NAME}", expected) for loc in filled.malformed]
    found += _missing(filled, manifests)
    file = _validated(filled, manifests, found)
    if file is not None:
        known = {line.split(": ")[0] for line in found}
        rules = (*_rules(file, filled, manifests), *checks.prompt_files(root, file), *also(file))
        found += [line for line in rules if line.split(": ")[0] not in known]
    for name in SWITCHES:
        if env.get(name, "1").lower() not in _OFF | _ON:
            found.append(finding(name, "another value", "0 or 1", "change it in the environment"))
    if file is None or found:
        raise errors.ConfigError(*(_without(line, secrets) for line in dict.fromkeys(found)))
    channels = {name: getattr(file.channels, name) for name in manifests}
    state = {name: _state(name, channels[name], item, filled) for name, item in manifests.items()}
    enabled = tuple(name for name, (on, _) in state.items() if on)
    sections = {name: getattr(file, name) for name in ship_file.ShipFile.model_fields if name != "schema_"}
    document = _without(json.dumps(filled.document, sort_keys=True), secrets)
    return Settings(
        root=root,
        **sections
        | {"operators": frozenset(map(UserRef.parse, file.operators)), "llm": Llm.of(file.llm, env)},
        channels=channels,
        enabled=enabled,
        reasons={name: reason for name, (_, reason) in state.items()},
        secrets=frozenset(secrets),
        fingerprint=hashlib.sha256(document.encode()).hexdigest()[:16],
        warnings=(
            *(f"{name} was made by a command; it is {new} now" for name, new in moved.items()),
            *checks.warnings(root, file, filled, channels=channels, enabled=enabled, manifests=manifests),
        ),
    )


def _read(path: Path, without: dict[str, Any] | None) -> dict[str, Any]:
    """Return the parsed ship.json; return `without` if the file does not exist."""
    try:
        document = json.loads(read_text(path), object_pairs_hook=_pairs, parse_constant=_constant)
    except FileNotFoundError:
        if without is not None:
            return without
        raise errors.ConfigError(f"no ship.json here: run `{command('init', path.parent)}`") from None
    except json.JSONDecodeError as error:
        raise errors.ConfigError(_broken(error)) from None
    except ValueError as error:
        raise errors.ConfigError(finding(FILE, str(error), "plain JSON", "mend it")) from None
    if not isinstance(document, dict):
        raise errors.ConfigError(
            finding(FILE, "no object", "an object in { }", f"run `{command('init', path.parent)}`")
        )
    return document


def _broken(error: json.JSONDecodeError) -> str:
    """Return the finding for a file that is not JSON."""
    if not error.doc.strip():
        return finding(FILE, "an empty file", "an object in { }", "write {} into it: all else has a default")
    place = f"{FILE} line {error.lineno} column {error.colno}"
    return finding(place, "broken JSON", "JSON, without comments or trailing commas", f"mend it: {error.msg}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {json.dumps(twice)[:60]} twice in one object")
    return document


def _constant(name: str) -> Any:
    raise ValueError(f"{name}, which is no JSON")


def _with_defaults(document: dict[str, Any], manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    """Return the document with a section for every channel, and with the default placeholder for every
    missing credential.
    """
    document = dict(document)
    llm = document.setdefault("llm", {})
    if isinstance(llm, dict):
        document["llm"] = {"apiKey": "${ANTHROPIC_API_KEY}", **llm}
    channels = document.setdefault("channels", {})
    if isinstance(channels, dict):
        document["channels"] = channels = dict(channels)
        for name, manifest in manifests.items():
            section = channels.setdefault(name, {})
            if isinstance(section, dict):
                # Tokens for both modes, with and without webhook, are redacted: a token that is not needed is still a secret.
                tokens = checks.token_keys(manifest) | checks.token_keys(manifest, webhook=True)
                usual = {key: f"${{{checks.variable(name, token)}}}" for token, key in tokens.items()}
                channels[name] = usual | section
    return document


def _model(manifests: Mapping[str, Manifest]) -> Any:
    return ship_file.with_channels(tuple((name, item.settings) for name, item in manifests.items()))


def _missing(filled: FilledDocument, manifests: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield a finding for each unset variable that an enabled feature needs."""
    for loc, name in filled.missing.items():
        if _is_on(loc, filled, manifests):
            yield finding(
                dotted(loc),
                f"${{{name}}}, which is set neither in the environment nor in .env",
                "a value",
                f"set {name}, or turn the feature off",
            )


def _is_on(loc: Loc, filled: FilledDocument, manifests: Mapping[str, Manifest]) -> bool:
    if loc[0] == "llm" and len(loc) > 1:
        llm = filled.document["llm"]
        return (llm.get("provider") or ("anthropic" if llm.get("apiKey") else "demo")) == "anthropic"
    if loc[0] == "channels" and len(loc) > 2 and loc[1] in manifests:
        section = filled.document["channels"][loc[1]]
        enabled, manifest = section.get("enabled"), manifests[str(loc[1])]
        by_webhook = section.get("webhook") is not None
        keys = checks.token_keys(manifest, webhook=by_webhook).values()
        if loc[2] in checks.token_keys(manifest, webhook=not by_webhook).values() and loc[2] not in keys:
            return False
        return all(section.get(key) for key in keys) if enabled is None else enabled is True
    if loc[0] == "engine":
        return bool(filled.document["engine"].get("kind") == "postgresql")
    if loc[:2] == ("mcp", "servers") and len(loc) > 3:
        return filled.document["mcp"]["servers"][loc[2]].get("enabled") is not False
    return True


def _validated(filled: FilledDocument, manifests: Mapping[str, Manifest], found: list[str]) -> Any:
    """Return the file as a model. Invalid values are reported and removed first, so that the other values
    are checked too.
    """
    model = _model(manifests)
    document, gone = filled.document, set[Loc]()
    for _ in range(5):
        try:
            return model.model_validate_json(json.dumps(document), by_alias=True, by_name=False)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                loc = item["loc"]
                if loc not in gone:
                    known = _keys_at(loc[:-1], manifests)
                    found.append(from_error(dict(item), known=known, hidden=filled.is_hidden(loc)))
                gone.add(loc)
                # An object in which a value is missing is removed as a whole.
                document = _pruned(document, loc[:-1] if item["type"] == "missing" else loc)
            document["channels"] = {name: {} for name in manifests} | document.get("channels", {})
    return None


def _pruned(document: dict[str, Any], loc: Loc) -> dict[str, Any]:
    """Return a copy of a document without the value at `loc`. If the value is in a list, the whole list is removed."""
    key, *rest = loc or ("",)
    inner = document.get(str(key))
    if rest and isinstance(inner, dict):
        return {**document, str(key): _pruned(inner, tuple(rest))}
    return {name: value for name, value in document.items() if name != key}


def _keys_at(loc: Loc, manifests: Mapping[str, Manifest]) -> list[str]:
    """Return the keys that the object at `loc` may have."""
    model: Any = _model(manifests)
    for part in loc:
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        model = fields.get(str(part))
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return [str(field.alias) for field in model.model_fields.values()]


def _rules(file: Any, filled: FilledDocument, manifests: Mapping[str, Manifest]) -> Iterator[str]:
    channels = {name: getattr(file.channels, name) for name in manifests}
    yield from checks.operators(manifests, filled)
    yield from checks.file_rules(file, filled)
    yield from checks.ports(file, channels)
    for name, manifest in manifests.items():
        yield from checks.channel(name, channels[name], manifest, filled)


def _state(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument
) -> tuple[bool, str]:
    if settings.enabled is not None:
        return settings.enabled, "ship.json says so"
    for token, key in checks.keys_in_use(settings, manifest).items():
        if not getattr(settings, token):
            missing = filled.missing.get(("channels", name, key))
            return False, f"{missing} is not set" if missing else f"{key} is empty"
    return True, "its tokens are set" if manifest.tokens else "it needs no token"


def _without(line: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "[hidden]")
    return line


_DERIVED = frozenset({"root", "enabled", "reasons", "secrets", "fingerprint", "warnings"})
"""Fields of `Settings` that do not come from ship.json."""


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

    for one in dataclasses.fields(settings):
        if one.name not in _DERIVED:
            add((to_camel(one.name),), getattr(settings, one.name))
    return found


def shown_leaves(settings: Settings) -> dict[str, str]:
    """Return all values as JSON by their full key in ship.json. Secrets are hidden, and so are the values of
    keys that usually contain secrets.
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
