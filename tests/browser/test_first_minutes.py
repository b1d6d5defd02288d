"""The first minutes without a key: the examples of the page work, and the header names the model."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.browser.chromium import Browser
from tests.browser.conftest import SHOWN, Desk, say

pytestmark = pytest.mark.browser

EXAMPLES = "return [...document.querySelectorAll('#examples button')].map((one) => one.textContent)"
PRESS = "[...document.querySelectorAll('#examples button')].find((one) => one.textContent === arguments[0]).click()"
MODEL = "return document.getElementById('model').textContent"
SIZE = """
const wide = document.documentElement.clientWidth;
const out = [...document.querySelectorAll('header *, #compose > *')].filter((one) => one.getBoundingClientRect().right > wide + 1);
return [wide, document.documentElement.scrollWidth, out.map((one) => one.id || one.tagName)];
"""


async def pressed(browser: Browser, example: str, said: str, *, approve: bool = False) -> str:
    """Press an example, approve its question, and wait for an answer that matches. Return all text that was shown
    since.
    """
    before = len(await browser.run(SHOWN))
    await browser.run(PRESS, example)
    if approve:
        await browser.until("return document.querySelector('.choices button')")
        await browser.press(".choices button")
    new = f"{SHOWN}.slice(arguments[0]).join('\\n')"
    await browser.until(f"return new RegExp(arguments[1]).test(({new[7:]}))", before, said, seconds=90)
    return str(await browser.run(new, before))


async def test_each_example_of_the_demo_does_what_it_says(desk: Desk) -> None:
    root = desk.world.root
    desk.world.config["llm"] = {"provider": "demo"}
    (root / "README.md").write_text("# A project of ours\n", encoding="utf-8")
    await desk.start()
    browser = await desk.opened(desk.link)
    run, write, remind, look, three, earlier = await browser.until(f"{EXAMPLES}.length && ({EXAMPLES[7:]})")
    assert await browser.run(MODEL) == "the demo model"
    await pressed(browser, remind, r"Done, with the tool schedule_create", approve=False)
    assert "README.md" in await pressed(browser, run, r"Done, with the tool run_shell", approve=True)
    await pressed(browser, write, r"hello\.txt is written", approve=True)
    assert (root / "hello.txt").read_text(encoding="utf-8") == "Hello from Shipmate.\n"
    assert "# A project of ours" in await pressed(browser, look, r"Done, with the tool read_file")
    together = await pressed(browser, three, r"3 of 3 tasks came to their end")
    assert "A project of ours" in together
    assert together.count("Done, with the tool task") == 3
    await pressed(browser, earlier, rf"Earlier in this chat[\s\S]*{look}")
    await say(browser, "Prove the Riemann hypothesis")
    await browser.until(f'{SHOWN}.some((one) => one.includes("echo \'ANTHROPIC_API_KEY="))')
    await browser.until(f"{SHOWN}.some((one) => one.startsWith('⏰'))", seconds=90)
    await desk.picture(browser, "demo")


async def test_the_page_fits_a_phone_and_its_header_says_which_model_answers(desk: Desk) -> None:
    models = ["claude-sonnet-5-5", "claude-" + "long-name-of-a-model-" * 8, "claude-opus-5-5"]
    desk.world.model.windows |= dict.fromkeys(models, 200_000)
    desk.world.config["llm"]["model"] = models[0]
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.until(f"{MODEL} === arguments[0]", models[0])
    await say(browser, f"/model {models[2]}")
    await browser.until(f"{MODEL} === arguments[0]", models[2])
    await say(browser, "/model default")
    await browser.until(f"{MODEL} === arguments[0]", models[0])
    desk.world.config["llm"]["model"] = models[1]
    (desk.world.root / "ship.json").write_text(json.dumps(desk.world.config), encoding="utf-8")
    os.kill(desk.world.process.pid, signal.SIGHUP)
    await browser.until(f"{MODEL} === arguments[0]", models[1], seconds=90)
    for width in (320, 375, 390, 414):
        await browser.width(width, 700)
        await browser.until(
            "return document.documentElement.clientWidth === arguments[0] || innerWidth > arguments[0]", width
        )
        assert await browser.run(SIZE) == [width, width, []]
        await desk.picture(browser, str(width))
