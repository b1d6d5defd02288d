"""Files that people send: those that hold text are read once, and of the others the person is told."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.archive import HistoryQuery
from bot.contracts.channel import FILE_PIECE
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Inbound, SeenFile
from bot.contracts.outbound import Address
from bot.core.attachments import Limits
from bot.gateway.delivery import ChatReply
from bot.words import say
from tests.unit.gateway.conftest import SECRET, Bench

NO_ROOM = say("files.no_room")
STOPPED = say("stop.stopped")

TEXT = "日志 line one\nשורה two\n"
LONG = "0123456789" * 30_000


def file(ref: str | None = "f1", **more: Any) -> Attachment:
    return Attachment(**{"kind": "file", "name": f"{ref}.log", "ref": ref, **more})


async def seen(bench: Bench, *files: Attachment, words: str = "look") -> tuple[SeenFile, ...]:
    """What the agent is told of the files of a message."""
    told = len(bench.tele.sent)
    await bench.say(words, attachments=files)
    await bench.tele.until(told + 1)
    await bench.idle()
    request = bench.agent.requests[-1]
    assert request.inbound is not None
    return tuple(await request.arrivals.files(request.inbound))


async def whole(bench: Bench, one: SeenFile) -> str:
    assert one.artifact is not None
    page = await bench.artifacts.read(one.artifact, ChatKey.parse("tele:chat:77"), offset=0, limit=10**7)
    return page.text


# ------------------------------------------------------------ what is read


async def test_a_text_file_becomes_an_artifact_and_its_beginning_is_shown(bench: Bench) -> None:
    bench.tele.files["f1"] = LONG.encode()
    (one,) = await seen(bench, file(mime="video/mp4"))
    assert (one.characters, one.lines, one.head, one.why) == (len(LONG), 1, LONG[:2_000], "")
    assert await whole(bench, one) == LONG
    assert bench.tele.texts == ["re: look"]
    (line,) = bench.log.of("file")
    assert (line.level, line.details["artifact"], line.details["ref"]) == ("info", one.artifact, "f1")
    assert (await bench.archive.search(ChatKey.parse("tele:chat:77"), HistoryQuery(limit=10))).lines[0].meta[
        "attachments"
    ] == [  # type: ignore[index]
        {"kind": "file", "name": "f1.log", "mime": "video/mp4", "ref": "f1"}
    ]


async def test_our_secrets_in_a_file_reach_nobody(bench: Bench) -> None:
    bench.tele.files["f1"] = (b"x" * (FILE_PIECE - 5)) + SECRET.encode() + b"\n"
    (one,) = await seen(bench, file())
    assert await whole(bench, one) == "x" * (FILE_PIECE - 5) + "[redacted]\n"
    kept = [path.read_bytes() for path in bench.root.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data for data in kept)


async def test_a_file_without_a_word_is_a_message(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    (one,) = await seen(bench, file(), words="")
    assert one.head == TEXT
    assert bench.tele.texts == ["re: "]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            b"\0binary",
            "I can't read files like “f1.log”.",
        ),
        (LONG.encode() * 4, "I couldn't read “f1.log” (it is larger than 1 MB)."),
        (errors.FileGone("gone"), "I couldn't read “f1.log” (it isn't there any more)."),
        (
            errors.FileUnreachable("no"),
            "I couldn't read “f1.log” (I couldn't fetch it just now).",
        ),
    ],
)
async def test_of_what_was_not_read_the_person_hears_once(bench: Bench, data: Any, told: str) -> None:
    bench.tele.files["f1"] = data
    (one,) = await seen(bench, file())
    assert one.artifact is None
    assert bool(one.why) == (one.code != "")
    await seen_text(bench, "and now?")
    assert bench.tele.texts == [f"re: look\n\n{told}", "re: and now?"]
    (line,) = bench.log.of("file")
    assert (line.request_id, line.chat_key) == (
        bench.agent.requests[0].request_id,
        ChatKey.parse("tele:chat:77"),
    )


async def test_what_is_told_of_files_goes_below_one_message_and_what_comes_later_below_the_next(
    bench: Bench,
) -> None:
    below = ["(one)", "(two)"]
    chat = ChatReply(bench.delivery, Address.of(bench.inbound()), below)
    bench.tele.failures = [errors.DeliveryFailed("no")]
    with pytest.raises(errors.DeliveryFailed):
        await chat.send("first")
    await chat.send("first")
    await chat.send("second")
    below.append("(three)")
    await chat.send("third")
    assert bench.tele.texts == ["first\n\n(one)\n(two)", "second", "third\n\n(three)"]


async def seen_text(bench: Bench, words: str) -> None:
    count = len(bench.tele.sent)
    await bench.say(words)
    await bench.tele.until(count + 1)


async def test_a_file_alone_that_cannot_be_read_asks_no_model(bench: Bench) -> None:
    bench.tele.files |= {"f1": b"%PDF-1.4\n", "f2": errors.FileGone()}
    await bench.say("", attachments=(file(), file("f2")))
    (words,) = await bench.tele.until(1)
    assert words == ("I couldn't read “f2.log” (it isn't there any more).\nI can't read files like “f1.log”.")
    await bench.idle()
    assert bench.agent.requests == []
    record = await bench.journal.inbound(bench.log.of("inbound")[0].request_id or "")
    assert record is not None
    assert record.detail == "nothing to answer"


async def test_what_is_no_text_or_too_large_is_left_after_its_first_piece(bench: Bench) -> None:
    bench.tele.files |= {"f1": b"\xff" * 10**6, "f2": b"a" * 10**7}
    one, other = await seen(bench, file(), file("f2", size=10**7))
    assert (one.why, other.why) == ("", "it is larger than 1 MB")
    assert bench.tele.taken == 2


async def test_what_turns_out_to_be_no_text_later_on_is_not_kept(bench: Bench) -> None:
    bench.tele.files["f1"] = b"a" * (2 * FILE_PIECE) + b"\0"
    (one,) = await seen(bench, file())
    assert one == SeenFile()
    assert (
        await bench.artifacts.made(ChatKey.parse("tele:chat:77"), [bench.agent.requests[0].request_id]) == {}
    )


async def test_videos_and_what_has_no_name_are_not_asked_for(bench: Bench) -> None:
    video = Attachment(kind="video", ref="p1")
    assert await seen(bench, video, file(ref=None)) == (SeenFile(), SeenFile())
    assert bench.tele.fetched == []
    assert "I can't watch videos yet" in bench.tele.texts[0]
    assert "I can't read files like" in bench.tele.texts[0]


async def test_only_the_first_files_of_a_message_are_read(bench: Bench) -> None:
    bench.tele.files |= {f"f{n}": f"file {n}".encode() for n in range(7)}
    files = await seen(bench, *(file(f"f{n}") for n in range(7)))
    assert [one.head for one in files] == [f"file {n}" for n in range(5)] + ["", ""]
    assert len({one.artifact for one in files[:5]}) == 5
    assert bench.tele.texts[0].endswith(
        "I couldn't read “f5.log” (I read no more than 5 files of a message), “f6.log” (I read no more than 5 files of "
        "a message)."
    )


async def test_where_none_is_to_be_read_none_is_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=Limits(count=0))
    await bench.open()
    assert await seen(bench, file()) == (SeenFile(),)
    assert "I can't read files like" in bench.tele.texts[0]
    await bench.close()


async def test_while_memory_is_short_nothing_is_fetched(bench: Bench) -> None:
    bench.full = True
    bench.tele.files["f1"] = TEXT.encode()
    (one,) = await seen(bench, file())
    assert (one.artifact, one.why) == (None, "memory was short")
    assert bench.tele.texts == [f"re: look\n\n{NO_ROOM}"]
    assert bench.tele.fetched == []
    (line,) = bench.log.of("memory")
    assert (line.level, line.details) == ("warn", {"files": 1})


# ------------------------------------------------------------ stops, other chats, deadlines


async def test_a_stop_ends_what_is_being_fetched(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    bench.tele.holds = asyncio.Event()
    await bench.say("look", attachments=(file(),))
    await bench.tele.fetching()
    await bench.say("/stop", command={"name": "stop"})
    assert await bench.tele.until(1) == [STOPPED]
    await bench.idle()
    assert bench.agent.requests == []
    assert not list((bench.root / "artifacts").rglob("*.txt"))


async def test_other_chats_go_on_while_a_file_is_fetched(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    bench.tele.holds = asyncio.Event()
    await bench.say("look", attachments=(file(),))
    await bench.tele.fetching()
    other = {"chat_id": "1", "chat_key": "tele:chat:1", "user_id": "1", "target": {"chat": "1"}}
    await bench.say("and I?", **other)
    assert await bench.tele.until(1) == ["re: and I?"]
    bench.tele.holds.set()
    assert await bench.tele.until(2) == ["re: and I?", "re: look"]


async def test_a_file_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=Limits(seconds=0.05))
    await bench.open()
    bench.tele.files["f1"] = TEXT.encode()
    bench.tele.holds = asyncio.Event()
    (one,) = await seen(bench, file())
    assert one.why == "it could not be fetched just now"
    assert "TimeoutError" in str(bench.log.of("file")[0].details["cause"])
    await bench.close()


# ------------------------------------------------------------ joining, changing, removing


async def test_a_message_with_a_file_joins_the_turn_that_runs(bench: Bench) -> None:
    bench.tele.files |= {"f1": TEXT.encode(), "f2": errors.FileGone()}
    bench.agent.hold = asyncio.Event()
    await bench.say("first")
    await bench.agent.began.wait()
    await bench.say("", attachments=(file(), file("f2")))
    (request,) = bench.agent.requests
    (more,) = request.arrivals.take_more()
    one, other = await request.arrivals.files(more)
    assert (one.head, other.artifact) == (TEXT, None)
    assert await request.arrivals.files(more) == (one, other)
    bench.agent.hold.set()
    assert await bench.tele.until(1) == ["re: first\n\nI couldn't read “f2.log” (it isn't there any more)."]
    assert bench.tele.fetched == ["f1", "f2"]


async def test_a_photo_and_a_changed_message_with_a_file_have_turns_of_their_own(bench: Bench) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    bench.agent.hold = asyncio.Event()
    await bench.say("first", message_id="m1")
    await bench.agent.began.wait()
    await bench.say("second", attachments=(file(), Attachment(kind="photo")))
    await bench.say("first!", message_id="m1", kind="edit", attachments=(file(),))
    (request,) = bench.agent.requests
    assert request.arrivals.take_more() == []


@pytest.mark.parametrize("joins", [False, True])
async def test_a_removed_message_takes_what_was_read_of_its_files_along(bench: Bench, *, joins: bool) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    if joins:
        bench.agent.hold = asyncio.Event()
        await bench.say("first")
        await bench.agent.began.wait()
    await bench.say("look", message_id="m9", attachments=(file(),))
    if joins and bench.agent.hold is not None:
        (request,) = bench.agent.requests
        await request.arrivals.files(request.arrivals.take_more()[0])
        bench.agent.hold.set()
    await bench.tele.until(1)
    await bench.idle()
    assert len(list((bench.root / "artifacts").rglob("*.txt"))) == 1
    await bench.say("", message_id="m9", kind="delete")
    await bench.idle()
    assert not list((bench.root / "artifacts").rglob("*.txt"))


@pytest.mark.parametrize("stopped", ["while it is put away", "while it is let go"])
async def test_a_message_that_is_deleted_while_its_file_is_kept_leaves_nothing(
    bench: Bench, stopped: str
) -> None:
    bench.tele.files["f1"] = TEXT.encode()
    putting, go_on, leaving = asyncio.Event(), asyncio.Event(), asyncio.Event()
    put, forget, remove = bench.artifacts.put, bench.artifacts.forget, bench.deletions.remove

    async def slowly(*args: Any, **more: Any) -> str:
        putting.set()
        await go_on.wait()
        return await put(*args, **more)

    async def removed(deletion: Inbound) -> list[ChatKey] | None:
        places = await remove(deletion)
        bench.artifacts.forget = held  # type: ignore[method-assign]
        go_on.set()
        if stopped == "while it is let go":
            await leaving.wait()
        return places

    async def held(chat_key: ChatKey, requests: Collection[str]) -> int:
        bench.artifacts.forget = forget  # type: ignore[method-assign]
        leaving.set()
        if stopped == "while it is let go":
            await asyncio.Event().wait()  # until its turn is stopped
        return await forget(chat_key, requests)

    bench.artifacts.put = slowly  # type: ignore[method-assign]
    bench.deletions.remove = removed  # type: ignore[method-assign]
    await bench.say("look", message_id="m9", attachments=(file(),))
    await putting.wait()
    await bench.say("", message_id="m9", kind="delete")
    await bench.idle()
    assert bench.agent.requests == []
    assert not list((bench.root / "artifacts").rglob("*.txt"))
