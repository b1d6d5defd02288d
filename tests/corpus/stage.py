"""A gateway among loopback servers. Its state is restored from a folder of text files that version 0.1 left.

    platform.json   settings, the time, and the state of Telegram and Slack: chats, their messages, unconfirmed events
    journal.sql     the rows of the journal
    ship/           the other files of `.ship` that a start reads

`schema.sql` beside the folders creates the empty journal.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from bot.contracts.base import Json
from bot.system import SystemClock
from bot.testing._slack_world import Post
from bot.testing.clock import SteeredClock
from bot.testing.slack import SlackServer
from bot.testing.telegram import TelegramServer
from bot.tools.policy import fingerprint
from tests.blackbox.conftest import World
from tests.corpus.model import answer
from tests.torture.inside import Inside, environment

SINCE = 1_800_000_000.0
"""Time (epoch seconds) at which every journal of the corpus begins."""
ROOM, ANN = "C3100", "U3001"
UNUSED = 1_000
SERVERS = Path(__file__).parents[1] / "unit" / "tools" / "mcp"


class Stage:
    """A gateway's folder and its platforms, restored from the corpus. People have ids from 3001. `settings` override the
    default settings of the tests.
    """

    def __init__(self, world: World, clock: SteeredClock, settings: Json) -> None:
        self.world = world
        self.clock = clock
        self.settings = settings
        self.telegram, self.slack = world.telegram, world.slack
        world.model.script(answer)
        self.life: Inside | None = None
        merge(world.config, _written_out(settings))

    async def start(self) -> None:
        self.life = await Inside(self.world, clock=self.clock).start()

    async def end(self) -> None:
        if self.life is not None:
            await self.life.end()
            self.life = None

    def asked(self, chat: int) -> list[int]:
        """Return the numbers of the messages with buttons."""
        messages = self.telegram.chats[chat].messages if chat in self.telegram.chats else {}
        return [number for number, one in messages.items() if "reply_markup" in one]

    def press(self, chat: int, message: int, who: int) -> None:
        """Press the first button of a message."""
        keyboard = self.telegram.chats[chat].messages[message]["reply_markup"]["inline_keyboard"]
        self.telegram.press(message, keyboard[0][0]["callback_data"], chat_id=chat, user_id=who)

    @property
    def _home(self) -> Path:
        return self.world.root / ".ship"

    def read(self, folder: Path) -> None:
        """Restore all files and rows."""
        self._home.mkdir()
        for path in sorted((folder / "ship").rglob("*")):
            if path.is_file():
                self._put(path.relative_to(folder / "ship"), path)
        with contextlib.closing(sqlite3.connect(self._home / "journal.db", isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.executescript((folder.parent / "schema.sql").read_text("utf-8"))
            db.executescript(f"BEGIN; {self._own((folder / 'journal.sql').read_text('utf-8'))} COMMIT;")

    def _put(self, name: Path, source: Path) -> None:
        place = self._home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self._own(source.read_text("utf-8")), encoding="utf-8")

    def _names(self) -> dict[str, str]:
        """Return replacements for values that depend on the folder, such as the folder to which an approval applies."""
        root = str(self.world.root.resolve())
        return {"{root}": root, "{approval}": fingerprint("skills_list", {}, root)}

    def _own(self, words: str) -> str:
        for name, here in self._names().items():
            words = words.replace(name, here)
        return words

    def take_up(self, known: Json) -> None:
        """Restore the state of the platforms. Their new messages get numbers that are not used yet."""
        self.telegram.updates._next += UNUSED
        self.slack._count = itertools.count(UNUSED)
        self.world.model.ids = UNUSED
        for told in known["telegram"]["chats"]:
            chat = self.telegram.chat(told["id"], told["kind"])
            chat.forum = told.get("forum", False)
            chat.last_id = told["last_id"]
            chat.messages |= {message["message_id"]: message for message in told.get("messages", [])}
            chat.topics |= {int(name): root for name, root in told.get("topics", {}).items()}
        self.telegram.files |= {name: data.encode() for name, data in known["telegram"]["files"].items()}
        self.telegram.callbacks |= set(known["telegram"]["callbacks"])
        for update in known["telegram"]["updates"]:
            self.telegram.repeat(update)
        for room, posts in known["slack"]["posts"].items():
            self.slack.world.rooms[room].posts |= {post["ts"]: Post(**post) for post in posts}


@contextlib.asynccontextmanager
async def staged(root: Path, settings: Json, now: float = SINCE) -> AsyncIterator[Stage]:
    """Return a world without a running process. Its clock shows `now`."""
    clock = SteeredClock(SystemClock())
    clock.jump(now - clock.now())
    world = World(root)
    world.telegram, world.slack = TelegramServer(clock=clock), SlackServer(clock=clock, ping_every=5)
    async with world:
        world.slack.add_user(ANN, name="Person 3001")
        world.slack.add_im(ANN)
        world.slack.add_channel(ROOM, members=[ANN])
        telegram, slack = world.config["channels"]["telegram"], world.config["channels"]["slack"]
        telegram |= {"allow": ["*"], "streaming": {"enabled": False}}
        slack |= {"enabled": False, "allow": ["*"], "streaming": {"enabled": False}}
        stage = Stage(world, clock, settings)
        with environment(world):
            try:
                yield stage
            finally:
                await stage.end()


def merge(into: Json, more: Json) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


def _written_out(settings: Json) -> Json:
    """Return the settings with the paths of this machine."""
    words = json.dumps(settings)
    found: Json = json.loads(words.replace("{python}", sys.executable).replace("{servers}", str(SERVERS)))
    return found
