"""Actions on messages of the web chat, such as the decision of a question or the stop of an answer."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from bot.contracts.base import Json
from bot.testing.anthropic_script import reply, tool_use
from tests.browser.chromium import Browser
from tests.browser.conftest import BUTTONS, SHOWN, Desk, heard, say
from tests.browser.test_conversing import LONG, REST, growing

pytestmark = pytest.mark.browser

OUTSIDE = """
const card = document.querySelector('.question').getBoundingClientRect();
return [...document.querySelectorAll('.choices button')].map((one) => one.getBoundingClientRect())
  .filter((one) => one.left < card.left || one.right > card.right || one.right > innerWidth).length
"""
NAMED = """
const card = document.querySelector('.question .bubble');
return [card.getAttribute('role'), document.getElementById(card.getAttribute('aria-labelledby')).innerText]
"""
KEY = """
document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true, cancelable: true, ...arguments[1]}))
"""


async def asked(browser: Browser, words: str) -> None:
    await say(browser, words)
    await browser.until(f"{BUTTONS}.length === 4")


async def test_a_press_shows_no_message_and_the_card_becomes_its_outcome(desk: Desk) -> None:
    model = desk.world.model
    desk.world.config["permissions"] = {"ask": ["skills_list"]}
    await desk.start()
    browser = await desk.opened(desk.link)
    first = await browser.front()
    model.answer(tool_use("skills_list", {}))
    model.answer("Here they are.")
    await asked(browser, "which skills?")
    assert await browser.run(NAMED) == ["group", "May I use my tool skills_list?"]
    for width in (320, 390, 768, 1280):
        await browser.resize(width, 800)
        for scheme in ("light", "dark"):
            await browser.scheme(scheme)
            await desk.picture(browser, f"card-{width}-{scheme}")
        assert await browser.run(OUTSIDE) == 0, width
    await browser.run(
        "window.real = window.fetch; window.fetch = () => Promise.reject(new TypeError('gone'))"
    )
    await browser.press(".choices .primary")
    await browser.until("return document.querySelector('.told')?.textContent")
    assert (
        await browser.run("return document.querySelector('.told').textContent")
        == "Shipmate can't be reached."
    )
    assert await browser.run("return document.querySelectorAll('.choices button:disabled').length") == 0
    assert await browser.run("return document.activeElement.dataset.choice") == "once"
    await browser.run("window.fetch = window.real")
    second = await browser.tab()
    await browser.go(desk.page)
    await browser.until(f"{BUTTONS}.length === 4")
    # By keyboard only.
    await browser.run("document.querySelector('.choices .primary').focus()")
    await browser.type(".choices .primary", "\n")
    await heard(browser, "Here they are.")
    shown: list[str] = []
    for tab in (first, second):
        await browser.show(tab)
        await browser.until("return document.querySelector('.decided')")
        shown = await browser.run(SHOWN)
        assert (shown[0], len(shown), shown[2]) == ("which skills?", 3, "Here they are.")
        assert "Allowed by the person who asked" in shown[1]
        assert await browser.run(BUTTONS) == []
    await browser.until("return document.activeElement.id === 'text'")
    await desk.picture(browser, "decided")
    await browser.reload()
    await browser.until("return document.querySelector('.decided')")
    assert await browser.run(SHOWN) == shown
    # The question keeps its outcome when its message is edited and answered again.
    await desk.world.turns(1)
    model.answer("Here they are again.")
    await browser.press("li.user .edit")
    await browser.type(".rewrite textarea", "!\n")
    await heard(browser, "Here they are again.")
    await desk.world.sent()
    anew = ["which skills?!", shown[1], "Here they are again."]
    assert await browser.run(SHOWN) == anew
    await browser.reload()
    await heard(browser, anew[-1])
    assert await browser.run(SHOWN) == anew
    # If a question no longer exists, the page says so in place of the question. Typing still works.
    model.answer(tool_use("skills_list", {}))
    model.answer("Not this time.")
    await asked(browser, "once more")
    await browser.run("document.querySelector('.choices').dataset.of = '01M8K3Z5Q2W4E6R8T0Y1V3X5Z7'")
    await browser.press(".choices .danger")
    await browser.until("return document.querySelector('.told')?.textContent")
    told = await browser.run("return document.querySelector('.told').textContent")
    assert told == "This was already decided, or it has expired."
    assert await browser.run("return document.querySelectorAll('.choices button:disabled').length") == 0
    await say(browser, "/deny")
    await heard(browser, "Not this time.")
    await browser.until("return document.querySelectorAll('.decided').length === 2")
    assert "⛔ Denied." in await browser.run(SHOWN)


async def test_escape_stops_an_answer_unless_it_means_something_else(desk: Desk) -> None:
    await desk.start()
    browser = await desk.opened(desk.link)
    gate = asyncio.Event()
    desk.world.model.then(reply("Late.", hold=gate))
    await say(browser, "think long")
    await browser.until("return !document.getElementById('working').hidden")
    await browser.run(KEY, "Escape", {"isComposing": True})
    await browser.run("document.getElementById('login').showModal()")
    await browser.run(KEY, "Escape", {})
    await browser.run("document.getElementById('login').close(); document.getElementById('text').focus()")
    assert await browser.run("return document.getElementById('stop').disabled") is False
    await browser.run(KEY, "Escape", {})
    await browser.until("return document.getElementById('working').hidden")
    assert await browser.run(SHOWN) == ["think long"]
    gate.set()


RATINGS = "return [...document.querySelectorAll('.rate')].map((one) => one.getAttribute('aria-pressed'))"
VISIBLE = """
return [...document.querySelectorAll(arguments[0])].filter((one) => one.offsetParent).map((one) => one.closest('li').dataset.id)
"""


def last_words(body: Json) -> str:
    """Return the newest text of a person in a request."""
    said = [one for one in body["messages"] if one["role"] == "user"][-1]["content"]
    return str(said[-1]["text"])


async def test_an_answer_is_asked_for_again_rated_and_given_for_other_words_in_its_place(desk: Desk) -> None:
    model = desk.world.model
    await desk.start()
    browser = await desk.opened(desk.link)
    first = await browser.front()
    model.answer("Hello Ann.")
    await say(browser, "I am Ann")
    await heard(browser, "Hello Ann.")
    model.answer("Blue.")
    await say(browser, "my favourite colour?")
    await heard(browser, "Blue.")
    await browser.until("return document.querySelectorAll('.renew').length === 2")
    assert len(await browser.run(VISIBLE, ".renew")) == len(await browser.run(VISIBLE, ".edit")) == 1
    # [Answer again] in one tab replaces the answer in both.
    second = await browser.tab()
    await browser.go(desk.page)
    await heard(browser, "Blue.")
    model.answer("Red.")
    await browser.press(".reply:last-child .renew")
    for tab in (second, first):
        await browser.show(tab)
        await heard(browser, "Red.")
        assert await browser.run(SHOWN) == ["I am Ann", "Hello Ann.", "my favourite colour?", "Red."]
    assert "Blue." not in str(model.bodies[-1]["messages"])
    # A rating is shown in both tabs. It can be removed and given again.
    await browser.press(".reply:last-child .rate[data-rating=good]")
    for tab in (first, second):
        await browser.show(tab)
        await browser.until(f"{RATINGS}.join() === 'false,false,true,false'")
    await browser.press(".reply:last-child .rate[data-rating=good]")
    await browser.until(f"{RATINGS}.join() === 'false,false,false,false'")
    await browser.press(".reply:last-child .rate[data-rating=bad]")
    await browser.until(f"{RATINGS}.join() === 'false,false,false,true'")
    await desk.picture(browser, "rated")
    # Esc discards edited words, Enter sends them.
    await browser.press("li.user:not(:has(~ .user)) .edit")
    await browser.type(".rewrite textarea", "x\ue00c")
    assert await browser.run("return document.querySelector('.rewrite')") is None
    assert "my favourite colour?" in await browser.run(SHOWN)
    await browser.press("li.user:not(:has(~ .user)) .edit")
    await desk.picture(browser, "rewriting")
    model.answer("Your favourite dish is soup.")
    await browser.run("document.querySelector('.rewrite textarea').value = ''")
    await browser.type(".rewrite textarea", "my favourite dish? 老 \N{POT OF FOOD}")
    await browser.type(".rewrite textarea", "\n")
    newest = [
        "I am Ann",
        "Hello Ann.",
        "my favourite dish? 老 \N{POT OF FOOD}",
        "Your favourite dish is soup.",
    ]
    for tab in (second, first):
        await browser.show(tab)
        await heard(browser, newest[-1])
        assert await browser.run(SHOWN) == newest
    asked = model.bodies[-1]["messages"]
    assert last_words(model.bodies[-1]).endswith("my favourite dish? 老 \N{POT OF FOOD}")
    assert "colour" not in str(asked)
    await desk.world.turns(4)
    await browser.press(".reply:last-child .rate[data-rating=good]")
    await browser.until(f"{RATINGS}.join() === 'false,false,true,false'")
    await desk.world.sent()
    for restart in (False, True):
        if restart:
            await desk.world.process.kill()
            desk.world.config["channels"]["web"]["port"] = urlsplit(desk.page).port
            await desk.world.start()
        await browser.go(desk.page)
        await heard(browser, newest[-1])
        assert await browser.run(SHOWN) == newest
        await browser.until(f"{RATINGS}.join() === 'false,false,true,false'")
    # A message of an earlier process can be edited too.
    await browser.press("li.user:not(:has(~ .user)) .edit")
    model.answer("Green.")
    await browser.type(".rewrite textarea", " And my colour?\n")
    await heard(browser, "Green.")
    assert await browser.run(SHOWN) == [*newest[:2], f"{newest[2]} And my colour?", "Green."]
    await browser.reload()
    await heard(browser, "Green.")
    assert await browser.run(SHOWN) == [*newest[:2], f"{newest[2]} And my colour?", "Green."]
    texts = [line["text"] for line in desk.world.archive()]
    assert [one for one in ("Blue.", "Red.", "my favourite colour?") if one not in texts] == []


async def test_a_message_that_is_acted_on_is_not_changed_and_neither_is_an_older_one(desk: Desk) -> None:
    desk.world.model.answer("One.")
    browser, gate = await growing(desk, LONG + REST, before="first")
    refusals = ["Only your last message can be changed.", "I'm already acting on that message."]
    for nth, sentence in enumerate(refusals):
        await browser.run(f"document.querySelectorAll('.edit')[{nth}].click()")
        await browser.type(".rewrite textarea", "?\n")
        told = "return document.querySelector('.rewrite .told')?.textContent.startsWith(arguments[0])"
        await browser.until(told, sentence)
        await browser.press(".rewrite .cancel")
    assert (await browser.run(SHOWN))[:3] == ["first", "One.", "and?"]
    gate.set()
    await desk.world.turns(2)


MODEL = "return document.getElementById('model').textContent"
TOLD = "return document.getElementById('model-told').textContent"


async def choose(browser: Browser, menu: str, value: str) -> None:
    await browser.run(
        "const menu = document.getElementById(arguments[0]); menu.value = arguments[1];"
        "menu.dispatchEvent(new Event('change', {bubbles: true}))",
        menu,
        value,
    )


async def test_an_operator_chooses_the_model_in_the_header_and_examples_start_an_empty_chat(
    desk: Desk,
) -> None:
    desk.world.config["llm"]["model"] = "claude-sonnet-5-5"
    await desk.start()
    member = await desk.opened(desk.page)
    await member.until(f"{MODEL} === 'claude-sonnet-5-5'")
    assert await member.run("return document.getElementById('model').disabled")
    browser = await desk.opened(desk.link)
    first = await browser.front()
    second = await browser.tab()
    await browser.go(desk.page)
    await browser.until("return !document.getElementById('model').disabled")
    examples = "return [...document.querySelectorAll('#examples button')].filter((one) => one.offsetParent).map((one) => one.innerText)"
    assert await browser.run(examples) == [
        "What can you do for me?",
        "Remind me tomorrow at nine to call the dentist",
        "Every Monday at eight, ask me what I plan",
    ]
    await desk.picture(browser, "empty")
    for width in (320, 1280):
        await browser.resize(width, 700)
        await browser.press("#model")
        await desk.picture(browser, f"models-{width}")
        await browser.press("#models button")
    await browser.press("#model")
    await choose(browser, "model-name", "claude-haiku-5-5")
    for tab in (first, second):
        await browser.show(tab)
        await browser.until(f"{MODEL}.startsWith('claude-haiku-5-5')")
    assert (await browser.run(TOLD)).startswith("This chat uses claude-haiku-5-5")
    assert await browser.run("return document.getElementById('model-name').value") == "claude-haiku-5-5"
    await choose(browser, "model-name", "other")
    await browser.type("#model-other input", "gpt-99\n")
    await browser.until(f"{TOLD}.startsWith('The provider has no model “gpt-99”')")
    assert await browser.run("return document.getElementById('model-name').value") == "claude-haiku-5-5"
    await choose(browser, "model-name", "default")
    await browser.until(f"{MODEL}.startsWith('claude-sonnet-5-5')")
    await browser.press("#models button")
    assert await browser.run(SHOWN) == []
    desk.world.model.answer("A lot.")
    await browser.press("#examples button")
    await heard(browser, "A lot.")
    assert await browser.run(SHOWN) == ["What can you do for me?", "A lot."]
    assert await browser.run(examples) == []
    assert await member.run(SHOWN) == []
