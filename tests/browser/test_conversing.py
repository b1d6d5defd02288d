"""A conversation of the web chat in a real browser: updates, screen readers, and buttons."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.testing.anthropic_script import Frame, reply, tool_use
from tests.browser.chromium import Browser
from tests.browser.conftest import SHOWN, Desk, heard, say

pytestmark = pytest.mark.browser

LONG = "The **first part** stands [here](https://example.org/) and is long enough to be shown.\n\n- one\n- two\n\n"
REST = "The second part comes later, and with it the end of all that was to be said about this. " * 3
GROWING = f"{SHOWN}.some((one) => one.startsWith('The first part') && one.endsWith(' …'))"
READ_OUT = """
window.said = [];
new MutationObserver(() => window.said.push(document.getElementById('announcer').textContent))
  .observe(document.getElementById('announcer'), {childList: true, characterData: true, subtree: true});
"""
SELECT = """
const strong = document.querySelector('.assistant strong');
document.querySelector('.assistant a').focus();
getSelection().selectAllChildren(strong);
window.kept = strong;
"""
KEPT = """return [getSelection().toString(), document.activeElement.href,
  window.kept === document.querySelector('.assistant strong')]"""
WIDE = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
AWAY = "const main = document.getElementById('scroll'); main.scrollTop = 0; return main.scrollTop"


async def growing(
    desk: Desk, words: str, shown: str = GROWING, *, before: str = ""
) -> tuple[Browser, asyncio.Event]:
    """Open a browser that shows half of an answer. The rest is sent when the event is set. `before` is the first
    message.
    """
    gate = asyncio.Event()

    def halved(frames: list[Frame]) -> list[Frame]:
        return [*frames[: len(frames) // 2], gate, *frames[len(frames) // 2 :]]

    desk.world.model.chunk = 4
    await desk.start(streaming={"afterMs": 0})
    browser = await desk.opened(desk.link)
    if before:
        await say(browser, before)
        await browser.until("return document.querySelector('.reply')")
    await browser.run(READ_OUT)
    desk.world.model.then(reply(tool_use("chat_send", {"text": words.strip()}), edit=halved), reply())
    await say(browser, "and?")
    await browser.until(shown)
    return browser, gate


async def test_a_selection_and_the_focus_stay_while_an_answer_grows_and_it_is_read_out_once(
    desk: Desk,
) -> None:
    browser, gate = await growing(desk, LONG + REST)
    await browser.run(SELECT)
    assert await browser.run("return window.said") == []
    await desk.picture(browser, "growing")
    gate.set()
    await browser.until("return document.querySelector('.assistant .copy')")
    whole = next(one for one in await browser.run(SHOWN) if one.startswith("The first part"))
    assert whole.endswith(REST.strip())
    assert await browser.run(KEPT) == ["first part", "https://example.org/", True]
    assert await browser.run("return window.said") == [whole]
    assert await browser.run("return document.querySelectorAll('[aria-live]').length") == 0
    await browser.reload()
    await heard(browser, whole)
    assert await browser.run("return document.getElementById('announcer').textContent") == ""


async def test_stop_ends_a_turn_and_goes_with_it(desk: Desk) -> None:
    browser, gate = await growing(desk, LONG + REST)
    await browser.until("return document.getElementById('stop').offsetParent")
    await desk.picture(browser, "working")
    await browser.press("#stop")
    await browser.until("return document.getElementById('working').hidden")
    await browser.until(f"{SHOWN}.at(-1).endsWith('(stopped)')")
    assert (await browser.run(SHOWN))[:-1] == ["and?"]
    assert await browser.run("return document.activeElement.id") == "text"
    gate.set()
    await desk.world.turns(1)
    assert [line["details"]["status"] for line in desk.world.log() if line["kind"] == "turn_end"] == [
        "stopped"
    ]


async def test_an_answer_is_copied_as_it_was_written(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    desk.world.model.answer("**Bold** and `code`.\n\n| a |\n| - |\n| 你好 |")
    await say(browser, "copy this")
    await browser.until("return document.querySelector('.copy')")
    assert await browser.run("return document.querySelectorAll('.user .copy').length") == 0
    await browser.permit_clipboard()
    await browser.press(".copy")
    await browser.until("return document.querySelector('.copy').textContent === 'Copied'")
    copied = await browser.run("return navigator.clipboard.readText()")
    assert copied == "**Bold** and `code`.\n\n| a |\n| - |\n| 你好 |"


async def test_a_new_conversation_is_one_press_away(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    desk.world.model.answer("Hello.")
    await say(browser, "my name is Ann")
    await heard(browser, "Hello.")
    await browser.press("#new")
    await browser.until(f"{SHOWN}.length === 0")
    desk.world.model.answer("I do not know.")
    await say(browser, "what is my name?")
    await heard(browser, "I do not know.")
    assert "my name is Ann" not in str(desk.world.model.bodies[-1]["messages"])
    assert await browser.run("return document.activeElement.id") == "text"


@pytest.mark.parametrize("width", [390, 1280])
async def test_who_reads_further_up_is_told_of_more_and_days_are_named(desk: Desk, width: int) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.resize(width, 800)
    desk.world.model.answer("\n\n".join(f"Line {n} of a long answer." for n in range(60)))
    await say(browser, "tell me a lot")
    await browser.until(f"{SHOWN}.some((one) => one.includes('Line 59'))")
    assert await browser.run("return document.getElementById('newer').hidden")
    assert await browser.run(AWAY) == 0
    desk.world.model.answer("One more thing.")
    await say(browser, "anything else?")
    await heard(browser, "One more thing.")
    await browser.run(AWAY)
    desk.world.model.answer("And another one.")
    await browser.run(
        "return fetch('/api/messages', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
        "body: JSON.stringify({text: 'from another tab', clientId: 'tab2'})}).then((answer) => answer.status)"
    )
    await heard(browser, "And another one.")
    await browser.until("return !document.getElementById('newer').hidden")
    assert await browser.run("return document.getElementById('scroll').scrollTop") == 0
    await desk.picture(browser, f"newer-{width}")
    await browser.press("#newer")
    assert await browser.run("return document.getElementById('newer').hidden")
    near = "const main = document.getElementById('scroll'); return main.scrollHeight - main.scrollTop - main.clientHeight < 2"
    assert await browser.run(near)
    assert await browser.run(
        "return [...document.querySelectorAll('.day')].map((one) => one.textContent)"
    ) == ["Today"]
    assert await browser.run(WIDE)
    await desk.picture(browser, f"end-{width}")


async def test_times_are_told_in_the_zone_of_the_browser(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    await browser.send({"cmd": "Emulation.setTimezoneOverride", "params": {"timezoneId": "Asia/Tokyo"}})
    await say(browser, "/timezone")
    await browser.until(
        f"{SHOWN}.some((one) => one.startsWith('I tell you times in Asia/Tokyo, where it is '))"
    )


async def test_the_days_of_an_old_conversation_stand_above_their_messages(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    desk.world.model.answer("Hello.")
    await say(browser, "first")
    await heard(browser, "Hello.")
    later: dict[str, Any] = await browser.run(
        """
        const list = document.getElementById('messages');
        const times = [...list.querySelectorAll('time')].map((one) => one.dateTime);
        return {times, days: [...list.children].map((one) => one.className)};
        """
    )
    assert later["days"] == ["day", "user", "assistant reply"]
    assert len(later["times"]) == 2
    assert all(one.endswith("Z") for one in later["times"])
