"""Reads ship.json and `.env`, and replaces `${NAME}` in ship.json by the value of NAME from the environment or `.env`."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bot import errors, file_access, text
from bot.invocation import command

Loc = tuple[str | int, ...]

HIDDEN = "[hidden]"
MAX_BYTES = 10_000_000
"""Max bytes that are read from a settings file."""
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_KEY = re.compile(r"(?:token|key|secret|password|passwd|databaseurl)$", re.IGNORECASE)
_PLAIN_KEYS = frozenset(
    {"name", "provider", "model", "fastModel", "baseUrl", "host", "mode", "kind", "timezone", "isolation"}
    | {"allow", "operators", "paths", "$schema"}
)
"""Keys whose values are not secret, even if a variable contains them. A password inside an address is still secret."""
_MISSING = object()


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
    """Return ship.json. If the file is missing, return `default`. If that is None too, raise `errors.ConfigError`."""
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
    """ship.json with its placeholders replaced. Values that refer to a missing variable are removed. Empty
    variables count as missing.
    """

    def __init__(self, document: dict[str, Any], env: Mapping[str, str]) -> None:
        self._env = env
        self._hidden: set[Loc] = set()
        self.missing: dict[Loc, str] = {}
        """Name of the missing variable, by the path of the removed value."""
        self.secrets: set[str] = set()
        self.malformed: list[Loc] = []
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
            self.malformed.append(loc)
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
        # Other values that come from variables count as secrets. A path or address of an MCP server is no secret, unless the
        # name of its variable says so.
        return len(loc) > 3 and loc[3] not in {"env", "headers"} and not any(map(is_secret_key, names))
    return any(part in _PLAIN_KEYS for part in loc)
