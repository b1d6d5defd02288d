"""A streamed answer is one message, also after kills and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bot.testing.anthropic import KEY
from bot.testing.anthropic_script import Frame, Halt, reply, tool_use
from tests.blackbox.conftest import ANN, PERSON, ROOM, World, eventually, fast

WORDS = "Die Antwort ist zweiundvierzig, 你好, und mehr braucht niemand zu wissen. " * 3
ANSWER = WORDS.strip()


def with_gates(*gates: tuple[float, Frame]) -> Callable[[list[Frame]], list[Frame]]:
    """Return an edit of stream frames that inserts gates at these parts of the answer."""

    def edit(frames: list[Frame]) -> list[Frame]:
        for part, gate in sorted(gates, key=lambda one: -one[0]):
            frames.insert(int(part * len(frames)), gate)
        return frames

    return edit


def streaming(world: World, *channels: str, after: int = 0) -> None:
    world.only(*channels)
    world.model.chunk = 4
    for name in channels:
        world.config["channels"][name]["streaming"] = {"afterMs": after}


def told(words: str, *gates: tuple[float, Frame]) -> Any:
    return reply(tool_use("chat_send", {"text": words}), edit=with_gates(*gates))


def shown(world: World) -> list[str]:
    """Return every text that was sent to Telegram, final or not."""
    calls = [*world.telegram.called("sendMessage"), *world.telegram.called("editMessageText")]
    return [str(call.params["text"]) for call in calls]


async def goes_on(world: World, length: int = 20) -> str:
    """Wait until part of an answer is shown."""
    await world.telegram.until(
        lambda: any(text.endswith(" …") and len(text) > length for text in world.texts())
    )
    return world.texts()[-1]


@fast
async def test_telegram_shows_an_answer_as_it_is_written_in_one_message(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    first, second = asyncio.Event(), asyncio.Event()
    world.model.then(told(ANSWER, (0.3, first), (0.7, second)), reply())
    world.telegram.say("and?")
    early = await goes_on(world)
    assert ANSWER.startswith(early.removesuffix(" …"))
    # The person has seen words, so the response time ends although the model still writes.
    await eventually(lambda: any(line["kind"] == "answer_shown" for line in world.log()))
    first.set()
    await goes_on(world, len(early) + 20)
    second.set()
    await world.telegram.until(lambda: world.texts() == [ANSWER])
    tally = world.telegram.tally(PERSON)
    assert (tally.posted, tally.visible, tally.deleted) == (1, 1, 0)
    assert tally.edited >= 2
    await world.turns(1)
    await eventually(lambda: [line["text"] for line in world.archive()] == ["and?", ANSWER])


async def test_slack_streams_in_the_thread_of_a_direct_chat(world: World) -> None:
    streaming(world, "slack")
    await world.start()
    gate = asyncio.Event()
    world.model.then(told(ANSWER, (0.5, gate)), reply())
    asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
    await in_slack(world, asked, lambda text: len(text) > 40 and ANSWER.startswith(text))
    await world.slack.until(lambda: world.slack.title_of("D0ANN", asked) == "and?")
    gate.set()
    await in_slack(world, asked, lambda text: text == ANSWER)
    assert world.slack.tally("D0ANN").posted == 1
    assert world.slack.called("chat.startStream")
    assert not world.slack.called("chat.postMessage")
    await world.slack.until(lambda: bool(world.slack.called("chat.stopStream")))


async def test_thumbs_are_kept_with_the_turn(world: World) -> None:
    streaming(world, "slack", "telegram")
    await world.start()
    world.model.then(told(ANSWER))
    asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
    await in_slack(world, asked, lambda text: text == ANSWER)
    (answer,) = world.slack.replies("D0ANN", asked)
    await world.slack.press("D0ANN", answer.ts, "rating bad", user=ANN)
    world.model.then(told(ANSWER))
    world.telegram.say("and?")
    await world.telegram.until(lambda: world.texts() == [ANSWER])
    world.telegram.react(world.telegram.visible(PERSON)[-1].message_id, "👍", chat_id=PERSON)
    await eventually(lambda: len(kept(world)) == 2)
    await world.turns(2)
    ends = [line["requestId"] for line in world.log() if line["kind"] == "turn_end"]
    assert kept(world) == dict(zip(ends, ["bad", "good"], strict=True))
    await world.sent()
    assert world.slack.ephemeral == []
    assert world.texts() == [ANSWER]


def kept(world: World) -> dict[str, str]:
    return {
        line["requestId"]: line["details"]["rating"] for line in world.log() if line["kind"] == "feedback"
    }


async def test_in_a_channel_of_slack_it_edits(world: World) -> None:
    streaming(world, "slack")
    await world.start()
    gate = asyncio.Event()
    world.model.then(told(ANSWER, (0.5, gate)), reply())
    asked = await world.slack.say("<@U0SHIP> and?", channel=ROOM, user=ANN)
    await in_slack(world, asked, lambda text: text.endswith(" …"), ROOM)
    gate.set()
    await in_slack(world, asked, lambda text: text == ANSWER, ROOM)
    assert not world.slack.called("chat.startStream")


@fast
async def test_killed_in_the_middle_of_a_stream_the_answer_is_whole_and_one(world: World) -> None:
    streaming(world, "slack")
    await world.start()
    gate = asyncio.Event()
    world.model.then(told(ANSWER, (0.3, gate), (0.6, Halt.STALL)))
    asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
    await in_slack(world, asked, lambda text: len(text) > 20)
    gate.set()
    await world.slack.until(lambda: bool(world.slack.called("chat.appendStream")))
    await world.process.kill()
    gate = asyncio.Event()
    world.model.then(told("Another one, " + ANSWER, (0.5, gate)), reply())
    await world.start()
    await in_slack(world, asked, lambda text: text.startswith("Another one"))
    gate.set()
    await in_slack(world, asked, lambda text: text == "Another one, " + ANSWER)
    assert world.slack.tally("D0ANN").posted == 1


async def test_killed_before_it_is_known_where_a_stream_stands_the_answer_is_whole_and_one(
    world: World,
) -> None:
    streaming(world, "slack")
    await world.start()
    world.slack.fail("chat.startStream", action="late", seconds=3_600)
    world.model.then(told(ANSWER, (0.6, Halt.STALL)))
    asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
    await in_slack(world, asked, lambda text: len(text) > 20)
    await world.process.kill()
    world.model.then(told(ANSWER), reply())
    await world.start()
    await in_slack(world, asked, lambda text: text == ANSWER)
    assert world.slack.tally("D0ANN").posted == 1


async def in_slack(world: World, asked: str, seen: Callable[[str], bool], channel: str = "D0ANN") -> None:
    """Wait until the only message of the answer satisfies a condition."""
    await world.slack.until(lambda: [seen(one.text) for one in world.slack.replies(channel, asked)] == [True])


@fast
async def test_after_a_restart_the_answer_goes_on_in_the_same_message(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    gate = asyncio.Event()
    world.model.then(told(ANSWER, (0.3, gate), (0.6, Halt.STALL)))
    world.telegram.say("and?")
    early = await goes_on(world)
    gate.set()
    await goes_on(world, len(early) + 20)
    await world.process.kill()
    gate = asyncio.Event()
    world.model.then(told("Another one, " + ANSWER, (0.5, gate)), reply())
    await world.start()
    await world.telegram.until(lambda: world.texts()[-1].startswith("Another one"))
    gate.set()
    await world.telegram.until(lambda: world.texts() == ["Another one, " + ANSWER])
    assert world.telegram.tally(PERSON).posted == 1
    await world.turns(1)
    await eventually(lambda: [line["text"] for line in world.archive()] == ["and?", "Another one, " + ANSWER])


async def test_a_draft_has_a_stop_button(world: World) -> None:
    streaming(world, "telegram")
    world.config["channels"]["telegram"]["streaming"]["drafts"] = True
    await world.start()
    world.model.then(told(ANSWER, (0.5, Halt.STALL)))
    world.telegram.say("and?")
    await world.telegram.until(lambda: any(len(one) > 20 for one in world.telegram.drafts(PERSON).values()))
    ((name, early),) = world.telegram.drafts(PERSON).items()
    assert ANSWER.startswith(early)
    assert world.texts() == []
    world.telegram.press_stop(chat_id=PERSON, draft_id=name)
    await world.telegram.until(lambda: bool(world.texts()))
    assert world.texts()[0].endswith("\n\n(stopped)")
    assert world.telegram.tally(PERSON).posted == 1


async def test_a_stop_ends_it_with_a_mark_in_the_same_message(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    world.model.then(told(ANSWER, (0.5, Halt.STALL)))
    world.telegram.say("and?")
    await goes_on(world)
    world.telegram.say("/stop")
    await world.telegram.until(lambda: world.texts()[0].endswith("\n\n(stopped)"))
    assert ANSWER.startswith(world.texts()[0].removesuffix("\n\n(stopped)"))
    assert [text for text in world.texts() if text.endswith(" …")] == []


async def test_a_model_that_breaks_off_for_good_leaves_a_mark(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    gate = asyncio.Event()
    world.model.then(told(ANSWER, (0.4, gate), (0.5, Halt.CUT)), *[told(ANSWER, (0.5, Halt.CUT))] * 2)
    world.telegram.say("and?")
    await goes_on(world)
    gate.set()
    await world.telegram.until(lambda: len(world.texts()) == 2)
    half, notice = world.texts()
    assert ANSWER.startswith(half.removesuffix("\n\n(interrupted)"))
    assert "try again" in notice
    await world.turns(1)


@fast
async def test_no_part_of_a_secret_is_ever_shown(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    said = f"Your key is {KEY} and that is all there is to say about it, really."
    gate, later = asyncio.Event(), asyncio.Event()
    # The first half of the key arrives first, then the whole key.
    world.model.then(told(said, (0.4, gate), (0.8, later)), reply())
    world.telegram.say("which key?")
    assert await goes_on(world, 5) == "Your key is …"
    gate.set()
    assert (await goes_on(world, 20)).startswith("Your key is [redacted]")
    later.set()
    await world.telegram.until(lambda: world.texts() == [said.replace(KEY, "[redacted]")])
    assert not any(KEY[:6] in text for text in shown(world))
