"""The conversations of the web chat in a real browser: the list, names, search, two tabs, the drawer, and drafts."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import Browser
from tests.browser.conftest import SHOWN, Desk, connected, heard, say

pytestmark = pytest.mark.browser

TITLES = "return [...document.querySelectorAll('#conversations a')].map((one) => one.textContent)"
HERE = "return document.querySelector('#conversations [aria-current=page]')?.textContent ?? ''"
STATES = "return [...document.querySelectorAll('#conversations .state')].map((one) => one.dataset.state)"
TYPED = "return document.getElementById('text').value"
FOCUS = "return document.activeElement.id || document.activeElement.className || document.activeElement.textContent"
CUT_OFF = """
const shown = [...document.querySelectorAll('button, input, textarea, #side a')].filter((one) => one.checkVisibility());
const cut = shown.filter((one) => {
  const { left, right } = one.getBoundingClientRect();
  return left < 0 || right > document.documentElement.clientWidth + 0.5;
});
const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
return [...cut.map((one) => one.id || one.className || one.textContent), ...(wide ? ['the page scrolls sideways'] : [])];
"""
UPLOADED = "return document.querySelector('#files .state')?.textContent"
CHOOSE = """
const brought = new DataTransfer();
brought.items.add(new File(['word '.repeat(120_000)], 'big.txt'));
document.dispatchEvent(new DragEvent('drop', { dataTransfer: brought, bubbles: true, cancelable: true }));
"""


async def titles(browser: Browser, *expected: str) -> None:
    await browser.until(
        f"return JSON.stringify((() => {{ {TITLES} }})()) === JSON.stringify(arguments[0])", [*expected]
    )


async def test_conversations_are_begun_found_named_and_shared_by_two_tabs(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.resize(1280, 800)
    desk.world.model.script(lambda body: "Zürich." if "garden" in str(body["messages"][-1]) else "好的")
    await say(browser, "Where is the best garden?")
    await heard(browser, "Zürich.")
    await titles(browser, "Where is the best garden?")
    await browser.press("#new")
    await browser.until(f"{SHOWN}.length === 0")
    assert await browser.run(FOCUS) == "text"
    assert await browser.run(HERE) == "", "it is on no list before its first message"
    await say(browser, "预算表怎么做")
    await heard(browser, "好的")
    await titles(browser, "预算表怎么做", "Where is the best garden?")
    assert "garden" not in str(desk.world.model.bodies[-1]["messages"])
    assert await browser.run(HERE) == "预算表怎么做"
    assert (await browser.run("return document.title")).startswith("预算表怎么做 – ")
    await browser.type("#text", "half a thought")
    # Another tab opens the first conversation, then returns to the second.
    first, budget = await browser.front(), await browser.address()
    await browser.tab()
    await browser.go(budget)
    await connected(browser)
    await heard(browser, "好的")
    assert await browser.run(TYPED) == "", "what is typed belongs to its tab"
    await titles(browser, "预算表怎么做", "Where is the best garden?")
    await browser.press("#conversations li:nth-child(2) a")
    await heard(browser, "Zürich.")
    await browser.run("history.back()")
    await heard(browser, "好的")
    assert await browser.run(HERE) == "预算表怎么做"
    await browser.run("history.forward()")
    await heard(browser, "Zürich.")
    second = await browser.front()
    # The first tab keeps its typed text over other conversations and a reload. Its title names its conversation.
    await browser.show(first)
    await browser.press("#conversations li:nth-child(2) a")
    await heard(browser, "Zürich.")
    assert await browser.run(TYPED) == ""
    await browser.press("#conversations li:nth-child(1) a")
    await heard(browser, "好的")
    assert await browser.run(TYPED) == "half a thought"
    await browser.reload()
    await connected(browser)
    await heard(browser, "好的")
    assert await browser.run(TYPED) == "half a thought"
    await titles(browser, "预算表怎么做", "Where is the best garden?")
    await browser.press("#conversations li:nth-child(1) .rename")
    await browser.type("#conversations input", "Budget 2027\n")
    await titles(browser, "Budget 2027", "Where is the best garden?")
    assert await browser.run(FOCUS) == "rename"
    await desk.picture(browser, "list")
    # A new answer in a conversation that no tab shows is marked in every tab, until one tab shows it.
    await browser.run(
        "return fetch('/api/messages', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify("
        "{text: 'garden again', clientId: 'elsewhere', conversation: 'third'})}).then((answer) => answer.status)"
    )
    await browser.until(f"return (() => {{ {STATES} }})()[0] === 'unread'")
    await desk.picture(browser, "unread")
    await browser.show(second)
    await titles(browser, "garden again", "Budget 2027", "Where is the best garden?")
    await browser.until(f"return (() => {{ {STATES} }})()[0] === 'unread'")
    await browser.press("#conversations li:nth-child(1) a")
    await heard(browser, "Zürich.")
    await browser.show(first)
    await browser.until(f"return !(() => {{ {STATES} }})()[0]")
    # The search finds words of titles and answers.
    for asked, found in (
        ("2027", ["Budget 2027"]),
        ("好的", ["Budget 2027"]),
        ("zürich best", []),
        ("best", ["Where is the best garden?"]),
    ):
        await browser.run("document.getElementById('find').value = ''")
        await browser.type("#find", asked)
        await titles(browser, *found)
    await browser.run("document.getElementById('find').value = ''")
    await browser.type("#find", "zzz")
    await browser.until("return document.getElementById('found').textContent === 'No conversation found.'")
    assert await browser.run(FOCUS) == "find"


@pytest.mark.parametrize("width", [320, 390, 768])
async def test_on_a_narrow_screen_the_list_is_a_drawer(desk: Desk, width: int) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.send(
        {
            "cmd": "Emulation.setDeviceMetricsOverride",
            "params": {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": True},
        }
    )
    desk.world.model.answer("Hello.")
    await say(browser, "A long first message that does not fit into the width of the list of conversations")
    await heard(browser, "Hello.")
    assert await browser.run(CUT_OFF) == []
    assert not await browser.run("return document.getElementById('side').checkVisibility()")
    await browser.press("#menu")
    await browser.until("return document.activeElement.matches('#conversations [aria-current=page]')")
    assert await browser.run(CUT_OFF) == []
    for scheme in ("light", "dark"):
        await browser.scheme(scheme)
        await desk.picture(browser, f"drawer-{width}-{scheme}")
    await browser.type("#find", "\ue00c")  # Escape
    await browser.until("return !document.getElementById('side').checkVisibility()")
    assert await browser.run(FOCUS) == "menu"
    await browser.press("#menu")
    await browser.press("#close")
    assert not await browser.run("return document.getElementById('side').checkVisibility()")
    await browser.press("#new")
    await browser.until(f"{SHOWN}.length === 0")
    await browser.press("#menu")
    await browser.press("#conversations a")
    await heard(browser, "Hello.")
    assert not await browser.run("return document.getElementById('side').checkVisibility()")
    assert (
        await browser.run("return document.querySelector('nav').getAttribute('aria-label')")
        == "Conversations"
    )


async def test_a_restart_of_the_server_loses_neither_text_nor_files_nor_a_sent_message(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.press("#new")
    desk.world.model.script(lambda body: "Here." if "are you" in str(body["messages"][-1]) else "Got it.")
    await desk.world.process.kill()
    await browser.until("return document.getElementById('connection').dataset.state === 'lost'")
    await say(browser, "are you there?")
    await browser.run(CHOOSE)
    await browser.type("#text", "with a file")
    await browser.until("return document.querySelector('#files li.failed')", seconds=90)
    port = urlsplit(await browser.address()).port
    await desk.start(port=port)
    await connected(browser)
    await heard(browser, "Here.")
    await browser.until(f"return (() => {{ {UPLOADED} }})() === '600 kB'")
    assert await browser.run(TYPED) == "with a file"
    await browser.press("#send")
    await heard(browser, "Got it.")
    assert [one for one in await browser.run(SHOWN) if "with a file" in one] == ["with a file\n📎 big.txt"]
