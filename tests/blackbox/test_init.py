"""`shipmate init` on a terminal asks for keys and tokens, tests them, and makes the user an operator."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.testing import telegram_service
from bot.testing.anthropic import KEY
from bot.testing.slack import APP_TOKEN, BOT_TOKEN
from tests.blackbox.conftest import ANN, PERSON, START_SECONDS, World


def _own_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A pseudo terminal with a person who reads questions and types answers."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.root, self.env, self.said = root, env, ""
        self._ours = -1
        self._process: asyncio.subprocess.Process

    async def start(self, *words: str) -> None:
        self._ours, theirs = os.openpty()
        plain = {
            name: value for name, value in os.environ.items() if "TOKEN" not in name and "KEY" not in name
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bot",
            *words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=plain | self.env,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)

    async def until(self, pattern: str) -> re.Match[str]:
        """Wait for output that matches, after the output of the last wait."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while (found := re.search(pattern, self.said)) is None:
                    data = await asyncio.to_thread(os.read, self._ours, 4096)
                    self.said += data.decode("utf-8", "replace")
        except TimeoutError:
            raise AssertionError(f"{pattern!r} was not said; {self.said!r} was") from None
        self.said = self.said[found.end() :]
        return found

    def type(self, words: str) -> None:
        self.press(f"{words}\n")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def answer(self, question: str, words: str) -> None:
        await self.until(rf"{question}[^\n]*: $")  # the terminal drops text that is typed earlier
        self.type(words)

    async def ended(self) -> int:
        async with asyncio.timeout(START_SECONDS):
            code = await self._process.wait()
        os.close(self._ours)
        return code

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def terminal(world: World, tmp_path: Path) -> AsyncIterator[Terminal]:
    made = Terminal(tmp_path, {"NO_PROXY": "127.0.0.1"})
    addresses = {
        "llm": {"baseUrl": world.model.url},
        "channels": {
            "telegram": {"baseUrl": world.telegram.url},
            "slack": {"baseUrl": world.slack.api_url, "allow": [ANN]},
            "web": {"enabled": False},
        },
        "dashboard": {"enabled": False},
    }
    (tmp_path / "ship.json").write_text(json.dumps(addresses), encoding="utf-8")
    yield made
    await made.close()


async def test_a_bot_for_a_team_is_set_up_in_one_go_and_its_operator_is_who_ran_it(
    world: World, terminal: Terminal
) -> None:
    world.telegram.say("somebody else is first", chat_id=2002)
    await terminal.start("init", str(terminal.root))
    await terminal.answer("Anthropic API key", "sk-ant-wrong-key-1")
    await terminal.until("The provider refuses it")
    await terminal.answer("Keep it anyway", "n")
    await terminal.answer("Anthropic API key", KEY)
    await terminal.until("The provider accepts it")
    await terminal.answer("Connect slack", "y")
    await terminal.until("api.slack.com/apps")
    await terminal.answer("Slack bot token", APP_TOKEN)
    await terminal.until("looks like xoxb-…; this is something else")
    await terminal.answer("Keep it anyway", "n")
    await terminal.answer("SLACK_BOT_TOKEN", BOT_TOKEN)
    await terminal.answer("SLACK_APP_TOKEN", APP_TOKEN)
    await terminal.until("slack scopes: all 16")
    await terminal.answer("Connect telegram", "y")
    await terminal.answer("TELEGRAM_BOT_TOKEN", telegram_service.TEST_TOKEN)
    code = (await terminal.until(r"start=(operator-\w+) and press Start"))[1]
    world.telegram.say("/start operator-guessed", chat_id=2002)
    world.telegram.say(f"/start {code}")
    await terminal.until(f"You are telegram:{PERSON}, an operator")
    await terminal.until("There is none on slack yet")
    await terminal.answer("Operators", f"slack:{ANN}")
    await terminal.until("Next: shipmate check")
    assert await terminal.ended() == 0

    env = terminal.root / ".env"
    assert env.stat().st_mode & 0o777 == 0o600
    assert f"\nTELEGRAM_BOT_TOKEN={telegram_service.TEST_TOKEN}\n" in env.read_text(encoding="utf-8")
    assert (terminal.root / ".gitignore").read_text(encoding="utf-8") == ".env\n"
    for token in (KEY, BOT_TOKEN, APP_TOKEN, telegram_service.TEST_TOKEN):
        assert token not in terminal.said

    world.process.env = {"NO_PROXY": "127.0.0.1"}
    await world.process.start()
    # The operator gets the greeting of /start, and learns that somebody else asks for access.
    await world.telegram.until(lambda: len(world.texts()) == 2, START_SECONDS)
    assert sum("telegram:2002" in text for text in world.texts()) == 1
    world.telegram.say("/whoami")
    await world.telegram.until(lambda: len(world.texts()) == 3, START_SECONDS)
    assert "operator" in world.texts()[2]
    await world.telegram.until(lambda: len(world.texts(2002)) == 1, START_SECONDS)
    assert "have to let you in first" in world.texts(2002)[0], "nothing that was waiting is lost"


async def test_what_is_set_is_not_asked_for_and_empty_answers_leave_a_part_out(terminal: Terminal) -> None:
    (terminal.root / "ship.json").unlink()
    (terminal.root / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-0123456789\nOTHER=1\n", encoding="utf-8")
    await terminal.start("init", str(terminal.root))
    await terminal.answer("The bot's name", "Gull")
    await terminal.until("ANTHROPIC_API_KEY is set")
    await terminal.answer("Connect slack", "y")
    await terminal.answer("SLACK_BOT_TOKEN", "")
    await terminal.answer("Connect telegram", "n")
    await terminal.answer("Operators", "bob")
    await terminal.until("expected channel:ID")
    await terminal.answer("Operators", "telegram:7, slack:U0123456789")
    assert await terminal.ended() == 0
    ship = json.loads((terminal.root / "ship.json").read_text(encoding="utf-8"))
    assert (ship["name"], ship["operators"]) == ("Gull", ["telegram:7", "slack:U0123456789"])
    assert (terminal.root / ".env").read_text(encoding="utf-8").endswith("\nOTHER=1\n")
