"""Answers in a real browser: code with colours, tables and lists, in all widths and colour schemes."""

from __future__ import annotations

import pytest

from tests.browser.conftest import SHOWN, Desk, say
from tests.browser.test_conversing import growing

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
    await browser.permit_clipboard()
    await browser.run("document.querySelector('.bar .copy').focus()")
    await browser.type(".bar .copy", "\n")
    await browser.until("return document.querySelector('.bar .copy').textContent === 'Copied'")
    assert await browser.run("return navigator.clipboard.readText()") == (CODE + REST).rstrip()
    assert await browser.run("return document.getElementById('announcer').textContent") == "Copied"
    await desk.picture(browser, "copied")


EVERYTHING = """\
# Notes

The **pump** ran in *4.2 s*; see `shipmate link`, [the guide](https://example.org/) or ~~the old one~~.

- [x] Draft
- [ ] Ask Ann

1. one
   - two

     deeper

> A quote

| File | State | Lines | Who has changed it | When |
| --- | :-: | --: | --- | --- |
| routes.py | **green** | 557 | a person whose name is long | on a Tuesday |

```python
@final
class Pump:  # of the house
    speed: int = 3

    def run(self) -> str:
        return f"{len(self.name)} turns, and a line that is too long for any telephone that people have in their hands"
```

```diff
- old
+ new
```

هذه فقرة مع `code` فيها.

- عنصر

Averyveryveryveryveryveryveryveryverylongwordthatdoesnotendwhereascreenoftwohundredpixelsdoes

The end.
"""
OVER = """
const wide = document.documentElement.clientWidth;
const out = [...document.querySelectorAll('body *:not(.code *, .table *, .unseen)')].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && (box.right > wide + 1 || box.left < -1);
}).map((one) => one.outerHTML.slice(0, 80));
const boxes = [...document.querySelectorAll('pre, .table')];
return [out, document.documentElement.scrollWidth <= wide, boxes.filter((one) => one.scrollWidth > one.clientWidth).length];
"""
FAINT = """
const parsed = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
  .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
  .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
function behind(one) {
  if (!one) return [255, 255, 255, 1];
  const [r, g, b, a] = parsed(getComputedStyle(one).backgroundColor);
  if (a === 1) return [r, g, b, 1];
  const under = behind(one.parentElement);
  return [r, g, b].map((value, at) => value * a + under[at] * (1 - a));
}
const faint = new Set();
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const one = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !one.checkVisibility() || one.closest('.unseen, .goes-on, :disabled')) continue;
  const [ink, paper] = [light(parsed(getComputedStyle(one).color)), light(behind(one))];
  const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (contrast < 4.5) faint.add(`${contrast.toFixed(2)} ${one.localName}.${one.className} ${texts.currentNode.data.trim().slice(0, 30)}`);
}
return [...faint];
"""
UNNAMED = """return [...document.querySelectorAll('a[href], button, input, textarea, img, dialog, [tabindex]')]
  .filter((one) => one.checkVisibility() && !(one.localName === 'img' && one.hasAttribute('alt')))
  .filter((one) => ![one.textContent, one.ariaLabel, one.title, one.labels?.[0]?.textContent].some((name) => name?.trim()))
  .map((one) => one.outerHTML.slice(0, 100))"""
STILL = """return document.getAnimations().filter((one) => one.playState === 'running').map((one) => one.animationName)"""
COLOURED = "return [...new Set([...document.querySelectorAll('[class^=token-]')].map((one) => one.className.slice(6)))].sort()"
SIDES = """return [...document.querySelectorAll('.assistant .bubble > ul')]
  .map((one) => [getComputedStyle(one).direction, getComputedStyle(one.firstElementChild).textAlign])"""


async def test_an_answer_fits_and_can_be_read_at_each_width_and_in_both_schemes(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    desk.world.model.answer(EVERYTHING)
    await say(browser, f"show me {'everything' * 12} 你好 👩‍👩‍👧‍👦")
    await browser.until(f"{SHOWN}.some((one) => one.endsWith('The end.'))")
    await say(browser, "/whoami")
    await browser.until(f"{SHOWN}.length === 4")
    assert await browser.run(COLOURED) == ["c", "d", "f", "i", "k", "n", "s", "t"]
    assert [one[0] for one in await browser.run(SIDES)] == ["ltr", "rtl"]
    boxes = "return [...document.querySelectorAll('.task input')].map((one) => [one.checked, one.ariaLabel])"
    assert await browser.run(boxes) == [[True, "Draft"], [False, "Ask Ann"]]
    authors = "return [...document.querySelectorAll('#messages .unseen')].map((one) => one.textContent)"
    assert await browser.run(authors) == ["You", "shipmate"] * 2
    assert await browser.run(UNNAMED) == []
    for width in (320, 390, 768, 1280):
        await browser.width(width)
        out, fits, scrolling = await browser.run(OVER)
        assert (out, fits) == ([], True), width
        assert scrolling >= (2 if width < 400 else 0), "code and tables scroll in their own boxes"
        for scheme in ("light", "dark"):
            await browser.scheme(scheme)
            assert await browser.run(FAINT) == [], (width, scheme)
            await desk.picture(browser, f"{width}-{scheme}")
    await desk.world.process.kill()
    await browser.until("return document.getElementById('connection').dataset.state === 'lost'")
    assert await browser.run(STILL) == ["pulse"]
    await browser.media("prefers-reduced-motion", "reduce")
    assert await browser.run(STILL) == []
