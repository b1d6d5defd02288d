"""What was read of files outlives kills, and what the disk refuses costs the file alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import SeenFile
from bot.contracts.journal import StepRecord
from bot.core.attachments import STEP, artifact_id
from bot.core.file_words import REFUSED, unread
from bot.words import say
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.test_files import LONG, TEXT, file, seen

NO_ROOM = say("files.no_room")


async def test_after_a_kill_nothing_is_fetched_again_and_everything_is_told_alike(tmp_path: Path) -> None:
    files = (file(), file("f2"), file("f3"))
    before = Bench(tmp_path)
    before.tele.files = {"f1": LONG.encode(), "f2": b"\0", "f3": errors.FileGone()}
    before.agent.hold = asyncio.Event()
    await before.open()
    await before.say("look", attachments=files)
    await before.agent.began.wait()
    first = before.agent.requests[0]
    assert first.inbound is not None
    told = await first.arrivals.files(first.inbound)
    await before.close()
    after = Bench(tmp_path)
    await after.open()
    texts = await after.tele.until(1)
    again = after.agent.requests[0]
    assert again.inbound is not None
    assert await again.arrivals.files(again.inbound) == told
    assert after.tele.fetched == []
    assert "I couldn't read “f3.log” (it isn't there any more)." in texts[0]
    assert "I can't read files like “f2.log”" in texts[0]
    made = await after.artifacts.made(ChatKey.parse("tele:chat:77"), [first.request_id])
    assert made == {first.request_id: [(told[0].artifact, "attachment")]}
    await after.close()


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        ({"read": False, "why": "other words", "refused": True}, True),
        ({"read": False, "why": "other words"}, False),
    ],
)
async def test_a_message_that_was_refused_for_memory_stays_so_whatever_the_words_on_file(
    bench: Bench, result: dict[str, Any], *, refused: bool
) -> None:
    bench.tele.files["f2"] = TEXT.encode()
    files = (file(), file("f2"))
    inbound = bench.inbound("look", attachments=files).model_copy(update={"request_id": bench.ids.ulid()})
    name = artifact_id(inbound.request_id, 0, files[0])
    await bench.journal.begin_step(StepRecord(inbound.request_id, name, "tool", STEP, 0.0, 1.0, result))
    one, two = await bench.files.read(inbound)
    assert one == SeenFile(why=str(result["why"]), refused=refused)
    assert (two == REFUSED, bench.tele.fetched) == ((True, []) if refused else (False, ["f2"]))
    assert (unread(files, (one, two)) == NO_ROOM) is refused
    again = await bench.journal.steps(inbound.request_id)
    assert [step.result for step in again] == [
        result,
        {"read": False, "why": "memory was short", "refused": True} if refused else {"read": True},
    ]


async def test_a_turn_that_had_begun_with_a_file_goes_on_without_it(tmp_path: Path) -> None:
    before = Bench(tmp_path)
    before.tele.files["f1"] = TEXT.encode()
    before.agent.hold = asyncio.Event()
    await before.open()
    await before.say("", attachments=(file(),))
    await before.agent.began.wait()
    first = before.agent.requests[0].request_id
    await before.artifacts.forget(ChatKey.parse("tele:chat:77"), [first])
    await before.close()
    after = Bench(tmp_path)
    after.agent.sources = (first,)
    await after.open()
    (words,) = await after.tele.until(1)
    assert words == "re: \n\nI couldn't read “f1.log” (it isn't there any more)."
    await after.close()


async def test_what_was_kept_and_not_recorded_is_not_fetched_again(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    inbound = bench.inbound("look", attachments=(file(),)).model_copy(update={"request_id": bench.ids.ulid()})
    first = await bench.files.read(inbound)
    bench.journal.steps = _nothing  # type: ignore[assignment]
    assert await bench.files.read(inbound) == first
    assert bench.tele.fetched == ["f1"]


async def _nothing(_: str) -> list[Any]:
    return []


async def test_a_journal_that_refuses_keeps_no_file_from_being_read(bench: Bench) -> None:
    async def refuse(*_: Any) -> Any:
        raise errors.StorageError("full")

    bench.journal.steps = refuse  # type: ignore[assignment]
    bench.journal.begin_step = refuse  # type: ignore[assignment]
    bench.tele.files["f1"] = TEXT.encode()
    inbound = bench.inbound("look", attachments=(file(),)).model_copy(update={"request_id": bench.ids.ulid()})
    (one,) = await bench.files.read(inbound)
    assert one.head == TEXT
    assert [line.message for line in bench.log.of("error")] == [
        "what is on file cannot be read",
        "a step could not be recorded",
    ]


async def test_a_disk_that_is_full_costs_the_file_and_not_the_answer(bench: Bench) -> None:
    async def refuse(*_: Any, **__: Any) -> str:
        raise errors.StorageError("no space")

    bench.tele.files["f1"] = TEXT.encode()
    bench.artifacts.put = refuse  # type: ignore[method-assign]
    (one,) = await seen(bench, file())
    assert one.why == "it could not be fetched just now"
    assert "I couldn't fetch it just now" in bench.tele.texts[0]
    assert "no space" in str(bench.log.of("file")[0].details["cause"])


async def test_what_is_kept_and_cannot_be_read_back_counts_as_not_read(bench: Bench) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise errors.StorageError("EIO")

    bench.tele.files["f1"] = TEXT.encode()
    bench.artifacts.read = refuse  # type: ignore[method-assign]
    (one,) = await seen(bench, file())
    assert one == SeenFile(why="it could not be fetched", code="failed")


async def test_what_the_disk_does_not_let_go_is_told(bench: Bench) -> None:
    async def refuse(*_: Any) -> Any:
        raise errors.StorageError("EIO")

    bench.artifacts.forget = refuse  # type: ignore[assignment, method-assign]
    await bench.files.forget(bench.inbound("look"))
    assert [line.message for line in bench.log.of("error")] == ["a removed file is still kept"]


async def test_a_receipt_names_what_was_read(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    await seen(bench, file())
    await bench.say("/receipt", command={"name": "receipt"})
    assert "\n- your file: done" in (await bench.tele.until(2))[-1]


async def test_what_was_read_and_is_gone_from_the_disk_is_said_to_be_gone(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    inbound = bench.inbound("look", attachments=(file(),)).model_copy(update={"request_id": bench.ids.ulid()})
    await bench.files.read(inbound)
    await bench.artifacts.forget(inbound.chat_key, [inbound.request_id])
    assert await bench.files.read(inbound) == (SeenFile(why=errors.FileGone.why, code="gone"),)
    assert bench.tele.fetched == ["f1"]
