"""Files that a person gives the page in a real browser: chosen, dropped and pasted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from channels.web.files import PARTS
from tests.browser.chromium import Browser
from tests.browser.conftest import SHOWN, Desk, connected, heard, say

pytestmark = pytest.mark.browser

CHIPS = "return [...document.querySelectorAll('#files li')].map((one) => one.innerText.replace(/\\s+/g, ' '))"
READY = "return !document.getElementById('send').disabled"
LINKS = "return [...document.querySelectorAll('.user a.file')].map((one) => [one.download, one.textContent])"
FETCHED = """return fetch(document.querySelector('.user a.file').href).then((answer) => answer.text())"""
DROP = """
const brought = new DataTransfer();
for (const [name, words] of arguments[0]) brought.items.add(new File([words], name, { type: 'text/plain' }));
for (const kind of ['dragover', 'drop']) {
  document.getElementById('scroll').dispatchEvent(new DragEvent(kind, { dataTransfer: brought, bubbles: true, cancelable: true }));
  window.shade = kind === 'dragover' ? !document.getElementById('drop').hidden : window.shade;
}
return window.shade;
"""
PASTE = """
const brought = new DataTransfer();
brought.items.add(new File([arguments[0]], 'image.txt', { type: 'text/plain' }));
if (arguments[1]) brought.setData('text/plain', 'a table');
const event = new ClipboardEvent('paste', { clipboardData: brought, bubbles: true, cancelable: true });
document.getElementById('text').dispatchEvent(event);
return event.defaultPrevented;
"""
HELD = """
const fetched = window.fetch, seen = new Set();
window.fetch = async (path, how) => {
  if (path.includes('?at=') && !seen.has(path)) {
    seen.add(path);
    await new Promise((done) => { window.goOn = done; window.held = seen.size; });
  }
  return fetched(path, how);
};
"""
WRITING = """
const fetched = window.fetch, until = Date.now() + 1500;
window.pieces = 0;
window.fetch = async (path, how) => {
  if (!path.includes('?at=') || Date.now() > until) return fetched(path, how);
  window.pieces += 1;
  return new Response('{"have": 0}', { status: 409 });
};
"""
LARGE = """
const brought = new DataTransfer();
brought.items.add(new File([new Uint8Array(arguments[0])], 'big.bin'));
document.dispatchEvent(new DragEvent('drop', { dataTransfer: brought, bubbles: true, cancelable: true }));
"""


async def sent(browser: Browser) -> None:
    await browser.until(READY)
    await browser.press("#send")


async def test_files_are_chosen_sent_read_and_shown_again(desk: Desk, tmp_path: Path) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    log, notes = tmp_path / "server.log", tmp_path / "笔记.md"
    log.write_text("ERROR the pump stands still\n" * 30_000, encoding="utf-8")
    notes.write_text("Ask Ann about the valve.", encoding="utf-8")
    await browser.type("#chosen", f"{log}\n{notes}")
    await browser.until("return document.querySelectorAll('#files li').length === 2")
    await browser.until(READY)
    assert await browser.run(CHIPS) == ["server.log 840 kB ✕", "笔记.md 24 B ✕"]
    await desk.picture(browser, "chosen")
    desk.world.model.answer("The pump. Ask Ann.")
    await say(browser, "what is wrong?")
    await heard(browser, "The pump. Ask Ann.")
    asked = json.dumps(desk.world.model.bodies[-1], ensure_ascii=False)
    assert "ERROR the pump stands still" in asked
    assert "Ask Ann about the valve." in asked
    links = [["server.log", "📎 server.log"], ["笔记.md", "📎 笔记.md"]]
    assert await browser.run(LINKS) == links
    assert await browser.run(CHIPS) == []
    await desk.picture(browser, "answered")
    await browser.reload()
    await connected(browser)
    await browser.until("return document.querySelectorAll('.user a.file').length === 2")
    assert await browser.run(LINKS) == links
    assert str(await browser.run(FETCHED)).startswith("ERROR the pump")


async def test_files_are_dropped_and_pasted_and_one_alone_is_a_message(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    assert await browser.run(DROP, [["a.txt", "alpha-1"], ["b.txt", "beta-22"]]) is True
    await browser.until(READY)
    assert await browser.run(CHIPS) == ["a.txt 7 B ✕", "b.txt 7 B ✕"]
    await browser.press("#files li .remove")
    assert await browser.run(CHIPS) == ["b.txt 7 B ✕"]
    assert await browser.run(PASTE, "gamma-3", True) is False, "a table that is pasted is text"
    assert await browser.run(PASTE, "gamma-3", False) is True
    await browser.until(f"{READY} && document.querySelectorAll('#files li').length === 2")
    desk.world.model.answer("Second and third.")
    await sent(browser)
    await heard(browser, "Second and third.")
    asked = json.dumps(desk.world.model.bodies[-1])
    assert ("beta-22" in asked, "gamma-3" in asked, "alpha-1" in asked) == (True, True, False)
    assert await browser.run(SHOWN) == ["📎 b.txt\n📎 image.txt", "Second and third."]


async def test_a_file_that_is_refused_says_so_and_holds_the_message_back(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.type("#text", "look")
    await browser.run(LARGE, 20_000_001)
    await browser.until("return document.querySelector('#files .failed')")
    assert await browser.run(CHIPS) == ["big.bin That file is too large: the most is 20 MB. ✕"]
    assert not await browser.run(READY)
    await desk.picture(browser, "refused")
    await browser.press("#files .remove")
    assert await browser.run(READY)
    await browser.run(DROP, [[f"{n}.txt", "x"] for n in range(11)])
    await browser.until("return document.querySelectorAll('#files li:not(.failed) .state').length === 10")
    assert (await browser.run(CHIPS))[-1] == "10.txt A message may have 10 files. ✕"


async def test_of_an_upload_that_is_gone_twice_the_reason_is_shown(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.run(HELD)
    await browser.run(DROP, [["a.txt", "alpha"]])
    for nth in (1, 2):  # an upload whose connection is dropped is repeated once
        await browser.until("return window.held === arguments[0]", nth)
        (part,) = (one for one in (desk.world.root / ".ship" / PARTS).iterdir() if one.is_file())
        part.unlink()
        part.mkdir()
        await browser.run("window.goOn()")
    await browser.until("return document.querySelector('#files .failed')")
    (chip,) = await browser.run(CHIPS)
    assert "A file is gone." in chip


async def test_a_piece_that_is_still_being_written_is_asked_about_now_and_then(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.run(WRITING)
    await browser.run(DROP, [["a.txt", "alpha"]])
    await browser.until(READY)
    assert int(await browser.run("return window.pieces")) <= 3
