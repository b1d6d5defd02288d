"""When a budget is used up, operators decide by buttons, even after kill -9. The costs of a day survive a restart."""

from __future__ import annotations

from tests.blackbox.conftest import PERSON, World, eventually

OPERATOR = 2002


def question(world: World) -> int:
    """Return the id of the newest message with buttons in the operator's chat; 0 if there is none."""
    messages = world.telegram.chats[OPERATOR].messages if OPERATOR in world.telegram.chats else {}
    return next(
        (number for number in sorted(messages, reverse=True) if "reply_markup" in messages[number]), 0
    )


def button(world: World, number: int, words: str) -> str:
    rows = world.telegram.chats[OPERATOR].messages[number]["reply_markup"]["inline_keyboard"]
    return next(
        str(one["callback_data"]) for row in rows for one in row if words.lower() in one["text"].lower()
    )


def spend(world: World) -> None:
    """Start a gateway in which each call exceeds a person's daily budget."""
    world.only("telegram")
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(OPERATOR)]
    world.config["budgets"] = {"perUserUsdPerDay": 0.10}
    world.config["llm"]["prices"] = {"claude-sonnet-5-5": {"input": 0, "output": 100_000, "cacheWrite": 0}}


async def test_a_budget_that_is_spent_waits_for_an_operator_over_a_kill(world: World) -> None:
    spend(world)
    await world.start()
    world.telegram.say("/whoami", chat_id=OPERATOR, user_id=OPERATOR)
    await world.telegram.until(lambda: bool(world.texts(OPERATOR)))
    world.model.answer("First.")
    world.telegram.say("one")
    await world.heard("First.")
    await world.turns(1)
    asked = len(world.model.requests)
    world.model.answer("Second.")
    world.model.answer("Third.")
    world.telegram.say("two")
    await world.telegram.until(lambda: question(world) > 0)
    words = world.telegram.chats[OPERATOR].messages[question(world)]["text"]
    assert words.startswith("Today's budget is used up. May I go on for ")
    waits = "For this I need a yes from an operator. I'd like to go on though today's budget is used up."
    await world.telegram.until(lambda: world.texts()[-1].startswith(waits))
    assert "today's budget of this person is spent" in words
    assert "/ $0.10" in words
    assert len(world.model.requests) == asked
    await world.sent()
    await world.process.kill()
    await world.start()
    number = question(world)
    world.telegram.press(number, button(world, number, "once"), chat_id=OPERATOR, user_id=OPERATOR)
    await world.telegram.until(lambda: "Second." in world.texts())
    await world.turns(2)
    # The approval was valid only for that turn. The log contains the costs of the day.
    world.telegram.say("three")
    await world.telegram.until(lambda: question(world) > number)
    number = question(world)
    world.telegram.press(number, button(world, number, "deny"), chat_id=OPERATOR, user_id=OPERATOR)
    await world.telegram.until(lambda: any("My budget for today is used up" in one for one in world.texts()))
    world.telegram.say("four")
    await world.telegram.until(
        lambda: sum("My budget for today is used up" in one for one in world.texts()) == 2
    )
    assert question(world) == 0
    assert "Third." not in world.texts()
    told = [text for text in world.texts(OPERATOR) if "has cost $" in text and "today (budgets" in text]
    assert len(told) == 1
    await eventually(lambda: sum(line["kind"] == "turn_end" for line in world.log()) == 4)
    assert await world.process.stop() == 0
