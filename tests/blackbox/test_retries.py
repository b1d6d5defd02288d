"""[Try again] below a failure, through real client libraries."""

from __future__ import annotations

from bot.contracts.base import Json
from bot.testing.anthropic_script import Halt, reply, tool_use
from tests.blackbox.conftest import ANN, PERSON, World, eventually
from tests.blackbox.test_streaming import told

TRIES = 3
"""Calls that a model which breaks off gets."""


def with_buttons(world: World) -> list[Json]:
    return [one for one in world.telegram.chats[PERSON].messages.values() if "reply_markup" in one]


async def test_in_telegram_a_press_tries_it_again_and_takes_the_button_away(world: World) -> None:
    world.only("telegram")
    await world.start()
    world.model.then(*[told("One two three four.", (0.5, Halt.CUT))] * TRIES)
    world.telegram.say("and?")
    await world.telegram.until(lambda: bool(with_buttons(world)), 60)
    (notice,) = with_buttons(world)
    ((button,),) = notice["reply_markup"]["inline_keyboard"]
    assert button["text"] == "Try again"
    await world.sent()  # where that is not known, it would come once more and say so
    await world.process.kill()
    await world.start()
    world.model.then(reply(tool_use("chat_send", {"text": "Forty-two."})), reply())
    for _ in range(2):
        world.telegram.press(notice["message_id"], button["callback_data"], chat_id=PERSON)
    await world.telegram.until(lambda: world.texts()[-1] == "Forty-two.", 40)
    await world.telegram.until(lambda: not with_buttons(world), 40)
    await world.telegram.until(lambda: len(world.telegram.called("answerCallbackQuery")) == 2, 40)
    said = [call.params["text"] for call in world.telegram.called("answerCallbackQuery")]
    assert sorted(said) == ["I have begun to try that again already.", "I try it again."]
    await eventually(lambda: [line["text"] for line in world.archive()] == ["and?", "and?", "Forty-two."])


async def test_in_slack_too(world: World) -> None:
    world.only("slack")
    await world.start()
    world.model.then(*[told("One two three four.", (0.5, Halt.CUT))] * TRIES)
    asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: any(seen.buttons for seen in world.slack.replies("D0ANN", asked)), 60)
    notice = world.slack.replies("D0ANN", asked)[-1]
    (value,) = notice.buttons
    world.model.then(reply(tool_use("chat_send", {"text": "Forty-two."})), reply())
    await world.slack.press("D0ANN", notice.ts, value, user=ANN)
    await world.slack.until(lambda: world.slack.replies("D0ANN", asked)[-1].text == "Forty-two.", 40)
    await world.slack.until(lambda: not any(seen.buttons for seen in world.slack.replies("D0ANN", asked)), 40)
    assert world.slack.whispers == ["I try it again."]
