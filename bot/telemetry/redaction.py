"""Secrets are replaced before the first write, in every form in which they may appear."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bot import text

MARK = "[redacted]"
SHORTEST = 8  # characters; anything shorter would hit ordinary words

_PERCENT = re.compile(r"%[0-9A-F]{2}")
_TOKENS = re.compile(
    r"""
      xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}            # Slack
    | xapp-[A-Za-z0-9-]{8,}                               # Slack, app level
    | (?<!\d)\d{6,12}:[A-Za-z0-9_-]{30,}                  # Telegram
    | sk-ant-[A-Za-z0-9_-]{8,}                            # Anthropic
    | gh[pousr]_[A-Za-z0-9]{20,}                          # GitHub
    | github_pat_[A-Za-z0-9_]{20,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}                           # AWS
    | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}   # JWT
    | -----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY-----
      (?:(?!-----END)[\s\S]){0,20000}
      (?:-----END\ [A-Z ]{0,40}PRIVATE\ KEY-----)?        # PEM
    """,
    re.VERBOSE,
)


def forms(secret: str) -> set[str]:
    """A secret plain, URL-encoded (either case), in base64, in hex, and escaped as in JSON."""
    found = text.encodings(text.clean(secret))
    found |= {_PERCENT.sub(lambda match: match.group().lower(), form) for form in found}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {form for form in found if len(form) >= SHORTEST}


class Redactor:
    """`contracts.Redact`: replaces each known secret by `[redacted]`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        every = {form for secret in secrets if len(secret) >= SHORTEST for form in forms(secret)}
        # Longest first, so that a secret that contains another goes as a whole.
        self._forms = sorted(every, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        self._sorted = sorted(every)
        self._firsts = frozenset(form[0] for form in every)
        self._shortest = min(map(len, every), default=0)
        self._longest = max(map(len, every), default=0)

    def __call__(self, value: str) -> str:
        if len(value) < self._shortest:
            return value
        # Searching for each form is many times faster than the alternation, and a hit is rare.
        if not any(form in value for form in self._forms):
            return value
        return self._pattern.sub(MARK, value)

    def settled(self, value: str) -> str:
        """What of a text that may go on is sure to stand in the whole, redacted: its end is held back from where on it
        could become a secret.
        """
        pieces: list[str] = []
        at = 0
        while True:
            end = self._held(value, at)
            # A secret that begins before the end is whole, and one that is longer does not begin there: else its
            # beginning would be held back.
            found = self._pattern.search(value, at) if self._forms else None
            if found is None or found.start() >= end:
                return "".join([*pieces, value[at:end]])
            pieces += [value[at : found.start()], MARK]
            at = found.end()

    def _held(self, value: str, start: int) -> int:
        """Where the first tail of a text begins, not before `start`, that a secret begins with."""
        for at in range(max(start, len(value) - self._longest + 1), len(value)):
            if value[at] in self._firsts and self._goes_on(value[at:]):
                return at
        return len(value)

    def _goes_on(self, tail: str) -> bool:
        """Whether a secret begins with these characters and is longer."""
        next_one = bisect.bisect_right(self._sorted, tail)
        return next_one < len(self._sorted) and self._sorted[next_one].startswith(tail)

    def deep(self, value: Any) -> Any:
        """The same for a JSON value: strings and keys at every depth."""
        return _deep(value, self)


class LogRedactor(Redactor):
    """For the log alone: also what merely looks like a token, known or not."""

    def __call__(self, value: str) -> str:
        return _TOKENS.sub(MARK, super().__call__(value))


def _deep(value: Any, redact: Redactor) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            redact(key) if isinstance(key, str) else key: _deep(item, redact) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_deep(item, redact) for item in value]
    return value
