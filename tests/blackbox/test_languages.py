"""Languages and time zones through the real client libraries: from a person's app, or chosen by the person."""

from __future__ import annotations

import asyncio
import json
import re

from bot.testing.anthropic_script import error
from bot.words import say, speaking
from tests import quick
from tests.blackbox.conftest import ANN, BOB, PERSON, World

DIRECT = "D0ANN"
with speaking("zh"):
    NOTHING, NOW, FAILED = say("stop.nothing"), say("language.now"), say("errors.request_invalid")
    EMPTY, MENU = say("turn.empty"), say("help.stop")


async def test_on_telegram_the_app_decides_until_somebody_chooses_and_that_outlives_a_kill(
    world: World,
) -> None:
    await world.start("telegram")
    menu = {one["command"]: one["description"] for one in world.telegram.commands["default", "zh"]}
    assert menu["stop"] == MENU
    await said(world, "/stop", NOTHING, language="zh-hans")
    await said(world, "/stop", "Nothing's running here.", language="en")
    await said(world, "/language zh", NOW, language="en")
    await world.sent()
    await world.process.kill()
    await world.start()
    await said(world, "/stop", NOTHING, language="en")
    world.model.script(lambda _: error(400, "invalid_request_error", "no"))
    await said(world, "hello", FAILED, language="en")
    (failure,) = [one for one in world.telegram.chats[PERSON].messages.values() if one.get("text") == FAILED]
    assert failure["reply_markup"]["inline_keyboard"][0][0]["text"] == "重试"


async def test_notices_are_in_the_language_of_the_last_message(world: World) -> None:
    await world.start("telegram")
    await said(world, "/stop", "Nothing's running here.", language="en")
    for words, notice, failed in (
        ("帮我看看 README.md 里有什么 bug", NOTHING, FAILED),
        ("remember 東京 👍", NOTHING, FAILED),
        ("what does that say, please?", "Nothing's running here.", say("errors.request_invalid")),
        ("これは何ですか", "Nothing's running here.", say("errors.request_invalid")),
    ):
        world.model.then(error(400, "invalid_request_error", "no"))
        await said(world, words, failed, language="en")
        await said(world, "/stop", notice, language="en")
    await said(world, "/stop", "Nothing's running here.", language="zh-hans")


async def said(world: World, words: str, answer: str, language: str) -> None:
    count = len(world.texts())
    world.telegram.say(words, language=language)
    await world.telegram.until(lambda: len(world.texts()) > count)
    assert world.texts()[-1] == answer


async def test_on_slack_the_locale_decides_until_somebody_chooses_and_that_outlives_a_kill(
    world: World,
) -> None:
    world.slack.world.users[ANN]["locale"] = "zh-CN"
    await world.start("slack")
    await written(world, " ", "turn.empty", "zh")
    assert (await command(world, "stop"))[-1] == NOTHING
    with speaking("en"):
        assert (await command(world, "language en"))[-1] == say("language.now")
    await world.sent()
    await world.process.kill()
    await world.start()
    assert (await command(world, "stop"))[-1] == "Nothing's running here."


async def written(world: World, words: str, key: str, code: str) -> None:
    ts = await world.slack.say(words, channel=DIRECT, user=ANN)
    await world.slack.until(lambda: bool(world.slack.replies(DIRECT, ts)))
    with speaking(code):
        assert world.slack.replies(DIRECT, ts)[-1].text == say(key)


async def command(world: World, words: str) -> list[str]:
    """Send a slash command in a direct chat, and return the bot's messages outside of threads."""
    before = len(world.slack.visible(DIRECT))
    delivery = await world.slack.command(words, channel=DIRECT, user=ANN)
    await asyncio.wait_for(delivery.acked.wait(), 90)
    await world.slack.until(lambda: len(world.slack.visible(DIRECT)) > before)
    return [one.text for one in world.slack.visible(DIRECT)]


async def test_on_telegram_a_person_names_their_time_zone_and_that_outlives_a_kill(world: World) -> None:
    await world.start("telegram")
    await asked(world, "/timezone", say("timezone.unknown", zone="UTC", time="{}").partition("{}")[0])
    await asked(
        world,
        "/timezone Berlim",
        "I don't know the time zone “Berlim”. Did you mean one of these? Europe/Ber",
    )
    await asked(world, "/timezone Asia/Kolkata", "I tell you times in Asia/Kolkata from now on; it is ")
    await world.sent()
    await world.process.kill()
    await world.start()
    await asked(world, "/timezone", "I tell you times in Asia/Kolkata, where it is ")
    assert re.search(r", where it is \d\d:\d\d now\.", world.texts()[-1])
    world.telegram.say("what time is it?")
    await world.model.until(lambda: bool(world.model.bodies))
    assert re.search(LOCAL, facts(world))


LOCAL = r'"localTime": "(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [-0-9]{10}T[0-9:]{5}\+05:30 Asia/Kolkata"'


def facts(world: World) -> str:
    """Return the newest message of the model's last request, which includes the facts about the person."""
    return "".join(one["text"] for one in world.model.bodies[-1]["messages"][-1]["content"])


async def asked(world: World, words: str, begins: str) -> None:
    count = len(world.texts())
    world.telegram.say(words)
    await world.telegram.until(lambda: len(world.texts()) > count)
    assert world.texts()[-1].startswith(begins)


async def test_on_slack_the_zone_of_the_profile_counts_until_somebody_chooses(world: World) -> None:
    world.slack.world.users[ANN]["tz"] = "Asia/Kolkata"
    await world.start("slack")
    await world.slack.say("what time is it?", channel=DIRECT, user=ANN)
    await world.model.until(lambda: bool(world.model.bodies))
    assert re.search(LOCAL, facts(world))
    await world.slack.until(lambda: bool(world.slack.replies(DIRECT)))
    assert (await command(world, "timezone"))[-1].startswith("I tell you times in Asia/Kolkata, where it is ")
    assert (await command(world, "timezone tokyo"))[-1].startswith(
        "I tell you times in Asia/Tokyo from now on; it is "
    )
    assert "Asia/Tokyo" in (await command(world, "timezone"))[-1]
    assert "Asia/Kolkata" in (await command(world, "timezone auto"))[-1]


async def test_an_example_below_the_greeting_is_tapped_and_is_a_message_of_the_person(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.telegram.chat(PERSON)
    await world.start("telegram")
    await asked(world, "/start", "Hi, I'm ")
    hello = max(world.telegram.chats[PERSON].messages)
    world.telegram.tap(hello, say("start.what"), chat_id=PERSON)
    await world.model.until(lambda: bool(world.model.bodies))
    assert world.model.bodies[0]["messages"][-1]["content"][-1]["text"] == say("start.what")
    await world.turns(1)
    menu = [one["command"] for one in world.telegram.commands[f"chat {PERSON}", ""]]
    assert "allow" in menu


async def test_the_home_in_slack_is_the_persons_own_and_a_stranger_reads_that_they_have_to_be_let_in(
    world: World,
) -> None:
    world.slack.world.users[ANN] |= {"tz": "Asia/Kolkata", "locale": "zh-CN"}
    await world.start("slack")
    await world.slack.open_home(ANN)
    await world.slack.until(lambda: bool(world.slack.home_of(ANN)))
    with speaking("zh"):
        assert say("home.no_jobs") in world.slack.home_of(ANN)
    assert "Asia/Kolkata" in world.slack.home_of(ANN)
    await world.slack.open_home(BOB)
    await world.slack.until(lambda: bool(world.slack.home_of(BOB)))
    assert world.slack.home_of(BOB) == f"shipmate\n• {say('strangers.hello')}"


async def test_the_zone_of_a_terminal_is_that_of_its_machine(world: World) -> None:
    world.config = {"llm": {"provider": "demo"}, "channels": {"web": {"enabled": False}}}
    world.config["dashboard"] = {"enabled": False}
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    async with asyncio.timeout(60):
        _, out, _ = await quick.run(
            "chat", "--dir", str(world.root), env={"TZ": "Asia/Tokyo"}, given=b"hello\n/timezone\n"
        )
    assert "I tell you times in Asia/Tokyo, where it is " in out.decode()
