"""Rendering of the model's text: messages of full length, split markup, words with markup characters, empty answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from bot.testing.anthropic_script import reply, tool_use
from bot.testing.telegram_world import Seen
from bot.words import say
from tests.blackbox.conftest import ANN, World
from tests.blackbox.test_web_approvals import Tabs
from tests.blackbox.test_web_approvals import say as say_in_page

OPTIONS = "\n".join(f"- **option{at}** (`conf.key{at}`): words" for at in range(120))
LONG = " ".join(["word"] * 900)
URL = "https://e.com/a_b"
LINKED = f"[{'label ' * 20}here]({URL})"
NOTHING = say("turn.nothing_to_say")
BLANKS = ("\u200b", "\u2800", "\u202e", " \ufeff\u3164\n")


def covered(message: Seen, kind: str) -> list[str]:
    """Return the texts that entities of a kind cover."""
    raw = message.text.encode("utf-16-le")
    spans = [(one["offset"] * 2, one["length"] * 2) for one in message.entities if one["type"] == kind]
    return [raw[at : at + length].decode("utf-16-le") for at, length in spans]


def filled(messages: list[Seen]) -> bool:
    lines = [line for one in messages for line in one.text.split("\n")]
    sizes = [len(one.entities) for one in messages]
    return sizes == [100, 100, 40] and len(lines) == 120 and all(line.startswith("• ") for line in lines)


def full_of_words(kind: str) -> Callable[[list[Seen]], bool]:
    """Return a check that all text has this entity, in two messages of which the first is full."""

    def check(messages: list[Seen]) -> bool:
        whole = " ".join(one.text for one in messages)
        return whole == LONG and len(messages[0].text) > 4_000 and [*map(len, of(messages))] == [1, 1]

    def of(messages: list[Seen]) -> list[list[str]]:
        return [[words for words in covered(one, kind) if words == one.text] for one in messages]

    return check


def literal(words: str) -> Callable[[list[Seen]], bool]:
    return lambda messages: [(one.text, one.entities) for one in messages] == [(words, ())]


def linked(messages: list[Seen]) -> bool:
    (one,) = messages
    return one.text == "see label, `<https://e.com|label>`".replace("`", "") and (
        [span.get("url") for span in one.entities if span["type"] == "text_link"] == ["https://e.com"]
    )


IN_TELEGRAM: dict[str, Callable[[list[Seen]], bool]] = {
    OPTIONS: filled,
    f"**{LONG}**": full_of_words("bold"),
    f"||{LONG}||": full_of_words("spoiler"),
    f"{'word ' * 800}{LINKED} end": lambda seen: (
        [covered(one, "text_link") for one in seen] == [[], [f"{'label ' * 20}here"]]
    ),
    f"{'word ' * 800}**{'many ' * 10}`{'code ' * 10}end` bold**": lambda seen: (
        [len(covered(one, "code")) for one in seen] == [0, 1] and all(covered(one, "bold") for one in seen)
    ),
    **{
        words: literal(words)
        for words in (
            "Edit __init__.py",
            "2*3*4 = 24",
            "2*π*r and x**2 + y**2",
            'if __name__ == "__main__": obj.__class__',
            "if (a||b||c) and a~~b~~c",
            "Call *this with x, f(*args)",
            "*unpaired " + "word " * 100 + "end",
        )
    },
    "**重要：**请看 __Wichtig__ ไทย**หนา**ไทย": lambda seen: (
        covered(seen[0], "bold") == ["重要：", "Wichtig", "หนา"]
    ),
    "see <https://e.com|label>, `<https://e.com|label>`": linked,
    **{sign: literal(NOTHING) for sign in BLANKS},
}


TWICE = "word " * 4_000
PLAIN = "Edit __init__.py, 2*3*4 = 24"
IN_SLACK: dict[str, Callable[[list[str]], bool]] = {
    f"**{TWICE}end**": lambda texts: (
        [words.strip("*") != words for words in texts] == [True, True]
        and " ".join(words.strip("*") for words in texts) == f"{TWICE}end"
    ),
    **{sign: lambda texts: texts == [NOTHING] for sign in BLANKS},
}


def by_number(answers: dict[int, str]) -> Callable[[Any], Any]:
    """Return a model that gives the answer with the number in the question. Even numbers use `chat_send` until it fails."""

    def answer(body: Any) -> Any:
        asked = next(number for number in answers if f"number {number}" in str(body["messages"]))
        refused = "tool_result" in str(body["messages"][-1])
        sent = asked % 2 == 0 and not refused
        return reply(tool_use("chat_send", {"text": answers[asked]})) if sent else answers[asked]

    return answer


async def test_people_see_what_was_meant(world: World) -> None:
    world.config["channels"]["telegram"]["allow"] = ["*"]
    chats, rooms = dict(enumerate(IN_TELEGRAM, 2001)), dict(enumerate(IN_SLACK, 3001))
    world.model.script(by_number({**chats, **rooms, 4001: PLAIN}))
    for number in rooms:
        world.slack.add_channel(f"C{number}", members=[ANN])
    world.config["channels"]["slack"]["allow"] = [ANN]
    await world.start("telegram", "slack", "web")
    for number in chats:
        world.telegram.say(f"number {number}", chat_id=number)
    asked = {
        number: await world.slack.say(f"<@U0SHIP> number {number}", channel=f"C{number}", user=ANN)
        for number in rooms
    }
    page = re.findall(r"http://127\.0\.0\.1:\d+", world.process.ready_line)[0]
    async with Tabs() as tabs:
        stream = await tabs.open(page)
        await say_in_page(tabs.browser, page, "number 4001", "k1")
        async with asyncio.timeout(90):
            shown: Any = None
            while not (isinstance(shown, dict) and shown.get("text") == PLAIN):
                _, shown = await stream.next()
    await world.turns(len(chats) + len(rooms) + 1)
    await world.sent()
    wrong: dict[str, Any] = {
        words[:60]: [(one.text[:80], len(one.entities)) for one in world.telegram.visible(number)]
        for number, words in chats.items()
        if not IN_TELEGRAM[words](world.telegram.visible(number))
    }
    for number, words in rooms.items():
        seen = world.slack.replies(f"C{number}", asked[number])
        if not IN_SLACK[words]([one.text for one in seen]) or (words in BLANKS and seen[0].buttons):
            wrong[f"slack {words[:60]}"] = [one.text[:80] for one in seen]
    assert wrong == {}
    assert shown["nodes"] == [["p", {}, PLAIN]]
