from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bot.text import without_direction
from channels.slack import render
from tests.shares import examples

PIECES = [
    "<!channel>",
    "<!here|here>",
    "<!subteam^S123>",
    "<@U123>",
    "<",
    "!",
    "@",
    "@channel",
    "@here",
    "@everyone",
    "@Here",
    "[",
    "]",
    "(",
    ")",
    "![",
    "](",
    "][",
    "]: ",
    "\\",
    "`",
    "```\n",
    "\n",
    "\n\n",
    "> ",
    "- ",
    "http://x.y/z",
    "[a]: http://x.y",
    " ",
    "a",
    "_",
    "*",
    "\u200b",
    "世界",
    "مرحبا",
    "🚢",
    "👩‍👩‍👧",
    "\u202e",
    "\ud83d",
    "é",
    "&lt;",
]
markdown = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
MENTION = re.compile(r"<[!@]|(?<![A-Za-z0-9.%+-])@(channel|here|everyone)(?![A-Za-z0-9])", re.IGNORECASE)
PARSER = MarkdownIt("commonmark", {"html": False})


def kinds(tokens: list[Token]) -> set[str]:
    found = {token.type for token in tokens}
    return found.union(*(kinds(token.children) for token in tokens if token.children))


@settings(derandomize=True, deadline=None, max_examples=examples(500))
@given(markdown)
def test_no_text_notifies_everyone_or_anyone(text: str) -> None:
    assert MENTION.search(render.render(text)) is None


@settings(derandomize=True, deadline=None, max_examples=examples(500))
@given(markdown)
def test_no_text_holds_an_image(text: str) -> None:
    assert "image" not in kinds(PARSER.parse(render.render(text)))


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(markdown)
def test_what_people_read_stays(text: str) -> None:
    rendered = render.render(text)
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert len(rendered) <= render.size(text)
    strip = str.maketrans("", "", "!\u200b")
    # In a link, direction marks could make one address look like another.
    assert without_direction(rendered.translate(strip)) == without_direction(clean.translate(strip))
    assert "\ud83d" not in rendered


@settings(derandomize=True, deadline=None, max_examples=examples(50))
@given(markdown, st.integers(200, 2_000))
def test_every_part_fits_one_message(text: str, times: int) -> None:
    for part in render.split(text * times):
        rendered = render.render(part)
        assert 0 < len(rendered) <= render.LIMIT


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("![ship](https://e.x/a.png)", "[ship](https://e.x/a.png)"),
        ("see ![a][1]\n\n[1]: https://e.x", "see [a][1]\n\n[1]: https://e.x"),
        ("wow!![a](u)", "wow!!\u200b[a](u)"),
        ("<here|here>[\u202e] \u202eאב", "<here|here>[\u202e] \u202eאב"),
        ("let v = vec![1, 2];", "let v = vec![1, 2];"),
        ("vec![1]\n\nsee [a](u)", "vec![1]\n\nsee [a](u)"),
        ("<!channel> and <@U1>", "<\u200b!channel> and <\u200b@U1>"),
        ("@channel 你好@here", "@\u200bchannel 你好@\u200bhere"),
        ("mail joe@here.example or @herewith", "mail joe@here.example or @herewith"),
        ("<b> & 1 < 2 <#C1>", "<b> & 1 < 2 <#C1>"),
    ],
)
def test_only_what_must_change_changes(given: str, shown: str) -> None:
    assert render.render(given) == shown


@pytest.mark.parametrize(
    "bomb", ["[" * 50_000, "![" * 50_000, "`" * 50_000, "<!" * 50_000, "> " * 50_000, "a" * 1_000_000]
)
def test_bombs_are_rendered_in_no_time(bomb: str) -> None:
    begin = time.process_time()
    parts = [render.render(part) for part in render.split(bomb)]
    assert time.process_time() - begin < 3
    assert all(len(part) <= render.LIMIT for part in parts)
