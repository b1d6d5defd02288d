"""Tables and headings as a rich message: blocks that the service takes, with all the words, and nothing that it could parse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.testing.telegram_rich import checked_rich
from channels.telegram import rich
from tests.shares import examples

TABLE = "| Name | 值 |\n|:--|--:|\n| **a** | `x` |\n| 你 | |\n"


def blocks(markdown: str) -> list[dict[str, Any]]:
    found = rich.blocks(markdown)
    assert found is not None
    checked_rich({"blocks": list(found)})
    return list(found)


def words(markdown: str) -> str:
    return checked_rich({"blocks": blocks(markdown)})[1]


def test_a_table_keeps_sides_and_styles_and_no_cell_is_invisible() -> None:
    (table,) = blocks(TABLE)
    assert table["is_bordered"] is True
    head, first, second = table["cells"]
    assert head == [
        {"align": "left", "valign": "top", "is_header": True, "text": "Name"},
        {"align": "right", "valign": "top", "is_header": True, "text": "值"},
    ]
    assert [cell["text"] for cell in first] == [{"type": "bold", "text": "a"}, {"type": "code", "text": "x"}]
    assert [cell["text"] for cell in second] == ["你", "\u00a0"]


def test_headings_lists_tasks_quotes_and_code_are_what_they_are() -> None:
    found = blocks(
        "## Plan\n\n1. first\n   - [x] done\n   - [ ] *open*\n\n> said\n> > before\n\n---\n```py\nx = 1\n```\n"
    )
    assert found[0] == {"type": "heading", "text": "Plan", "size": 2}
    (item,) = found[1]["items"]
    assert (item["value"], item["blocks"][0]["text"]) == (1, "first")
    done, left = item["blocks"][1]["items"]
    assert (done["has_checkbox"], done["is_checked"], done["blocks"][0]["text"]) == (True, True, "done")
    assert left == {
        "blocks": [{"type": "paragraph", "text": {"type": "italic", "text": "open"}}],
        "has_checkbox": True,
    }
    assert found[2]["blocks"][1] == {
        "type": "blockquote",
        "blocks": [{"type": "paragraph", "text": "before"}],
    }
    assert found[3:] == [{"type": "divider"}, {"type": "pre", "text": "x = 1", "language": "py"}]


@pytest.mark.parametrize(
    "markdown", ["", "plain **words**", "- a\n- b", "```\ncode\n```", "> quoted", "#no heading"]
)
def test_what_an_ordinary_message_shows_as_well_is_one(markdown: str) -> None:
    assert rich.blocks(markdown) is None


@pytest.mark.parametrize(
    "markdown",
    [
        "|" + " a |" * 21 + "\n|" + "---|" * 21 + "\n|" + " b |" * 21,
        "# h\n\n" + "word\n\n" * 500,
        "# h\n\n" + ">" * 17 + " deep",
    ],
    ids=["columns", "blocks", "levels"],
)
def test_what_the_service_would_refuse_is_ordinary(markdown: str) -> None:
    assert rich.blocks(markdown) is None


def test_a_link_that_hides_its_host_shows_it_and_images_and_html_stay_words() -> None:
    found = words(
        "# h\n\n[google.com](https://evil.example) ![pic](https://x.example/a.png) <tg-map lat='1'/> <b>no</b>"
    )
    assert "google.com (evil.example)" in found
    assert "https://x.example/a.png" in found
    assert "<tg-map lat='1'/> <b>no</b>" in found
    assert '"photo"' not in json.dumps(blocks("# h\n\n![pic](https://x.example/a.png)"))


PIECES = st.sampled_from(
    [
        *[
            "# h\n",
            TABLE,
            "\n",
            "\n\n",
            "- ",
            "- [x] ",
            "1. ",
            "> ",
            "    ",
            "**b**",
            "_i_",
            "||s||",
            "~~t~~",
            "`c`",
        ],
        *[
            "[l](https://a.example)",
            "![p](https://a.example/p)",
            "```\n",
            "---\n",
            "你好",
            "😀",
            "<b>",
            "|",
            "\\",
            "a b",
        ],
    ]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join))
@example("# h\n- ")
@example(f"{TABLE}\n||s||你好")
def test_whatever_it_makes_of_a_text_the_service_takes(markdown: str) -> None:
    found = rich.blocks(markdown)
    if found is None:
        return
    _, shown = checked_rich({"blocks": list(found)})
    for word in ("你好", "😀", "<b>"):
        assert shown.count(word) == markdown.count(word)
