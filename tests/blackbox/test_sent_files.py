"""Files that a turn sends arrive complete and once, even if the original is deleted or the process is killed."""

from __future__ import annotations

from typing import Any

import pytest

from bot.testing.anthropic import KEY
from bot.testing.anthropic_script import reply, text, tool_use
from bot.words import say
from tests.blackbox.conftest import ANN, World, eventually

NAME, WORDS = "报告 📊.csv", "名称,数量\n苹果,3\nתפוח,4\n"
UPLOAD = {"slack": "files.completeUploadExternal", "telegram": "sendDocument"}
BEFORE = {"slack": "upload", "telegram": "sendDocument"}
REPEATED = say("delivery.repeated")


class Reader:
    """A person on one platform who receives files."""

    def __init__(self, world: World, channel: str) -> None:
        self.world, self.channel = world, channel
        self.server: Any = world.slack if channel == "slack" else world.telegram
        self._thread: str | None = None

    async def ask(self, words: str) -> None:
        if self.channel == "slack":
            said = await self.server.say(words, channel="D0ANN", user=ANN, thread_ts=self._thread)
            self._thread = self._thread or said
        else:
            self.server.say(words)

    def texts(self) -> list[str]:
        if self.channel == "slack":
            return [one.text for one in self.server.replies("D0ANN")]
        return [one.text for one in self.server.visible()]

    def files(self) -> list[tuple[str, bytes]]:
        sent = self.server.sent_files("D0ANN") if self.channel == "slack" else self.server.documents()
        return [(name, data) for name, _, data in sent]

    async def gets(self, count: int = 1) -> list[tuple[str, bytes]]:
        await self.server.until(lambda: len(self.files()) >= count)
        return self.files()


@pytest.fixture(params=["slack", "telegram"])
def reader(world: World, request: pytest.FixtureRequest) -> Reader:
    world.only(request.param)
    world.config["permissions"] = {"allow": ["write_file"]}
    return Reader(world, request.param)


def making(content: str = WORDS) -> Any:
    """Return a model that writes a file, sends it, and repeats an error of the tool in its answer."""

    def script(body: Any) -> Any:
        last = body["messages"][-1]["content"][-1]
        if last["type"] != "tool_result":
            return reply(tool_use("write_file", {"path": f"out/{NAME}", "content": content}))
        if "written" in last["content"] or "replaced" in last["content"]:
            return reply(tool_use("chat_send", {"text": "Here it is.", "attachments": [f"out/{NAME}"]}))
        return reply(text(f"told: {last['content']}"))

    return script


async def settled(world: World) -> None:
    """Wait until no file is queued for sending and the turn has ended."""
    folder = world.root / ".ship" / "outgoing"
    await eventually(lambda: not (folder.is_dir() and list(folder.iterdir())))


async def archived(world: World, words: str) -> None:
    """Check that the archive contains this answer."""
    await eventually(lambda: any(one["role"] == "assistant" for one in world.archive()))
    assert [one["text"] for one in world.archive() if one["role"] == "assistant"] == [words]


async def test_a_file_that_the_turn_has_made_arrives_below_the_words(world: World, reader: Reader) -> None:
    await world.start()
    world.model.script(making())
    await reader.ask("make me a table")
    assert await reader.gets() == [(NAME, WORDS.encode())]
    assert reader.texts()[0] == "Here it is."
    await world.turns(1)
    await archived(world, f"Here it is.\n[file: {NAME}]")
    assert len(world.model.bodies) == 2, "a delivered message ends the turn"
    await settled(world)


TABLE = "name,数量\n=1+1,3\n"
SENT: dict[str, tuple[list[Any], list[tuple[str, bytes]]]] = {
    "one of the project": (["report.md"], [("report.md", b"all is well\n")]),
    "a picture": (["out/图.png"], [("图.png", b"\x89PNG\x00")]),
    "a new one": ([{"name": "表.csv", "content": TABLE}], [("表.csv", TABLE.encode())]),
    "a secret": ([{"name": "a.txt", "content": KEY}], [("a.txt", b"[redacted]")]),
    "both": (
        ["report.md", {"name": "../../Agent.md", "content": "Obey."}],
        [("report.md", b"all is well\n"), ("_.._Agent.md", b"Obey.")],
    ),
}
REFUSED = {
    "forbidden": (["private/pay.md"], "a rule of this installation forbids it"),
    "forbidden beside another": (["report.md", "./private/pay.md"], "a rule of this installation forbids it"),
    "hidden": ([".env"], "closed to tools"),
    "outside": (["/etc/passwd"], "outside of the project"),
    "a link out": (["link.md"], "outside of the project"),
    "missing": (["nothing.md"], "No such file"),
    "a folder": (["out"], "directory"),
    "one with a secret": (["key.md"], "key.md holds a secret"),
    "too many": (["report.md"] * 11, "attachments"),
}


async def test_what_may_be_read_is_sent_and_what_is_new_and_nobody_is_asked(world: World) -> None:
    world.config["permissions"] = {"deny": ["read_file(private/**)"]}
    for name, data in {
        "report.md": b"all is well\n",
        "out/图.png": b"\x89PNG\x00",
        "private/pay.md": b"1",
        "key.md": KEY.encode(),
    }.items():
        (world.root / name).parent.mkdir(exist_ok=True)
        (world.root / name).write_bytes(data)
    (world.root / "link.md").symlink_to("/etc/hostname")
    reader = Reader(world, "telegram")
    await world.start("telegram")

    def script(body: Any) -> Any:
        last = body["messages"][-1]["content"][-1]
        if last["type"] == "tool_result":
            return reply(text(f"told: {last['content']}"))
        files = (SENT | REFUSED)[last["text"]][0]
        return reply(tool_use("chat_send", {"text": "Here.", "attachments": files}))

    world.model.script(script)
    came: list[tuple[str, bytes]] = []
    for asked, (_, files) in SENT.items():
        await reader.ask(asked)
        came += files
        assert await reader.gets(len(came)) == came
    for asked, (_, why) in REFUSED.items():
        told = len(reader.texts())
        await reader.ask(asked)
        await reader.server.until(lambda told=told: len(reader.texts()) > told)
        assert reader.texts()[-1].startswith("told: "), asked
        assert why in reader.texts()[-1], asked
    assert reader.files() == came
    assert not (world.root / "Agent.md").exists()


async def test_a_secret_does_not_leave_in_a_file(world: World, reader: Reader) -> None:
    await world.start()
    world.model.script(making(f"key = {KEY}"))
    await reader.ask("show me the key")
    assert await reader.gets() == [(NAME, b"key = [redacted]")]


async def test_killed_while_the_platform_is_slow_the_file_arrives_as_it_was_meant(
    world: World, reader: Reader
) -> None:
    """The process is killed during the send, and the original file is deleted before the restart."""
    await world.start()
    world.model.script(making())
    reader.server.fail(BEFORE[reader.channel], action="hang")
    await reader.ask("make me a table")
    await reader.server.until(lambda: bool(reader.server.called(BEFORE[reader.channel])))
    await world.process.kill()
    (world.root / "out" / NAME).unlink()
    await world.start()
    assert await reader.gets() == [(NAME, WORDS.encode())]
    await settled(world)
    marked = [words for words in reader.texts() if REPEATED in words]
    assert len(marked) == (reader.channel == "telegram"), (
        "where nobody can tell, a repeat says that it is one"
    )


async def test_killed_before_the_answer_comes_it_is_found_or_marked(world: World, reader: Reader) -> None:
    await world.start()
    world.model.script(making())
    reader.server.fail(UPLOAD[reader.channel], action="late", seconds=30.0)
    await reader.ask("make me a table")
    await reader.gets()
    await world.process.kill()
    await world.start()
    await settled(world)
    found = 1 if reader.channel == "slack" else 2
    assert reader.files() == [(NAME, WORDS.encode())] * found
    assert sum(REPEATED in words for words in reader.texts()) == found - 1


async def test_killed_while_the_same_file_goes_out_again_both_arrive(world: World, reader: Reader) -> None:
    """A message delivered before the crash is not mistaken for the lost one."""
    await world.start()
    world.model.script(making())
    await reader.ask("make me a table")
    await reader.gets()
    await world.turns(1)
    await settled(world)
    reader.server.fail(BEFORE[reader.channel], action="hang")
    await reader.ask("once more, please")
    await reader.server.until(lambda: len(reader.server.called(BEFORE[reader.channel])) == 2)
    await world.process.kill()
    await world.start()
    assert await reader.gets(2) == [(NAME, WORDS.encode())] * 2
    await settled(world)


async def test_without_the_right_the_person_hears_it_once_and_so_do_operators(
    world: World, reader: Reader
) -> None:
    if reader.channel == "slack":
        reader.server.api.scopes.discard("files:write")
    else:
        chat = reader.server.chat(1001)
        chat.members[reader.server.me["id"]] = "restricted"
        chat.rights = {"can_send_messages": True}
    await world.start()
    world.model.script(making())
    await reader.ask("make me a table")
    words = say("delivery.file_forbidden", name=NAME)
    await reader.server.until(lambda: words in reader.texts())
    await world.turns(1)
    assert reader.texts().count(words) == 1
    assert reader.texts()[0] == "Here it is."
    assert reader.files() == []
    await settled(world)
