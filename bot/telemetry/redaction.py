"""Replaces secrets in each text before the text is written or sent. Secrets are also found if they are encoded."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Sequence
from typing import AnyStr
from urllib.parse import unquote

from bot import text

MARK = "[redacted]"
MIN_SECRET = 8
"""Min characters of a secret. Redacting a shorter secret would hide ordinary words."""
LONG = 16_000
"""Max characters of a text that the calling thread searches. Longer texts are searched on another thread, because searching
100,000 unusual characters takes a tenth of a second.
"""

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
    | (?P<head>eyJ[A-Za-z0-9_-]{8,}+)(?P<rest>\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+)?   # JWT
    | -----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY-----
      (?:(?!-----END)[\s\S]){0,20000}
      (?:-----END\ [A-Z ]{0,40}PRIVATE\ KEY-----)?        # PEM
    """,
    re.VERBOSE,
)


def _marked(found: re.Match[str]) -> str:
    """Return the replacement of a token. The pattern also matches the beginning of an incomplete JWT, which is
    returned unchanged. If the pattern did not match such a beginning, the search would take quadratic time.
    """
    return MARK if found["head"] is None or found["rest"] is not None else found[0]


_IN_TOKENS = (
    *("xox", "xapp-", "sk-ant-", "AKIA", "ASIA", "eyJ", "PRIVATE KEY-----"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
)
"""Texts that occur in tokens. Every token that the pattern finds contains at least one of them, except Telegram's tokens."""
_TELEGRAM = re.compile(r":[A-Za-z0-9_-]{30}")

_SIGNS = "*_~`\\\\[]()<>|!"
"""Characters that may disappear when Markdown is rendered."""
_UNFORMED = str.maketrans("", "", _SIGNS)
_CONTROLS = "".join(map(chr, (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)))
_UNSHOWN = (_SIGNS + _CONTROLS).encode()
_ESCAPING = "\x1b\x9b\x9d\x90\x98\x9e\x9f"
_UNSEEN = re.compile(f"[{text.INVISIBLE}\x80-\x9f]")
_ENTITY = re.compile(r"&(?:#[0-9xX]|[A-Za-z][A-Za-z0-9]{1,31};)")
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_PACKINGS = 3
"""Max levels of nested encoding that are decoded."""
_ONE_ALPHABET = bytes.maketrans(b"-_", b"+/")
_TARGET = re.compile(
    r"\]\(\s{0,9}(?:<[^<>\n]{0,2000}>|[^()\s]{0,2000}(?:\([^()\s]{0,200}\)[^()\s]{0,2000})?)"
    r"(?:\s{1,9}(?:\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|\([^()\n]{0,500}\)))?\s{0,9}\)"
    r"|\]\[[^\[\]\n]{0,200}\]|<https?://[^<>|\s]{0,2000}\||<!--[^<>]{0,500}-->"
)
"""Pattern of link targets, link titles and comments. When Markdown is rendered, they disappear, so the text before them and the
text after them may together form a secret.
"""
_AROUND = " \t\r\n!\"#$%&'()*,.:;<=>?@[\\]^`{|}~"
"""Characters that may stand around each line of wrapped text, such as white space, quotes, table bars and bullets."""
_BREAK = "\x1b>(\n"
"""Separator between texts that are searched together. The separator ends every terminal sequence, link and comment. Without it,
a link that begins in one text and ends in another would hide the characters between them.
"""
_LISTED = ("- ", "-\n", "-\r", "+ ", "+\n", "+\r")
_BULLETS = re.compile(r"(?<![^\n ])[-+](?=[ \r\n])")


def forms(secret: str) -> set[str]:
    """Return the forms in which a secret can appear: plain, URL-encoded (in upper or lower case), in base64, in
    hexadecimal, and escaped as in JSON.
    """
    found = text.encodings(text.clean(secret))
    found |= {_PERCENT.sub(lambda match: match.group().lower(), form) for form in found}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {form for form in found if len(form) >= MIN_SECRET}


def _holds(value: AnyStr, parts: Iterable[AnyStr]) -> bool:
    """Return True if a text contains at least one of the parts."""
    for part in parts:  # noqa: SIM110 - every text is searched, and a loop is faster than `any`
        if part in value:
            return True
    return False


def _as_rendered(value: str) -> bytes:
    """Return a text as it looks after rendering and decoding; b"" if they change nothing. This function must be fast, because
    it is called for every text that is written.
    """
    shown = value
    for _ in range(_PACKINGS):
        packed = shown
        if "%" in shown and _ENCODED.search(shown):
            shown = unquote(shown, errors="replace")
        if "&" in shown and _ENTITY.search(shown):
            shown = text.unescaped(shown)
        if shown is packed or shown == packed:
            break
    if _holds(shown, _ESCAPING):
        shown = text.without_escapes(shown)
    if "](" in shown or "][" in shown or "|" in shown or "<!--" in shown:
        shown = _TARGET.sub("", shown)
    if not shown.isascii():
        shown = _UNSEEN.sub("", shown)
    bare = shown.encode("utf-8", "replace").translate(None, _UNSHOWN)
    return b"" if shown is value and len(bare) == len(value) else bare


def _as_joined(value: str) -> bytes:
    """Return the text without line breaks and the characters around them; b"" if the text has one line."""
    if "\n" not in value and "\\n" not in value and "\u2028" not in value and "\u2029" not in value:
        return b""
    value = value.replace("\\n", "").replace("\\r", "").replace("\\t", "")
    if _holds(value, _LISTED):
        value = _BULLETS.sub("", value)
    if not value.isascii():
        value = _UNSEEN.sub("", value)
    return value.encode("utf-8", "replace").translate(_ONE_ALPHABET, _AROUND.encode())


class Redactor:
    """Implements `contracts.environment.Redact`: replaces known secrets by `[redacted]`. If a secret appears only after
    rendering or decoding, the whole line is replaced. If it appears only after lines are joined, the whole text is replaced.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        secrets = frozenset(secrets)
        every = {form for secret in secrets if len(secret) >= MIN_SECRET for form in forms(secret)}
        # The longest form comes first, so that a secret that contains another secret is replaced as a whole.
        self._forms = sorted(every, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, self._forms)))
        self._sorted = sorted(every)
        self._firsts = frozenset(form[0] for form in every)
        self._shortest = min(map(len, every), default=0)
        self._longest = max(map(len, every), default=0)
        clean = {text.clean(secret) for secret in secrets if len(secret) >= MIN_SECRET}
        # Search for the JSON-escaped secret too, because decoding removes only one level of a text that was escaped twice.
        written = {form for secret in clean for form in (secret, json.dumps(secret)[1:-1])}
        rendered = {_UNSEEN.sub("", form.translate(_UNFORMED)) for form in written}
        self._rendered = sorted(form.encode() for form in rendered if len(form) >= MIN_SECRET)
        packed = (form.encode() for secret in clean for form in text.encodings(secret))
        joined = {form.translate(_ONE_ALPHABET, _AROUND.encode()) for form in packed}
        self._joined = sorted(form for form in joined if len(form) >= MIN_SECRET)

    def __call__(self, value: str) -> str:
        if len(value) < self._shortest:
            return value
        # Searching for each form is many times faster than the regular expression, and secrets are rare.
        if _holds(value, self._forms):
            value = self._pattern.sub(MARK, value)
        if self._rendered and self._shows(value):
            value = "\n".join(MARK if self._shows(line) else line for line in value.split("\n"))
            value = MARK if self._shows(value) else value
        return value

    def _shows(self, value: str) -> bool:
        """Return True if a secret appears in the rendered text, or in the text with its lines joined."""
        return _holds(_as_rendered(value), self._rendered) or _holds(_as_joined(value), self._joined)

    def settled(self, value: str) -> str:
        """Redact a text of which more will follow. Leave out its end from the position at which an incomplete secret may begin."""
        pieces: list[str] = []
        at = 0
        while True:
            end = self._held_from(value, at)
            # A secret that ends before `end` is complete. If a longer secret could begin there, `end` would be smaller.
            found = self._pattern.search(value, at) if self._forms else None
            if found is None or found.start() >= end:
                return "".join([*pieces, value[at:end]])
            pieces += [value[at : found.start()], MARK]
            at = found.end()

    def _held_from(self, value: str, start: int) -> int:
        """Return the index at which an incomplete secret begins, if the text ends inside a secret. The search begins at
        `start`. If there is no such secret, return the length of the text.
        """
        for at in range(max(start, len(value) - self._longest + 1), len(value)):
            if value[at] not in self._firsts:
                continue
            # The secrets are sorted. So if a longer secret begins with `rest`, the secret after `rest` does.
            rest = value[at:]
            following = bisect.bisect_right(self._sorted, rest)
            if following < len(self._sorted) and self._sorted[following].startswith(rest):
                return at
        return len(value)


class LogRedactor(Redactor):
    """Redactor for the operator's log. In addition to known secrets, it replaces texts that look like tokens."""

    def __call__(self, value: str) -> str:
        value = super().__call__(value)
        # Searching for the plain texts first is many times faster, and tokens are rare.
        if _holds(value, _IN_TOKENS) or _TELEGRAM.search(value):
            value = _TOKENS.sub(_marked, value)
        return value

    def finds(self, strings: Sequence[str]) -> bool:
        """Return False only if certainly no string contains a secret. One search over all strings is many times cheaper than
        one search for each string.
        """
        words = _BREAK.join(strings)
        return self(words) != words
