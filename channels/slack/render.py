"""Makes the model's Markdown safe for Slack. Mentions notify nobody, images are not loaded, and links show their hosts."""

from __future__ import annotations

import re

from bot import text

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
    """Return a number that is not lower than the length after `render`. Faster than rendering, because `split` calls it often."""
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
        words = _words(label)
        # An underscore may be a mark of emphasis, or part of the host's name.
        host = text.real_host(words, url) or text.real_host(words.replace("_", ""), url)
        whole = text.without_direction(match[0]) if url else match[0]
        return whole if host is None else f"{whole} ({host})"

    return _LINK.sub(shown, markdown)


def _words(label: str) -> str:
    """Return a link's label as Slack shows it, without emphasis marks, escapes and entities."""
    return text.unescaped(_ESCAPED.sub(r"\1", label.translate(_MARKS)))


def _without_images(markdown: str) -> str:
    """Make every `!` harmless that may begin an image.

    An image needs `](` or `][` in the same paragraph, or a link definition anywhere in the text. The text is not parsed, so
    also some `!` in code are changed.
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
