"""Several hosts with one log in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.cluster import leadership
from bot.testing.anthropic_script import reply, tool_use
from tests import postgres, quick
from tests.blackbox.conftest import Process, World, eventually, whole
from tests.blackbox.test_retries import with_buttons

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
SECRET = "geheim-und-lang"  # a part of the database's address; the server requires no password


@pytest.fixture
def clustered(world: World) -> World:
    """Return a world whose Shipmate has its log in PostgreSQL."""
    world.only("telegram")
    world.config["engine"] = {"kind": "postgresql", "databaseUrl": "${DATABASE_URL}"}
    world.process.env["DATABASE_URL"] = postgres.shared().log().replace("@/", f":{SECRET}@/")
    return world


async def shipmate(world: World, *words: str) -> tuple[int, str]:
    """Run a command while the gateway runs."""
    code, out, err = await quick.run(*words, "--dir", str(world.root), env=world.process.env)
    return code, out.decode() + err


async def test_a_turn_that_was_killed_goes_on_from_the_database(clustered: World) -> None:
    world, gate = clustered, asyncio.Event()
    await world.start()
    await world.ask("hello", 1)
    await world.turns(1)

    async def slow(_: Any) -> str:
        await gate.wait()
        return "too late"

    world.model.script(slow)
    world.telegram.say("do not lose me")
    await world.model.until(lambda: len(world.model.requests) == 2)
    await world.process.kill()
    gate.set()
    world.model.script(lambda _: "I have you.")
    await world.start()
    await world.telegram.until(lambda: len(world.texts()) == 2)
    await world.turns(2)
    assert world.texts()[1] == "I have you."
    code, told = await shipmate(world, "doctor")
    assert (code, "wrong  database: fsync or full_page_writes is off" in told) == (78, True)
    request_id = next(line["requestId"] for line in world.log() if line["kind"] == "turn_end")
    for words, shown in (
        (("trace", request_id), "turn_end: "),
        (("history", "telegram:chat:1001", "--transcript"), "do not lose me"),
        (("history", "telegram:chat:1001", "--search", "lose"), "do not lose me"),
        (("stats",), "turns    2\n"),
        (("stats", "--by", "chat", "--json"), '"chat": "telegram:chat:1001", "turns": 2'),
        (("stats", "--by", "person"), "telegram:1001"),
    ):
        code, told = await shipmate(world, *words)
        assert (code, shown in told) == (0, True), (words, told)
    assert not (world.root / ".ship" / "shipmate.db").exists()
    assert SECRET.encode() not in world.everything_on_disk()


@pytest.mark.torture
async def test_the_log_moves_to_the_database_and_back(clustered: World) -> None:
    world, url = clustered, clustered.process.env["DATABASE_URL"]
    engine = world.config.pop("engine")

    async def answered(number: int) -> None:
        await world.start()
        await world.ask(f"message {number}", number)
        await world.turns(number)
        assert await world.process.stop() == 0

    await answered(1)
    code, told = await shipmate(world, "migrate", "--to", url)
    assert (code, "Both sides are identical" in told) == (0, True), told
    world.config["engine"] = engine
    await answered(2)
    code, told = await shipmate(world, "migrate", "--to", "embedded")
    assert (code, "Both sides are identical" in told) == (0, True), told
    del world.config["engine"]
    await answered(3)
    assert SECRET not in told
    assert [line for line in world.log() if line["level"] == "error"] == []


NOTE = "/memories/chat/notes.md"
LOG = "".join(f"{number:05} a line of the log\n" for number in range(4_000)).encode()


class Relay:
    """A person, and several hosts that lead and answer one after the other. Each host has its own `.ship`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts = {"a": world.process}
        for name in "bc":
            folder = world.root / name
            folder.mkdir()
            (folder / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
            self.hosts[name] = Process(folder, world.process.env)
        (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")

    def home(self, name: str) -> Path:
        return self.hosts[name].root / ".ship"

    async def stands_by(self, name: str) -> None:
        await self.hosts[name].start(wait=False)
        await eventually(lambda: any(line.startswith("standby: ") for line in self.hosts[name].lines))

    async def leads(self, name: str) -> None:
        await eventually(lambda: any(line.startswith("ready ") for line in self.hosts[name].lines))

    async def says(self, words: str, *answers: Any, **media: Any) -> dict[str, Any]:
        """Send a message of the person, and return the request id of the last answer."""
        before = len(self.world.texts())
        self.world.model.then(*(reply(one) for one in answers))
        self.world.telegram.say(words, **media)
        await self.world.telegram.until(lambda: whole(self.world.texts(), before + 1), 90)
        return dict(self.world.model.bodies[-1])

    async def settled(self) -> None:
        """Wait until the database contains the end of every turn and every outgoing message."""
        with psycopg.connect(self.world.process.env["DATABASE_URL"], autocommit=True) as db:
            await eventually(lambda: not db.execute("SELECT 1 FROM chats WHERE open IS NOT NULL").fetchone())

    async def end(self) -> None:
        for host in self.hosts.values():
            if host.running:
                await host.kill()


@pytest.fixture
async def relay(clustered: World) -> AsyncIterator[Relay]:
    clustered.config["context"] = {"compaction": {"idle": {"enabled": False}}}
    made = Relay(clustered)
    yield made
    await made.end()


async def test_the_next_host_knows_what_was_said_before_and_the_first_one_what_came_then(
    relay: Relay,
) -> None:
    world = relay.world
    await relay.hosts["a"].start()
    await relay.stands_by("b")
    told = world.telegram.say("the vault code is 7731")
    world.model.then(reply("Noted: 7731."), reply("Noted: 7732."))
    await world.heard("Noted: 7731.")
    world.telegram.edit(told["message"]["message_id"], "the vault code is 7732")
    await world.telegram.until(lambda: bool(with_buttons(world)))
    (answer,) = with_buttons(world)
    ((button,),) = answer["reply_markup"]["inline_keyboard"]
    world.telegram.press(answer["message_id"], button["callback_data"], chat_id=1001)
    await world.telegram.until(lambda: "Noted: 7732." in world.texts())
    await relay.says("/new")
    note = {"command": "create", "path": NOTE, "file_text": "They drink tea, no coffee."}
    await relay.says("I drink tea, no coffee", tool_use("memory", note), "Saved.")
    body = await relay.says("look at this", "Read.", media="document", data=LOG, file_name="day.log")
    artifact = json.loads(
        re.findall(r'\{[^{}]*"artifact".*?\}', str(body["messages"][-1]["content"]).replace("'", "~"))[0]
    )
    await relay.settled()
    await relay.hosts["a"].kill()
    await relay.leads("b")

    asked = {"queries": ["vault code", "the code of the vault"]}
    body = await relay.says("what was the code?", tool_use("chat_load_history", asked), "It is 7732.")
    shown = json.dumps(body["messages"])
    assert "the vault code is 7732" in shown
    assert "look at this" in shown  # the new leader knows the conversation
    body = await relay.says(
        "and what do I drink?", tool_use("memory", {"command": "view", "path": NOTE}), "Tea."
    )
    assert "They drink tea, no coffee." in json.dumps(body["messages"][-1])
    body = await relay.says(
        "what is in line 3777?",
        tool_use("read_artifact", {"id": artifact["artifact"], "grep": "03777"}),
        "That.",
    )
    assert "03777 a line of the log" in json.dumps(body["messages"][-1])

    await relay.stands_by("a")
    await relay.settled()
    await relay.hosts["b"].kill()
    await relay.leads("a")
    shown = json.dumps((await relay.says("hello again", "Hello."))["messages"])
    assert "what is in line 3777?" in shown
    assert "That." in shown
    await relay.says("/undo")
    shown = json.dumps((await relay.says("and now?", "Now."))["messages"])
    assert "hello again" not in shown
    assert "what is in line 3777?" in shown
    assert await relay.hosts["a"].stop() == 0

    forget = ("memory", "forget", "telegram:chat:1001", "notes.md", "--yes")
    url = world.process.env["DATABASE_URL"]  # a killed process counts as running for some seconds
    await eventually(lambda: not leadership.hosts(url))
    assert (await shipmate(world, *forget))[0] == 0
    # A host that has never run becomes the leader at once.
    await relay.hosts["c"].start()
    assert not list(relay.home("c").glob("memory/*/files/*"))
    for words in (("allow", "telegram", "1002"), forget):
        code, said = await shipmate(world, *words)
        assert (code, "leads; run this in the folder" in said or "is running" in said) == (1, True), said
    shown = json.dumps((await relay.says("and here?", "Here."))["messages"])
    assert "what is in line 3777?" in shown
    assert not any(text.startswith("(You may") for text in world.texts())


@pytest.mark.torture
async def test_what_is_shared_is_backed_up_given_out_erased_and_restored(
    relay: Relay, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world, kept = relay.world, tmp_path_factory.mktemp("kept") / "backup"
    other, url = 1002, world.process.env["DATABASE_URL"]
    world.config["channels"]["telegram"]["allow"].append(str(other))
    await world.start()
    await relay.says("the vault code is 7731", "Noted: vault.")
    world.model.then(reply("Hello."))
    world.telegram.say("I am another one", chat_id=other)
    await world.telegram.until(lambda: world.texts(other) == ["Hello."])
    await world.turns(2)
    await relay.stands_by("b")
    code, told = await shipmate(world, "backup", str(kept))
    assert (code, "while the gateway runs" in told) == (0, True), told
    code, told = await shipmate(world, "export", "telegram:1001")
    places = {json.loads(line)["from"] for line in told.splitlines()}
    assert (code, {"chats", "events", "usage", "requests", "logs"} <= places) == (0, True), told
    code, told = await shipmate(world, "erase", "--yes", "telegram:1001")
    assert code != 0, told
    assert await relay.hosts["b"].stop() == 0
    assert await world.process.stop() == 0
    code, told = await shipmate(world, "erase", "--yes", "telegram:1001")
    assert (code, "Removed all that was kept" in told) == (0, True), told
    with psycopg.connect(url) as db:
        words = [
            row
            for table in ("events", "keys", "chats", "usage", "facts", "files")
            for row in db.execute(f"SELECT * FROM {table}".encode()).fetchall()
        ]
    assert "vault" not in str(words)
    assert "telegram%3Achat%3A1001" not in str(words)
    assert "I am another one" in str(words)
    await relay.hosts["b"].start()  # when it leads, it deletes its copies
    everything = [one for one in relay.home("b").rglob("*") if one.is_file() and one.parent.name != "logs"]
    assert not any(b"vault" in one.read_bytes() for one in everything)
    assert not any("1001" in str(one.relative_to(relay.home("b"))) for one in everything)
    assert await relay.hosts["b"].stop() == 0

    postgres.shared().log()  # an empty database
    shutil.rmtree(relay.home("a"))
    code, told = await shipmate(world, "restore", str(kept))
    assert code == 0, told
    await relay.hosts["c"].start()
    body = await relay.says("what was the code?", "7731.")
    assert "the vault code is 7731" in json.dumps(body["messages"])
    assert await relay.hosts["c"].stop() == 0
    code, told = await shipmate(world, "migrate", "--to", "embedded")
    assert (code, "Both sides are identical" in told) == (0, True), told
    del world.config["engine"]
    await world.start()
    shown = json.dumps((await relay.says("and now?", "Now."))["messages"])
    assert "what was the code?" in shown


ELSEWHERE = (
    "../kept",
    "chats/../../kept",
    "",
    "{root}/kept",
    "chats//../../kept",
    "chats",
    "pid",
    "logs/kept",
    ".",
)


async def test_no_row_names_a_file_elsewhere(relay: Relay, tmp_path_factory: pytest.TempPathFactory) -> None:
    """If another program writes a row that names a file elsewhere, no part of Shipmate reads, writes or deletes that file."""
    world, url, outside = (
        relay.world,
        relay.world.process.env["DATABASE_URL"],
        tmp_path_factory.mktemp("kept"),
    )
    await world.start()
    await relay.says("hello", "Hello.")
    await world.turns(1)
    assert await world.process.stop() == 0
    victims = [
        folder / name for folder in (world.root, world.root / "b") for name in ("kept", ".ship/logs/kept")
    ]
    for one in victims:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text("mine", encoding="utf-8")
    with psycopg.connect(url) as db:
        for number, name in enumerate(ELSEWHERE):
            path = name.format(root=world.root)
            for row, data in ((path, None), (f"{path}2", b"evil"), (f"memory/{number}/seen.md", b"mine")):
                facts = (row, data, len(data or b""), 1_000 if data else 0)
                db.execute("INSERT INTO files VALUES (%s, %s, %s, %s, nextval('file_changes'))", facts)
    await world.start()
    await relay.stands_by("b")
    await relay.says("and now?", "Still here.")
    await eventually(lambda: len(list(relay.home("b").glob("memory/*/seen.md"))) == len(ELSEWHERE))
    code, told = await shipmate(world, "backup", str(outside / "backup"))
    assert code == 0, told
    assert await relay.hosts["b"].stop() == 0
    assert await world.process.stop() == 0
    code, told = await shipmate(world, "migrate", "--to", "embedded")
    assert code == 0, told
    assert all(one.read_text(encoding="utf-8") == "mine" for one in victims)
    everywhere = [one for folder in (world.root, outside) for one in folder.rglob("*2") if one.is_file()]
    assert not [one for one in everywhere if one.read_bytes() == b"evil"]


FIRST_CHAT = 5_000
_ANSWER = re.compile(r"answer (\d+)")


class Two:
    """Two processes with one database, and people who write to the bot."""

    def __init__(self, world: World, second: Process, chats: int, messages: int) -> None:
        self.world, self.second, self.chats, self.messages = world, second, chats, messages

    async def start(self) -> None:
        await self.world.start()
        await self.second.start(wait=False)
        await eventually(lambda: any(line.startswith("standby: ") for line in self.second.lines))

    def talk(self) -> None:
        """Send the messages of all people at once."""
        for number in range(1, self.messages + 1):
            for chat in range(self.chats):
                self.world.telegram.say(f"message {number}", chat_id=FIRST_CHAT + chat)

    async def talk_for(self, seconds: float) -> None:
        """Send the messages of all people one after the other."""
        for number in range(1, self.messages + 1):
            for chat in range(self.chats):
                self.world.telegram.say(f"message {number}", chat_id=FIRST_CHAT + chat)
                await asyncio.sleep(seconds / self.messages / self.chats)

    def count(self) -> int:
        """Return the messages that have an answer."""
        return sum(len({number for number, _ in chat}) for chat in self.answers())

    def texts(self) -> list[list[str]]:
        return [self.world.texts(FIRST_CHAT + chat) for chat in range(self.chats)]

    def answers(self) -> list[list[tuple[int, bool]]]:
        """Return the answered messages by chat. Each has a flag: True if its answer says that it may be a repeat."""
        return [
            [
                (int(found[1]), not text.startswith("answer"))
                for text in chat
                if (found := _ANSWER.search(text))
            ]
            for chat in self.texts()
        ]

    async def answered(self, share: float) -> None:
        most = share * self.chats * self.messages
        await self.world.telegram.until(lambda: self.count() >= most, 300)

    async def taken_over(self) -> None:
        await eventually(lambda: any(line.startswith("ready ") for line in self.second.lines))

    def check(self) -> None:
        """Check that each message has its answer, in order, and that each repeated answer is marked."""
        for chat in self.answers():
            assert list(dict.fromkeys(number for number, _ in chat)) == list(range(1, self.messages + 1)), (
                chat
            )
            assert max(Counter(number for number, marked in chat if not marked).values()) == 1, self.texts()


@pytest.fixture(
    params=[pytest.param((20, 3), id="short"), pytest.param((200, 5), id="long", marks=pytest.mark.torture)]
)
async def two(request: pytest.FixtureRequest, clustered: World) -> AsyncIterator[Two]:
    world = clustered
    world.config["queue"] = {"mode": "followup"}
    world.config["channels"]["telegram"]["allow"] = ["*"]
    there = world.root / "second"
    there.mkdir()

    async def answer(body: Any) -> str:
        said = [
            found
            for message in body["messages"]
            for found in re.findall(r"message (\d+)", str(message["content"]))
        ]
        await asyncio.sleep(0.2)  # the time of a model's answer
        return f"answer {said[-1]}"

    world.model.script(answer)
    second = Process(there, world.process.env)
    made = Two(world, second, *request.param)
    (there / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    yield made
    if second.running:
        await second.kill()


@pytest.mark.torture
async def test_a_standby_takes_over_from_one_that_was_killed(two: Two) -> None:
    await two.start()
    two.talk()
    await two.answered(0.5)
    await two.world.process.kill()
    await two.answered(1.0)
    await two.taken_over()
    two.check()
    code, told = await shipmate(two.world, "doctor")
    assert "leads" in told, (code, told)


@pytest.mark.torture
async def test_nothing_is_lost_where_the_database_crashes(two: Two) -> None:
    await two.start()
    two.talk()
    await two.answered(0.5)
    server = postgres.shared()
    await asyncio.to_thread(server.crash)
    server.start()  # a server that a thread of this test starts would end with the thread
    await two.answered(1.0)
    two.check()


@pytest.mark.torture
async def test_a_freeze_of_nine_seconds_is_no_second_answer(two: Two) -> None:
    await two.start()
    talking = asyncio.create_task(two.talk_for(15))
    await two.answered(0.1)
    frozen = two.world.process
    os.kill(frozen.pid, signal.SIGSTOP)
    thawed = asyncio.get_running_loop().call_later(9, os.kill, frozen.pid, signal.SIGCONT)
    try:
        await two.taken_over()
        assert await frozen.ended() == 75
        assert "leads now" in frozen.stderr
    finally:
        thawed.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(frozen.pid, signal.SIGCONT)
    await talking
    await two.answered(1.0)
    two.check()


@pytest.fixture
async def lines(two: Two) -> AsyncIterator[tuple[postgres.Line, postgres.Line]]:
    """Yield the network links of the two processes to their database."""
    if reason := postgres.no_network():
        pytest.skip(reason)
    server = await asyncio.to_thread(lambda: postgres.Postgres(apart=True))
    try:
        made = (server.line(), server.line())
        for process, line in zip((two.world.process, two.second), made, strict=True):
            process.env = {**process.env, "DATABASE_URL": line.url}
        yield made
    finally:
        await asyncio.to_thread(server.stop)


@pytest.mark.torture
async def test_both_are_cut_off_and_go_on(two: Two, lines: tuple[postgres.Line, postgres.Line]) -> None:
    await two.start()
    talking = asyncio.create_task(two.talk_for(15))
    await two.answered(0.1)
    for line in lines:
        await asyncio.to_thread(line.cut)
    await eventually(lambda: "the lease cannot be polled" in told(two.second))
    count = two.count()
    for line in lines:
        await asyncio.to_thread(line.mend)
    await two.world.telegram.until(lambda: two.count() > count)
    await talking
    await two.answered(1.0)
    two.check()


@pytest.mark.torture
async def test_an_upgrade_goes_through_while_people_talk(two: Two) -> None:
    first, second = two.world.process, two.second
    await two.start()
    talking = asyncio.create_task(two.talk_for(20))
    await two.answered(0.1)
    os.kill(first.pid, signal.SIGTERM)
    await two.taken_over()
    assert await first.ended() == 0
    await first.start(wait=False)
    await eventually(lambda: any(line.startswith("standby: ") for line in first.lines))
    os.kill(second.pid, signal.SIGTERM)
    assert await second.ended() == 0
    await eventually(lambda: any(line.startswith("ready ") for line in first.lines))
    await talking
    await two.answered(1.0)
    two.check()
    assert not any(text.startswith("(You may") for chat in two.texts() for text in chat)


def told(process: Process) -> str:
    return "".join(one.read_text(encoding="utf-8") for one in (process.root / ".ship/logs").glob("*.jsonl"))


async def test_one_that_is_older_than_the_tables_does_not_lead(clustered: World) -> None:
    world, url = clustered, clustered.process.env["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE cluster_leader SET version = version + 1")
        try:
            await world.start(wait=False)
            assert await world.process.ended() == 1
        finally:
            db.execute("UPDATE cluster_leader SET version = version - 1")
        assert "it was written by a newer one" in world.process.stderr
        assert db.execute("SELECT epoch FROM cluster_leader").fetchone() == (0,)
