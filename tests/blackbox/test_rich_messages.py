"""`channels.telegram.richMessages`: tables and headings as Telegram's rich messages, and as before where it takes none."""

from __future__ import annotations

import asyncio

from bot.testing.telegram_world import Seen
from tests.blackbox.conftest import PERSON, World
from tests.blackbox.test_streaming import streaming, told

CELL = "一个很长的单元格" * 16
TABLE = f"| 名称 | 说明 |\n|---|---|\n| **苹果** | {CELL} |"
ANSWER = f"# Fruit\n\nThis is what there is:\n\n{TABLE}\n\nEnd."
WORDS = f"Fruit\nThis is what there is:\n名称 | 说明\n苹果 | {CELL}\nEnd."


def turned_on(world: World, *, after: int | None = None) -> None:
    streaming(world, "telegram", after=after or 0)
    world.config["channels"]["telegram"]["streaming"]["enabled"] = after is not None
    world.config["channels"]["telegram"]["richMessages"] = True


def seen(world: World) -> list[Seen]:
    return world.telegram.visible(PERSON)


async def answered(world: World, words: str = ANSWER) -> list[Seen]:
    world.model.then(told(words))
    world.telegram.say("what is there?")
    await world.telegram.until(lambda: any(seen(world)))
    await world.turns(1)
    return seen(world)


async def test_a_table_is_a_rich_message_and_no_file(world: World) -> None:
    turned_on(world)
    await world.start()
    (message,) = await answered(world)
    assert [block["type"] for block in message.rich] == ["heading", "paragraph", "table", "paragraph"]
    assert message.text == WORDS
    assert world.telegram.documents() == []
    assert next(line for line in world.archive() if line["role"] == "assistant")["text"] == ANSWER
    assert not world.telegram.called("sendMessage")


async def test_what_needs_no_rich_message_is_an_ordinary_one_and_so_is_all_by_default(world: World) -> None:
    turned_on(world)
    await world.start()
    (message,) = await answered(world, "**plain** words")
    assert (message.rich, message.text) == ((), "plain words")
    await world.process.stop()
    del world.config["channels"]["telegram"]["richMessages"]
    await world.start()
    world.model.then(told("# Fruit\n\n| a | b |\n|---|---|\n| 1 | 2 |"))
    world.telegram.say("again?")
    await world.telegram.until(lambda: len(seen(world)) == 2)
    assert seen(world)[-1].rich == ()


async def test_shown_while_it_is_written_it_becomes_one_in_the_same_message(world: World) -> None:
    turned_on(world, after=0)
    await world.start()
    gate = asyncio.Event()
    world.model.then(told(ANSWER, (0.5, gate)))
    world.telegram.say("what is there?")
    await world.telegram.until(lambda: any("This is what" in one.text for one in seen(world)))
    assert seen(world)[0].rich == ()
    gate.set()
    await world.telegram.until(lambda: bool(seen(world)[0].rich))
    assert [one.text for one in seen(world)] == [WORDS]
    assert world.telegram.tally(PERSON).posted == 1


async def test_a_refused_one_is_sent_as_an_ordinary_one_once(world: World) -> None:
    turned_on(world)
    await world.start()
    world.telegram.fail("sendRichMessage", status=400)
    (message,) = await answered(world)
    assert message.rich == ()
    assert "苹果" in message.text
    assert message.text.startswith("Fruit\n")
    assert world.telegram.tally(PERSON).posted == 1
    world.model.then(told(ANSWER))
    world.telegram.say("and now?")
    await world.telegram.until(lambda: len(seen(world)) == 2)
    assert seen(world)[-1].rich


async def test_a_service_that_does_not_know_them_is_asked_once(world: World) -> None:
    turned_on(world, after=0)
    world.telegram.knows_rich = False
    await world.start()
    for count in (1, 2):
        world.model.then(told(ANSWER))
        world.telegram.say("what is there?")
        await world.turns(count)
        await world.telegram.until(lambda count=count: len(seen(world)) == count)  # type: ignore[misc]
    assert all(one.rich == () and one.text.startswith("Fruit\n") for one in seen(world))
    assert len(world.telegram.called("sendRichMessage")) <= 1


async def test_killed_while_one_is_on_its_way_it_comes_again_and_says_so(world: World) -> None:
    turned_on(world)
    await world.start()
    world.model.then(told(ANSWER))
    world.telegram.fail("sendRichMessage", action="late", seconds=3_600)
    world.telegram.say("what is there?")
    await world.telegram.until(lambda: len(seen(world)) == 1)
    await world.process.kill()
    await world.start()
    await world.telegram.until(lambda: len(seen(world)) == 2)
    assert [bool(one.rich) for one in seen(world)] == [True, True]
    assert seen(world)[1].text.endswith(WORDS)
