"""If the text of a link looks like another host, every platform shows the real host."""

from __future__ import annotations

import pytest

from bot import text
from channels.slack import render as slack
from channels.telegram import render as telegram
from channels.web import markdown as web


def on_page(said: str) -> str:
    """Return the text that the web page shows of a message."""

    def words(node: object) -> str:
        return (
            node if isinstance(node, str) else "".join(map(words, node[2:] if isinstance(node, list) else ()))
        )

    return "".join(map(words, web.nodes(said)))


EVIL = "https://evil.example/x"
HIDING = {
    "https://good.example": EVIL,
    "good.example": EVIL,
    "sign in at GOOD.example/login": EVIL,
    "www.good.example": EVIL,
    "good\u3002example": EVIL,
    "g\u200bood.exa\u00admple": EVIL,
    "\u202eelpmaxe.doog\u202c good.example": EVIL,
    "ｇｏｏｄ.example": EVIL,
    "evil.example.good.example": EVIL,
    "good.example ": "https://good.example.evil.example/",
    "good": "https://good.example@evil.example/",
    "bank": "https://user:word@evil.example/",
    "192.168.1.1": EVIL,
    "the router at localhost": EVIL,
}
HONEST = {
    "the page": EVIL,
    "evil.example": EVIL,
    "https://evil.example/x": EVIL,
    "www.evil.example": EVIL,
    "on evil.example": "https://docs.evil.example/",
    "see main.js and index.html, 1.2.3, e.g. this": EVIL,
    "你好，这里": EVIL,
}


@pytest.mark.parametrize("label", HIDING)
def test_what_hides_a_host_shows_it(label: str) -> None:
    url = HIDING[label]
    host = url.partition("//")[2].rpartition("@")[2].partition("/")[0]
    assert text.real_host(label, url) == host
    shown = telegram.render(f"look: [{label}]({url})!").text
    assert f" ({host})!" in shown
    assert f" ({host})!" in on_page(f"look: [{label}]({url})!")
    assert not set(shown + on_page(f"look: [{label}]({url})!")) & set("\u202e\u202c")
    for form in (f"[{label}]({url})", f"[{label}][1]\n\n[1]: {url}", f"<{url}|{label}>"):
        out = slack.render(f"look: {form}")
        assert f" ({host})" in out
        assert not set(out) & set("\u202e\u202c")
        assert len(out) <= slack.size(f"look: {form}")


@pytest.mark.parametrize(
    "label",
    [
        "**good**.example",
        "g*oo*d.example",
        "go_o_d.example",
        "`good.example`",
        r"good\.example",
        "good&#46;example",
        "good&period;example",
        "~~good~~.example",
    ],
)
def test_marks_in_the_words_hide_no_host(label: str) -> None:
    for form in (f"[{label}]({EVIL})", f"[{label}][1]\n\n[1]:\n  {EVIL}", f"[{label}]\n\n[{label}]: {EVIL}"):
        assert " (evil.example)" in slack.render(f"look: {form}"), form
        assert len(slack.render(f"look: {form}")) <= slack.size(f"look: {form}")
    assert " (evil.example)" in telegram.render(f"look: [{label}]({EVIL})").text
    assert " (evil.example)" in on_page(f"look: [{label}]({EVIL})")


@pytest.mark.parametrize("label", HONEST)
def test_what_hides_nothing_stays_as_it_is(label: str) -> None:
    url = HONEST[label]
    assert text.real_host(label, url) is None
    assert telegram.render(f"look: [{label}]({url})!").text == f"look: {label}!"
    assert on_page(f"look: [{label}]({url})!") == f"look: {label}!"
    assert slack.render(f"look: [{label}]({url})") == f"look: [{label}]({url})"


@pytest.mark.parametrize("host", ["gооd.example", "ɡοοd.example", "аррӏе.com", "bücher.example"])
def test_letters_that_look_alike_are_written_out(host: str) -> None:
    assert (text.real_host(host, f"https://{host}/") or "").startswith("xn--")
    assert "(xn--" in telegram.render(f"[{host}](https://{host}/)").text
    assert "(xn--" in on_page(f"[{host}](https://{host}/)")
    assert "(xn--" in on_page(f"[look](https://{host}/)")
    assert "(xn--" in slack.render(f"[{host}](https://{host}/)")


@pytest.mark.parametrize("url", ["mailto:a@b.example", "not an address", "https://[", "https://", ""])
def test_what_is_no_address_of_the_web_has_no_host(url: str) -> None:
    assert text.real_host("good.example", url) is None


def test_many_brackets_take_no_time() -> None:
    for words in ("[" * 20_000, "[a.b](" * 5_000, "<https://a.b|" * 3_000, "[a][" * 8_000, "a." * 20_000):
        slack.render(words)
        web.nodes(words)
        text.real_host(words, EVIL)
