"""Replaces `${NAME}` in ship.json by the value of NAME from the environment or `.env`."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bot import errors, regular_files, text
from bot.config.findings import Loc, finding, is_secret_key

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLAIN_KEYS = frozenset(
    {"name", "provider", "model", "fastModel", "baseUrl", "host", "mode", "kind", "timezone", "isolation"}
    | {"allow", "operators", "paths", "$schema"}
)
"""Keys whose values are not secret, wherever the value comes from. A password inside an address is still secret."""
_MISSING = object()
MAX_BYTES = 10_000_000
"""Max bytes of a settings file."""


def read_text(path: Path) -> str:
    """Return the text of a settings file. Raises FileNotFoundError, and `errors.ConfigError` if the file is
    not UTF-8 text.
    """
    try:
        data = regular_files.read(path, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"more than {MAX_BYTES:,} bytes", str(path))
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        line = finding(path.name, "bytes that are not UTF-8", "text", "save it as UTF-8")
    except IsADirectoryError:
        line = finding(path.name, "a folder", "a file", "put a file in its place")
    except regular_files.NotRegular as error:
        line = finding(path.name, f"{error.strerror}", "a file", "put a file in its place")
    except OSError as error:
        line = finding(path.name, error.strerror or "an error", "a file I can read", "mend its rights")
    raise errors.ConfigError(line)


def read_env_file(path: Path, findings: list[str]) -> dict[str, str]:
    """Return the variables of a `.env` file; {} if the file does not exist. Values are used literally,
    without expansion.
    """
    from dotenv.parser import parse_stream

    try:
        words = read_text(path)
    except FileNotFoundError:
        return {}
    except errors.ConfigError as error:
        findings += error.findings
        return {}
    values: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(words)):
        if binding.error:
            place = f".env line {binding.original.line}"
            findings.append(finding(place, "a line I cannot read", "NAME=value", "mend or remove it"))
        elif binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
    return values


@dataclass
class FilledDocument:
    """ship.json with its placeholders replaced. Values that refer to a missing variable are removed."""

    document: dict[str, Any]
    hidden: set[Loc] = field(default_factory=set)
    """Values that came from a variable."""
    missing: dict[Loc, str] = field(default_factory=dict)
    """Removed values, with the variable that is missing for each."""
    secrets: set[str] = field(default_factory=set)
    malformed: list[Loc] = field(default_factory=list)
    literal: list[Loc] = field(default_factory=list)
    """Secrets that are written in ship.json itself."""

    def is_hidden(self, loc: Loc) -> bool:
        return any(loc[: len(place)] == place for place in self.hidden)


def fill(document: dict[str, Any], env: Mapping[str, str]) -> FilledDocument:
    """Return a document with its placeholders replaced. Empty variables count as missing."""
    filled = FilledDocument({})
    filled.document = _fill(document, (), env, filled)
    return filled


def _fill(value: Any, loc: Loc, env: Mapping[str, str], filled: FilledDocument) -> Any:
    if isinstance(value, str):
        return _fill_text(text.clean(value), loc, env, filled)
    if isinstance(value, dict):
        items = ((text.clean(key), _fill(item, (*loc, key), env, filled)) for key, item in value.items())
        return {key: item for key, item in items if item is not _MISSING}
    if isinstance(value, list):
        entries = [_fill(item, (*loc, index), env, filled) for index, item in enumerate(value)]
        return [item for item in entries if item is not _MISSING]
    return value


def _fill_text(value: str, loc: Loc, env: Mapping[str, str], filled: FilledDocument) -> Any:
    names = _PLACEHOLDER.findall(value)
    if "${" in _PLACEHOLDER.sub("", value):
        filled.malformed.append(loc)
    values = {name: text.clean(env.get(name, "")) for name in names}
    if not all(values.values()):
        filled.missing[loc] = next(name for name in names if not values[name])
        return _MISSING
    plain = _plain(loc, names)
    if names:
        filled.hidden.add(loc)
        if not plain:
            filled.secrets.update(values.values())
    whole = _PLACEHOLDER.sub(lambda match: values[match[1]], value)
    if not plain and any(is_secret_key(part) for part in loc):
        filled.secrets.add(whole)
        if whole and not names:
            filled.literal.append(loc)
    filled.secrets |= _passwords(whole)
    return whole


def _plain(loc: Loc, names: list[str]) -> bool:
    """Return True if the value of a key is never secret."""
    if loc[:2] == ("mcp", "servers"):
        # Variables may contain paths and addresses, which are not secret. The values of an MCP server's `env` and `headers` are secret.
        return len(loc) > 3 and loc[3] not in {"env", "headers"} and not any(map(is_secret_key, names))
    return any(part in _PLAIN_KEYS for part in loc)


def _passwords(value: str) -> set[str]:
    """Return the password inside an address, both percent-encoded and decoded."""
    if "://" not in value or "@" not in value:
        return set()
    try:
        password = urlsplit(value).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()
