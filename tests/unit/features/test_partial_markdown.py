"""A preview of an unfinished answer leaves no markup open, loses no word and is never refused."""

from __future__ import annotations

import random
import time

import pytest

from bot import text
from bot.features.live import GOES_ON
from bot.features.live.partial_markdown import RenderablePrefix, beginning, has_begun
from bot.testing import telegram_rules as rules
from bot.testing._slack_api import MARKDOWN_LIMIT
from channels.slack import render as slack
from channels.telegram import render
from tests.shares import one_in

ANSWERS = [
    "Hello **world** and *it* goes. `code` here.\n\n```py\nprint(1)\n```\nDone.",
    "See [the docs](https://example.com/a_b) and ![pic](https://x.y/z.png) or <https://a.b/c>.",
    "# Title **x**\n\n- item *one*\n- item `two`\n  1. nested __bold__\n\n> quote **b**\n> more\n\nEnd ~~gone~~ ok.",
    "| a | b |\n|---|---|\n| 1 | **2** |\n| 3 | 4 |\n\nAfter the table.",
    "Columns:\n\na | b\n--|--\n1 | 2\n\nThat is *all*.",
    "这是**重要**的：**请看。**`代码`和[链接](https://例子.cn/路径)。\n\n下一段*斜体*结束。",
    "日本語の**太字**です。「*引用*」と`コード`。",
    "Snake_case and 2 * 3 = 6, a\\*b, 5 > 3 & 2 < 4, AT&amp;T &lt;x&gt;.\n\n---\n\nNext ***both*** here.",
    "1. one\n2. two\n   ```sh\n   ls -la | wc\n   ```\n3. three\n\n- [ ] task\n- [x] done",
    "Use ``a `tick` inside`` and `x|y`, then **bold `code` bold** end.",
    '**Bold with a [link](https://a.b/c_d "title") inside** and *italic **bold** italic*.',
    "~~~\n**not bold**\n~~~\n\n    indented *code*\n\nand text.",
    "Call `f(*args, **kwargs)`; see https://example.com/x_y_z(1) for more. Really!",
    "مرحبا **بك** في *العالم*. هذا `رمز`.\n\n- أول\n- ثان **قوي**",
    "Emoji 👩‍👩‍👧 **👍🏽 fine** 🇪🇺 *e\u0301t\u00e9* end.",
    "> [!NOTE]\n> Quoted **strong**\n>\n> - in *list*\n\nOut.",
    "````md\n```py\nx = 1\n```\n````\nafter **that**.",
    "Setext **title**\n===\n\nSub\n---\n\nPara one\ngoes on *here\nand there*.",
    "* star item\n* another **one**\n  * deeper _x_\n+ plus\n\n10) ten",
    "Prices: $5 * 2 = $10 [sic] (see *note* [1]). Path C:\\dir\\*.txt and file_name_x.\n\n__All__ _done_.",
]


def closed(shown: RenderablePrefix) -> str:
    return shown.words + shown.closing


def seen(markdown: str) -> str:
    """Return the visible text, without white space and table borders."""
    return "".join(one for one in render.render(markdown).text if not one.isspace() and one not in "│─┼|-")


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_prefix_of_an_answer_is_shown_without_half_open_marks(answer: str, stride: int) -> None:
    whole, most = seen(answer), 0
    for end in range(0, len(answer) + 1, stride):
        shown = beginning(answer[:end])
        assert answer.startswith(shown.words)
        for words in (closed(shown), shown.words[: shown.sure]):
            assert not words.strip() or whole.startswith(seen(words)), (answer[:end], words)
        if shown.words:
            going_on = seen(closed(shown) + GOES_ON)
            assert going_on.endswith("…")
            assert whole.startswith(going_on.removesuffix("…")), (answer[:end], shown)
        most = max(most, len(shown.words))
    assert len(answer) - most <= 45, "no more is held back than what its end leaves open"


PIECES = [
    *(  # noqa: SIM905 - a list would take a page
        "**¦*¦_¦~~¦`¦``¦```¦```py\n¦~~~\n¦\n¦\n\n¦> ¦- ¦  ¦    ¦1. ¦# "
    ).split("¦"),
    *(  # noqa: SIM905 - a list would take a page
        "[¦](https://a.b)¦](¦][¦![¦<¦>¦|¦\n|---|\n¦---\n¦\\¦&amp;¦<b>¦https://a.b/"
    ).split("¦"),
    *(  # noqa: SIM905 - a list would take a page
        "word ¦你好¦👨‍👩‍👧‍👦¦🇪🇺¦e\u0301¦\u202e¦مرحبا¦\0¦\t¦ ¦<!channel>¦<@U1>¦@here ¦[a]: b\n"
    ).split("¦"),
]
WORDS = (  # noqa: SIM905 - a list would take a page
    "**¦*¦_¦~~¦`¦\n¦\n\n¦> ¦- ¦  ¦1. ¦# ¦<i>¦|¦\n|---|\n¦alpha ¦βeta ¦你好"
).split("¦")


def texts(part: int, pieces: list[str], count: int = 100) -> list[str]:
    rng = random.Random(part)
    return ["".join(rng.choices(pieces, k=rng.randint(1, 60))) for _ in range(count)]


@pytest.mark.parametrize("part", one_in(8, range(15)))
def test_whatever_is_shown_of_adversarial_texts_is_taken_and_keeps_its_words(part: int) -> None:
    for said in texts(part, PIECES):
        for end in range(0, len(said) + 1, 7):
            shown = beginning(said[:end])
            assert said.startswith(shown.words)
            assert 0 <= shown.sure <= len(shown.words)
            if not text.visible(closed(shown)):
                continue
            whole = closed(shown) + GOES_ON
            rendered = render.render(whole)
            rules.checked_text(
                rendered.text,
                [
                    {"type": e.type, "offset": e.offset, "length": e.length, "url": e.url}
                    for e in rendered.entities[: rules.ENTITY_LIMIT]
                ],
            )
            assert 0 < len(slack.render(whole)) <= MARKDOWN_LIMIT
    for said in texts(part, WORDS):
        for end in range(0, len(said) + 1, 7):
            shown = beginning(said[:end])
            assert letters(render.render(closed(shown)).text) == letters(render.render(shown.words).text)


def letters(said: str) -> str:
    return "".join(char for char in said if char.isalpha())


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("and **bol", "and"),
        ("and **bold* is", "and"),
        ("and **", "and"),
        ("a [label](https://a", "a"),
        ("a [label", "a"),
        ("see https://exam", "see"),
        ("see https://example.com/x ", "see https://example.com/x"),
        ("```py\nx = 1", "```py\nx = 1\n```"),
        ("text\n```py", "text"),
        ("- a\n  ```\n  x", "- a\n  ```\n  x\n  ```"),
        ("| a | b |\n|--", ""),
        ("| a |\n|---|\n| 1 |\n| 2", "| a |\n|---|\n| 1 |"),
        ("one\n- ", "one"),
        ("`co", ""),
        ("2 * 3 = 6", "2 * 3 = 6"),
        ("snake_case", "snake_case"),
        ("", ""),
        ("  \n", ""),
        ("|\n" * 40, ""),
    ],
)
def test_marks_are_closed_or_held_back(written: str, shown: str) -> None:
    assert closed(beginning(written)).rstrip() == shown


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("Half a sent", False),
        ("Version 3.1", False),
        ("A sentence. And", True),
        ("一句话。又", True),
        ("A line\nand", True),
        ("A line\n", False),
        ("See [it. Now](htt", False),
    ],
)
def test_an_answer_has_begun_with_its_first_whole_sentence_or_line(written: str, *, whole: bool) -> None:
    assert has_begun(written, beginning(written)) is whole


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 16_000,
        "*" * 16_000,
        "`" * 16_000,
        "`a" * 8_000,
        "**a " * 4_000,
        "<a" * 8_000,
        "http:" * 3_200,
        "\\" * 16_000,
        "|\n" * 8_000,
        "&" * 16_000,
        "> " * 8_000,
        "_a" * 8_000,
        "[a]( " * 3_200,
        "*a " * 2_700 + "x~~ " * 2_000,
        "a|b\n" + " " * 16_000 + "-x",
        "a|b\n" + " " * 16_000 + "-x\n",
    ],
)
def test_a_bomb_is_looked_through_in_no_time(bomb: str) -> None:
    began = time.process_time()
    assert isinstance(beginning(bomb), RenderablePrefix)
    assert time.process_time() - began < 1.0
