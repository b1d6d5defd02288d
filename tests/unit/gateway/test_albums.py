"""Albums: what its author changes in one of its items, before, in and after the turn, and across a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnRequest
from bot.contracts.archive import HistoryQuery
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command, Inbound
from bot.core.message_versions import revised
from bot.words import say
from tests.unit.gateway.conftest import HERE, Bench
from tests.unit.gateway.outgoing import until


def photo(name: str) -> Attachment:
    return Attachment(kind="photo", name=name)


ALBUM: dict[str, Any] = {
    "message_id": "a",
    "keys": ("u1", "message a", "u2", "message b"),
    "items": {"a": "", "b": "two"},
    "attachments": (photo("a.jpg"), photo("b.jpg")),
}


def change(item: str, **more: Any) -> dict[str, Any]:
    return {
        "message_id": item,
        "kind": "edit",
        "changes": f"message {item}",
        "attachments": (photo(f"new {item}"),),
    } | more


def seen(request: TurnRequest) -> str:
    assert isinstance(request.inbound, Inbound)
    return f"{request.inbound.text.splitlines()} {[file.name for file in request.inbound.attachments]}"


async def made(root: Path, *, held: bool = False) -> Bench:
    bench = Bench(root)
    bench.agent.hold = asyncio.Event() if held else None
    bench.agent.answer = seen
    await bench.open()
    return bench


async def said(bench: Bench) -> list[str]:
    await bench.idle()
    assert await bench.journal.unfinished() == []
    return [words.partition("\n\n")[0] for words in bench.tele.texts]


async def test_a_new_caption_of_any_item_that_waits_keeps_the_others_and_all_files(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    bench.agent.hold = asyncio.Event()
    await bench.say("busy")
    await bench.agent.began.wait()
    await bench.say("two", **ALBUM)
    await bench.say("zwei", **change("b"))
    await bench.say("eins", **change("a", ts=1_700_000_000_900))
    bench.agent.hold.set()
    assert await said(bench) == ["['busy'] []", "['eins', 'zwei'] ['new a', 'new b']"]
    await bench.close()


async def test_changes_that_a_crash_left_are_found_by_every_item(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.say("two", **ALBUM)
    await first.say("zwei", **change("b"))
    await first.say("eins", **change("a"))
    await first.close()
    second = await made(tmp_path)
    assert await said(second) == ["['eins', 'zwei'] ['new a', 'new b']"]
    await second.close()


async def test_a_new_caption_while_its_turn_runs_is_answered_with_the_whole_album(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    bench.agent.hold = asyncio.Event()
    await bench.say("two", **ALBUM)
    await bench.agent.began.wait()
    await bench.say("zwei", **change("b"))
    await bench.say("eins", **change("a"))
    bench.agent.hold.set()
    assert await said(bench) == ["['two'] ['a.jpg', 'b.jpg']", "['eins', 'zwei'] ['new a', 'new b']"]
    await bench.close()


async def test_after_a_crash_in_its_turn_the_new_caption_stands_for_the_whole_album(tmp_path: Path) -> None:
    first = await made(tmp_path)
    first.agent.hold = asyncio.Event()
    await first.say("two", **ALBUM)
    await first.agent.began.wait()
    await first.say("zwei", **change("b"))
    await first.close()
    second = await made(tmp_path)
    assert await said(second) == ["['two'] ['a.jpg', 'b.jpg']", "['zwei'] ['a.jpg', 'new b']"]
    await second.close()


async def test_a_new_caption_after_the_turn_is_recorded(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    await bench.say("two", **ALBUM)
    await bench.idle()
    await bench.say("zwei", **change("b"))
    assert len(await said(bench)) == 1
    (_, record) = await bench.journal.about(ChatKey.parse("tele:chat:77"), "b", "message b")
    assert record.detail == "came too late"
    await bench.close()


async def test_new_captions_that_come_before_the_album_are_found_by_every_item(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    await bench.say("eins", **change("a", ts=1_700_000_000_900))
    await bench.say("zwei", **change("b", ts=1_700_000_000_901))
    await bench.idle()
    await bench.say("two", **ALBUM)
    assert await said(bench) == ["['eins', 'zwei'] ['new a', 'new b']"]
    await bench.close()


async def test_what_is_said_of_any_item_takes_the_place_of_the_whole_album_in_the_archive(
    tmp_path: Path,
) -> None:
    bench = await made(tmp_path)
    await bench.say("two", **ALBUM)
    await bench.idle()
    await bench.say("eins", **change("a", ts=1_700_000_000_900))
    await bench.say("zwei", **change("b", ts=1_700_000_000_901))
    await said(bench)
    assert [words for role, words in await bench.lines() if role == "user"] == ["eins\nzwei"]
    await bench.say("/forget", command=Command(name="forget"), answers="b")
    assert (await said(bench))[-1] == say("forget.done")
    assert [role for role, _ in await bench.lines()] == ["assistant"]
    await bench.close()


async def test_changes_of_several_items_in_any_order_are_all_in_the_archive(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    await bench.say("two", **ALBUM)
    await said(bench)
    newest = 1_700_000_000_900
    await bench.say("zwei", **change("b", ts=newest))
    await said(bench)
    await bench.say("eins", **change("a", ts=newest - 100))
    await said(bench)
    await bench.say("older", **change("b", ts=newest - 200))
    await said(bench)
    assert [words for role, words in await bench.lines() if role == "user"] == ["eins\nzwei"]
    await bench.close()


async def test_changes_of_several_items_that_a_crash_left_in_a_turn_are_one_album(tmp_path: Path) -> None:
    first = await made(tmp_path)
    first.agent.hold = asyncio.Event()
    await first.say("two", **ALBUM)
    await first.agent.began.wait()
    await first.say("eins", **change("a", ts=1_700_000_000_900))
    await first.say("zwei", **change("b", ts=1_700_000_000_901))
    await first.close()
    second = await made(tmp_path)
    assert (await said(second))[-1] == "['eins', 'zwei'] ['new a', 'new b']"
    assert [words for role, words in await second.lines() if role == "user"] == ["eins\nzwei"]
    await second.close()


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("last", ["a", "b"])
async def test_what_waits_together_as_new_words_of_an_album_says_of_which_item_each_is(
    tmp_path: Path, last: str, *, kill: bool
) -> None:
    bench = await made(tmp_path, held=True)
    await bench.say("two", **ALBUM)
    await bench.agent.began.wait()
    await bench.say("zwei", **change("b", ts=1_700_000_000_901))
    if kill:
        await bench.close()
        bench = await made(tmp_path, held=True)
        await bench.agent.began.wait()
    await bench.say("eins", **change("a", ts=1_700_000_000_903))
    # That of the other item is older, and no less the newest of that item.
    again = {"a": ("uno", 1_700_000_000_904), "b": ("dos", 1_700_000_000_902)}
    await bench.say(again[last][0], **change(last, ts=again[last][1], keys=("last",)))
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    words = "['eins', 'dos']" if last == "b" else "['uno', 'zwei']"
    assert (await said(bench))[-1] == f"{words} ['new a', 'new b']"
    (line,) = (
        await bench.archive.search(ChatKey.parse("tele:chat:77"), HistoryQuery(limit=9, role="user"))
    ).lines
    assert f"{line.text.splitlines()}" == words
    await bench.close()


async def test_an_album_whose_items_come_one_by_one_joins_a_running_turn_whole(tmp_path: Path) -> None:
    bench = await made(tmp_path, held=True)
    bench.agent.takes = True
    await bench.say("busy")
    await bench.agent.began.wait()
    for item in ("one", "two"):
        await bench.say(item, message_id=item, of_album=True)
        await bench.clock.advance(0.5)
    assert bench.agent.restarts == []
    await bench.clock.advance(0.5)
    await until(lambda: bool(bench.agent.questions))
    assert [one.text for one in bench.agent.questions[0].also] == ["one", "two"]
    assert bench.agent.restarts == [HERE]
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    assert await said(bench) == ["['busy'] []"]
    await bench.close()


def test_where_items_and_files_do_not_match_all_files_are_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    album = bench.inbound("two", **{**ALBUM, "attachments": (photo("a.jpg"),)})
    assert revised(album, bench.inbound("zwei", **change("b"))).attachments == (photo("a.jpg"),)
