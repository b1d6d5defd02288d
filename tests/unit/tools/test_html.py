"""A fetched page becomes Markdown: what people would read of it, with its links, whatever is broken in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.tools.builtin.web import markdown_of
from tests.shares import examples

ADDRESS = "https://example.org/d/"


def test_a_page_becomes_headings_lists_links_and_words() -> None:
    page = """<!DOCTYPE html><html><head><title>Title &amp; more</title><style>p { color: red }</style>
    <script>var x = "<p>no</p>";</script></head><body><!-- <p>hidden</p> --><h2>Head</h2><p>One
    two&nbsp;<a class=x href="/a?b=1&amp;c=2">link</a></p><p style="display: none">no</p><p hidden>no</p>
    <textarea>no</textarea><img src="data:image/png;base64,AAAA">
    <ul><li>eins<li>zwei</ul><table><tr><th>a<th>b<tr><td>c<td>d</table>1 < 2 &lt;3&gt; 漢字</body></html>"""
    assert markdown_of(page, ADDRESS).split("\n") == [
        "---",
        "title: Title & more",
        "---",
        "",
        "## Head",
        "",
        "One",
        "two [link](https://example.org/a?b=1&c=2)",
        "",
        "- eins",
        "- zwei",
        "",
        "| a | b |",
        "| --- | --- |",
        "| c | d |",
        "",
        "1 < 2 <3> 漢字",
    ]


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<!--", "</", "<script>", "&#", '<a href="x">', "<p>", "<ul><li>", "<table><tr><td>"],
)
def test_no_page_takes_long(piece: str) -> None:
    began = time.process_time()
    markdown_of(piece * (200_000 // len(piece)), ADDRESS)
    assert time.process_time() - began < 5


def test_a_number_that_the_interpreter_does_not_read_is_no_error() -> None:
    number = f"&#{'9' * 5_000};"
    assert markdown_of(f"<p>a{number}<a href='/{number}'>b</a>", ADDRESS).startswith("a")


@given(before=st.text(max_size=40), words=st.text(alphabet="abc字😀", max_size=40))
@settings(derandomize=True, deadline=None, max_examples=examples(100))
def test_what_stands_in_a_paragraph_is_never_lost(before: str, words: str) -> None:
    clean = before.replace("<", "").replace("&", "")
    assert words in markdown_of(f"{clean}<p>{words}</p>", ADDRESS)
