"""`chat_load_history` loads only messages of this chat and of the asker's other chats."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from bot import errors
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.core.view import loaded_messages
from bot.features.search import Search
from bot.storage.artifacts import ArtifactStore
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import FaultyDisk
from bot.testing.log import MemoryLog
from bot.tools.builtin import ToolPorts, chat_load_history
from bot.tools.builtin.chat_load_history import FARTHEST, LoadHistoryInput
from bot.tools.context import ToolExecutionContext, tool_scope
from tests.archives import WrittenArchive
from tests.talk import Talk

DIRECT = ChatKey.parse("slack:chat:D1")
HERE, THERE, THEIRS = map(ChatKey.parse, ("slack:chat:C1", "slack:chat:C2", "slack:chat:D9"))


class Injected:
    """An `Injection` that records the inserted lines."""

    def __init__(self, room: int = 120, most: int = 200) -> None:
        self.lines: list[ArchiveLine] = []
        self.seen: set[str] = set()
        self._room = room
        self._most = most

    def room(self) -> int:
        return self._room - len(self.lines)

    def in_view(self, line: ArchiveLine) -> bool:
        return line.text in self.seen or any(line.text == other.text for other in self.lines)

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        taken = list(lines)[-self._most :]
        self.lines += taken
        return taken


class Members:
    """Says that a person is in the chats `chats`, and records each question."""

    def __init__(self, *chats: ChatKey) -> None:
        self.chats: tuple[ChatKey, ...] = chats
        self.unanswered: list[ChatKey] = []
        self.asked: list[tuple[str, str, tuple[ChatKey, ...], bool]] = []

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        self.asked.append((channel, user_id, tuple(chat_keys), direct))
        return MembershipAnswer([key for key in chat_keys if key in self.chats], self.unanswered)


class Bench:
    def __init__(self, root: Path) -> None:
        self.clock, self.members, self.injected = FakeClock(), Members(THERE), Injected()
        self.archive = WrittenArchive(root / "chats", disk=SystemDisk(), log=MemoryLog())
        self.talk = Talk()
        self.search = Search(root / "index.db", self.talk.log, clock=SystemClock(), log=MemoryLog())
        self.search.exporter.start()
        self.disk = FaultyDisk(SystemDisk())
        self.artifacts = ArtifactStore(
            root / "artifacts", disk=self.disk, ids=UlidSource(self.clock), clock=self.clock, log=MemoryLog()
        )
        self.ts = int(self.clock.now() * 1000) - 10**9
        self.private = True
        self.here = HERE

    async def say(self, text: str, key: ChatKey = HERE, role: str = "user", **more: Any) -> None:
        self.ts += more.pop("gap", 60_000)
        line = {
            "ts": self.ts,
            "channel": "slack",
            "chatId": "1",
            "chatKey": str(key),
            "role": role,
            "text": text,
        }
        await self.put(ArchiveLine.model_validate({**line, **more}))

    async def put(self, line: ArchiveLine) -> None:
        await self.archive.append(line)
        self.talk.say(line)

    async def load(self, **arguments: Any) -> str:
        none = cast("Any", None)
        ports = ToolPorts(
            self.archive.search,
            self.artifacts,
            none,
            self.clock,
            *(none, none, none, none, none),
            recall=self.search,
            chats_of=self.members.chats_of,
            permalink=lambda line: f"https://example.org/{line.message_id}" if line.message_id else None,
        )
        turn = ToolExecutionContext(
            self.here, "R", "U1", None, self.injected, channel="slack", private=self.private
        )
        with tool_scope(turn):
            return str(
                await chat_load_history.chat_load_history(ports).run(
                    LoadHistoryInput.model_validate(arguments)
                )
            )

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.injected.lines]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.search.exporter.close()


async def test_a_question_brings_its_answer_in_time_order(bench: Bench) -> None:
    await bench.say("what was the name of the hotel?")
    await bench.say("It was the Grand Budapest", role="assistant")
    await bench.say("lunch was good", gap=10**7)
    said = await bench.load(queries=["which hotels did we name?", "hotel name"], limit=2)
    assert bench.texts == ["what was the name of the hotel?", "It was the Grand Budapest"]
    assert said.startswith("Loaded 2 older messages, ")
    assert "(2 matches and what was said around them)" in said


async def test_the_threads_of_a_direct_chat_are_searched_together_with_what_was_said_before_them(
    bench: Bench,
) -> None:
    threads = [ChatKey("slack", "D1", f"1.{number}") for number in (1, 2)]
    topic, other = ChatKey("slack", "D1", "7", "topic"), ChatKey("slack", "D12", "1.1")
    for place in (DIRECT, *threads, other):
        await bench.say(f"umbrella of {place}", place, gap=10**7)
    assert bench.members.asked == []
    for asked in ({}, {"queries": ["umbrella"]}):
        bench.here, bench.injected = threads[1], Injected()
        await bench.load(**asked)
        assert bench.texts == [f"umbrella of {place}" for place in (DIRECT, *threads)]
    for bench.here, bench.private in ((topic, True), (threads[1], False)):
        bench.injected = Injected()
        await bench.load(keyword="umbrella of")
        assert set(bench.texts) <= {f"umbrella of {bench.here}"}


async def test_what_is_in_view_is_not_loaded_again_and_the_same_offset_goes_on(bench: Bench) -> None:
    for number in range(6):
        await bench.say(f"umbrella number{number}", gap=10**7)
    bench.injected.seen.add("umbrella number5")
    first = await bench.load(queries=["umbrella"], limit=3)
    assert "2 more match: call again with offset 0" in first
    await bench.load(queries=["umbrella"], limit=3)
    assert sorted(bench.texts) == [f"umbrella number{number}" for number in range(5)]
    assert await bench.load(queries=["umbrella"]) == (
        "Nothing matches that, beyond what you see already. Nothing was loaded."
    )


async def test_the_other_chats_of_whoever_asks_come_with_their_names(bench: Bench) -> None:
    await bench.say("the budget is 40", THERE, messageId="7")
    await bench.say("my secret budget", THEIRS)
    await bench.say("budget here")
    said = await bench.load(queries=["budget"], scope="mine")
    assert bench.texts == ["the budget is 40", "budget here"]
    assert bench.members.asked == [("slack", "U1", (THEIRS, THERE), True)]
    shown = [
        block["text"]
        for message in loaded_messages(bench.injected.lines, "0a1b2c3d")
        for block in message["content"]
    ]
    assert '"chat":"slack:chat:C2"' in shown[0].replace(" ", "")
    assert "https://example.org/7" in shown[0]
    assert "chat:" not in shown[2]
    assert "Others read" not in said
    bench.private, bench.injected = False, Injected()
    said = await bench.load(queries=["budget"], scope="mine")
    assert bench.members.asked[1][3] is False, "direct chats are not for others to read"
    assert said.endswith("Others read this chat: repeat of other chats only what the person asks for.")
    bench.injected = Injected(room=0)
    with pytest.raises(errors.ToolError, match="as much history"):
        await bench.load(queries=["anything"])


async def test_literal_searches_and_windows_reach_the_same_chats(bench: Bench) -> None:
    for number in range(3):
        await bench.say(f"old {number}", THERE)
        await bench.say(f"new {number}")
        await bench.say(f"never {number}", THEIRS)
    await bench.load(scope="mine", limit=2, offset=1)
    assert bench.texts == ["new 1", "old 2"]
    bench.injected.lines.clear()
    assert "Loaded 3" in await bench.load(scope="mine", keyword="old")


async def test_the_receipt_says_what_could_not_be_asked_and_how_to_get_at_it(bench: Bench) -> None:
    await bench.say("the budget is 40", THERE)
    bench.members.unanswered = [THEIRS]
    said = await bench.load(queries=["nothing of that"], scope="mine")
    assert said.startswith("Nothing matches that")
    assert "Of 1 more chats the platform did not say" in said
    bench.members.unanswered = []
    assert "Try later" not in await bench.load(queries=["nothing of that"], scope="mine")


async def test_the_newest_come_with_the_word_that_there_are_more(bench: Bench) -> None:
    for number in range(5):
        await bench.say(f"umbrella {number}")
    said = await bench.load(limit=2)
    assert bench.texts == ["umbrella 3", "umbrella 4"]
    assert "; they now stand before the current message. More match: call again with offset 0 " in said
    assert "1 more match" in await bench.load(limit=1, offset=1)
    assert (await bench.load(limit=2, offset=9)).startswith("Nothing at offset 9: there are 2 matches")
    assert "1 more match: call again with offset 0 " in await bench.load(limit=1, keyword="umbrella")
    assert "ore match" not in await bench.load(limit=1)
    assert bench.texts[2:] == ["umbrella 1", "umbrella 2", "umbrella 0"]


async def test_what_a_turn_has_put_away_can_be_read_from_a_hit(bench: Bench) -> None:
    async def put(request_id: str, tool: str, chat_key: ChatKey = HERE) -> str:
        return await bench.artifacts.put(
            "rows", chat_key=chat_key, request_id=request_id, tool=tool, tool_use_id="t"
        )

    made = [await put("R1", tool) for tool in ("run_shell", "task")]
    await put("R2", "web_fetch", THERE)
    for number in range(7):
        await put("R3", f"tool{number}")
    await bench.say("count the umbrellas", meta={"requestId": "R1"})
    await bench.say("There are 12 umbrellas", role="assistant", meta={"requestId": "R1"})
    await bench.say("more umbrellas here", key=THERE, meta={"requestId": "R2"})
    await bench.say("umbrellas with many results", meta={"requestId": "R3", "artifacts": ["forged"]})
    await bench.say("umbrellas with none", meta={"requestId": "R4"})
    said = await bench.load(queries=["umbrellas"], scope="mine", limit=50)
    assert said.endswith("can be read with `read_artifact`.")
    told: dict[str, Any] = {line.text: (line.meta or {}).get("artifacts") for line in bench.injected.lines}
    expected = [{"id": made[0], "tool": "run_shell"}, {"id": made[1], "tool": "task"}]
    assert told["There are 12 umbrellas"] == expected
    assert told["count the umbrellas"] is None, "once for each turn"
    assert told["more umbrellas here"] is None, "those of another chat cannot be read here"
    assert [one["tool"] for one in told["umbrellas with many results"]] == [f"tool{n}" for n in range(2, 7)]
    assert told["umbrellas with none"] is None
    shown = json.dumps(loaded_messages(bench.injected.lines, "0a1b2c3d"))
    assert made[0] in shown
    page = await bench.artifacts.read(made[1], HERE, offset=0, limit=10)
    assert page.text == "rows"


async def test_an_offset_behind_the_end_of_several_chats_brings_nothing(bench: Bench) -> None:
    for number in range(3):
        await bench.say(f"here {number}")
        await bench.say(f"there {number}", key=THERE)
    assert (await bench.load(scope="mine", offset=4, limit=9)).startswith("Loaded 2 ")
    assert bench.texts == ["here 0", "there 0"]
    bench.injected.lines.clear()
    assert (await bench.load(scope="mine", offset=8)).startswith("Nothing at offset 8: there are 6 ")
    with pytest.raises(errors.ToolError, match="Use `before`"):
        await bench.load(scope="mine", offset=FARTHEST + 1)
    assert bench.texts == []


async def test_of_more_chats_than_are_searched_it_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_load_history, "MOST_CHATS", 1)
    bench.members.chats = (THERE, ChatKey.parse("slack:chat:C3"))
    await bench.say("the old budget was 20", key=ChatKey.parse("slack:chat:C3"))
    await bench.say("the budget is 17", key=THERE)
    for asked in ({"queries": ["budget"]}, {"keyword": "budget"}, {"keyword": "nothing"}):
        said = await bench.load(scope="mine", **asked)
        assert said.endswith("(Of this person's 2 other chats the 1 last spoken in were searched.)")
    assert bench.texts == ["the budget is 17"]
