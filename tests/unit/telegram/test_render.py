"""Tests of the conversion of Markdown to text and entities."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import text
from bot.testing import telegram_rules as rules
from channels.telegram import render
from tests.shares import examples


def shown(markdown: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the text and, for each entity, its type and the covered text. Check the entities by the server's rules."""
    rendered = render.render(markdown)
    spans = [
        {"type": e.type, "offset": e.offset, "length": e.length, "url": e.url} for e in rendered.entities
    ]
    rules.checked_entities(rendered.text, spans[: rules.ENTITY_LIMIT])
    raw = rendered.text.encode("utf-16-le")
    return rendered.text, [
        (e.type, raw[e.offset * 2 : e.end * 2].decode("utf-16-le")) for e in rendered.entities
    ]


@pytest.mark.parametrize(
    ("markdown", "expected", "entities"),
    [
        ("plain words", "plain words", []),
        ("**bold** and *it*", "bold and it", [("bold", "bold"), ("italic", "it")]),
        ("~~gone~~ `x = 1`", "gone x = 1", [("strikethrough", "gone"), ("code", "x = 1")]),
        ("**a *b* c**", "a b c", [("bold", "a b c"), ("italic", "b")]),
        ("**a `b` c**", "a b c", [("bold", "a "), ("code", "b"), ("bold", " c")]),
        ("[label](https://a.b/c)", "label", [("text_link", "label")]),
        ("[**b**](https://a.b)", "b", [("bold", "b"), ("text_link", "b")]),
        ("[`b`](https://a.b)", "b", [("text_link", "b")]),
        ("[](https://a.b)", "https://a.b", [("text_link", "https://a.b")]),
        ("<https://a.b>", "https://a.b", [("text_link", "https://a.b")]),
        ("<me@a.b>", "me@a.b", []),
        ("[x](javascript:alert)", "x javascript:alert", [("code", "javascript:alert")]),
        ("[doc](README.md)", "doc README.md", [("code", "README.md")]),
        ("![alt](https://a.b/i.png)", "alt https://a.b/i.png", [("code", "https://a.b/i.png")]),
        ("[![alt](https://a.b/i)](https://c.d)", "alt", [("text_link", "alt")]),
        ("![a\nb *c*](https://a.b)", "a b c https://a.b", [("code", "https://a.b")]),
        ("![a ![b](https://c.d)](https://e.f)", "a b https://c.d https://e.f", [("code", "https://e.f")]),
        ("[![](https://a.b/i)](https://c.d)", "https://a.b/i", [("text_link", "https://a.b/i")]),
        ("![]()", "![]()", []),
        ("**a " * 80 + "b** " * 80, "a " * 80 + "b " * 79 + "b", [("bold", "a " * 80 + "b " * 79 + "b")]),
        (
            "a ||hidden **b** `c`|| d",
            "a hidden b c d",
            [("spoiler", "hidden b "), ("bold", "b"), ("code", "c")],
        ),
        ("||[a](https://a.b)||", "a", [("text_link", "a"), ("spoiler", "a")]),
        ("||*a*|| **||b||**", "a b", [("italic", "a"), ("spoiler", "a"), ("spoiler", "b"), ("bold", "b")]),
        ("||剧透 🎉|| 和 ||二||", "剧透 🎉 和 二", [("spoiler", "剧透 🎉"), ("spoiler", "二")]),
        ("a || b || c", "a || b || c", []),
        ("*a ||b* c||", "a ||b c||", [("italic", "a ||b")]),
        ("||a", "||a", []),
        ("a|||b|||c", "a|||b|||c", []),
        ("`||a||`", "||a||", [("code", "||a||")]),
        ("- [ ] a\n- [x] **b**\n  - [X] c", "☐ a\n☑ b\n  ☑ c", [("bold", "b")]),
        ("1. [x] ||a||\n2. b", "1. ☑ a\n2. b", [("spoiler", "a")]),
        ("- [ ]\n- [a] b\n- [x](https://a.b)", "• [ ]\n• [a] b\n• x", [("text_link", "x")]),
        ("[ ] a", "[ ] a", []),
        ("# Title\ntext", "Title\ntext", [("bold", "Title")]),
        ("# A **b**", "A b", [("bold", "A b")]),
        ("Title\n=====", "Title", [("bold", "Title")]),
        ("a\n\n\n\nb", "a\n\nb", []),
        ("a  \nb\\\nc", "a\nb\nc", []),
        ("- a\n- b\n  - c\n- d", "• a\n• b\n  ◦ c\n• d", []),
        ("Here:\n- a\n\n- b", "Here:\n• a\n\n• b", []),
        ("3. a\n7) b", "3. a\n7) b", []),
        ("1. a\n   more", "1. a\n  more", []),
        ("- a\n\n  b", "• a\n\n  b", []),
        ("- - a", "• ◦ a", []),
        ("a\n-", "a", [("bold", "a")]),
        ("- a\n-", "• a\n•", []),
        ("- ```\n  x\n  ```", "•\nx", [("pre", "x")]),
        ("> a\n> b\n\nc", "a\nb\n\nc", [("blockquote", "a\nb")]),
        ("> a `b`\n> > c", "a b\nc", [("blockquote", "a b\nc"), ("code", "b")]),
        ("x\n> a", "x\na", [("blockquote", "a")]),
        ("```py title\nf()\n\n  g()\n```", "f()\n\n  g()", [("pre", "f()\n\n  g()")]),
        ("```\nnever closed", "never closed", [("pre", "never closed")]),
        ("text\n\n    code", "text\n\ncode", [("pre", "code")]),
        ("a\n\n---\nb", "a\n\n———\nb", []),
        ("List<int> <!channel> <b>x</b> <br> a&b", "List<int> <!channel> <b>x</b> <br> a&b", []),
        ("<div>\nblock\n</div>", "<div>\nblock\n</div>", []),
        ("\\*no\\* &amp; &copy;", "*no* & ©", []),
        ("[r][1]\n\n[1]: https://a.b", "[r][1]\n\n[1]: https://a.b", []),
        ("[note]: keep this", "[note]: keep this", []),
        ("#", "#", []),
        ("```\n```", "```\n```", []),
        ("a\0b", "a\ufffdb", []),
        ("a\r\nb\rc", "a\nb\nc", []),
        ("x\ud800y", "x\ufffdy", []),
        ("**你好** *مرحبا*", "你好 مرحبا", [("bold", "你好"), ("italic", "مرحبا")]),
        ("**重要：**请看*（这里）*的", "重要：请看（这里）的", [("bold", "重要："), ("italic", "（这里）")]),
        ("ここの**「注意」**です", "ここの「注意」です", [("bold", "「注意」")]),
        ("~~旧：~~新", "旧：新", [("strikethrough", "旧：")]),
        ("**甲：**乙**丙：**丁", "甲：乙丙：丁", [("bold", "甲："), ("bold", "丙：")]),
        ("_甲：_乙 foo**(bar)**baz", "_甲：_乙 foo**(bar)**baz", []),
        ("👨‍👩‍👧‍👦 **x** 🇪🇺 `y`", "👨‍👩‍👧‍👦 x 🇪🇺 y", [("bold", "x"), ("code", "y")]),
        ("**👍🏽** e\u0301 *क्षि*", "👍🏽 e\u0301 क्षि", [("bold", "👍🏽"), ("italic", "क्षि")]),
    ],
)
def test_markdown_is_shown_as_text_and_entities(
    markdown: str, expected: str, entities: list[tuple[str, str]]
) -> None:
    assert shown(markdown) == (expected, entities)


def test_a_code_block_keeps_its_language() -> None:
    (entity,) = render.render("```python\nx\n```").entities
    assert (entity.type, entity.language) == ("pre", "python")


def test_a_link_keeps_its_address() -> None:
    (entity,) = render.render("[你](https://a.b/?q=1&r=2)").entities
    assert entity.url == "https://a.b/?q=1&r=2"


def test_a_table_is_aligned_whatever_its_script() -> None:
    rows = [
        "| name | 价格 |",
        "|---|--:|",
        "| **你好** | `1` |",
        "| b | [x](https://a.b) |",
        "| c |",
        "| ☺️ | <https://a> |",
    ]
    table = "\n".join(rows)
    lines = [
        "name |            价格",
        "-----+----------------",
        "你好 |               1",
        "b    | x (https://a.b)",
        "c    |",
        "☺️   |       https://a",
    ]
    assert shown(table) == ("\n".join(lines), [("pre", "\n".join(lines))])


def test_cells_beyond_the_columns_of_a_table_stay() -> None:
    """An unescaped `|` inside a cell loses no text, also in a quote."""
    lines = "a | b\n--+-------------\n1 | 2 | 3 | 你好"
    for begins in ("", "> "):
        said = "\n".join(begins + line for line in ("| a | b |", "|---|---|", "| 1 | 2 | **3** | 你好 |"))
        assert lines in shown(said)[0]


def test_a_table_wider_than_any_screen_is_not_padded() -> None:
    wide = "w" * 200
    said, entities = shown(f"| a | b |\n|---|---|\n| {wide} | c |")
    assert said == f"a | b\n{wide} | c"
    assert [kind for kind, _ in entities] == ["pre"]


BOMBS = {
    "brackets": "[" * 50_000,
    "brackets in one message": "[" * 4000,
    "images": "![" * 2000,
    "links": "[a](" * 1000,
    "stars": "*" * 50_000,
    "stars in one message": "*a" * 2000,
    "quotes": ">" * 50_000,
    "quotes in one message": ">" * 4000 + "deep",
    "nested lists": "\n".join("  " * level + "- item" for level in range(1000)),
    "nested list in one message": "- " * 2000 + "deep",
    "rows": "| a | b |\n|---|---|\n" + "| x | y |\n" * 20_000,
    "fences": "```\n" * 1000,
    "ticks": " ".join("`" * run for run in range(1, 88)),
    "600 runs": "` `` " * 600,
    "references": "".join(f"[{n}]: https://a.b/{n}\n" for n in range(500)),
    "underscores": "*_" * 2000,
    "ampersands": "&" * 4000,
    "entities": "&#128512;" * 400,
    "lines": "\n" * 1_000_000,
    "zalgo": "a" + "\u0301" * 10_000,
    "bidi": "\u202e" * 2000 + "\u2066x" * 500,
    "tags": "\U000e0041" * 2000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_keeps_its_words_and_its_entities_are_valid(name: str) -> None:
    render.render.cache_clear()
    begun = time.process_time()
    said, _ = shown(BOMBS[name])
    took = time.process_time() - begun
    assert took < 2  # an idle machine takes a twentieth of this time
    for word in ("deep", "item", "x", "y"):
        assert (word in BOMBS[name]) == (word in said)


def test_nesting_that_the_parser_would_cut_is_shown_as_it_is() -> None:
    deep = "- " * 100 + "words"
    assert render.render(deep).text == deep


def test_more_brackets_than_the_parser_handles_quickly_are_shown_as_they_are() -> None:
    dear = "[" * 801 + " **a**"
    assert render.render(dear) == render.without_markup(dear)
    assert render.render(dear[1:]).entities


def test_text_over_the_cap_is_shown_as_it_is() -> None:
    long = "**a** " * 3000
    assert render.render(long) == render.without_markup(long)


MARKUP = st.lists(
    st.sampled_from(
        [
            *[
                "**",
                "*",
                "_",
                "~~",
                "`",
                "```",
                "```py\n",
                "\n",
                "\n\n",
                "> ",
                "- ",
                "  ",
                "    ",
                "1. ",
                "# ",
            ],
            *["[", "](https://a.b)", "](x y)", "![", "<", ">", "|", "|---|\n", "---\n", "\\", "&amp;", "<b>"],
            *["word", "你好", "👨‍👩‍👧‍👦", "🇪🇺", "e\u0301", "\u202e", "مرحبا", "\0", "\ud83d", "\t", " "],
        ]
    ),
    max_size=40,
).map("".join)


@settings(derandomize=True, deadline=None, max_examples=examples(600))
@given(MARKUP | st.text(max_size=200))
def test_whatever_is_rendered_is_accepted_by_telegram(markdown: str) -> None:
    rendered = render.render(markdown)
    spans = [
        {"type": e.type, "offset": e.offset, "length": e.length, "url": e.url} for e in rendered.entities
    ]
    if text.visible(rendered.text):
        rules.checked_text(rendered.text, spans[: rules.ENTITY_LIMIT], limit=10**6)
    else:
        assert not spans


WORDS = st.lists(
    st.sampled_from(
        [
            *[
                "**",
                "*",
                "_",
                "~~",
                "`",
                "\n",
                "\n\n",
                "> ",
                "- ",
                "  ",
                "1. ",
                "# ",
                "<i>",
                "|",
                "\n|---|\n",
            ],
            *["alpha ", "βeta ", "你好", "مرحبا ", "x1", "Q "],
        ]
    ),
    max_size=40,
).map("".join)


@settings(derandomize=True, deadline=None, max_examples=examples(600))
@given(WORDS)
def test_every_letter_of_the_source_is_shown_in_its_place(markdown: str) -> None:
    def letters(said: str) -> str:
        return "".join(char for char in said if char.isalpha())

    assert letters(render.render(markdown).text) == letters(markdown)


def test_what_is_hidden_is_hidden_before_its_end_is_there() -> None:
    """A preview of unfinished text must not show text that the final message hides."""
    said = "Answer: ||the butler *did* it|| and so on"
    hidden = "the butler did it"
    for end in range(len(said) + 1):
        rendered = render.render(said[:end], goes_on=True)
        raw = rendered.text.encode("utf-16-le")
        spoilers = [one for one in rendered.entities if one.type == "spoiler"]
        covered = "".join(raw[one.offset * 2 : one.end * 2].decode("utf-16-le") for one in spoilers)
        if end >= said.index("the") + 1 and "*" not in said[:end].replace("*did*", ""):
            assert covered.startswith(rendered.text.removeprefix("Answer: ")[: len(hidden)].rstrip("|"))
    assert "spoiler" not in {one.type for one in render.render(said[:20]).entities}
