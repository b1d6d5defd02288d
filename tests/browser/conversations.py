"""Conversations of the loopback services as a page, for the pictures of the guides: the words, in a plain look of each platform."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markdown_it import MarkdownIt

from bot.testing.slack import SlackServer
from bot.testing.telegram import TelegramServer

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_TAGS = {
    "bold": "b",
    "italic": "i",
    "code": "code",
    "pre": "pre",
    "strikethrough": "s",
    "blockquote": "blockquote",
}
_STYLE = """
* { box-sizing: border-box; margin: 0 }
body { display: flex; gap: 24px; padding: 20px; background: #fff; font: 15px/1.45 "DejaVu Sans", sans-serif; color: #1d1c1d }
section { flex: 1; min-width: 0; border: 1px solid #d7d7d9; border-radius: 10px; padding-bottom: 12px; overflow: hidden }
h1 { font-size: 15px; padding: 12px 16px; border-bottom: 1px solid #e4e4e6; margin-bottom: 12px }
article { display: flex; gap: 10px; padding: 7px 16px }
.reply { padding-left: 62px }
.face { flex: none; width: 36px; height: 36px; border-radius: 8px; color: #fff; text-align: center; line-height: 36px; background: #5b7083 }
.bot .face { background: #0b6e4f }
.who { font-weight: bold } .who small { font-weight: normal; color: #77757a; margin-left: 6px }
p + p, p + ul, ul + p { margin-top: 6px } ul { padding-left: 22px }
code { background: #f0f0f2; border-radius: 4px; padding: 0 4px; overflow-wrap: anywhere }
button { font: inherit; font-size: 14px; padding: 4px 12px; margin: 8px 8px 0 0; border: 1px solid #b9b9bd; border-radius: 6px; background: #fff }
.telegram section { background: #dfe8ec } .telegram h1 { background: #fff }
.telegram .face, .telegram small { display: none }
.telegram article > div { background: #fff; border-radius: 12px; padding: 7px 12px; max-width: 88%; white-space: pre-wrap }
.telegram .own { justify-content: flex-end } .telegram .own > div { background: #e3f7cf }
.telegram .who { color: #0b6e4f } .telegram .bot .who { color: #2f6ea5 }
.telegram .buttons { display: flex; gap: 6px } .telegram button { flex: 1; border: 0; background: #cfdbe1; margin: 8px 0 0 }
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One message: its author, the words as HTML, and the labels of its buttons."""

    who: str
    bot: bool
    words: str
    at: float
    buttons: Sequence[str] = ()
    reply: bool = False


@dataclass(frozen=True, slots=True)
class Pane:
    """One conversation under its title, as `me` sees it."""

    title: str
    me: str
    lines: Sequence[Line]


def page(platform: str, panes: Iterable[Pane]) -> str:
    """A page that shows conversations side by side."""
    body = "".join(
        f"<section><h1>{html.escape(one.title)}</h1>{''.join(_article(line, one.me) for line in one.lines)}</section>"
        for one in panes
    )
    return (
        f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style><body class="{platform}">{body}</body>'
    )


def _article(line: Line, me: str) -> str:
    is_so = {"bot": line.bot, "reply": line.reply, "own": line.who == me}
    kinds = " ".join(name for name, holds in is_so.items() if holds)
    time = datetime.fromtimestamp(line.at, UTC).strftime("%H:%M")
    buttons = "".join(f"<button>{html.escape(one)}</button>" for one in line.buttons)
    return (
        f'<article class="{kinds}"><div class="face">{html.escape(line.who[0])}</div><div>'
        f'<div class="who">{html.escape(line.who)}<small>{time}</small></div>'
        f'{line.words}<div class="buttons">{buttons}</div></div></article>'
    )


def of_slack(server: SlackServer, channel: str) -> list[Line]:
    """A conversation of Slack, threads below their roots."""
    posts = list(server.world.rooms[channel].posts.values())
    ordered = [reply for root in posts if not root.is_reply for reply in posts if reply.root == root.ts]
    return [
        Line(
            "shipmate"
            if post.bot_id == server.world.bot_id
            else server.world.users[str(post.user)]["real_name"],
            post.bot_id == server.world.bot_id,
            _MARKDOWN.render(re.sub(rf"<@{server.world.bot_user}>", "**@shipmate**", post.text)),
            float(post.ts),
            [
                element["text"]["text"]
                for block in post.blocks
                if block.get("type") == "actions"
                for element in block["elements"]
            ],
            post.is_reply,
        )
        for post in ordered
    ]


def of_telegram(server: TelegramServer, chat_id: int, names: dict[int, str]) -> list[Line]:
    """A chat of Telegram."""
    return [
        Line(
            "Shipmate" if message["from"]["is_bot"] else names[message["from"]["id"]],
            bool(message["from"]["is_bot"]),
            _formatted(message["text"], message.get("entities", ())),
            float(message["date"]),
            [
                button["text"]
                for row in message.get("reply_markup", {}).get("inline_keyboard", ())
                for button in row
            ],
        )
        for _, message in sorted(server.chats[chat_id].messages.items())
        if "text" in message
    ]


def _formatted(words: str, entities: Iterable[dict[str, Any]]) -> str:
    """Words with Telegram's entities, whose places are counted in UTF-16."""
    units = words.encode("utf-16-le")
    marks: list[tuple[int, int, str]] = []
    for one in entities:
        if tag := _TAGS.get(one["type"]):
            start, end = one["offset"], one["offset"] + one["length"]
            marks += [(start, 1, f"<{tag}>"), (end, 0, f"</{tag}>")]
    shown, at = "", 0
    for place, _, tag in sorted(marks):
        shown += html.escape(units[at * 2 : place * 2].decode("utf-16-le")) + tag
        at = place
    return shown + html.escape(units[at * 2 :].decode("utf-16-le"))
