"""A page becomes text: what people would read of it, with its links, whatever is broken in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.tools.html import text_of
from tests.shares import examples


def test_a_page_becomes_headings_lists_links_and_words() -> None:
    page = """<!DOCTYPE html><html><head><title>Title &amp; more</title><style>p { color: red }</style>
    <script>var x = "<p>no</p>";</script></head><body><!-- <p>hidden</p> --><h2>Head</h2><p>One
    two&nbsp;<a class=x href="/a?b=1&amp;c=2">link</a>, <A HREF='#top'>top</A> <a href="javascript:x()">js</a></p>
    <ul><li>eins<li>zwei</ul><table><tr><td>a<td>b</table>1 < 2 &lt;3&gt; 漢字</body></html>"""
    assert text_of(page, "https://example.org/d/").split("\n") == [
        "Title & more",
        "",
        "## Head",
        "",
        "One two link <https://example.org/a?b=1&c=2>, top js",
        "",
        "- eins",
        "- zwei",
        "",
        "| a | b",
        "1 < 2 <3> 漢字",
    ]


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a ",
        "<a href='",
        "<!--",
        "<![",
        "</",
        "<script>",
        "&",
        "&#",
        "<p",
        '<a href="x">',
        "<p>",
        "<?",
        "\x00<",
    ],
)
def test_no_page_takes_long(piece: str) -> None:
    text_of(piece * (100_000 // len(piece)), "https://example.org/")


def test_a_number_that_the_interpreter_does_not_read_is_no_error() -> None:
    number = f"&#{'9' * 5_000};"
    assert text_of(f"<p>a{number}<a href='/{number}'>b</a>", "https://example.org/").startswith("a\ufffd")


@given(before=st.text(max_size=40), words=st.text(alphabet="abc字 😀", max_size=40))
@settings(derandomize=True, deadline=None, max_examples=examples(100))
def test_what_stands_in_a_paragraph_is_never_lost(before: str, words: str) -> None:
    clean = before.replace("<", "").replace("&", "")
    assert " ".join(words.split()) in text_of(f"{clean}<p>{words}</p>", "https://example.org/")
