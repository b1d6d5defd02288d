"""Live messages: streamed text, stops, outages of the model, and the running tool."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from typing import Any

from bot.testing.anthropic_script import (
    Answer,
    Frame,
    cut,
    error,
    overloaded,
    rate_limited,
    reply,
    tool_use,
)
from tests.blackbox.conftest import ANN, BOB, PERSON, ROOM, World, eventually

GROUP = -100500
ME = "<@U0SHIP>"

BUSY = "The model is busy, I keep trying."


def last(body: Any) -> str:
    return str(body["messages"][-1]["content"][-1].get("text", ""))


class Time:
    """The clock of a process that was started with `--clock`. `now` is the last time that was set."""

    def __init__(self, world: World) -> None:
        self._path = world.root / "clock"
        self.now = 0.0
        world.process.faked("--clock", str(self._path))

    async def passes(self, seconds: float, look: Callable[[], object] = lambda: None) -> None:
        """Advance the clock by these seconds in steps of 0.25 s, and call `look` after each step."""
        steps = iter(range(int(4 * seconds)))
        await self.until(lambda: (look(), next(steps, None))[1] is None, int(seconds) + 1)

    async def until(self, condition: Callable[[], bool], most: int = 100) -> None:
        """Advance the clock in steps of 0.25 s until a condition is true. Between steps, real time passes too."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        for _ in range(4 * most):
            writer.write(b'{"pass": 0.25}\n')
            self.now = json.loads(await reader.readline())["now"]
            if condition():
                writer.close()
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not come about")


OUTAGES: dict[str, Callable[[], Answer]] = {
    "overloaded": overloaded,
    "failing": lambda: error(503, "api_error", "Internal server error"),
    "cut": lambda: cut(reply("An answer that breaks off.")),
    "retry-after": lambda: rate_limited(retry_after=9),
}


async def test_an_outage_of_25_seconds_is_bridged_and_people_are_told(world: World) -> None:
    time = Time(world)
    world.config["channels"]["telegram"]["allow"] = ["*"]
    away, kinds = True, list(OUTAGES)

    def answer(body: Any) -> Answer | str:
        return OUTAGES[last(body)]() if away else f"Here: {last(body)}"

    del world.config["llm"]["retrySeconds"]
    world.model.script(answer)
    await world.start("telegram", "slack")
    chats = {kind: 2001 + at for at, kind in enumerate(kinds)}
    for kind, chat in chats.items():
        world.telegram.say(kind, chat_id=chat, language="zh" if kind == "failing" else None)
    asked = await world.slack.say(kinds[0], channel="D0ANN", user=ANN)
    await world.model.until(lambda: world.model.bodies != [] and len(world.model.bodies) > len(kinds))

    def told() -> list[list[str]]:
        chats_of = [world.texts(chat) for chat in chats.values()]
        return [*chats_of, [one.text for one in world.slack.replies("D0ANN", asked)]]

    busy = [BUSY, "模型正忙，我会继续尝试。", BUSY, BUSY, BUSY]
    await time.until(lambda: True)
    began = time.now
    await time.until(lambda: all(words in one for words, one in zip(busy, told(), strict=True)))
    await time.until(lambda: time.now >= began + 25)
    away = False
    await time.until(lambda: told() == [[f"Here: {kind}"] for kind in (*kinds, kinds[0])])


FIRST = "Das ist der erste Satz, 你好. "
TEXT = FIRST + "Und noch viel mehr Worte folgen ihm. " * 4
LOOK = tool_use("list_dir", {"path": "."})
SENDS = tool_use("chat_send", {"text": "This was sent."})


def held(gate: asyncio.Event, part: float = 0.5) -> Callable[[list[Frame]], list[Frame]]:
    """Return a function that inserts a gate after `part` of the frames. The rest is sent when the gate opens."""
    return lambda frames: [*frames[: (at := int(part * len(frames)))], gate, *frames[at:]]


async def test_plain_text_is_shown_as_it_comes_and_what_follows_takes_its_place(world: World) -> None:
    time, gate = Time(world), asyncio.Event()
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["operators"], world.config["permissions"] = ["telegram:2006"], {"ask": ["skills_list"]}
    scenes: dict[str, list[Any]] = {
        "plain": [(TEXT,)],
        "a tool follows": [(TEXT, LOOK), ("There are two files.",)],
        "chat_send follows": [(TEXT, SENDS)],
        "a tool, then chat_send": [(TEXT, LOOK), (SENDS,)],
        "a tool, then silence": [(TEXT, LOOK), ("[silent]",)],
        "a question follows": [(TEXT, tool_use("skills_list")), ("Here they are.",)],
        "nothing follows": [("[silent]",)],
        "a tool, then nothing": [(TEXT, LOOK), ("[silent] Nobody has asked me.",)],
    }
    left = {name: list(answers) for name, answers in scenes.items()}

    def answer(body: Any) -> Answer:
        said = [one["content"][-1].get("text", "") for one in body["messages"] if one["role"] == "user"]
        name = next(one for one in reversed(said) if one in scenes)
        blocks = left[name].pop(0) if left[name] else scenes[name][0]
        return reply(*blocks, edit=held(gate, 0.4))

    def shows(thread: str, channel: str = ROOM) -> list[str]:
        return [one.text for one in world.slack.replies(channel, thread)]

    world.model.chunk = 4
    world.model.script(answer)
    gate.set()
    await world.start("telegram", "slack")
    roots = [await world.slack.say(f"{ME} plain", channel=ROOM, user=ANN) for _ in range(2)]
    await world.slack.until(lambda: all(shows(root) == [TEXT.strip()] for root in roots))
    gate.clear()
    chats = dict(zip(list(scenes)[:6], range(2001, 2007), strict=True))
    for name, chat in chats.items():
        world.telegram.say(name, chat_id=chat)
    world.telegram.say("@shipmate_bot plain", chat_id=GROUP, user_id=7)
    direct = await world.slack.say("plain", channel="D0ANN", user=ANN)
    for name, root in zip(list(scenes)[6:], roots, strict=True):  # these messages do not address the bot
        await world.slack.say(name, channel=ROOM, user=BOB, thread_ts=root)
    await world.model.until(lambda: world.model.active == 10)
    await time.passes(1.5)

    def everywhere() -> list[list[str]]:
        return [*(world.texts(chat) for chat in (*chats.values(), GROUP)), shows(direct, "D0ANN")]

    await eventually(lambda: all(one and one[0].startswith(FIRST.strip()) for one in everywhere()))
    assert [len(shows(root)) for root in roots] == [1, 1]
    gate.set()
    ends = [TEXT.strip(), "There are two files.", "This was sent.", "This was sent."]
    ends += ["I didn't get to an answer. Please ask again."]
    await time.until(lambda: everywhere()[:5] == [[one] for one in ends])
    asked = world.telegram.chats[2006].messages
    await time.until(lambda: "reply_markup" in [*asked.values()][-1])
    number, question = [*asked.items()][-1]
    button = question["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    world.telegram.press(number, button, chat_id=2006, user_id=2006)
    await time.until(lambda: world.texts(2006)[-1] == "Here they are.")
    assert len(world.texts(2006)) == 2, "the answer stands below the question"
    await time.until(lambda: everywhere()[6:] == [[TEXT.strip()]] * 2)
    await world.turns(12)
    assert [len(shows(root)) for root in roots] == [1, 1]
    assert [world.telegram.tally(chat).posted for chat in (*chats.values(), GROUP)] == [1, 1, 1, 1, 2, 3, 1]
    sent = json.dumps([call.params for call in (*world.telegram.calls, *world.slack.calls)])
    assert "[silent" not in sent


async def test_in_a_group_of_telegram_words_come_every_few_seconds_without_typing(world: World) -> None:
    time, gates = Time(world), [asyncio.Event() for _ in range(81)]
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["delivery"]["limits"] = True

    def slowly(frames: list[Frame]) -> list[Frame]:
        head, body = frames[:8], frames[8:]
        return [*head, *(one for pair in zip(gates, body, strict=False) for one in pair), *body[len(gates) :]]

    world.model.chunk = 12
    world.model.then(reply(tool_use("chat_send", {"text": TEXT * 6}), edit=slowly))
    await world.start("telegram")
    world.telegram.say("@shipmate_bot and?", chat_id=GROUP, user_id=7)
    await world.model.until(lambda: world.model.active == 1)
    await time.until(lambda: bool(world.texts(GROUP)))
    signs, opening, seen = len(world.telegram.called("sendChatAction")), iter(gates), [""]

    def goes_on() -> None:
        next(opening).set()
        seen.append(world.texts(GROUP)[0])

    await time.passes(20, goes_on)
    assert len(set(seen)) - 1 >= 6, "the platform takes one every three seconds"
    assert len(world.telegram.called("sendChatAction")) == signs
    assert world.telegram.tally(GROUP).posted == 1


def said(body: Any) -> list[str]:
    """Return the last block of each message of a person."""
    return [one["content"][-1].get("text", "") for one in body["messages"] if one["role"] == "user"]


def eyed(world: World, channel: str) -> list[str]:
    """Return the messages with the reaction that marks a message as seen."""
    return [post.text for post in world.slack.world.rooms[channel].posts.values() if post.reactions]


async def test_quick_messages_are_one_conversation_and_an_edit_stops_the_old_answer(world: World) -> None:
    world.config["channels"]["telegram"]["allow"] = [str(GROUP)]
    for name in ("slack", "telegram"):
        world.config["channels"][name]["streaming"] = {"afterMs": 0}
    begin, gate = asyncio.Event(), asyncio.Event()
    world.model.chunk = 4
    world.model.script(lambda body: reply(f"{said(body)[-1]}? {TEXT}", hold=begin, edit=held(gate)))
    await world.start("slack", "telegram")
    lines = ["first line", "第二行", "and the third"]
    roots = []
    for line in lines:
        roots.append(await world.slack.say(line, channel="D0ANN", user=ANN))
        await world.model.until(lambda: len(world.model.bodies) == len(roots))
    assert said(world.model.bodies[-1]) == lines
    await eventually(lambda: eyed(world, "D0ANN") == lines[1:])
    begin.set()
    await world.slack.until(lambda: "third?" in "".join(one.text for one in world.slack.replies("D0ANN")))
    await world.slack.edit("D0ANN", roots[1], "der zweite")
    await world.model.until(lambda: said(world.model.bodies[-1])[-1] == "der zweite")
    world.telegram.say("@shipmate_bot who?", chat_id=GROUP, user_id=7)
    await world.telegram.until(lambda: bool(world.texts(GROUP)))
    waits = world.telegram.say("@shipmate_bot and me?", chat_id=GROUP, user_id=8)["message"]["message_id"]
    chat = world.telegram.chats[GROUP]
    await eventually(lambda: [number for number, _ in chat.reactions] == [waits])
    gate.set()
    await world.turns(3)
    await eventually(
        lambda: [one.text for one in world.slack.replies("D0ANN")] == [f"der zweite? {TEXT.strip()}"]
    )
    assert [one.thread_ts for one in world.slack.replies("D0ANN")] == [roots[0]]
    await world.slack.delete("D0ANN", roots[1])
    await eventually(lambda: any(line["kind"] == "removal" for line in world.log()))


async def test_a_stop_ends_what_its_person_may_end_and_says_whose_turn_goes_on(world: World) -> None:
    world.slack.add_user("U0CARL", name="Carl")
    world.slack.world.rooms[ROOM].members.add("U0CARL")
    world.config["operators"] = ["slack:U0CARL"]
    gate = asyncio.Event()

    async def answer(body: Any) -> str:
        await gate.wait()
        return f"re: {said(body)[-1]}"

    world.model.script(answer)
    await world.start("slack", "telegram")

    async def runs(words: str, root: str | None = None) -> str:
        ts = await world.slack.say(f"{ME} {words}", channel=ROOM, user=ANN, thread_ts=root)
        await world.model.until(lambda: world.model.active == 1)
        return root or ts

    async def reads(root: str, user: str, words: str) -> str:
        before = len(world.slack.replies(ROOM, root))
        await world.slack.say(words, channel=ROOM, user=user, thread_ts=root)
        await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) > before)
        return world.slack.replies(ROOM, root)[-1].text

    goes_on = "I'm working for `Ann`; they or an operator can stop that."
    root = await runs("long work")
    asked = len(world.model.bodies)
    for words in ("stop", "!stop", f"{ME} 停止"):
        assert await reads(root, BOB, words) == goes_on
    await world.slack.say(f"{ME} and mine?", channel=ROOM, user=BOB, thread_ts=root)
    await eventually(lambda: f"{ME} and mine?" in eyed(world, ROOM))
    assert await reads(root, BOB, "stop") == f"I've dropped what you had waiting. {goes_on}"
    assert (world.model.active, len(world.model.bodies)) == (1, asked)
    assert await reads(root, ANN, "stop") == "Stopped."
    for user in (ANN, BOB):
        assert await reads(root, user, "stop") == "Nothing's running here."
    await runs("more work", root)
    assert await reads(root, "U0CARL", "stop") == "Stopped."
    world.telegram.say("@shipmate_bot work", chat_id=GROUP, user_id=PERSON)
    await world.model.until(lambda: world.model.active == 1)
    world.telegram.say("@shipmate_bot stop", chat_id=GROUP, user_id=7)
    await eventually(lambda: any(line["kind"] == "denied" for line in world.log()))
    gate.set()
    await world.telegram.until(lambda: "re: work" in world.texts(GROUP))
    assert not {"stop", "停止"} & {words for body in world.model.bodies for words in said(body)}


async def test_progress_says_what_runs_and_goes_with_the_answer_and_what_was_stopped_says_so(
    world: World,
) -> None:
    time = Time(world)
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["shell"] = {"isolation": "off"}
    world.config["permissions"] = {"allow": ["run_shell"]}
    os.mkfifo(world.root / "pipe")

    def answer(body: Any) -> Answer:
        if "tool_result" in json.dumps(body["messages"]):
            return reply("It is done.")
        if said(body)[-1] == "run":
            return reply(tool_use("run_shell", {"command": "cat pipe # *all*"}))
        if said(body)[-1] == "look at all":
            task = "report on one"
            return reply(*(tool_use("task", {"prompt": task, "description": one}) for one in ("A", "B")))
        return reply("Never.", hold=asyncio.Event())

    world.model.script(answer)
    await world.start("telegram", "slack")
    world.telegram.say("run", chat_id=2001)
    world.telegram.say("run", chat_id=2002, language="zh")
    asked = await world.slack.say("run", channel="D0ANN", user=ANN)
    world.telegram.say("look at all", chat_id=2003)

    def shown() -> list[str]:
        slack = [one.text for one in world.slack.replies("D0ANN", asked)]
        return [(*texts, "")[0] for texts in (*map(world.texts, (2001, 2002, 2003)), slack)]

    forms = [
        r"Running cat pipe # \*all\* · \d+ s",
        r"正在运行 cat pipe # \*all\* · .*秒",
        r"Working: 0 of 2 · \d+ s\n▸ A · \d+ s\n▸ B · \d+ s",
        r"Running `cat pipe # \*all\*` · .* s",
    ]
    await time.until(lambda: all(map(re.fullmatch, forms, shown())))
    world.telegram.say("/stop", chat_id=2003)
    world.telegram.say("/stop", chat_id=2001)
    forms[0] = r"■ Running cat pipe # \*all\* · .* · stopped"
    forms[2] = r"Stopped: 0 of 2 done · .*\n■ A · .* · stopped\n■ B · .* · stopped"
    await time.until(lambda: all(map(re.fullmatch, forms, shown())))
    (world.root / "pipe").write_text("")
    await time.until(
        lambda: (
            world.texts(2002) == ["It is done."] == [one.text for one in world.slack.replies("D0ANN", asked)]
        )
    )
