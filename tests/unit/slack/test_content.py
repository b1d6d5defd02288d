"""The text of a message as a person reads it: blocks, mentions, channels and addresses."""

from __future__ import annotations

from typing import Any

import pytest

from channels.slack.content import TOO_DEEP, nobody, readable, text_of


def section(*elements: dict[str, Any], kind: str = "rich_text_section") -> dict[str, Any]:
    return {"type": kind, "elements": list(elements)}


def words(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def rich(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": list(parts)}


LIST = section(section(words("eggs")), section(words("milk")), kind="rich_text_list")
CELLS = [[rich(section(words("a"))), rich(section(words("b")))], [rich(section(words("1"))), {"type": "x"}]]


@pytest.mark.parametrize(
    ("block", "read"),
    [
        (rich(section(words("Hello "), words("there"))), "Hello there"),
        (rich(section(words("if a < b & c > d"))), "if a &lt; b &amp; c &gt; d"),
        (rich(section(words("one\ntwo"), kind="rich_text_quote")), "> one\n> two"),
        (rich(section(words("x = 1"), kind="rich_text_preformatted")), "x = 1"),
        (rich(LIST), "• eggs\n• milk"),
        ({"type": "table", "rows": CELLS}, "a | b\n1 | "),
        (rich(section({"type": "user", "user_id": "U1"})), "<@U1>"),
        (rich(section({"type": "channel", "channel_id": "C1"})), "<#C1>"),
        (rich(section({"type": "usergroup", "usergroup_id": "S1"})), "<!subteam^S1>"),
        (rich(section({"type": "broadcast", "range": "here"})), "<!here>"),
        (rich(section({"type": "user", "user_id": "U1>\n<@U2|"})), "<@U1@U2>"),
        (rich(section(words("<@U1>"))), "&lt;@U1&gt;"),
        (
            rich(section({"type": "link", "url": "https://a.test", "text": "there"})),
            "<https://a.test|there>",
        ),
        (rich(section({"type": "link", "url": "https://a.test"})), "<https://a.test>"),
        (rich(section({"type": "emoji", "name": "wave"})), ":wave:"),
        (rich(section({"type": "date", "fallback": "Monday"})), "Monday"),
        (rich(section({"type": "color", "value": "#fff"})), "#fff"),
        (rich(section({"type": "new", "elements": [section(words("inside"))]})), "inside"),
        ({"type": "image", "title": {"type": "plain_text", "text": "A cat"}}, "[image: A cat]"),
        ({"type": "image", "alt_text": "a < b"}, "[image: a &lt; b]"),
        ({"type": "video"}, "[video]"),
        ({"type": "section", "text": {"type": "mrkdwn", "text": "*bold* <@U1>"}}, "*bold* <@U1>"),
        ({"type": "section", "text": {"type": "plain_text", "text": "<@U1>"}}, "&lt;@U1&gt;"),
        (
            {"type": "section", "fields": [{"type": "plain_text", "text": word} for word in ("a", "b")]},
            "a\nb",
        ),
        ({"type": "header", "text": {"text": {"type": "mrkdwn", "text": "_deep_"}}}, "_deep_"),
        ({"type": "card", "title": "T", "subtitle": "S", "body": "B"}, "T\nS\nB"),
        ({"type": "new", "child_blocks": [rich(section(words("child")))]}, "child"),
        ({"type": "rich_text", "elements": "none", "text": 3}, ""),
        ({"type": "table", "rows": {}}, ""),
        ({"type": "divider"}, ""),
    ],
)
def test_blocks_are_read_as_the_text_of_a_message(block: dict[str, Any], read: str) -> None:
    assert text_of([block]) == read


@pytest.mark.parametrize("blocks", [None, "words", {}, [None, 3, "words"]])
def test_what_is_no_list_of_blocks_has_no_words(blocks: Any) -> None:
    assert text_of(blocks) == ""


def test_blocks_nested_without_end_are_read_to_a_fixed_depth() -> None:
    nested: dict[str, Any] = {"type": "rich_text", "elements": []}
    for kind in ("rich_text", "rich_text_section", "table") * 5_000:
        nested = {"type": kind, "elements": [nested], "rows": [[nested]]}
    assert text_of([nested, {"type": "markdown", "text": "after"}]) == f"{TOO_DEEP}\nafter"


NAMES = {
    "U1": "Ada",
    "U2": "Eve (U1)",
    "U3": "<@U1> &lt;b",
    "U4": "\u202eadA",
    "U5": "（U1）",
}


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("<@U1> <@U1|old>", "@Ada (U1) @Ada (U1)"),
        ("<@U2>", "@Eve U1 (U2)"),
        ("<@U3>", "@U1 lt b (U3)"),
        ("<@U4>", "@adA (U4)"),
        ("<@U5>", "@U1 (U5)"),
        ("<@U9> <@U9|x> <@no>", "<@U9> <@U9|x> <@no>"),
        ("<#C1|général> <#C1> <#C1|>", "#général (C1) <#C1> <#C1|>"),
        ("<!here> <!subteam^S1|@devs> <!date^1^{date}|today>", "@here @devs today"),
        ("<https://a.test/?a=1&amp;b=2>", "https://a.test/?a=1&b=2"),
        (
            "<https://a.test|a.test> <http://b.test|this &amp; that>",
            "https://a.test this & that (http://b.test)",
        ),
        ("<https://evil.test|https://good.test>", "https://good.test (https://evil.test)"),
        ("<mailto:a@b.test|a@b.test> <tel:+49|+49>", "a@b.test +49"),
        ("&lt;@U1&gt; &lt;https://a.test|b&gt; &amp;lt;", "<@U1> <https://a.test|b> &lt;"),
        ("1 < 2 > 0 <angles> <> <<@U1>>", "1 < 2 > 0 <angles> <> <@Ada (U1)>"),
    ],
)
def test_a_text_names_people_channels_and_addresses(source: str, read: str) -> None:
    assert readable(source, NAMES.get) == read


def test_without_names_the_ids_stay() -> None:
    assert readable("<@U1> <http://a.test|b>", nobody) == "<@U1> b (http://a.test)"
