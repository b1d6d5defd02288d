"""A gateway among loopback servers whose whole state can be written to a folder of text files, and taken up from there.

    platform.json   settings, the time, and what Telegram and Slack know: chats with all that stands in them, and what they
                    have not got confirmed
    journal.sql     the rows of the journal
    ship/           the other files of `.ship` that a start reads

Beside those folders stands what is the same in all: `schema.sql`, the empty journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bot.contracts.base import Json
from bot.system import SystemClock
from bot.testing._slack_world import Post
from bot.testing.clock import SteeredClock
from bot.testing.faults import Fault
from bot.testing.slack import SlackServer
from bot.testing.telegram import TelegramServer
from bot.testing.telegram_world import Chat
from bot.tools.permissions.subject import fingerprint
from tests.blackbox.conftest import World, eventually
from tests.corpus.model import Model
from tests.torture.inside import Inside, environment

SINCE = 1_800_000_000.0
"""The time of day at which every journal of the corpus begins."""
ROOM, ANN = "C3100", "U3001"
FORUM = -3200
OPERATOR = 3009
UNUSED = 1_000
NOT_KEPT = {
    ".gitignore",
    ".lock",
    "cache",
    "index.db",
    "lock",
    "logs",
    "pid",
    "reserve",
    "schema",
    "usage.db",
}
"""What a start makes anew, in `.ship` and below it. The journal is kept as SQL, recorded requests are not kept."""
SERVERS = Path(__file__).parents[1] / "unit" / "tools" / "mcp"


class Stage:
    """`world` with people 3001 and so on. `settings` go into ship.json over those that every test has."""

    def __init__(self, world: World, clock: SteeredClock, settings: Json) -> None:
        self.world = world
        self.clock = clock
        self.settings = settings
        self.telegram, self.slack = world.telegram, world.slack
        self.model = Model(world.model)
        self.life: Inside | None = None
        merge(world.config, _written_out(settings))

    async def start(self, *faults: Fault) -> Inside:
        self.life = await Inside(self.world, *faults, clock=self.clock).start()
        return self.life

    def arm(self, fault: Fault) -> None:
        """Let the gateway die of this; operations are counted from now on."""
        assert self.life is not None
        self.life.faults.arm(fault)

    async def kill(self) -> None:
        """The gateway dies where it is."""
        assert self.life is not None
        self.life.kill()
        await self.dead()

    async def dead(self) -> None:
        """Wait until it has died."""
        assert self.life is not None
        async with asyncio.timeout(90):
            await self.life.died.wait()
        await self.life.end()
        self.life = None
        self.model.let_go()

    async def end(self) -> None:
        if self.life is not None:
            await self.life.end()
            self.life = None

    def rows(self, question: str) -> list[Any]:
        """What the journal answers."""
        with contextlib.closing(sqlite3.connect(self._home / "journal.db", timeout=5)) as db:
            return [row[0] for row in db.execute(question)]

    async def logged(self, words: str) -> None:
        """Wait until the log says so."""
        await eventually(lambda: any(words in line["message"] for line in self.world.log()))

    async def archived(self, count: int) -> None:
        """Wait until so many lines are in the archive."""
        await eventually(lambda: len(self.world.archive()) == count)

    def asked(self, chat: int) -> list[int]:
        """The numbers of the messages with buttons."""
        messages = self.telegram.chats[chat].messages if chat in self.telegram.chats else {}
        return [number for number, one in messages.items() if "reply_markup" in one]

    def press(self, chat: int, message: int, who: int) -> None:
        """Somebody presses the first button of a message."""
        keyboard = self.telegram.chats[chat].messages[message]["reply_markup"]["inline_keyboard"]
        self.telegram.press(message, keyboard[0][0]["callback_data"], chat_id=chat, user_id=who)

    def lose_journal(self) -> None:
        """Its files are gone."""
        for path in self._home.glob("journal.db*"):
            path.unlink()

    async def until(self, question: str, *found: Any) -> None:
        """Wait until the journal answers so."""
        await eventually(lambda: self.rows(question) == list(found))

    @property
    def _home(self) -> Path:
        return self.world.root / ".ship"

    # ------------------------------------------------------------ to text and back

    def write(self, folder: Path) -> None:
        """Write all that outlives a process."""
        folder.mkdir(parents=True)
        (folder / "platform.json").write_text(self._platform(), encoding="utf-8")
        with contextlib.closing(sqlite3.connect(self._home / "journal.db")) as db:
            (folder.parent / "schema.sql").write_text(described(db), encoding="utf-8")
            (folder / "journal.sql").write_text(self._neutral(rows_of(db)), encoding="utf-8")
        for path in sorted(self._home.rglob("*")):
            name = path.relative_to(self._home)
            if (
                path.is_dir()
                or NOT_KEPT & set(name.parts)
                or name.match("journal.db*")
                or name.match("*.requests")
            ):
                continue
            place = folder / "ship" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._neutral(path.read_text("utf-8")), encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Put everything where it was."""
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
        """What is another one in another folder. An approval holds for the folder that it was asked in."""
        root = str(self.world.root.resolve())
        return {"{root}": root, "{approval}": fingerprint("skills_list", {}, root)}

    def _neutral(self, words: str) -> str:
        for name, here in self._names().items():
            words = words.replace(here, name)
        return words.replace(socket.gethostname(), "{machine}")

    def _own(self, words: str) -> str:
        for name, here in self._names().items():
            words = words.replace(name, here)
        return words

    def _platform(self) -> str:
        rooms = self.slack.world.rooms.values()
        posts = {room.id: [_plain(asdict(post)) for post in room.posts.values()] for room in rooms}
        known = {
            "settings": self.settings,
            "now": self.clock.now(),
            "telegram": {
                "chats": [_plain(_chat(chat)) for chat in self.telegram.chats.values()],
                "files": {name: data.decode() for name, data in self.telegram.files.items()},
                "callbacks": sorted(self.telegram.callbacks),
                "updates": self.telegram.updates.first(1_000),
            },
            "slack": {
                "posts": {room: found for room, found in posts.items() if found},
                "unconfirmed": [one.payload for one in self.slack.unacked()],
            },
        }
        return self._neutral(in_lines(known)) + "\n"

    def take_up(self, known: Json) -> None:
        """Let the platforms know what they knew. What they number goes on with numbers that they have not given."""
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
    """A world in which nothing runs yet, on a clock that shows `now`."""
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
                stage.model.let_go()


def merge(into: Json, more: Json) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


def described(db: sqlite3.Connection) -> str:
    """The tables of a database, and its version, as SQL."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    made = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type = 'index', name")
    return "".join(f"{statement};\n" for (statement,) in made) + f"PRAGMA user_version = {version};\n"


def rows_of(db: sqlite3.Connection) -> str:
    """The rows of a database as SQL, in their order."""
    names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    found = [(name, row) for (name,) in names for row in db.execute(f"SELECT * FROM {name}")]
    return "".join(f"INSERT INTO {name} VALUES ({', '.join(map(_literal, row))});\n" for name, row in found)


def _literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"CAST({_literal(value.decode())} AS BLOB)"
    return "NULL" if value is None else repr(value)


def _written_out(settings: Json) -> Json:
    """Settings for this machine."""
    words = json.dumps(settings)
    found: Json = json.loads(words.replace("{python}", sys.executable).replace("{servers}", str(SERVERS)))
    return found


def _chat(chat: Chat) -> Json:
    topics = {str(number): root for number, root in chat.topics.items()}
    messages = list(chat.messages.values())
    return {
        "id": chat.id,
        "kind": chat.kind,
        "forum": chat.forum,
        "last_id": chat.last_id,
        "topics": topics,
        "messages": messages,
    }


def _plain(told: Json) -> Json:
    """Without what says nothing."""
    return {
        name: value for name, value in told.items() if value is not None and value not in ("", (), [], {})
    }


def in_lines(value: Any, depth: int = 5) -> str:
    """JSON in lines that can be read: what stands deep inside is one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not depth or not value or not isinstance(value, dict | list) or len(flat) < 100:
        return flat
    if isinstance(value, list):
        return "[\n" + ",\n".join(in_lines(one, depth - 1) for one in value) + "\n]"
    pairs = (f"{json.dumps(name)}: {in_lines(one, depth - 1)}" for name, one in value.items())
    return "{\n" + ",\n".join(pairs) + "\n}"
