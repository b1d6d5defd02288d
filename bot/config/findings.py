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
MOVED = {
    "adapters": 'write "channels" in place of it, as in "channels": {"telegram": {"botToken": "${TELEGRAM_BOT_TOKEN}"}}',
    "start": 'write {"host": …, "port": …} into channels.web',
    "permissions.exec_shell": "write a rule such as run_shell(git status) into permissions.allow",
}
"""Advice for keys of ShipMyAgent, the predecessor, which ship.json does not have."""
_SUBJECT = re.compile(r"^\w+ should (?:be|have) ")
"""Beginning of a message of pydantic, such as “Input should be a valid string”."""


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
    expected = _SUBJECT.sub("", str(error["msg"])).replace("'", '"')
    return finding(key, found, expected, "change it in ship.json")


def _listed(known: Iterable[str]) -> str:
    return "one of " + ", ".join(sorted(known)) if known else "no key here"


def _similar(key: str, known: Collection[str]) -> str:
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower().replace("_", ""), folded, n=1, cutoff=0.6)
    return f'did you mean "{folded[near[0]]}"?' if near else "remove it"
