"""Converts Slack's markup `<…>` for mentions, channels and links to text that people can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from bot import text
from bot.contracts.outbound import Outbound

Names = Callable[[str], str | None]
"""Function that returns the name of a person by the person's id; None if the name is unknown."""
_MARK = re.compile(r"<([@#!a-z][^<>|\n]{0,3000})(?:\|([^<>\n]{0,1000}))?>", re.IGNORECASE)
_PERSON = re.compile(r"[UW][A-Z0-9]{1,20}")
_CHANNEL = re.compile(r"[CG][A-Z0-9]{1,20}")
_NAMED = re.compile(r"<([@#!])([UWCG][A-Z0-9]{1,20}|subteam\^S[A-Z0-9]{1,20})(?:\|([^<>\n]{0,1000}))?>")
_WRITTEN = re.compile(r"[<‹]@([UW][A-Z0-9]{1,20})(?:\|[^<>‹›\n]{0,100})?[>›]")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def nobody(_: str) -> None:
    """A `Names` function that knows no name."""


def readable(source: str, names: Names, me: str = "") -> str:
    """Return a text without markup. A mention becomes `@Name (U…)`, or only `@Name` for the bot (`me`); a
    channel with a label becomes `#name (C…)`; a link becomes `words (https://…)`. Other text, including
    brackets, is not changed.
    """
    parts, end = [], 0
    for found in _MARK.finditer(source):
        parts += [unescape(source[end : found.start()]), _read(found, names, me)]
        end = found.end()
    return "".join([*parts, unescape(source[end:])])


def nameless(source: str) -> str:
    """Return a text whose mentions have no labels."""
    return _NAMED.sub(r"<\1\2>", source)


def named(source: str, names: Names, me: str) -> dict[str, str]:
    """Return the known names of the people, groups and channels that a text mentions, keyed by the mention
    in its `nameless` form.
    """
    found: dict[str, str] = {}
    for mark in _NAMED.finditer(source):
        sign, who, label = mark.groups(default="")
        known = label if sign != "@" else names(who) if who != me else None
        if called := text.name(unescape(known or "")):
            found[f"@{who}" if sign == "!" else f"<{sign}{who}>"] = ("#" if sign == "#" else "@") + called
    return found


def answered(message: Outbound, names: Names) -> Outbound:
    """Return an answer in which known names replace the ids of mentions."""

    def shown(mark: re.Match[str]) -> str:
        return f"@{called}" if (called := text.name(names(mark[1]) or "")) else mark[0]

    return replace(message, text=_WRITTEN.sub(shown, message.text), sure=_WRITTEN.sub(shown, message.sure))


def begins_with_other(source: str, me: str) -> bool:
    """Return True if a text begins with a mention of somebody other than the bot."""
    found = _MARK.match(source.lstrip())
    return found is not None and found[1][0] == "@" and found[1][1:] != me


def without_address(source: str, me: str) -> str:
    """Return a text without a mention of the bot at its start. A text that is only this mention is not changed."""
    rest = re.sub(rf"^\s*<@{re.escape(me)}(?:\|[^<>\n]*)?>[\s:,]*", "", source)
    return rest if rest.strip() else source


def unescape(escaped: str) -> str:
    """Decode the three entities that Slack encodes: `&amp;`, `&lt;` and `&gt;`."""
    return escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _read(found: re.Match[str], names: Names, me: str) -> str:
    inside, label = unescape(found[1]), unescape(found[2] or "").strip()
    sign, rest = inside[0], inside[1:]
    if sign == "@" and _PERSON.fullmatch(rest) and (name := text.name(names(rest) or "")):
        return f"@{name} ({rest})" if rest != me else f"@{name}"
    if sign == "#" and _CHANNEL.fullmatch(rest) and (name := text.name(label)):
        return f"#{name} ({rest})"
    if sign == "!":
        return label or f"@{rest}"
    if _ADDRESS.match(inside) is None:
        return unescape(found[0])
    address = inside.removeprefix("mailto:").removeprefix("tel:")
    same = not label or label in {address, inside, address.partition("://")[2]}
    return address if same else f"{label} ({address})"
