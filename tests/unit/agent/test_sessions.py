"""Going back to an earlier conversation of a chat, and on from a point in the past of one."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.agent import SessionChange
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import Meta, TranscriptLine
from bot.features.conversation.sessions import SHORTEST, short
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk, Kind
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Added, Bench, each, words
from tests.unit.agent.test_random import as_from_the_beginning, restarted


async def talk(bench: Bench, *said: str) -> list[str]:
    """The requestIds of these turns."""
    ids = []
    for one in said:
        bench.model.answers += [reply(text(f"to {one}"))]
        await bench.say(one, archive=False)
        ids.append(bench.pool.runtime(KEY).store.turns[-1].request_id)
    return ids


def kept(bench: Bench) -> list[str]:
    """What is said in the conversation as it is in mind."""
    return [one for message in bench.pool.runtime(KEY).store.messages() for one in words(message)]


async def test_an_earlier_conversation_goes_on_where_it_was_left(bench: Bench) -> None:
    await talk(bench, "東京の予算", "two")
    before = kept(bench)
    view = json.dumps(bench.pool.runtime(KEY).store.view())
    await bench.pool.reset(KEY)
    await talk(bench, "something else")
    now, earlier = await bench.pool.sessions(KEY)
    assert (now.current, now.words, now.messages) == (True, "something else", 2)
    assert (earlier.current, earlier.words, earlier.messages) == (False, "東京の予算", 4)
    facts = await bench.pool.resume(KEY, earlier.id.lower())
    assert facts == SessionChange("done", earlier.id, now.id)
    await bench.pool.describe(KEY)
    assert json.dumps(bench.pool.runtime(KEY).store.view()) == view, "the same bytes as before"
    bench.restart()
    await talk(bench, "three")
    assert kept(bench) == [*before, "three", "to three"]
    await as_from_the_beginning(bench)
    assert [one.current for one in await bench.pool.sessions(KEY)] == [True, False]
    assert (await bench.pool.sessions(KEY))[0].words == "東京の予算"


async def test_what_a_chat_comes_to_is_counted_over_all_of_them(bench: Bench) -> None:
    await talk(bench, "one")
    await bench.pool.reset(KEY)
    await talk(bench, "two", "three")
    await bench.pool.resume(KEY, (await bench.pool.sessions(KEY))[1].id)
    bench.restart()
    assert (await bench.pool.stats(KEY)).turns == 3


async def test_a_new_conversation_begins_also_after_one_went_back(bench: Bench) -> None:
    await talk(bench, "one")
    await bench.pool.reset(KEY)
    await talk(bench, "two")
    await bench.pool.resume(KEY, (await bench.pool.sessions(KEY))[1].id)
    await bench.pool.reset(KEY)
    bench.restart()
    await bench.pool.describe(KEY)
    assert kept(bench) == []
    assert [one.current for one in await bench.pool.sessions(KEY)] == [False, False]


@pytest.mark.parametrize("asked", ["", "K", "../..", "0" * 26, "*", "😀😀😀😀"])
async def test_what_names_no_conversation_of_this_chat_changes_nothing(bench: Bench, asked: str) -> None:
    await talk(bench, "one")
    other = bench.inbound("elsewhere", chat_key="telegram:chat:2", chat_id="2")
    assert await bench.pool.resume(KEY, asked) == SessionChange("unknown")
    theirs = await bench.transcript.new_session(other.chat_key)
    assert await bench.pool.resume(KEY, theirs) == SessionChange("unknown")
    assert kept(bench) == ["one", "to one"]
    (mine,) = await bench.pool.sessions(KEY)
    assert await bench.pool.resume(KEY, mine.id) == SessionChange("here")


async def test_an_id_is_as_short_as_it_can_be_told_by() -> None:
    known = ["01AAAA1111", "01BBBB1111", "01CCCC2222"]
    assert [short(one, known) for one in known] == ["A1111", "B1111", "2222"]
    assert len(short("01CCCC2222", known)) == SHORTEST


async def test_a_fork_has_what_was_said_up_to_there_and_leaves_the_rest_alone(bench: Bench) -> None:
    ids = await talk(bench, "one", "two", "three", "four")
    facts = await bench.pool.fork(KEY, request_id=ids[1])
    assert (facts.outcome, facts.turns) == ("done", 2)
    await restarted(bench)
    assert kept(bench) == ["one", "to one", "two", "to two"]
    await talk(bench, "another three")
    await restarted(bench)
    assert kept(bench)[-2:] == ["another three", "to another three"]
    lines = await bench.transcript.load(KEY)
    told = [line.event.from_ for line in lines if isinstance(line.event, Meta) and line.event.from_]
    assert told[0]["requestId"] == ids[1]
    await bench.pool.resume(KEY, facts.left_id or "")
    await bench.pool.describe(KEY)
    assert kept(bench)[-1] == "to four"
    assert told[0]["session"] == await bench.transcript.current(KEY)


async def test_a_fork_some_turns_back_passes_over_what_was_taken_back(bench: Bench) -> None:
    await talk(bench, "one", "two", "three")
    await bench.pool.undo(KEY)
    await talk(bench, "four", "five")
    assert (await bench.pool.fork(KEY, back=2)).turns == 2
    await bench.pool.describe(KEY)
    assert kept(bench) == ["one", "to one", "two", "to two"]
    assert await bench.pool.fork(KEY, back=2) == SessionChange("unknown", turns=2)
    assert await bench.pool.fork(KEY, request_id="unheard of") == SessionChange("unknown", turns=2)


async def test_a_fork_of_a_time_before_a_cut_has_what_was_in_mind_then(bench: Bench) -> None:
    bench.configure(max_messages=6)
    ids = await talk(bench, *[f"q{number}" for number in range(9)])
    await bench.pool.fork(KEY, request_id=ids[2])
    await restarted(bench)
    assert kept(bench) == ["q0", "to q0", "q1", "to q1", "q2", "to q2"]


async def test_a_message_that_joined_a_turn_names_that_turn(bench: Bench) -> None:
    more = [bench.inbound("and this")]
    late = more[0].request_id
    bench.model.answers += [reply(tool_use("skills_list")), reply(text("both"))]
    await bench.say("first", archive=False, arrivals=Added(each(more)))
    await talk(bench, "later")
    assert (await bench.pool.fork(KEY, request_id=late)).turns == 1


async def test_a_fork_that_a_disk_refuses_leaves_everything_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    bench = Bench(tmp_path, disk)
    await talk(bench, "one", "two")
    failures: tuple[Kind, ...] = ("append", "rename")
    for operation in failures:
        disk.fail(Failure(operation, named=".tmp"))
        with pytest.raises(errors.StorageError):
            await bench.pool.fork(KEY, back=1)
        bench.restart()
        await bench.pool.describe(KEY)
        assert kept(bench) == ["one", "to one", "two", "to two"]
        assert len(await bench.pool.sessions(KEY)) == 1
    assert (await bench.pool.fork(KEY, back=1)).outcome == "done"
    await bench.close()


async def test_what_was_removed_is_not_shown_in_the_list(bench: Bench) -> None:
    (asked,) = await talk(bench, "my number is 42")
    assert (await bench.pool.sessions(KEY))[0].words == "my number is 42"
    await bench.archive.append(
        ArchiveLine(
            ts=5,
            channel="telegram",
            chat_id="1",
            chat_key=KEY,
            role="system",
            text="",
            message_id="1",
            meta={"deleted": True, "of": [asked], "ofRole": "user", "turns": [asked]},
        )
    )
    (shown,) = await bench.pool.sessions(KEY)
    assert shown.words == "[message removed]"


@pytest.mark.usefixtures("files_wait")
async def test_the_listing_has_what_is_not_in_its_file_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, streams=True)
    await bench.start()
    append, writes, listed = bench.transcript.append, itertools.count(), asyncio.Event()

    async def slow(chat_key: ChatKey, lines: Sequence[TranscriptLine], *, hurry: bool = False) -> str:
        if next(writes) and not hurry:  # nobody has asked for them
            await listed.wait()
        return await append(chat_key, lines, hurry=hurry)

    monkeypatch.setattr(bench.transcript, "append", slow)
    async with asyncio.timeout(90):
        await talk(bench, "one", "two")
        (listing,) = await bench.pool.sessions(KEY)
        assert listing.messages == len(kept(bench)) == 4
    listed.set()
    await bench.close()
