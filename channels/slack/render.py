"""Makes the model's Markdown safe for Slack, and writes blocks: buttons, thumbs, task cards and the Home tab. Mentions notify
nobody, images are not loaded, and links show their hosts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from slack_sdk.errors import SlackApiError

from bot import text
from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection
from bot.contracts.environment import Log
from bot.contracts.outbound import Card, Outbound
from bot.words import say, speaking
from channels import approval_buttons
from channels.slack import web_api
from channels.slack.content import escape
from channels.slack.manifest import is_direct

LIMIT = 11_500  # Max characters of one message; Slack refuses more than 12,000

_ZERO_WIDTH = "\u200b"
_DEFINITION = re.compile(r"^[ >]*\[[^\]\n]+\]:", re.MULTILINE)
_DEFINED = re.compile(r"^[ >]*\[(?P<name>[^\]\n]+)\]:[ \t]*(?:\n[ >\t]*)?<?(?P<url>[^\s>]+)", re.MULTILINE)
_LINK = re.compile(
    r"\[(?P<label>(?:[^\[\]\n]|\[[^\[\]\n]{0,200}\]){1,500})\]"
    r"(?:\(\s*<?(?P<url>[^\s<>()]{1,2000}(?:\([^\s<>()]{0,200}\)[^\s<>()]{0,2000})?)>?(?:\s[^)\n]{0,500})?\)|\[(?P<name>[^\[\]\n]{0,200})\]|(?![:(\[]))"
    r"|<(?P<address>https?://[^<>|\s]{1,2000})\|(?P<words>[^<>\n]{0,500})>"
)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_MARKS = str.maketrans("", "", "*~`")
_BLANK_LINE = re.compile(r"(\n[ \t]*\n)")
_IMAGE = re.compile(r"(?P<before>[\\!]?)!(?=\[)")
_MENTION = re.compile(r"<(?=[!@])")
_EVERYONE = re.compile(
    r"(?<![A-Za-z0-9.%+-])@(?=(?:channel|here|everyone)(?![A-Za-z0-9]))", re.ASCII | re.IGNORECASE
)


def render(markdown: str) -> str:
    """Return Markdown in which images are links and mentions are plain text."""
    inert = _with_hosts(_without_images(text.clean(markdown)))
    inert = _MENTION.sub("<" + _ZERO_WIDTH, inert)
    return _EVERYONE.sub("@" + _ZERO_WIDTH, inert)


def size(markdown: str) -> int:
    """Return an upper bound of the length after `render`. `split` calls this function often, so it does not render the text."""
    return (
        len(markdown)
        + markdown.count("<!")
        + markdown.count("<@")
        + markdown.count("@")
        + markdown.count("![")
        + max(0, len(_with_hosts(markdown)) - len(markdown))
    )


def split(markdown: str) -> list[str]:
    return text.split(markdown, LIMIT, size)


def _with_hosts(markdown: str) -> str:
    """Append the host to each link whose label looks like another host, in any of the forms of Markdown and Slack (`<…|…>`).
    Links in code change too, because the text is not parsed.
    """
    if "](" not in markdown and "][" not in markdown and "|" not in markdown and "]:" not in markdown:
        return markdown
    defined = {found["name"].casefold(): found["url"] for found in _DEFINED.finditer(markdown)}

    def shown(match: re.Match[str]) -> str:
        label = match["label"] or match["words"] or ""
        name = match["name"]
        url = match["url"] or match["address"] or defined.get((name or label).casefold(), "")
        # Slack shows the label without emphasis marks, escapes and entities.
        words = text.unescaped(_ESCAPED.sub(r"\1", label.translate(_MARKS)))
        # An underscore may be a mark of emphasis, or part of the host's name.
        host = text.real_host(words, url) or text.real_host(words.replace("_", ""), url)
        whole = text.without_direction(match[0]) if url else match[0]
        return whole if host is None else f"{whole} ({host})"

    return _LINK.sub(shown, markdown)


def _without_images(markdown: str) -> str:
    """Change every `!` that may begin an image, so that no image begins there.

    An image needs `](` or `][` in the same paragraph, or a link definition anywhere in the text. The text is not parsed, so
    some `!` in code change too.
    """
    if "![" not in markdown:
        return markdown
    everywhere = _DEFINITION.search(markdown) is not None
    return "".join(
        _IMAGE.sub(_defused, part) if everywhere or "](" in part or "][" in part else part
        for part in _BLANK_LINE.split(markdown)
    )


def _defused(match: re.Match[str]) -> str:
    # After another "!" or a backslash, removing the "!" would form a new image or escape. An invisible space prevents this.
    before = match.group("before")
    return f"{before}!{_ZERO_WIDTH}" if before else ""


FALLBACK = 3_000  # Max characters of a notification's text
MAX_TITLE, MAX_SECTION = 150, 3_000  # Max characters of a header and of a section (limits of Slack)
CARDS, THUMBS = "task cards", "thumbs"
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""Slack's error codes for blocks that it refuses."""
_SHOWN_WHOLE: frozenset[Choice] = frozenset({"again", "renew"})
"""Choices of messages that ask for no approval. A notification may show such a message as a whole."""


class BlockWriter:
    """Sends task cards and thumbs (rating buttons) as blocks. If Slack refuses cards or thumbs, they are never sent again."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._refused: set[str] = set()

    def has_thumbs(self, message: Outbound) -> bool:
        """Return True if thumbs belong below the message: it is the last part of an answer in a direct chat."""
        return THUMBS not in self._refused and message.ends and is_direct(message.target["channel"])

    async def write(
        self, call: Callable[..., Awaitable[Any]], message: Outbound, markdown: str, **where: Any
    ) -> Any:
        """Call `chat.postMessage` or `chat.update` with a message's blocks. Raises the exceptions of `call`."""
        forms: dict[str, Json] = {}
        if message.cards and CARDS not in self._refused:
            tasks = [_task(card) for card in message.cards]
            forms[CARDS] = _blocks(message.text, {"type": "plan", "title": message.title, "tasks": tasks})
        if self.has_thumbs(message) and message.buttons is None:
            words = {"type": "markdown", "text": markdown}
            forms[THUMBS] = _blocks(markdown, words, thumbs(message.language))
        for form, content in forms.items():
            try:
                return await call(**where, **content)
            except SlackApiError as error:
                code = web_api.error_code(error)
                if code not in REFUSED:
                    raise
                self._refused.add(form)
                self._log.write("delivery", f"Slack does not take {form}", level="warn", error=code)
        if message.buttons is None:
            return await call(**where, markdown_text=markdown)
        return await call(**where, **_with_buttons(markdown, message.buttons, message.language))


def _blocks(fallback: str, *blocks: Json) -> Json:
    return {"text": text.head(fallback, FALLBACK), "blocks": list(blocks)}


def thumbs(language: str) -> Json:
    with speaking(language):
        good, bad = (
            {
                "text": {"type": "plain_text", "text": say(f"buttons.{which}")},
                "accessibility_label": say(f"buttons.{which}_label"),
                "value": f"rating {which}",
            }
            for which in ("good", "bad")
        )
    buttons = {"positive_button": good, "negative_button": bad}
    element = {"type": "feedback_buttons", "action_id": "rating"} | buttons
    return {"type": "context_actions", "elements": [element]}


def _with_buttons(markdown: str, asked: QuestionButtons, language: str) -> Json:
    elements = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": label},
            "action_id": f"approval_{choice}",
            "value": value,
        }
        for choice, (label, value) in approval_buttons.offered(asked, language).items()
    ]
    # Slack shows `fallback` in notifications, even on a locked phone, so the tool call that needs an approval is left out.
    fallback = markdown if _SHOWN_WHOLE & {*asked.choices} else markdown.partition("\n\n")[0]
    # A decided question has no buttons. The question still needs blocks, because without blocks Slack keeps the old buttons.
    actions = [{"type": "actions", "elements": elements}] if elements else []
    return _blocks(fallback, {"type": "markdown", "text": markdown}, *actions)


def _task(card: Card) -> Json:
    task: Json = {"type": "task_card", "task_id": card.id, "title": card.title, "status": card.state}
    if card.detail:
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": card.detail}]}
        task["details"] = {"type": "rich_text", "elements": [section]}
    return task


def home(sections: tuple[HomeSection, ...]) -> Json:
    blocks: list[Json] = []
    for section in sections:
        title = text.head(section.title, MAX_TITLE)
        lines = text.head("\n".join(f"• {escape(line)}" for line in section.lines), MAX_SECTION)
        blocks += [
            {"type": "header", "text": {"type": "plain_text", "text": title}},
            {"type": "section", "text": {"type": "mrkdwn", "text": lines, "verbatim": True}},
        ]
    return {"type": "home", "blocks": blocks}
