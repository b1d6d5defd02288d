"""[Try again] below a failure, and [Answer again] below an answer whose question was edited, through real client libraries."""

from __future__ import annotations

from bot.contracts.base import Json
from bot.testing.anthropic_script import Halt, reply, tool_use
from tests.blackbox.conftest import ANN, PERSON, World, eventually
from tests.blackbox.test_streaming import told

TRIES = 3
"""Number of calls that a failing model gets."""


def with_buttons(world: World) -> list[Json]:
    return [one for one in world.telegram.chats[PERSON].messages.values() if "reply_markup" in one]


async def test_in_telegram_a_press_tries_it_again_and_takes_the_button_away(world: World) -> None:
    await world.start("telegram")
    world.model.then(*[told("One two three four.", (0.5, Halt.CUT))] * TRIES)
    world.telegram.say("and?")
    await world.telegram.until(lambda: bool(with_buttons(world)))
    (notice,) = with_buttons(world)
    ((button,),) = notice["reply_markup"]["inline_keyboard"]
    assert button["text"] == "Try again"
    await world.sent()  # without a known outcome, the answer would be repeated with a note
    await world.process.kill()
    await world.start()
    world.model.then(reply(tool_use("chat_send", {"text": "Forty-two."})), reply())
    for _ in range(2):
        world.telegram.press(notice["message_id"], button["callback_data"], chat_id=PERSON)
    await world.telegram.until(lambda: world.texts()[-1] == "Forty-two.")
    await world.telegram.until(lambda: not with_buttons(world))
    await world.telegram.until(lambda: len(world.telegram.called("answerCallbackQuery")) == 2)
    said = [call.params["text"] for call in world.telegram.called("answerCallbackQuery")]
    assert sorted(said) == ["I'm at it already.", "Trying again."]
    await eventually(lambda: [line["text"] for line in world.archive()] == ["and?", "and?", "Forty-two."])


async def test_in_slack_too(world: World) -> None:
    await world.start("slack")
    world.model.then(*[told("One two three four.", (0.5, Halt.CUT))] * TRIES)
    asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: any(seen.buttons for seen in world.slack.replies("D0ANN", asked)))
    notice = world.slack.replies("D0ANN", asked)[-1]
    (value,) = notice.buttons
    world.model.then(reply(tool_use("chat_send", {"text": "Forty-two."})), reply())
    await world.slack.press("D0ANN", notice.ts, value, user=ANN)
    await world.slack.until(lambda: world.slack.replies("D0ANN", asked)[-1].text == "Forty-two.")
    await world.slack.until(lambda: not any(seen.buttons for seen in world.slack.replies("D0ANN", asked)))
    assert world.slack.ephemeral == ["Trying again."]


def echo(body: Json) -> str:
    """Return an answer with the newest question."""
    last = [one for one in body["messages"] if one["role"] == "user"][-1]
    return f"re: {last['content'][-1]['text']}"


async def test_in_telegram_an_edit_after_the_answer_offers_one_in_its_place_over_a_kill(world: World) -> None:
    world.model.script(echo)
    await world.start("telegram")
    number = world.telegram.say("what is new?")["message"]["message_id"]
    await world.heard("re: what is new?")
    await world.turns(1)
    await world.sent()
    world.telegram.edit(number, "what is old? \u8001")
    await world.telegram.until(lambda: bool(with_buttons(world)))
    (answer,) = with_buttons(world)
    ((button,),) = answer["reply_markup"]["inline_keyboard"]
    assert (button["text"], answer["text"]) == ("Answer again", "re: what is new?")
    await world.process.kill()
    await world.start()
    for _ in range(2):
        world.telegram.press(answer["message_id"], button["callback_data"], chat_id=PERSON)
    await world.telegram.until(lambda: world.texts() == ["re: what is old? \u8001"])
    await world.telegram.until(lambda: not with_buttons(world))
    await world.telegram.until(lambda: len(world.telegram.called("answerCallbackQuery")) == 2)
    said = sorted(call.params["text"] for call in world.telegram.called("answerCallbackQuery"))
    assert said == ["I'll answer that again.", "I'm at it already."]
    await world.turns(2)
    assert len(world.model.bodies) == 2
    assert world.telegram.tally(PERSON).posted == 1


async def test_in_slack_too_it_is_offered_and_answered_in_its_place(world: World) -> None:
    world.model.script(echo)
    await world.start("slack")
    asked = await world.slack.say("what is new?", channel="D0ANN", user=ANN)
    await world.turns(1)
    await world.sent()
    await world.slack.edit("D0ANN", asked, "what is old?")
    await world.slack.until(lambda: any(seen.buttons for seen in world.slack.replies("D0ANN", asked)))
    (answer,) = world.slack.replies("D0ANN", asked)
    assert answer.text == "re: what is new?"
    await world.slack.press("D0ANN", answer.ts, answer.buttons[0], user=ANN)

    def shown() -> list[tuple[str, tuple[str, ...]]]:
        return [(seen.text, seen.buttons) for seen in world.slack.replies("D0ANN", asked)]

    await world.slack.until(lambda: shown() == [("re: what is old?", ())])
    await world.turns(2)
    assert world.slack.ephemeral == ["I'll answer that again."]
    assert shown() == [("re: what is old?", ())]
