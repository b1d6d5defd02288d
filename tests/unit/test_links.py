"""Words of a link that look like another host show the real one, on every platform."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bot import text
from channels.slack import render as slack
from channels.telegram import render as telegram

PAGE = Path(__file__).parents[2] / "channels/web/page/markdown.js"
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
    "münchen.example": "https://xn--mnchen-3ya.example/",
}


@pytest.mark.parametrize("label", HIDING)
def test_what_hides_a_host_shows_it(label: str) -> None:
    url = HIDING[label]
    host = url.partition("//")[2].rpartition("@")[2].partition("/")[0]
    assert text.real_host(label, url) == host
    shown = telegram.render(f"look: [{label}]({url})!").text
    assert f" ({host})!" in shown
    assert not set(shown) & set("\u202e\u202c")
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


@pytest.mark.parametrize("label", HONEST)
def test_what_hides_nothing_stays_as_it_is(label: str) -> None:
    url = HONEST[label]
    assert text.real_host(label, url) is None
    assert telegram.render(f"look: [{label}]({url})!").text == f"look: {label}!"
    assert slack.render(f"look: [{label}]({url})") == f"look: [{label}]({url})"


@pytest.mark.parametrize("host", ["gооd.example", "ɡοοd.example", "аррӏе.com"])
def test_letters_that_look_alike_are_written_out(host: str) -> None:
    assert (text.real_host(host, f"https://{host}/") or "").startswith("xn--")
    assert "(xn--" in telegram.render(f"[{host}](https://{host}/)").text
    assert "(xn--" in slack.render(f"[{host}](https://{host}/)")


@pytest.mark.parametrize("host", ["пример.рф", "bücher.example", "例え.jp", "παράδειγμα.ελ"])
def test_whole_words_in_other_letters_are_not(host: str) -> None:
    assert text.real_host(host, f"https://{host}/") is None


@pytest.mark.parametrize("url", ["mailto:a@b.example", "not an address", "https://[", "https://", ""])
def test_what_is_no_address_of_the_web_has_no_host(url: str) -> None:
    assert text.real_host("good.example", url) is None


def test_many_brackets_take_no_time() -> None:
    for words in ("[" * 20_000, "[a.b](" * 5_000, "<https://a.b|" * 3_000, "[a][" * 8_000, "a." * 20_000):
        slack.render(words)
        text.real_host(words, EVIL)


def test_the_page_shows_it_too() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here to run the page's script")
    asked = json.dumps([[url, label] for label, url in {**HIDING, **HONEST}.items()])
    script = (
        PAGE.read_text("utf-8")
        + f"\nconsole.log(JSON.stringify({asked}.map(([a, b]) => realHost(new URL(a).href, b))));"
    )
    done = subprocess.run(
        [node, "--input-type=module", "-"], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for found, (label, url) in zip(json.loads(done.stdout), {**HIDING, **HONEST}.items(), strict=True):
        host = url.partition("//")[2].rpartition("@")[2].partition("/")[0]
        assert found == (host if HIDING.get(label) == url or "xn--" in host else None), label
