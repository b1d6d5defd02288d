"""Loads ship.json, `.env` and the environment into `Settings`, or reports the mistakes."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import json
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from bot import errors, file_access, text
from bot.config import ship_file
from bot.contracts.channel import ChannelSettings, Manifest, is_loopback
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.invocation import command

Loc = tuple[str | int, ...]

FILE = "ship.json"
HOME = ".ship"
OPERATORS = "SHIPMATE_OPERATORS"
"""Name of the environment variable that lists the operators if there is no ship.json. Example: `telegram:123, slack:U012`."""
MIN_SECRET = 8
"""Min characters of a secret. Redacting a shorter secret would hide ordinary words."""
_ON = frozenset({"1", "true", "yes", "on"})
_MOVED = {
    "adapters": 'write "channels" in place of it, as in "channels": {"telegram": {"botToken": "${TELEGRAM_BOT_TOKEN}"}}',
    "start": 'write {"host": …, "port": …} into channels.web',
    "permissions.exec_shell": "write a rule such as run_shell(git status) into permissions.allow",
}
"""Remedies for keys that only ShipMyAgent, Shipmate's predecessor, had in ship.json."""
_SUBJECT = re.compile(r"^\w+ should (?:be|have) ")
"""Pattern of the beginning of pydantic's error messages, such as “Input should be a valid string”."""
HIDDEN = "[hidden]"
MAX_BYTES = 10_000_000
"""Max bytes that are read from a settings file."""
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_KEY = re.compile(r"(?:token|key|secret|password|passwd|databaseurl)$", re.IGNORECASE)
_PLAIN_KEYS = frozenset(
    {"name", "provider", "model", "fastModel", "baseUrl", "host", "mode", "kind", "timezone", "isolation"}
    | {"allow", "operators", "paths", "$schema"}
)
"""Keys whose values are not secret, even if a value comes from a variable. A password inside an address is still secret."""
_MISSING = object()


# ------------------------------------------------------------ findings, and the files


def finding(key: str, found: str, expected: str, mend: str) -> str:
    """Return a finding as one line; line breaks in its parts are removed."""
    return " ".join(f"{key}: found {found}; expected {expected}; {mend}".split())


def dotted(loc: Sequence[str | int]) -> str:
    """Return the path of a value in ship.json, such as `channels.telegram.allow[0]`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    return "".join(parts).lstrip(".") or "ship.json"


def shown(value: Any, *, hidden: bool = False) -> str:
    """Return a value as a finding displays it: shortened, with its type, and replaced by `HIDDEN` if `hidden`."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    words = HIDDEN if hidden else text.preview(json.dumps(value, ensure_ascii=False), 60)
    return f"{words} ({'text' if isinstance(value, str) else 'a number'})"


def is_secret_key(key: str | int) -> bool:
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


def _read_text(path: Path) -> str | None:
    """Return the text of a settings file; None if the file is missing. Raises `errors.ConfigError`."""
    try:
        return file_access.read(path, MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        line = finding(path.name, "bytes that are not UTF-8", "text", "save it as UTF-8")
    except OSError as error:
        line = finding(path.name, error.strerror or "an error", "a file I can read", "mend it or its rights")
    raise errors.ConfigError(line)


def read_env_file(path: Path, found: list[str]) -> dict[str, str]:
    """Return the variables of a `.env` file; {} if the file does not exist. Values are used literally,
    without expansion. Add a finding to `found` for each line that cannot be read.
    """
    from dotenv.parser import parse_stream

    try:
        bindings = list(parse_stream(io.StringIO(_read_text(path) or "")))
    except errors.ConfigError as error:
        found += error.findings
        return {}
    found += [
        finding(f".env line {one.original.line}", "a line I cannot read", "NAME=value", "mend or remove it")
        for one in bindings
        if one.error
    ]
    return {one.key: one.value for one in bindings if one.key is not None and one.value is not None}


def read_ship_file(path: Path, default: dict[str, Any] | None) -> dict[str, Any]:
    """Return the content of ship.json. If the file is missing, return `default`; if `default` is None, raise `errors.ConfigError`."""
    words, init = _read_text(path), f"run `{command('init', path.parent)}`"
    if words is None:
        if default is not None:
            return default
        raise errors.ConfigError(f"no ship.json here: {init}")
    try:
        document = text.strict_json(words)
    except json.JSONDecodeError as error:
        place = f"{path.name} line {error.lineno} column {error.colno}"
        expected = "JSON, without comments or trailing commas"
        raise errors.ConfigError(finding(place, "broken JSON", expected, f"mend it: {error.msg}")) from None
    except ValueError as error:
        raise errors.ConfigError(finding(path.name, str(error), "plain JSON", "mend it")) from None
    if not isinstance(document, dict):
        raise errors.ConfigError(finding(path.name, "no object", "an object in { }", init))
    return document


class FilledDocument:
    """ship.json with each placeholder `${NAME}` replaced by a variable. Values that refer to a missing variable are removed.
    Empty variables count as missing. Malformed placeholders are added to `found`.
    """

    def __init__(self, document: dict[str, Any], env: Mapping[str, str], found: list[str]) -> None:
        self._env, self._found = env, found
        self._hidden: set[Loc] = set()
        self.missing: dict[Loc, str] = {}
        """For the path of each removed value: the name of the missing variable."""
        self.secrets: set[str] = set()
        self.literal: list[Loc] = []
        """Paths of the secrets that are written in ship.json itself."""
        self.document: dict[str, Any] = self._fill(document, ())

    def is_hidden(self, loc: Loc) -> bool:
        """Return True if findings must not show a value: it came from a variable, or its key names a secret."""
        return any(map(is_secret_key, loc)) or any(loc[: len(place)] == place for place in self._hidden)

    def _fill(self, value: Any, loc: Loc) -> Any:
        if isinstance(value, str):
            return self._fill_text(text.clean(value), loc)
        if isinstance(value, dict):
            items = ((text.clean(key), self._fill(item, (*loc, key))) for key, item in value.items())
            return {key: item for key, item in items if item is not _MISSING}
        if isinstance(value, list):
            entries = [self._fill(item, (*loc, index)) for index, item in enumerate(value)]
            return [item for item in entries if item is not _MISSING]
        return value

    def _fill_text(self, value: str, loc: Loc) -> Any:
        names = _PLACEHOLDER.findall(value)
        if "${" in _PLACEHOLDER.sub("", value):
            mend = "use letters, digits and _ in the name"
            self._found.append(finding(dotted(loc), "${ without a name in }", "${NAME}", mend))
        values = {name: text.clean(self._env.get(name, "")) for name in names}
        if missing := [name for name in names if not values[name]]:
            self.missing[loc] = missing[0]
            return _MISSING
        whole = _PLACEHOLDER.sub(lambda match: values[match[1]], value)
        if names:
            self._hidden.add(loc)
        if not _is_plain(loc, names):
            self.secrets.update(values.values())
            if any(map(is_secret_key, loc)):
                self.secrets.add(whole)
                self.literal += [loc] if whole and not names else []
        with contextlib.suppress(ValueError):  # not an address
            if "://" in whole and (password := urlsplit(whole).password):
                self.secrets |= {password, unquote(password)}
        return whole


def _is_plain(loc: Loc, names: list[str]) -> bool:
    """Return True if the value of a key is never secret."""
    if loc[:2] == ("mcp", "servers"):
        # A path or address of an MCP server is no secret, unless the name of its variable says so. All values of other keys
        # that come from variables count as secrets.
        return len(loc) > 3 and loc[3] not in {"env", "headers"} and not any(map(is_secret_key, names))
    return any(part in _PLAIN_KEYS for part in loc)


# ------------------------------------------------------------ settings

TOO_DEEP = finding(FILE, "too many levels", "at most 100", "simplify it")


class Llm(ship_file.Llm):
    """The section `llm` of ship.json, after a provider was chosen and the environment's switches were applied."""

    provider: Literal["anthropic", "demo"] = "demo"
    provider_reason: str = ""
    log_payload: bool = False

    @classmethod
    def of(cls, llm: ship_file.Llm, env: Mapping[str, str]) -> Llm:
        provider, reason = llm.provider, "ship.json says so"
        if provider is None:
            provider = "anthropic" if llm.api_key else "demo"
            reason = "a key is set" if llm.api_key else "no key is set"
        # Texts are logged only if neither ship.json nor the environment turns that off.
        messages = llm.log_messages and env.get("SMA_LOG_LLM_MESSAGES", "1").lower() in _ON
        decided = {
            "provider": provider,
            "provider_reason": reason,
            "api_key": llm.api_key or None,
            "log_messages": messages,
            "log_payload": messages and env.get("SMA_LOG_LLM_PAYLOAD", "0").lower() in _ON,
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
    """Return the configuration of the folder `root`. Raises `errors.ConfigError` if ship.json is not valid.
    The error lists all unknown keys and wrong values. If there are none, the error lists the other findings.

    `also` is a function of a higher layer that yields further findings. If `defaults` is True, ship.json may be missing. If the
    last run was killed while a command ran, the command may have created hidden files, such as ship.json. Such files are
    renamed first.
    """
    root = root.absolute()
    must_be_folder(root / HOME)
    moved = file_access.sweep(root)
    found: list[str] = []
    variables = read_env_file(root / ".env", found)
    env = variables | {name: value for name, value in env.items() if value}
    default = {"operators": env.get(OPERATORS, "").replace(",", " ").split()} if defaults else None
    try:
        filled = FilledDocument(
            _with_credentials(read_ship_file(root / FILE, default), manifests), env, found
        )
    except RecursionError:
        raise errors.ConfigError(TOO_DEEP) from None
    secrets = filled.secrets | {value for name, value in variables.items() if is_secret_key(name)}
    secrets = {secret for secret in secrets if len(secret) >= MIN_SECRET}
    model: Any = ship_file.with_channels(tuple((name, item.settings) for name, item in manifests.items()))
    words, context = json.dumps(filled.document), {"root": root, "manifests": manifests}
    try:
        file = model.model_validate_json(words, by_alias=True, by_name=False, context=context)
    except ValidationError as error:
        found += (_explained(dict(one), model, filled) for one in error.errors(include_url=False))
        raise _refused(found, secrets) from None
    channels: dict[str, ChannelSettings] = {name: getattr(file.channels, name) for name in manifests}
    state = {name: _channel(name, channels[name], item, filled, found) for name, item in manifests.items()}
    llm = Llm.of(file.llm, env)
    found += _missing(file, llm, filled)
    if llm.provider == "anthropic" and not llm.api_key and ("llm", "apiKey") not in filled.missing:
        mend = 'set ANTHROPIC_API_KEY, or provider to "demo"'
        found.append(finding("llm.apiKey", "nothing", "a key", mend))
    for at, one in enumerate(llm.fallback):
        loc = ("llm", "fallback", at, "apiKey")
        if one.address(llm.base_url) != llm.base_url and not one.api_key and loc not in filled.missing:
            expected = "a key, since that of llm is not sent elsewhere"
            found.append(finding(dotted(loc), "nothing", expected, "set it"))
    found += _bind("dashboard", file.dashboard.host, file.dashboard.token)
    found += also(file)
    if found:
        raise _refused(found, secrets)
    enabled = tuple(name for name, (on, _) in state.items() if on)
    document = without(json.dumps(filled.document, sort_keys=True), secrets)
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
            *_warnings(root, filled, {name: channels[name] for name in enabled}),
        ),
    }
    return Settings.model_construct(**dict(file) | derived)


def write_schemas(home: Path, disk: Disk) -> None:
    """Write each JSON Schema that is missing or out of date in the folder `.ship`. `make schema` creates the schemas."""
    for schema in Path(__file__).with_name("schema").iterdir():
        path, data = home / "schema" / schema.name, schema.read_bytes()
        if disk.read(path) != data:
            disk.replace(path, data)


def allowed(settings: ChannelSettings) -> tuple[str, ...]:
    """Return the allow list of a channel; () if the channel has no allow list."""
    return tuple(entry for entry in getattr(settings, "allow", ()) if isinstance(entry, str))


def token_keys(manifest: Manifest, *, webhook: bool = False) -> dict[str, str]:
    """Return the tokens that a channel needs, as a dict from field name to key in ship.json. `webhook` is True if the channel uses
    its webhook.
    """
    needed = manifest.webhook_tokens if webhook and manifest.webhook_tokens else manifest.tokens
    return {name: to_camel(name) for name in needed}


def keys_in_use(settings: ChannelSettings, manifest: Manifest) -> dict[str, str]:
    """Return the tokens that a channel with these settings needs, as a dict from field name to key in ship.json."""
    return token_keys(manifest, webhook=getattr(settings, "webhook", None) is not None)


def tokens_in_use(
    channels: Mapping[str, ChannelSettings], manifests: Mapping[str, Manifest], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return the tokens that the named channels use. Each key is the token's key in ship.json. Each value is (token, address of
    the service).
    """
    return {
        f"channels.{name}.{key}": (getattr(channels[name], token), getattr(channels[name], "base_url", name))
        for name in names
        for token, key in keys_in_use(channels[name], manifests[name]).items()
        if getattr(channels[name], token)
    }


def variable(channel: str, token: str) -> str:
    """Return the default name of the environment variable for a token, such as `SLACK_BOT_TOKEN`."""
    return f"{channel}_{token}".upper().replace("-", "_")


def _bind(key: str, host: str, token: str | None) -> Iterator[str]:
    """Yield a finding if a server that other machines can reach has no token."""
    if not is_loopback(host) and not token:
        expected = "127.0.0.1, or a token with any other address"
        mend = f"set {key}.token to a long random text, or host to 127.0.0.1"
        yield finding(f"{key}.host", shown(host), expected, mend)


def _channel(
    name: str, settings: ChannelSettings, manifest: Manifest, filled: FilledDocument, found: list[str]
) -> tuple[bool, str]:
    """Return True if a channel is enabled, and the reason. Add the mistakes in the channel's section to `found`."""
    for at, entry in enumerate(allowed(settings)):
        loc: Loc = ("channels", name, "allow", at)
        if entry != "*" and (wrong := ship_file.wrong_id(entry, manifest)):
            found.append(f"{dotted(loc)}: found {shown(entry, hidden=filled.is_hidden(loc))}; {wrong}")
    if settings.enabled is False:
        return False, "ship.json says so"
    if isinstance(host := getattr(settings, "host", None), str):
        found += _bind(f"channels.{name}", host, getattr(settings, "token", None))
    keys = keys_in_use(settings, manifest)
    values = {token: getattr(settings, token) for token in keys}
    missing = {loc[2]: variable for loc, variable in filled.missing.items() if loc[:2] == ("channels", name)}
    half = settings.enabled is None and any(values.values())
    for token, value in values.items():
        if value:
            try:
                ship_file.credential(value)
            except ValueError as error:
                found.append(f"channels.{name}.{keys[token]}: found [hidden]; {error}")
        elif half or (settings.enabled and keys[token] not in missing):
            mend = f"set {variable(name, token)} and refer to it, or set enabled to false"
            found.append(finding(f"channels.{name}.{keys[token]}", "nothing", "a token", mend))
    unset = [keys[token] for token, value in values.items() if not value]
    if settings.enabled is None and unset:
        where = missing.get(unset[0])
        return False, f"{where} is not set" if where else f"{unset[0]} is empty"
    unused = {*token_keys(manifest).values(), *token_keys(manifest, webhook=True).values()} - {*keys.values()}
    found += (
        _not_set(loc, where)
        for loc, where in filled.missing.items()
        if loc[:2] == ("channels", name) and loc[2] not in unused
    )
    reason = "its tokens are set" if manifest.tokens else "it needs no token"
    return True, "ship.json says so" if settings.enabled else reason


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
            # Include the tokens for both modes, with and without webhook, because an unused token must be redacted too.
            tokens = token_keys(manifest) | token_keys(manifest, webhook=True)
            usual = {key: f"${{{variable(name, token)}}}" for token, key in tokens.items()}
            section = channels.get(name, {})
            channels[name] = usual | section if isinstance(section, dict) else section
    return {**document, "llm": llm, "channels": channels}


def _refused(found: Iterable[str], secrets: Iterable[str]) -> errors.ConfigError:
    return errors.ConfigError(*(without(line, secrets) for line in dict.fromkeys(found)))


def _explained(error: dict[str, Any], model: Any, filled: FilledDocument) -> str:
    """Return the finding for an error of pydantic."""
    loc: Loc = error["loc"]
    if not loc:  # pydantic names no key if the JSON is nested too deeply
        return TOO_DEEP
    key, kind = dotted(loc), error["type"]
    if unset := next((item for item in filled.missing.items() if item[0][: len(loc)] == loc), None):
        return _not_set(*unset)
    if kind == "extra_forbidden":
        known = _keys_at(model, loc[:-1])
        names = {name.lower(): name for name in known}
        near = difflib.get_close_matches(str(loc[-1]).lower().replace("_", ""), names, n=1)
        mend = f'did you mean "{names[near[0]]}"?' if near else "remove it"
        expected = f"one of {', '.join(sorted(known))}" if known else "no key here"
        return finding(key, "an unknown key", expected, _MOVED.get(key, mend))
    if kind == "missing":
        return finding(key, "nothing", "a value", f'add "{loc[-1]}"')
    found = shown(error["input"], hidden=filled.is_hidden(loc))
    if kind == "value_error":
        return " ".join(f"{key}: found {found}; {error['ctx']['error']}".split())
    expected = _SUBJECT.sub("", error["msg"]).replace("'", '"')
    return finding(key, found, expected, "change it in ship.json")


def _keys_at(model: Any, loc: Loc) -> list[str]:
    """Return the keys that the object at `loc` may have."""
    for part in loc:
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        model = fields.get(str(part))
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return [str(field.alias) for field in model.model_fields.values()]


def _missing(file: Any, llm: Llm, filled: FilledDocument) -> Iterator[str]:
    """Yield a finding for each missing variable that an enabled feature needs. Channels are checked separately."""
    for loc, name in filled.missing.items():
        match loc:
            case ("channels", *_):
                needed = False
            case ("llm", _, *_):
                needed = llm.provider == "anthropic"
            case ("engine", _, *_):
                needed = file.engine.kind == "postgresql"
            case ("mcp", "servers", server, *_):
                needed = server not in file.mcp.servers or file.mcp.servers[server].enabled
            case _:
                needed = True
        if needed:
            yield _not_set(loc, name)


def _not_set(loc: Loc, name: str) -> str:
    found = f"${{{name}}}, which is set neither in the environment nor in .env"
    return finding(dotted(loc), found, "a value", f"set {name}, or turn the feature off")


def _warnings(root: Path, filled: FilledDocument, channels: Mapping[str, ChannelSettings]) -> Iterator[str]:
    """Yield warnings about settings that are valid but risky or surprising. `channels` are the enabled channels."""
    env = root / ".env"
    if env.exists() and env.stat().st_mode & stat.S_IROTH:
        yield ".env: others on this machine can read it; run `chmod 600 .env`"
    if (root / HOME / "mcp" / "mcp.json").is_file():
        yield (
            ".ship/mcp/mcp.json: is not read (ShipMyAgent read it); move its `servers` to mcp.servers of ship.json, where `sse` is "
            "http, and remove it"
        )
    for loc in filled.literal:
        yield f"{dotted(loc)}: ship.json contains the secret itself; put it into .env and write ${{NAME}} here"
    for name, settings in channels.items():
        if "*" in allowed(settings):
            yield f'channels.{name}.allow: holds "*", so everyone who finds the bot can talk to it'
        parts = urlsplit(str(getattr(settings, "base_url", "")))
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield f"channels.{name}.baseUrl: is not encrypted, so anyone on the way can read tokens; use https"


def without(line: str, secrets: Iterable[str]) -> str:
    """Return a text with the secrets in it replaced by `HIDDEN`."""
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, HIDDEN)
    return line


# ------------------------------------------------------------ values in use


def leaves(settings: Settings) -> dict[str, Any]:
    """Return all settings as a dict from the full key in ship.json, such as `llm.model`, to the value."""
    names = [name for name in (*ship_file.ShipFile.model_fields, "channels") if name != "schema_"]
    return dict(item for name in names for item in _leaves(to_camel(name), getattr(settings, name)))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        value = {to_camel(name): getattr(value, name) for name in type(value).model_fields}
    elif isinstance(value, tuple) and any(isinstance(one, BaseModel) for one in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key, value


def shown_leaves(settings: Settings) -> dict[str, str]:
    """Return all settings as a dict from the full key in ship.json to the value as JSON. A value is hidden if it contains a
    secret, or if its key usually has a secret.
    """
    return {key: _shown(key, value, settings.secrets) for key, value in leaves(settings).items()}


def _shown(key: str, value: Any, secrets: frozenset[str]) -> str:
    parts = key.split(".")
    private = parts[:2] == ["mcp", "servers"] and {"env", "headers"} & set(parts[3:])
    if value and (private or any(map(is_secret_key, parts))):
        return HIDDEN
    if isinstance(value, frozenset):
        value = sorted(map(str, value))
    value = list(value) if isinstance(value, tuple) else value
    return json.dumps(text.deep(value, lambda words: without(words, secrets)), ensure_ascii=False)
