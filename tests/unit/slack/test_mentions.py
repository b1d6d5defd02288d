"""`<…>` in a text of Slack as people read it."""

from __future__ import annotations

import pytest

from channels.slack.content import nobody, readable

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
