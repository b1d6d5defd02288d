"""Renders the model's Markdown as Slack Markdown in which no mention notifies and no image loads."""

from __future__ import annotations

import re

from bot import text

LIMIT = 11_500
"""Characters of one message; Slack refuses more than 12,000."""

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
    """One part of an answer as it goes out: images are links, mentions are plain words."""
    inert = _with_hosts(_without_images(text.clean(markdown)))
    inert = _MENTION.sub("<" + _ZERO_WIDTH, inert)
    return _EVERYONE.sub("@" + _ZERO_WIDTH, inert)


def size(markdown: str) -> int:
    """At most this many characters come out of `render`; cheap, because `split` asks often."""
    return (
        len(markdown)
        + markdown.count("<!")
        + markdown.count("<@")
        + markdown.count("@")
        + markdown.count("![")
        + max(0, len(_with_hosts(markdown)) - len(markdown))
    )


def split(markdown: str) -> list[str]:
    """An answer as parts that each fit one message."""
    return text.split(markdown, LIMIT, size)


def _with_hosts(markdown: str) -> str:
    """The host beside each link whose words hide it: of a link, of one that is defined elsewhere, of Slack's own form. What is
    shown in code is looked at too; no parser is asked.
    """
    if "](" not in markdown and "][" not in markdown and "|" not in markdown and "]:" not in markdown:
        return markdown
    defined = {found["name"].casefold(): found["url"] for found in _DEFINED.finditer(markdown)}

    def shown(match: re.Match[str]) -> str:
        label = match["label"] or match["words"] or ""
        name = match["name"]
        url = match["url"] or match["address"] or defined.get((name or label).casefold(), "")
        words = _words(label)
        # A sign of emphasis or a part of a name: where one of both looks like another host, the host is shown.
        host = text.real_host(words, url) or text.real_host(words.replace("_", ""), url)
        whole = text.without_direction(match[0]) if url else match[0]
        return whole if host is None else f"{whole} ({host})"

    return _LINK.sub(shown, markdown)


def _words(label: str) -> str:
    """The words of a link as they are shown: without marks, escapes and entities."""
    return text.unescaped(_ESCAPED.sub(r"\1", label.translate(_MARKS)))


def _without_images(markdown: str) -> str:
    """Take the `!` from what may be an image. Code that only looks like one keeps it where no link follows.

    An image needs `](` or `][` in the same paragraph, or a link definition anywhere. Deciding this without
    a parser errs on the safe side, whatever Slack's own parser makes of brackets and backticks.
    """
    if "![" not in markdown:
        return markdown
    everywhere = _DEFINITION.search(markdown) is not None
    return "".join(
        _IMAGE.sub(_defused, part) if everywhere or "](" in part or "][" in part else part
        for part in _BLANK_LINE.split(markdown)
    )


def _defused(match: re.Match[str]) -> str:
    # After another "!" or a backslash the mark must stay, or a new image or a new escape would come about.
    before = match.group("before")
    return f"{before}!{_ZERO_WIDTH}" if before else ""
