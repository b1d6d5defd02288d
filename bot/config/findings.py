"""Formats a mistake in the configuration as one line: key, value found, value expected, remedy."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bot import text

Loc = tuple[str | int, ...]

HIDDEN = "[hidden]"
_SECRET_KEY = re.compile(r"(?:token|key|secret|password|passwd|databaseurl)$", re.IGNORECASE)
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "finite_number": "a finite number",
}
MOVED = {
    "adapters": 'write "channels" in place of it, as in "channels": {"telegram": {"botToken": "${TELEGRAM_BOT_TOKEN}"}}',
    "start": 'write {"host": …, "port": …} into channels.web',
    "permissions.exec_shell": "write a rule such as run_shell(git status) into permissions.allow",
}
"""Advice for keys of ShipMyAgent, the predecessor, which ship.json does not have."""
_BOUNDS = {
    "greater_than_equal": ("at least {}", "ge"),
    "greater_than": ("more than {}", "gt"),
    "less_than_equal": ("at most {}", "le"),
    "less_than": ("less than {}", "lt"),
    "string_too_short": ("at least {} characters", "min_length"),
    "string_too_long": ("at most {} characters", "max_length"),
    "too_short": ("at least {} entries", "min_length"),
    "too_long": ("at most {} entries", "max_length"),
}


def finding(key: str, found: str, expected: str, mend: str) -> str:
    """Return a finding as one line; line breaks in its parts are removed."""
    return " ".join(f"{key}: found {found}; expected {expected}; {mend}".split())


def is_secret_key(key: str | int) -> bool:
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


def dotted(loc: Sequence[str | int]) -> str:
    """Return the path of a value in ship.json, such as `channels.telegram.allow[0]`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    return "".join(parts).lstrip(".") or "ship.json"


def shown(value: Any, *, hidden: bool = False) -> str:
    """Return a value as a finding shows it: shortened, with its type, and never a secret."""
    if isinstance(value, Mapping | list | tuple):
        kind = "object" if isinstance(value, Mapping) else "list"
        return f"{'an empty' if not value else 'an' if kind == 'object' else 'a'} {kind}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kind = "text" if isinstance(value, str) else "a number"
    words = HIDDEN if hidden else text.preview(json.dumps(value, ensure_ascii=False), 60)
    return f"{words} ({kind})"


def from_error(error: Mapping[str, Any], *, known: Collection[str], hidden: bool) -> str:
    """Return the finding for an error of pydantic. `known` are the keys that the object with the error may have."""
    loc: Loc = tuple(error["loc"])
    key, kind, value = dotted(loc), str(error["type"]), error["input"]
    hidden = hidden or any(is_secret_key(part) for part in loc)
    if kind == "extra_forbidden":
        return finding(key, "an unknown key", _listed(known), MOVED.get(key) or _similar(str(loc[-1]), known))
    if kind == "missing":
        return finding(key, "nothing", "a value", f'add "{loc[-1]}"')
    found = shown(value, hidden=hidden)
    if kind == "value_error":
        return " ".join(f"{key}: found {found}; {error['ctx']['error']}".split())
    return finding(key, found, _expected(kind, error), _mend(kind, value, hidden=hidden))


def _expected(kind: str, error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    if kind == "literal_error":
        return "one of " + str(context["expected"]).replace("'", '"')
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return words.format(context[name])
    return _EXPECTED.get(kind) or str(error["msg"])


def _mend(kind: str, value: Any, *, hidden: bool) -> str:
    if kind == "string_type" and isinstance(value, int) and not isinstance(value, bool):
        return "put it into quotes"
    if isinstance(value, str) and kind in {"int_type", "float_type", "bool_type"} and not hidden:
        plain = value.strip()
        if plain in {"true", "false"} or plain.isdecimal():
            return f"write {text.preview(plain, 30)} without quotes"
    return "change it in ship.json"


def _listed(known: Iterable[str]) -> str:
    return "one of " + ", ".join(sorted(known)) if known else "no key here"


def _similar(key: str, known: Collection[str]) -> str:
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower().replace("_", ""), folded, n=1, cutoff=0.6)
    return f'did you mean "{folded[near[0]]}"?' if near else "remove it"
