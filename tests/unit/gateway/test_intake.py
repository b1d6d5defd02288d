"""Written down before it is confirmed; each thing once; nothing of ours in it that is secret."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.batch import PATIENCE, Batcher
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command, Quoted
from bot.gateway.inbound_archiver import InboundArchiver
from bot.journal import database
from bot.system import SystemDisk
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import HERE, SECRET, Bench


async def test_an_inbound_is_in_the_journal_and_can_be_read_again_when_accept_returns(bench: Bench) -> None:

    bench.agent.hold = asyncio.Event()
    assert await bench.say("hello 你好") is True
    (unfinished,) = await still_open(bench.journal)
    assert unfinished.text == "hello 你好"
    assert len(unfinished.request_id) == 26
    assert await bench.lines() == [("user", "hello 你好")]
    bench.agent.hold.set()
    await bench.idle()
    assert await bench.journal.unfinished() == []


async def test_a_message_is_taken_in_with_one_visit_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits: list[int] = []

    class Counted(Batcher[Any, Any]):
        def __init__(self, name: str, work: Callable[[list[Any]], Any]) -> None:
            def counted(batch: list[Any]) -> Any:
                visits.append(len(batch))
                return work(batch)

            super().__init__(name, counted)

    monkeypatch.setattr(database, "Batcher", Counted)
    bench = Bench(tmp_path)
    await bench.open()
    bench.agent.hold = asyncio.Event()
    await bench.say("the journal is open now", chat_key="tele:chat:2")
    visits.clear()
    assert await bench.say("hello")
    assert len(visits) == 1  # it is written, and what is on file about it is read
    bench.agent.hold.set()
    await bench.idle()
    await bench.close()


async def test_a_journal_that_cannot_write_means_not_taken_in(bench: Bench) -> None:
    async def refuse(_: object) -> bool:
        raise errors.StorageError("disk full")

    bench.journal.receive = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(errors.StorageError):
        await bench.say()
    assert bench.agent.requests == []
    assert await bench.lines() == []


async def test_a_full_archive_delays_the_line_but_not_the_answer(tmp_path: Path) -> None:
    full = [True]

    class Store:
        def __init__(self) -> None:
            self.lines: list[ArchiveLine] = []

        async def append(self, line: ArchiveLine, *, hurry: bool = True) -> None:
            if full:
                raise errors.StorageError("no space left")
            self.lines.append(line)

    bench = Bench(tmp_path)
    await bench.open()
    bench.archive.append = Store().append  # type: ignore[method-assign]
    assert await bench.say() is True
    assert await bench.tele.until(1) == ["re: hello"]
    assert any("archive cannot be written" in entry.message for entry in bench.log.at("error"))
    await bench.idle()
    await bench.close()


@pytest.mark.usefixtures("files_wait")
async def test_nobody_waits_for_a_line_of_the_archive_that_waits_for_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.open()
    bench.agent.hold = asyncio.Event()
    async with asyncio.timeout(90):
        assert await bench.say("hello", message_id="1")
        assert [line.text for line in await bench.intake.recent(HERE, 5)] == ["hello"]
        assert await bench.say("hello, all", message_id="1", kind="edit")
        bench.agent.hold.set()
        await bench.idle()
    assert ("user", "hello, all") in await bench.lines()
    await bench.close()


async def test_what_a_kill_kept_out_of_the_archive_waits_for_no_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.batch.MANY", 0)
    loop, waits = asyncio.get_running_loop(), list[float]()

    def later(delay: float, call: Callable[..., object], *given: object, **around: Any) -> asyncio.Handle:
        waits.append(delay)
        return loop.call_soon(call, *given, **around)

    monkeypatch.setattr(loop, "call_later", later)
    archiver = InboundArchiver(journal=bench.journal, archive=bench.archive, log=bench.log)
    left = [bench.inbound(words, request_id=words) for words in ("one", "two")]
    await archiver.add_missing(HERE, left)
    assert await bench.lines() == [("user", "one"), ("user", "two")]
    assert PATIENCE not in waits


async def test_the_same_event_under_any_of_its_keys_is_taken_in_once(bench: Bench) -> None:
    assert await bench.say(keys=("event:1", "message:9")) is True
    assert await bench.say(keys=("event:1",)) is False
    assert await bench.say(keys=("event:2", "message:9")) is False
    await bench.idle()
    assert bench.tele.texts == ["re: hello"]
    assert len(await bench.lines()) == 2


async def test_our_secrets_and_what_utf8_cannot_carry_are_replaced_and_nothing_else(bench: Bench) -> None:
    await bench.say(f"a \ud800 {SECRET} b\0  c ")
    await bench.idle()
    assert bench.agent.requests[0].inbound is not None
    assert bench.agent.requests[0].inbound.text == "a � [redacted] b\0  c "
    await bench.journal.close()
    stored = b"".join(path.read_bytes() for path in bench.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored
    assert SECRET not in "".join(bench.tele.texts)


async def test_a_number_that_the_interpreter_does_not_read_is_taken_in(bench: Bench) -> None:
    said = f"&#{'9' * 5_000};"
    assert await bench.say(said) is True
    await bench.idle()
    assert bench.agent.requests[0].inbound is not None
    assert bench.agent.requests[0].inbound.text == said


async def test_a_thread_counts_only_where_the_bot_takes_part(bench: Bench) -> None:
    thread = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}
    assert await bench.say("chatter canary", addressed="thread", **thread) is False
    assert await bench.lines(ChatKey.parse("tele:chat:-100")) == []
    assert await bench.say("@bot hello", addressed="mention", **thread) is True
    assert await bench.say("and more", addressed="thread", **thread) is True


async def test_quoted_words_of_a_stranger_come_in_by_no_door(bench: Bench) -> None:
    group: dict[str, Any] = {
        "chat_id": "-5",
        "chat_key": "tele:chat:-5",
        "chat_type": "group",
        "addressed": "mention",
    }
    quotes = (
        Quoted(user_id="666", text="canary-q"),
        Quoted(user_id="77", text="mine"),
        Quoted(user_id=None, text="canary-n"),
    )
    bench.tele.thread = (
        Quoted(user_id="666", text="canary-t"),
        Quoted(user_id=None, text="ours", from_self=True),
    )
    await bench.say("see above", quoted=quotes, **group)
    await bench.idle()
    (request,) = bench.agent.requests
    assert request.inbound is not None
    assert [message.text for message in request.inbound.quoted] == ["mine"]
    assert [message.text for message in request.context] == ["ours"]
    await bench.journal.close()
    assert b"canary" not in b"".join(path.read_bytes() for path in bench.root.rglob("*") if path.is_file())


async def test_edits_are_archived_and_answered_by_nothing(bench: Bench) -> None:
    await bench.say("first")
    await bench.idle()
    await bench.say("first, mended", kind="edit", message_id="1")
    await bench.idle()
    assert bench.tele.texts == ["re: first"]
    last = (await bench.intake.recent(ChatKey.parse("tele:chat:77"), 1))[0]
    assert (last.text, last.message_id, (last.meta or {})["edited"]) == ("first, mended", "1", True)


async def test_commands_are_not_archived_and_attachments_are_named(bench: Bench) -> None:
    await bench.say("/help", command=Command(name="help"))
    await bench.say("look", attachments=(Attachment(kind="photo", name="cat.jpg", size=9),))
    await bench.idle()
    (line, _) = await bench.intake.recent(ChatKey.parse("tele:chat:77"), 9)
    assert (line.meta or {})["attachments"] == [{"kind": "photo", "name": "cat.jpg", "size": 9}]


async def test_a_dead_letter_is_kept_without_our_secrets_and_told(bench: Bench) -> None:
    await bench.intake.keep_dead_letter("tele", "update:5", f'{{"token": "{SECRET}"}}', "no message in it")
    await bench.journal.close()
    stored = b"".join(path.read_bytes() for path in bench.root.glob("journal*"))
    assert b"no message in it" in stored
    assert SECRET.encode() not in stored
    assert bench.log.at("error")


async def test_an_archive_that_is_slow_holds_up_neither_platform_nor_turn_and_keeps_the_order(
    tmp_path: Path,
) -> None:
    gate = threading.Event()

    class SlowDisk(SystemDisk):
        def replace(self, path: Path, data: bytes) -> None:
            assert gate.wait(90)
            super().replace(path, data)

    bench = Bench(tmp_path, disk=SlowDisk())
    await bench.open()
    assert await bench.say("question")  # in the journal: the platform may be told
    assert await bench.tele.until(1) == ["re: question"]
    (unfinished,) = await still_open(bench.journal)
    assert unfinished.text == "question"  # after a crash now, the archive would still get it
    gate.set()
    await bench.idle()
    assert await bench.journal.unfinished() == []
    assert await bench.lines() == [("user", "question"), ("assistant", "re: question")]
    await bench.close()


async def test_operators_hear_of_an_event_that_could_not_be_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, direct=lambda user: {"chat": user})
    await bench.open()
    await bench.intake.keep_dead_letter("tele", "tele:update:42", '{"私": "secret words"}', "no chat")
    (words,) = await bench.tele.until(1)
    assert bench.tele.sent[0].chat_key == ChatKey.parse("tele:chat:1")
    assert "an event of tele" in words
    assert "no chat. It is among the dead letters (event tele:update:42)" in words
    assert "secret words" not in words
    await bench.close()
