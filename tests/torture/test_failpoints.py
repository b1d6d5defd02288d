"""The process is killed before and after commits of the log. Every message is answered once. An approved call ran once,
or the answer says that its outcome is unknown.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from bot.core.context import INTERRUPTED
from bot.testing.anthropic_script import Reply, reply, tool_use
from bot.testing.faults import Fault
from tests.blackbox.conftest import ANN, PERSON, World
from tests.shares import one_in
from tests.torture import scene
from tests.torture.inside import Inside, environment, quick_ends
from tests.torture.outside import Alone

NOTE, THANKS = "note it 记一下", "thanks שלום 🙂"
DONE, UNKNOWN, WELCOME = "It is noted.", "It may be noted.", "You are welcome."
CALL = tool_use("run_shell", {"command": "echo noted >> effects"})
EVERY = 8
"""Interval of the tested commits in `make test`. `make torture` tests every commit."""
WHENS: tuple[Literal["before", "torn", "after"], ...] = ("before", "torn", "after")


def script(body: Any) -> Reply:
    """Return the model's answer: a call that needs an operator's approval, then its result. Other messages get a plain
    answer.
    """
    last = body["messages"][-1]["content"]
    if result := next((block for block in last if block["type"] == "tool_result"), None):
        told = str(result["content"])
        return reply(DONE if "is_error" not in result else UNKNOWN if INTERRUPTED in told else told)
    return reply(WELCOME) if last[-1]["text"] == THANKS else reply(CALL)


class Person:
    """A person who writes two messages and allows each call. The person presses the button again if no answer followed."""

    def __init__(self, world: World, side: scene.Side) -> None:
        self.world, self.side = world, side
        self._pressed = Counter[str]()

    def shown(self) -> list[str]:
        """Return the bot's texts, without questions and their outcomes."""
        if self.side.channel == "telegram":
            texts = self.world.texts()
        else:
            texts = [one.text for one in self.world.slack.replies("D0ANN")]
        return [one for one in texts if "run a command" not in one]

    def asked(self) -> dict[str, str]:
        """Return the first button of each message with buttons."""
        if self.side.channel == "slack":
            return {one.ts: one.buttons[0] for one in self.world.slack.replies("D0ANN") if one.buttons}
        messages = self.world.telegram.chat(PERSON).messages
        keys = {
            str(number): one["reply_markup"]["inline_keyboard"]
            for number, one in messages.items()
            if "reply_markup" in one
        }
        return {number: rows[0][0]["callback_data"] for number, rows in keys.items()}

    async def press(self, life: int) -> None:
        """Press each button once in each life of the process."""
        for message, button in self.asked().items():
            self._pressed[message] += 1
            if self._pressed[message] <= life:
                if self.side.channel == "telegram":
                    self.world.telegram.press(int(message), button)
                else:
                    await self.world.slack.press("D0ANN", message, button, user=ANN)
            self._pressed[message] = min(self._pressed[message], life)


async def live(root: Path, channel: str, *faults: Fault, kind: type[Inside | Alone]) -> bool:
    """Run the person's whole conversation, and start the process again after each death. Return True if it died."""
    root.mkdir(parents=True)
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, channel, str)
        world.config["operators"] = [f"telegram:{PERSON}", f"slack:{ANN}"]
        world.config |= {"shell": {"isolation": "off"}, "permissions": {"ask": ["run_shell"]}}
        world.model.script(script)
        person, lives = Person(world, side), 1
        with environment(world):
            life = await kind(world, *faults).start()

            async def until(*answers: str) -> None:
                async def over() -> bool:
                    nonlocal life, lives
                    if life.dead:
                        await life.end()
                        life, lives = await kind(world).start(), lives + 1
                    await side.bring_again()
                    await person.press(lives)
                    return (
                        len(person.shown()) > 0
                        and any(one.endswith(answers) for one in person.shown())
                        and not scene.unfinished(root)
                    )

                await scene.eventually_so(over)

            await side.say(NOTE)
            await until(DONE, UNKNOWN)
            await side.say(THANKS)
            await until(WELCOME)
            await life.end()
        deaths = lives - 1
        effects = (root / "effects").read_text("utf-8").splitlines() if (root / "effects").exists() else []
        first = [one for one in person.shown() if not one.endswith(WELCOME)]
        unknown = any(one.endswith(UNKNOWN) for one in first)
        assert effects == ["noted"] or (unknown and not effects), (effects, first)
        assert not unknown or deaths, first
        scene.shown_once(channel, UNKNOWN if unknown else DONE, first, deaths=deaths)
        scene.shown_once(channel, WELCOME, [one for one in person.shown() if one not in first], deaths=deaths)
        assert channel == "telegram" or not person.asked(), "a question that can still be pressed"
        said = Counter(line["text"] for line in world.archive() if line["role"] == "user")
        assert said == Counter([NOTE, THANKS])
    return deaths > 0


async def everywhere(
    root: Path, channel: str, *, kind: type[Inside | Alone] = Inside, first: int = 1, every: int = 1
) -> int:
    """Run the conversation with a death at one commit after the other, until it ends without a death. Return the number
    of deaths.
    """
    deaths = 0
    for when in WHENS:
        at, died = first, True
        while died:
            try:
                died = await live(root / f"{when}{at}", channel, Fault("log", "commit", at, when), kind=kind)
            except (AssertionError, TimeoutError) as error:
                error.add_note(f"{channel}: dead {when} commit {at}")
                raise
            deaths, at = deaths + died, at + every
    scene.tell(f"{channel}: {deaths} deaths at commits")
    return deaths


@pytest.fixture(autouse=True)
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_ends(monkeypatch)


@pytest.mark.parametrize(
    ("channel", "first"), one_in(8, [(one, n) for one in ("telegram", "slack") for n in range(1, 9)])
)
async def test_killed_around_a_commit_each_message_is_answered_once(
    channel: str, first: int, tmp_path: Path
) -> None:
    assert await everywhere(tmp_path, channel, first=first, every=EVERY) >= 3


@pytest.mark.torture
@pytest.mark.parametrize("channel", ["telegram", "slack"])
async def test_a_process_killed_around_any_commit_answers_each_message_once(
    channel: str, tmp_path: Path
) -> None:
    assert await everywhere(tmp_path, channel, kind=Alone) >= 24
