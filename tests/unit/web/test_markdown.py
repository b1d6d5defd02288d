"""Markdown as nodes of the page: the node of each form, no markup from text, no slow parsing, and no lost text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pygments.token import Keyword

from channels.web import markdown
from channels.web.markdown import MOST, TAGS, nodes

KNOWN = {*TAGS.values(), "h3", "h4", "h5", "h6", "pre", "code", "span", "hr", "br", "a"}


def words(found: Any) -> str:
    return "".join(one if isinstance(one, str) else words(one[2:]) for one in found)


def tags(found: Any) -> set[str]:
    return {tag for one in found if not isinstance(one, str) for tag in (one[0], *tags(one[2:]))}


def link(address: str, said: str = "") -> list[Any]:
    return ["a", {"href": address}, said or address]


def coloured(kind: str, said: str) -> list[Any]:
    return ["span", {"token": kind}, said]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", []),
        ("plain", [["p", {}, "plain"]]),
        ("two\nlines\\\nmore", [["p", {}, "two", ["br", {}], "lines", ["br", {}], "more"]]),
        ("# a\n### *b*", [["h3", {}, "a"], ["h5", {}, ["em", {}, "b"]]]),
        ("###### deep", [["h6", {}, "deep"]]),
        ("**重要：**请看 ~~s~~", [["p", {}, ["strong", {}, "重要："], "请看 ", ["s", {}, "s"]]]),
        ("- a\n- b", [["ul", {}, ["li", {}, "a"], ["li", {}, "b"]]]),
        ("- a\n\n- b", [["ul", {}, ["li", {}, ["p", {}, "a"]], ["li", {}, ["p", {}, "b"]]]]),
        ("3. c\n   - d", [["ol", {"start": 3}, ["li", {}, "c", ["ul", {}, ["li", {}, "d"]]]]]),
        ("> q\n\n---", [["blockquote", {}, ["p", {}, "q"]], ["hr", {}]]),
        ("```<b> x\na < b\n\n```", [["pre", {"language": "<b>"}, ["code", {}, "a < b"]]]),
        ("```py\nif x:", [["pre", {"language": "Python"}, ["code", {}, coloured("k", "if "), "x:"]]]),
        (
            "```diff\n-b\n a\n+c",
            [["pre", {"language": "Diff"}, ["code", {}, coloured("d", "-b\n "), "a\n", coloured("i", "+c")]]],
        ),
        (
            "- [ ] a\n- [x] *b*",
            [["ul", {}, ["li", {"task": False}, "a"], ["li", {"task": True}, ["em", {}, "b"]]]],
        ),
        (
            "1. [X] a\n\n2. [x]b",
            [["ol", {}, ["li", {"task": True}, ["p", {}, "a"]], ["li", {}, ["p", {}, "[x]b"]]]],
        ),
        ("    indented", [["pre", {}, ["code", {}, "indented"]]]),
        ("a `<b>` c", [["p", {}, "a ", ["code", {}, "<b>"], " c"]]),
        ("<b>&amp;</b>", [["p", {}, "<b>&</b>"]]),
        ("[x](https://a.example/)", [["p", {}, link("https://a.example/", "x")]]),
        ("[](https://a.example/)", [["p", {}, link("https://a.example/")]]),
        ("<https://a.example/>", [["p", {}, link("https://a.example/")]]),
        ("[x](javascript:alert(1))", [["p", {}, "x", " ", ["code", {}, "javascript:alert(1)"]]]),
        ("![x](https://a.example/p.png)", [["p", {}, link("https://a.example/p.png", "x")]]),
        ("![](data:image/png,1)", [["p", {}, "data:image/png,1"]]),
        ("[![x](https://b.example)](https://a.example/)", [["p", {}, link("https://a.example/", "x")]]),
        ("(https://a.example/b_(c)).", [["p", {}, "(", link("https://a.example/b_(c)"), ")."]]),
        ("https://…!", [["p", {}, link("https://…"), " (...)", "!"]]),
        ("https://!!", [["p", {}, "https://!!"]]),
        ("[a]: https://a.example/", [["p", {}, "[a]: ", link("https://a.example/")]]),
    ],
)
def test_what_each_form_becomes(said: str, found: list[Any]) -> None:
    assert nodes(said) == found


def test_cells_beyond_the_columns_of_a_table_stand_in_the_last_one() -> None:
    assert "2 | 3" in str(nodes("| a | b |\n|---|---|\n| 1 | 2 | 3 |"))


def test_a_table_has_sides() -> None:
    (table,) = nodes("| a | b |\n|:-:|--:|\n| 1 | **2** |")
    head, body = table[2:]
    assert head == ["thead", {}, ["tr", {}, ["th", {"side": "center"}, "a"], ["th", {"side": "right"}, "b"]]]
    assert body[2][3] == ["td", {"side": "right"}, ["strong", {}, "2"]]


@pytest.mark.parametrize(
    "bomb",
    [
        ">" * MOST,
        "**" * 800 + "a" + "**" * 800,
        "[" * 790 + "a" * 30_000,
        "[" * MOST,
        "*" * MOST,
        "**a" * 10_000,
        "_a_" * 10_000,
        "- " * 16_000,
        "".join("  " * level + "- a\n" for level in range(170)),
        "|a|b|\n|-|-|\n" + "|1|2|\n" * 4_000,
        "".join("`" * count + "a" for count in range(1, 250)),
        "&amp;" * 6_000,
        "https://a.b/ " * 2_400,
        "https://a" + "!" * 30_000,
        "long\n" * 20_000,
        f"{'|a' * 2_000}|\n{'|-' * 2_000}|\n" + "|b\n" * 2_500,
        "> " + "|a" * 600 + "|\n> " + "|-" * 600 + "|\n" + "> b\n" * 3_000,
    ],
    ids=range(17),
)
def test_what_is_made_to_take_long_does_not_and_loses_no_letter(bomb: str) -> None:
    nodes.cache_clear()
    began = time.process_time()
    found = nodes(bomb)
    assert time.process_time() - began < 2
    assert tags(found) <= KNOWN
    assert words(found).count("a") == bomb.count("a") - (bomb.count("&amp;"))


def test_too_long_a_text_stays_as_it_is_with_its_lines_and_links() -> None:
    said = "*a*\nhttps://a.example/ " + "x" * MOST
    (paragraph,) = nodes(said)
    assert paragraph[:4] == ["p", {}, "*a*", ["br", {}]]
    assert paragraph[4] == link("https://a.example/")


def test_code_is_coloured_up_to_its_bounds_and_keeps_each_character() -> None:
    line = "x = 'é\\n' # 你好\n"
    code = line * (2 * markdown.MOST_COLOURED // len(line))
    found = markdown.divided(code, "python", seconds=60)
    assert "".join(words for _, words in found) == code
    assert {kind for kind, _ in found} <= set(markdown.CLASSES.values())
    kind, rest = found[-1]
    assert kind == ""
    assert markdown.MOST_COLOURED - len(line) < len(code) - len(rest) <= markdown.MOST_COLOURED
    assert markdown.divided(code, "python", seconds=-1) == [("", code)]
    long = "a" * (markdown.LONGEST_LINE + 1) + " = 1"
    assert markdown.divided(f"{long}\n{line}", "python") == [("", f"{long}\n{line}")]


def test_every_language_that_is_coloured_is_known_to_pygments_and_finishes_any_code(stride: int) -> None:
    labels = {markdown.label(name) for name in markdown.names().values()}
    assert {"Bash", "C++", "Python", "R", "TypeScript"} <= labels
    assert {*markdown.names().values()} == markdown.NAMES
    for alias in sorted(markdown.names())[::stride]:
        for code in ('"' * 900, "a:" * 400, "(\n" * 900, "<<EOF\n'{\"`\\", "0" * 900):
            began = time.thread_time()
            assert "".join(words for _, words in markdown.divided(code, alias)) == code
            assert time.thread_time() - began < 1


def test_a_language_whose_rules_fail_leaves_the_rest_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def get_tokens_unprocessed(self, code: str) -> Iterator[tuple[int, Any, str]]:
            yield 0, Keyword, code[:2]
            raise IndexError(code)

    monkeypatch.setattr(markdown, "find_lexer_class", lambda _: Broken)
    assert markdown.divided("if x:", "python") == [("k", "if"), ("", " x:")]
