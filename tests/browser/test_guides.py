"""The pictures of docs/start/slack.md and docs/start/telegram.md: the real process over the loopback services, in Chromium."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.testing.anthropic_script import reply
from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, START_SECONDS
from tests.browser.conftest import Desk
from tests.browser.conversations import Pane, of_slack, of_telegram, page

pytestmark = pytest.mark.browser

GROUP, BEA = -100500, 2002
NAMES = {PERSON: "Ann", BEA: "Bea"}
MOST_BYTES = 100_000
HEIGHT = "return outerHeight - innerHeight + document.body.offsetHeight"
"""The height of a window that shows all of a page."""
FIRST = (
    "I answer questions, read the files that you send me, look things up in this project and on the web, and remember "
    "what we said. Two things to try:\n\n- “Every weekday at 8:30, tell me what has changed.”\n- Send me a log and ask "
    "what went wrong.\n\nBefore I change anything, I ask you."
)
SHIPPED = "**2.1 was shipped on Tuesday**, as Bob says above. The notes are in `CHANGELOG.md`."


async def pictured(desk: Desk, name: str, platform: str, panes: list[Pane]) -> None:
    """See that a page shows what was said, small enough for a guide; with `PICTURES` it is kept."""
    source = desk.world.root / f"{name}.html"
    source.write_text(page(platform, panes), encoding="utf-8")
    kept = Path(os.environ.get("PICTURES", desk.world.root)) / f"{name}.png"
    browser = await desk.browse()
    width = 1_000 if len(panes) > 1 else 680
    await browser.resize(width, 900)
    await browser.go(source.as_uri())
    await browser.resize(width, await browser.run(HEIGHT))
    shown = await browser.run("return document.querySelectorAll('article').length")
    assert shown == sum(len(one.lines) for one in panes)
    await browser.picture(kept)
    assert 5_000 < kept.stat().st_size <= MOST_BYTES


async def test_slack(desk: Desk) -> None:
    world = desk.world
    world.only("slack")
    world.config["operators"] = [f"slack:{ANN}"]
    world.config["channels"]["slack"]["allow"] = []
    world.model.then(reply(FIRST), reply(SHIPPED))
    slack, mine, his = world.slack, f"D{ANN[1:]}", world.slack.add_im(BOB)
    await world.start()
    await slack.say("Hello! What can you do for me?", channel=his, user=BOB)
    await slack.until(lambda: bool(slack.replies(mine)) and bool(slack.replies(his)), START_SECONDS)
    asked = of_slack(slack, mine)
    (question,) = slack.replies(mine)
    await slack.press(mine, question.ts, question.buttons[0], user=ANN)
    await slack.until(lambda: len(slack.replies(his)) == 2, START_SECONDS)
    await slack.say("What can you do for me?", channel=his, user=BOB)
    await world.turns(1)
    panes = [
        Pane("shipmate, as Bob sees it", "Bob", of_slack(slack, his)),
        Pane("shipmate, as Ann sees it", "Ann", asked),
    ]
    assert asked[0].buttons == ["Let in", "Not now"]
    await pictured(desk, "slack-first", "slack", panes)
    await slack.say("2.1 is out since Tuesday", channel=ROOM, user=BOB)
    await slack.say("<@U0SHIP> when was 2.1 shipped?", channel=ROOM, user=ANN)
    await world.turns(2)
    await pictured(desk, "slack-channel", "slack", [Pane("# team", "Ann", of_slack(slack, ROOM))])


async def test_telegram(desk: Desk) -> None:
    world = desk.world
    world.only("telegram")
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(GROUP)]
    world.model.then(reply(FIRST), reply(SHIPPED))
    telegram = world.telegram
    telegram.chat(PERSON)
    await world.start()
    telegram.say("Hello! What can you do for me?", chat_id=BEA, name="Bea")
    await telegram.until(lambda: len(world.texts(BEA)) == 1 and len(world.texts()) == 1, START_SECONDS)
    asked = of_telegram(telegram, PERSON, NAMES)
    ((number, message),) = telegram.chats[PERSON].messages.items()
    telegram.press(number, message["reply_markup"]["inline_keyboard"][0][0]["callback_data"], chat_id=PERSON)
    await telegram.until(lambda: len(world.texts(BEA)) == 2, START_SECONDS)
    telegram.say("What can you do for me?", chat_id=BEA)
    await world.turns(1)
    panes = [
        Pane("Shipmate, as Bea sees it", "Bea", of_telegram(telegram, BEA, NAMES)),
        Pane("Shipmate, as Ann sees it", "Ann", asked),
    ]
    assert asked[0].buttons == ["Let in", "Not now"]
    await pictured(desk, "telegram-first", "telegram", panes)
    telegram.me["can_read_all_group_messages"] = True
    telegram.say("2.1 is out since Tuesday", chat_id=GROUP, user_id=BEA)
    telegram.say(f"@{telegram.me['username']} when was 2.1 shipped?", chat_id=GROUP, user_id=PERSON)
    await world.turns(2)
    group = [Pane("The team", "Ann", of_telegram(telegram, GROUP, NAMES))]
    await pictured(desk, "telegram-group", "telegram", group)
