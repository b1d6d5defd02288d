"""Makes the model's Markdown safe for Slack, and writes blocks (buttons, thumbs, task cards, the Home tab) and streams.
Mentions notify nobody, images are not loaded, and links show their hosts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from slack_sdk.errors import SlackApiError

from bot import text
from bot.contracts.approvals import Choice
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection
from bot.contracts.environment import Clock
from bot.contracts.messages import Card, Outbound
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
    # Remove the "!". After another "!" or a backslash, that would form a new image or escape, so insert an invisible space
    # instead.
    before = match.group("before")
    return f"{before}!{_ZERO_WIDTH}" if before else ""


FALLBACK = 3_000  # Max characters of a notification's text
MAX_TITLE, MAX_SECTION = 150, 3_000  # Max characters of a header and of a section (limits of Slack)
CARDS, THUMBS, STREAMS = "task cards", "thumbs", "streams"  # Features that a workspace may lack
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "unsupported_block_type", "block_mismatch"})
"""Slack's error codes for blocks that it refuses."""
_SHOWN_WHOLE: frozenset[Choice] = frozenset({"again", "renew"})
"""Choices that no approval question has. A notification may show a message with such a choice as a whole."""


def _has_thumbs(client: web_api.WebClient, message: Outbound) -> bool:
    return THUMBS not in client.lacking and message.ends and is_direct(message.target["channel"])


async def write(
    call: Callable[..., Awaitable[Any]],
    client: web_api.WebClient,
    message: Outbound,
    markdown: str,
    **where: Any,
) -> Any:
    """Send a message's blocks with `call`, which is `chat.postMessage` or `chat.update` of `client`. Once Slack refuses cards
    or thumbs, this process sends no more of them. Raises the exceptions of `call`.
    """
    forms: dict[str, Json] = {}
    if message.cards and CARDS not in client.lacking:
        tasks = [_task(card) for card in message.cards]
        forms[CARDS] = _blocks(message.text, {"type": "plan", "title": message.title, "tasks": tasks})
    if _has_thumbs(client, message) and message.buttons is None:
        words = {"type": "markdown", "text": markdown}
        forms[THUMBS] = _blocks(markdown, words, _thumbs(message.language))
    for form, content in forms.items():
        try:
            return await call(**where, **content)
        except SlackApiError as error:
            if web_api.error_code(error) not in REFUSED:
                raise
            client.lacks(form, error)
    if (asked := message.buttons) is None:
        return await call(**where, markdown_text=markdown)
    elements = [
        {"type": "button", "text": _plain(label), "action_id": f"approval_{choice}", "value": value}
        for choice, (label, value) in approval_buttons.offered(asked, message.language).items()
    ]
    # Slack shows `fallback` in notifications, even on a locked phone, so the tool call that needs an approval is left out.
    fallback = markdown if _SHOWN_WHOLE & {*asked.choices} else markdown.partition("\n\n")[0]
    # A decided question has no buttons. The question still needs blocks, because without blocks Slack keeps the old buttons.
    actions = [{"type": "actions", "elements": elements}] if elements else []
    return await call(**where, **_blocks(fallback, {"type": "markdown", "text": markdown}, *actions))


def _blocks(fallback: str, *blocks: Json) -> Json:
    return {"text": text.head(fallback, FALLBACK), "blocks": list(blocks)}


def _thumbs(language: str) -> Json:
    buttons: Json = {}
    with speaking(language):
        for which, key in (("good", "positive_button"), ("bad", "negative_button")):
            words, label = _plain(say(f"buttons.{which}")), say(f"buttons.{which}_label")
            buttons[key] = {"text": words, "accessibility_label": label, "value": f"rating {which}"}
    element = {"type": "feedback_buttons", "action_id": "rating", **buttons}
    return {"type": "context_actions", "elements": [element]}


def _plain(words: str) -> Json:
    return {"type": "plain_text", "text": words}


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
            {"type": "header", "text": _plain(title)},
            {"type": "section", "text": {"type": "mrkdwn", "text": lines, "verbatim": True}},
        ]
    return {"type": "home", "blocks": blocks}


# -- streams -------------------------------------------------------------------------------------------------------

MAX_PER_MINUTE = 15
"""Max streams started per minute. Slack accepts about twenty `chat.stopStream` calls per minute and workspace."""
MAX_SECONDS = 270.0
"""Max age in seconds of a stream, after which its message is edited instead. Slack itself stops a stream after five minutes."""
_MAYBE_LINK = re.compile(r"\w://|\bwww\.", re.IGNORECASE)
"""Pattern of text that may be a link. Links are not streamed, because Slack would fetch them (streams have no `unfurl_links`)."""
_NO_WORDS = re.compile(r"\W|_")


@dataclass(slots=True)
class _Stream:
    """Text that Slack has confirmed for an open stream. If `unsure`, a response was lost, so Slack may have received more."""

    began: float
    words: str
    unsure: bool = False


@dataclass(eq=False)
class Streams:
    """Streams that this process has opened. Methods raise `web_api.CALL_ERRORS`. While a stream of an earlier process is
    open, an edit of its message fails with `web_api.CONFLICT`.
    """

    client: web_api.WebClient
    clock: Clock
    _started: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_PER_MINUTE))
    open: dict[tuple[str, str], _Stream] = field(
        default_factory=dict
    )  # keys are the channel and the `ts` of the message

    async def begin(self, message: Outbound) -> str | None:
        """Start a stream and return its `ts`. Return None if the message must be posted instead. After a workspace has
        refused streams as unsupported, no stream is started again.
        """
        channel, root = message.target["channel"], message.target.get("thread_ts")
        words = render(message.sure)
        now = self.clock.monotonic()
        full = len(self._started) == MAX_PER_MINUTE and now - self._started[0] < 60.0
        fits = message.goes_on and is_direct(channel) and words.strip() and not _MAYBE_LINK.search(words)
        if root is None or full or STREAMS in self.client.lacking or not fits:
            return None
        self._started.append(now)
        try:
            answer = await self.client.chat_startStream(channel=channel, thread_ts=root, markdown_text=words)
        except web_api.CALL_ERRORS as error:
            if web_api.may_pass(error):
                raise
            if web_api.error_code(error) in web_api.UNSUPPORTED:
                self.client.lacks(STREAMS, error)
            return None
        ts = str(answer["ts"])
        self.open[channel, ts] = _Stream(now, words)
        return ts

    async def show(self, message: Outbound, markdown: str, place: tuple[str, str], metadata: Json) -> bool:
        """Append to a message's stream; stop the stream if the message is final. Return False if the message must be edited
        instead.
        """
        channel, ts = place
        stream = self.open.get(place)
        if stream is None:
            return False
        words = render(message.sure) if message.goes_on else markdown
        rest = words[len(stream.words) :]
        held_back = message.goes_on and stream.words.startswith(words)
        grows = words.startswith(stream.words) and not _MAYBE_LINK.search(words)
        too_old = self.clock.monotonic() - stream.began > MAX_SECONDS
        if stream.unsure or too_old or not (held_back or grows):
            await self.end(place)
            return False
        content: Json = {"markdown_text": rest} if rest else {}
        try:
            if not message.goes_on:
                if _has_thumbs(self.client, message):
                    content["blocks"] = [_thumbs(message.language)]
                await self.client.chat_stopStream(channel=channel, ts=ts, metadata=metadata, **content)
                self.open.pop(place, None)
            elif rest:
                await self.client.chat_appendStream(channel=channel, ts=ts, markdown_text=rest)
        except web_api.CALL_ERRORS as error:
            if web_api.may_pass(error):
                stream.unsure = not web_api.is_rate_limited(error)
                raise
            await self.end(place)
            return False
        if rest:
            stream.words = words
        return True

    async def end(self, place: tuple[str, str]) -> None:
        """Stop a stream and keep its text, so that its message can be edited."""
        channel, ts = place
        try:
            await self.client.chat_stopStream(channel=channel, ts=ts)
        except web_api.CALL_ERRORS as error:
            # A permanent refusal is ignored: Slack stops the stream itself within five minutes. Until then, edits fail with
            # CONFLICT.
            if web_api.may_pass(error):
                raise
        self.open.pop(place, None)


def begun_as(message: Outbound, post: Json) -> bool:
    """Return True if a post of the bot is an open stream of `message`. Such a post has no metadata, so its text is compared."""
    posted = text.unescaped(str(post.get("text") or ""))
    shown, words = (_NO_WORDS.sub("", markdown) for markdown in (posted, message.text))
    return "metadata" not in post and bool(shown) and (words.startswith(shown) or shown.startswith(words))
