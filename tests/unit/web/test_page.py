"""The page's files: complete, self-contained, and unable to turn text into markup."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator
from html import escape
from pathlib import Path

import pytest

import channels.web
from bot import errors
from bot.contracts.channel import Channel
from bot.contracts.identity import UserRef
from bot.testing.intake import RecordingIntake
from bot.words import names, say, speaking
from channels.web import markdown
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import surroundings
from tests.contracts.web_rig import Browser

PAGE = Path(channels.web.__file__).parent / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))


async def test_everything_the_page_asks_for_is_there(browser: Browser) -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    wanted = re.findall(r'(?:src|href)="(/[^"]*)"', html)
    for script in SCRIPTS:
        wanted += re.findall(r'from "(/[^"]+)"', script.read_text(encoding="utf-8"))
    files = {f"/{path.name}" for path in PAGE.iterdir() if path.name != "index.html"} | {"/words.js"}
    assert files == set(wanted)
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for path in wanted:
        async with browser.http.get(browser.url + path) as answer:
            kind = kinds[path.rpartition(".")[2]]
            assert (answer.status, answer.content_type, answer.charset) == (200, kind, "utf-8")


def test_nothing_comes_from_elsewhere() -> None:
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", text), path.name


def test_the_page_holds_no_inline_script_or_style() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+\s*=|\sstyle\s*=|javascript:", html)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_have_no_way_to_make_markup_of_text(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|srcdoc|setHTML"
    assert not re.search(sinks, text)
    # Only ids of conversations are shared by tabs. Typed text stays in its tab.
    assert set(re.findall(r"localStorage\.\w+\([\"`](\w+)", text)) <= {"conversation", "unread"}
    assert text.count("localStorage.") == len(re.findall(r"localStorage\.[gs]etItem\(\"", text))
    assert set(re.findall(r"sessionStorage\.\w+\([\"`](\w+)", text)) <= {"draft", "unsent"}


def test_the_page_makes_no_images_and_no_unsafe_links() -> None:
    text = (PAGE / "nodes.js").read_text(encoding="utf-8")
    assert not re.search(r"\"(?:img|image|picture|video|audio|iframe|object|embed|svg|script|style)\"", text)
    assert 'rel = "noopener noreferrer"' in text
    assert len(re.findall(r"\.href = ", text)) == 1
    tags = re.findall(r"new Set\(\[(.*?)\]\)", text, re.DOTALL)
    known = set(re.findall(r'"(\w+)"', " ".join(tags)))
    assert {*markdown.TAGS.values(), "h3", "h4", "h5", "h6", "pre", "code", "span", "hr", "br"} == known


@pytest.mark.parametrize(
    ("wanted", "code", "label"),
    [("", "en", "Write a message"), ("fr, zh-TW;q=0.5", "zh", "输入消息"), ("de", "en", "Write a message")],
)
async def test_the_page_is_in_the_language_of_the_browser(
    browser: Browser, wanted: str, code: str, label: str
) -> None:
    how = {"Accept-Language": wanted}
    async with browser.http.get(browser.url, headers=how) as answer:
        html = await answer.text()
    assert f'<html lang="{code}">' in html
    assert f'placeholder="{label}"' in html
    assert "<kbd>/help</kbd>" in html
    assert "${" not in html
    async with browser.http.get(f"{browser.url}/words.js", headers=how) as answer:
        _, _, words = (await answer.text()).partition(" = ")
    with speaking(code):
        assert json.loads(words.rstrip(";\n"))["deny"] == say("buttons.deny")
    away = {"Host": "elsewhere.example", "Sec-Fetch-Dest": "document", "Accept-Language": wanted}
    async with browser.http.get(browser.url, headers=away) as answer:
        page = await answer.text()
    with speaking(code):
        assert f'<html lang="{code}">' in page
        assert escape(say("web.not_mine")) in page


def test_the_page_uses_each_of_its_sentences_and_no_other() -> None:
    html, *scripts = (path.read_text(encoding="utf-8") for path in (PAGE / "index.html", *SCRIPTS))
    used = {*re.findall(r"\$\{(\w+)\}", html), *re.findall(r"\bsaid\.(\w+)", " ".join(scripts))}
    own = {*names("page")}
    assert used - {"language", "starters", *names("buttons")} - own == set()
    assert own - used == set()


@pytest.fixture
async def inviting(tmp_path: Path) -> AsyncIterator[Channel]:
    """A channel whose links make the browser an operator's."""
    appointed = set[UserRef]()

    async def appoint(person: UserRef) -> None:
        appointed.add(person)

    deps = dataclasses.replace(surroundings(tmp_path), operators=appointed, appoint=appoint)
    channel = MANIFEST.build(WebSettings(port=0), deps)
    await channel.start(RecordingIntake())
    yield channel
    await channel.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "same-origin", "User-Agent": "Safari/605"},
        {"Accept": "text/html"},
    ],
    ids=["told", "asked"],
)
async def test_a_link_that_was_opened_before_leads_to_a_page_that_says_what_to_do(
    inviting: Channel, headers: dict[str, str]
) -> None:
    link = await inviting.invite()
    async with Browser(inviting) as first, first.http.get(link) as answer:
        assert answer.status == 200
    async with Browser(inviting) as browser:
        for code in ("en", "zh"):
            async with browser.http.get(link, headers=headers | {"Accept-Language": code}) as answer:
                assert (answer.status, answer.content_type) == (410, "text/html")
                page = await answer.text()
            assert f'<html lang="{code}">' in page
            assert "<kbd>shipmate link --dir" in page
            with speaking(code):
                assert f'<a href="/">{say("web.open_chat")}</a>' in page
        for more in ({}, headers | {"Sec-Fetch-Dest": "empty"}):
            async with browser.http.get(link, headers=more) as answer:
                assert (answer.status, answer.content_type) == (410, "application/json")


async def test_a_browser_that_has_opened_the_link_gets_to_the_chat_by_it_again(inviting: Channel) -> None:
    link = await inviting.invite()
    async with Browser(inviting) as browser:
        for _ in range(2):
            async with browser.http.get(link, headers={"Accept": "text/html"}) as answer:
                assert (answer.status, answer.url.path) == (200, "/")
                assert '<ol id="messages"' in await answer.text()


async def test_a_link_that_made_nobody_an_operator_is_not_used_up(tmp_path: Path) -> None:
    appointed, refusals = set[UserRef](), [errors.StorageError("the access list cannot be written")]

    async def appoint(person: UserRef) -> None:
        if refusals:
            raise refusals.pop()
        appointed.add(person)

    deps = dataclasses.replace(surroundings(tmp_path), operators=appointed, appoint=appoint)
    channel = MANIFEST.build(WebSettings(port=0), deps)
    await channel.start(RecordingIntake())
    link = await channel.invite()
    async with Browser(channel) as browser:
        async with browser.http.get(link) as answer:
            assert answer.status == 503
        assert not appointed
        async with browser.http.get(link) as answer:
            assert (answer.status, answer.url.path) == (200, "/")
    assert len(appointed) == 1
    await channel.stop()


@pytest.mark.parametrize("path", ["/nothing.here", "/api/nothing", "/login", "/api/files/none"])
async def test_each_error_in_a_window_is_a_page(browser: Browser, path: str) -> None:
    async with browser.http.get(browser.url + path, headers={"Accept": "text/html"}) as answer:
        assert (answer.status, answer.content_type) in {(404, "text/html"), (405, "text/html")}
        assert '<p><a href="/">Open the chat</a></p>' in await answer.text()


async def test_who_may_not_use_the_page_is_told_so_without_a_way_to_it(stranger: Browser) -> None:
    async with stranger.http.get(f"{stranger.url}/open/x", headers={"Accept": "text/html"}) as answer:
        assert answer.status == 410
        assert "Open the chat" not in await answer.text()
