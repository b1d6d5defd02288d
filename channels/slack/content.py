"""Reads a Slack message's content: text with mentions and links in Slack's markup `<…>`, blocks, shared messages and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

from bot import text
from bot.contracts.messages import Attachment, Origin, Outbound, Quoted
from channels.http_api import file_name

Names = Callable[[str], str | None]
"""Function that gets a person's id and returns the person's name; None if the name is unknown."""
_MARK = re.compile(r"<([@#!a-z][^<>|\n]{0,3000})(?:\|([^<>\n]{0,1000}))?>", re.IGNORECASE)
_PERSON = re.compile(r"[UW][A-Z0-9]{1,20}")
_CHANNEL = re.compile(r"[CG][A-Z0-9]{1,20}")
_NAMED = re.compile(r"<([@#!])([UWCG][A-Z0-9]{1,20}|subteam\^S[A-Z0-9]{1,20})(?:\|([^<>\n]{0,1000}))?>")
_WRITTEN = re.compile(r"[<‹]@([UW][A-Z0-9]{1,20})(?:\|[^<>‹›\n]{0,100})?[>›]")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
DEEPEST = 20  # Blocks nested deeper than this many levels are not read. Slack's own blocks have at most five levels.
TOO_DEEP = "[…]"  # Text that replaces a block nested deeper than `DEEPEST`
_SHARED = ("is_share", "is_msg_unfurl", "is_reply_unfurl")
_KINDS: dict[str, Literal["photo", "video", "audio"]] = {"image": "photo", "video": "video", "audio": "audio"}
_PICTURES = frozenset({"image", "video", "file"})
_MARKED = {
    "user": ("@", "user_id"),
    "channel": ("#", "channel_id"),
    "usergroup": ("!subteam^", "usergroup_id"),
    "broadcast": ("!", "range"),
}
"""Block elements that Slack's markup writes as `<…>`. The values are the sign after `<` and the field with the id."""


def nobody(_: str) -> None:
    """Return None. Pass this function as `Names` if no name is known."""


def escape(typed: str) -> str:
    return typed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(escaped: str) -> str:
    return escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def readable(source: str, names: Names, me: str = "") -> str:
    """Return a text without Slack's markup. A person becomes `@Name (U…)`, the bot (`me`) `@Name`, a channel with a label
    `#name (C…)`, and a link `words (https://…)`. All other text, including brackets, stays as it is.
    """
    parts, end = [], 0
    for found in _MARK.finditer(source):
        parts += [unescape(source[end : found.start()]), _read(found, names, me)]
        end = found.end()
    return "".join([*parts, unescape(source[end:])])


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


def nameless(source: str) -> str:
    return _NAMED.sub(r"<\1\2>", source)


def named(source: str, names: Names, me: str) -> dict[str, str]:
    """Return the known names of the people, groups and channels that a text mentions. Keys are the mentions in the form that
    `nameless` writes.
    """
    found: dict[str, str] = {}
    for mark in _NAMED.finditer(source):
        sign, who, label = mark.groups(default="")
        known = label if sign != "@" else names(who) if who != me else None
        if called := text.name(unescape(known or "")):
            found[f"@{who}" if sign == "!" else f"<{sign}{who}>"] = ("#" if sign == "#" else "@") + called
    return found


def answered(message: Outbound, names: Names) -> Outbound:
    def shown(mark: re.Match[str]) -> str:
        return f"@{called}" if (called := text.name(names(mark[1]) or "")) else mark[0]

    return replace(message, text=_WRITTEN.sub(shown, message.text), sure=_WRITTEN.sub(shown, message.sure))


def begins_with_other(source: str, me: str) -> bool:
    found = _MARK.match(source.lstrip())
    return found is not None and found[1][0] == "@" and found[1][1:] != me


def without_address(source: str, me: str) -> str:
    """Return a text without a mention of the bot at its start. A text that contains only the mention is not changed."""
    rest = re.sub(rf"^\s*<@{re.escape(me)}(?:\|[^<>\n]*)?>[\s:,]*", "", source)
    return rest if rest.strip() else source


# -- blocks --------------------------------------------------------------------------------------------------------


def text_of(blocks: Any) -> str:
    """Return the text of blocks, one line per list item, row, field or picture. Mentions become `<@U…>`; text like `<@U…>` is
    escaped.
    """
    return "\n".join(line for block in _objects(blocks) for line in _lines(block, DEEPEST)).strip("\n")


def _lines(block: dict[str, Any], depth: int) -> Iterator[str]:
    kind, elements = str(block.get("type")), _objects(block.get("elements") or block.get("child_blocks"))
    if not depth:
        yield TOO_DEEP
    elif kind in {"rich_text_section", "rich_text_preformatted", "rich_text_quote"}:
        line = "".join(_element(one, depth - 1) for one in elements)
        yield from ("> " + part for part in line.split("\n")) if kind == "rich_text_quote" else [line]
    elif kind == "table":
        rows = block.get("rows")
        for row in rows if isinstance(rows, list) else ():
            yield " | ".join(" ".join(_lines(cell, depth - 1)) for cell in _objects(row))
    elif kind in _PICTURES:
        title = _text(block.get("title")) or escape(_word(block.get("alt_text")))
        yield f"[{kind}{': ' + title if title else ''}]"
    else:
        texts = (block, *(block.get(key) for key in ("title", "subtitle", "body")))
        yield from filter(None, map(_text, (*texts, *_objects(block.get("fields")))))
        mark = "• " if kind == "rich_text_list" else ""
        for one in elements:
            yield from (mark + line for line in _lines(one, depth - 1))


def _element(one: dict[str, Any], depth: int) -> str:
    words = escape(_word(one.get("text")))
    match one.get("type"):
        case "text":
            return words
        case "link":
            return f"<{_safe(one.get('url'))}{'|' + words if words else ''}>"
        case "emoji":
            return f":{escape(_word(one.get('name')))}:"
        case str(kind) if kind in _MARKED:
            mark, key = _MARKED[kind]
            return f"<{mark}{_safe(one.get(key))}>"
    return escape(_word(one.get("fallback") or one.get("value"))) or "\n".join(_lines(one, depth))


def _text(value: Any) -> str:
    """Return a string or a text object in Slack's markup. A text object of the type `mrkdwn` contains this markup already."""
    while isinstance(value, dict) and isinstance(value.get("text"), dict):
        value = value["text"]
    facts = value if isinstance(value, dict) else {"text": value}
    said = _word(facts.get("text"))
    return said if facts.get("type") == "mrkdwn" else escape(said)


def _word(value: Any) -> str:
    return text.clean(value) if isinstance(value, str) else ""


def _safe(value: Any) -> str:
    return re.sub(r"[<>|\n]", "", _word(value))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# -- shared messages and files -------------------------------------------------------------------------------------


def shared_messages(
    found: Any, *, by: str | None, channel: str | None, ours: frozenset[str]
) -> list[tuple[Quoted, tuple[Attachment, ...]]]:
    """Return the messages that `by` shared in `channel`, and link previews, each with its files. `ours` are the bot's ids."""
    return [(_quoted(one, by, channel, ours), attachments(one.get("files"))) for one in _objects(found)]


def _quoted(found: dict[str, Any], by: str | None, channel: str | None, ours: frozenset[str]) -> Quoted:
    message = any(found.get(mark) is True for mark in _SHARED)
    ts = stamp if isinstance(stamp := found.get("ts"), str) and _TS.fullmatch(stamp) else None
    fact = {
        key: text.head(" ".join(unescape(_word(value)).split()), 200) or None for key, value in found.items()
    }
    where = fact.get("channel_name")
    origin = Origin(
        how="shared" if message else "preview",
        name=fact.get("author_name") or fact.get("author_subname") or fact.get("service_name"),
        id=fact.get("author_id"),
        chat=f"#{where}" if where else fact.get("channel_id") or fact.get("from_url"),
        message_id=ts,
        ts=int(float(ts) * 1000) if ts is not None else None,
        from_self=bool({fact.get("author_id"), fact.get("bot_id")} & ours),
    )
    said = [_word(found.get(key)) for key in ("pretext", "title", "text")]
    said += [f"{_word(one.get('title'))}: {_word(one.get('value'))}" for one in _objects(found.get("fields"))]
    messages = _objects([one.get("message") for one in _objects(found.get("message_blocks"))])
    whole = (
        "\n".join(filter(None, said))
        or "\n".join(filter(None, (text_of(one.get("blocks")) for one in messages)))
        or text_of(found.get("blocks"))
        or _word(found.get("fallback"))
    )
    return Quoted(
        user_id=by,
        text=readable(whole, nobody),
        origin=origin,
        brought=True,
        message_id=ts if message and found.get("channel_id") == channel is not None else None,
        files=tuple(one.name or one.kind for one in attachments(found.get("files"))),
    )


def attachments(files: Any) -> tuple[Attachment, ...]:
    found = []
    for file in files if isinstance(files, list) else ():
        facts = file if isinstance(file, dict) else {}
        name, mime, ref = (file_name(_word(facts.get(key))) or None for key in ("name", "mimetype", "id"))
        size = facts.get("size")
        voice = facts.get("subtype") == "slack_audio"
        kind = "voice" if voice else _KINDS.get((mime or "").partition("/")[0], "file")
        size = size if type(size) is int and size >= 0 else None
        found.append(Attachment(kind=kind, name=name, size=size, mime=mime, ref=ref))
    return tuple(found)
