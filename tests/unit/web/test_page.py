"""The page's own files: whole, self-contained, and without a way for text to become markup."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import cast

import pytest

import channels.web
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.words import CATALOGUES, Catalogue, names, say, speaking
from channels.web import markdown
from channels.web.manifest import MANIFEST
from channels.web.settings import WebSettings
from tests.contracts.channel_contract import surroundings
from tests.contracts.web_rig import Browser

PAGE = Path(channels.web.__file__).parent / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/nodes.js", "text/javascript"),
        ("/words.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ],
)
async def test_every_file_is_served_with_its_type(browser: Browser, path: str, kind: str) -> None:
    async with browser.http.get(browser.url + path) as answer:
        assert (answer.status, answer.content_type, answer.charset) == (200, kind, "utf-8")


async def test_everything_the_page_asks_for_is_there(browser: Browser) -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    wanted = re.findall(r'(?:src|href)="(/[^"]*)"', html)
    for script in SCRIPTS:
        wanted += re.findall(r'from "(/[^"]+)"', script.read_text(encoding="utf-8"))
    assert {"/app.js", "/nodes.js", "/words.js", "/style.css", "/icon.svg"} == set(wanted)
    for path in wanted:
        async with browser.http.get(browser.url + path) as answer:
            assert answer.status == 200


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
    assert "localStorage" not in text
    assert "sessionStorage" not in text


def test_the_page_makes_no_images_and_no_unsafe_links() -> None:
    text = (PAGE / "nodes.js").read_text(encoding="utf-8")
    assert not re.search(r"\"(?:img|image|picture|video|audio|iframe|object|embed|svg|script|style)\"", text)
    assert 'rel = "noopener noreferrer"' in text
    assert len(re.findall(r"\.href = ", text)) == 1
    tags = re.findall(r"new Set\(\[(.*?)\]\)", text)
    known = set(re.findall(r'"(\w+)"', " ".join(tags)))
    assert {*markdown.TAGS.values(), "h3", "h4", "h5", "h6", "pre", "code", "hr", "br"} == known


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
    html, script = ((PAGE / name).read_text(encoding="utf-8") for name in ("index.html", "app.js"))
    used = {*re.findall(r"\$\{(\w+)\}", html), *re.findall(r"\bsaid\.(\w+)", script)} - {"language"}
    assert used == {*names("page")}


async def test_a_language_that_has_a_file_is_spoken_by_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast("dict[str, Catalogue]", CATALOGUES), "fr", {"page.write": "Écris"})
    channel = MANIFEST.build(WebSettings(port=0), surroundings(tmp_path, FakeClock()))
    await channel.start(RecordingIntake())
    async with (
        Browser(channel) as browser,
        browser.http.get(browser.url, headers={"Accept-Language": "fr"}) as answer,
    ):
        html = await answer.text()
    await channel.stop()
    assert '<html lang="fr">' in html
    assert 'placeholder="Écris"' in html
    assert say("page.hello") in html
