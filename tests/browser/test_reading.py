"""How answers look in a real browser: code and its colours, tables, lists, and each width and colour scheme."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Desk
from tests.browser.test_conversing import GRANT, growing

pytestmark = pytest.mark.browser

CODE = "import asyncio\n\n\nasync def main() -> None:\n    print('héllo')  # 你好\n"
REST = (
    "    return None  # and so on, with many more words so that the answer is cut in the middle of it\n" * 4
)
SELECT = """
window.kept = [...document.querySelectorAll('.assistant .token-k')].find((one) => one.textContent.startsWith('async'));
getSelection().selectAllChildren(window.kept);
window.gone = 0;
new MutationObserver((all) => { for (const one of all) window.gone += one.removedNodes.length; })
  .observe(document.querySelector('.assistant .code'), {childList: true, subtree: true});
"""
KEPT = "return [window.kept.isConnected, getSelection().toString().trim(), window.gone]"


async def test_code_keeps_its_colours_and_the_selection_while_it_grows_and_is_copied_alone(
    desk: Desk,
) -> None:
    browser, gate = await growing(
        desk,
        f"Take this, it is what you have asked for:\n\n```python\n{CODE}{REST}```",
        "return document.querySelector('.token-s')",
    )
    await browser.run(SELECT)
    assert await browser.run("return document.querySelector('.goes-on').textContent") == "…"
    await desk.picture(browser, "growing")
    gate.set()
    await browser.until("return document.querySelector('.meta .copy')")
    kept, selected, gone = await browser.run(KEPT)
    assert (kept, selected) == (True, "async def")
    assert gone == 0, "what was coloured is not made anew"
    assert await browser.run("return document.querySelector('.goes-on')") is None
    assert await browser.run("return document.querySelector('.bar').innerText") == "Python\nCopy"
    await browser.send(GRANT)
    await browser.run("document.querySelector('.bar .copy').focus()")
    await browser.type(".bar .copy", "\n")
    await browser.until("return document.querySelector('.bar .copy').textContent === 'Copied'")
    assert await browser.run("return navigator.clipboard.readText()") == (CODE + REST).rstrip()
    assert await browser.run("return document.getElementById('announcer').textContent") == "Copied"
    await desk.picture(browser, "copied")
