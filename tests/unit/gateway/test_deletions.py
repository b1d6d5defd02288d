"""What is deleted or forgotten: by whom it may be, what goes with it, and that it is done once, whatever dies in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Inbound, Quoted
from bot.contracts.memory_files import MemoryOwner, Written
from bot.contracts.outbound import Outbound
from bot.gateway import deletions
from bot.gateway.conversation import Turn
from bot.words import say
from tests.unit.gateway.conftest import Bench, leave_open, unwritten
from tests.unit.gateway.outgoing import until

KEY = ChatKey.parse("tele:chat:77")
GROUP: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}
LOCAL: dict[str, Any] = {"channel": "local", "chat_key": "local:chat:77"}


def forget(bench: Bench, answers: str | None = None, args: str = "", **more: Any) -> Inbound:
    command = Command(name="forget", args=args)
    return bench.inbound("/forget", command=command, answers=answers, **more)


async def asked(bench: Bench, answers: str | None = None, args: str = "", **more: Any) -> str:
    await bench.intake.accept(forget(bench, answers, args, **more))
    await bench.idle()
    channel = bench.channels[more.get("channel", "tele")]
    return channel.texts[-1]


async def said(bench: Bench, words: str, message_id: str, **more: Any) -> str:
    """Say something and wait for the answer; the requestId of the turn."""
    await bench.say(words, message_id=message_id, **more)
    await bench.idle()
    return bench.agent.requests[-1].request_id


async def everything(bench: Bench, chat_key: ChatKey = KEY) -> list[str]:
    page = await bench.archive.search(chat_key, HistoryQuery(limit=100, everything=True))
    return [line.text for line in page.lines]


async def test_what_its_author_deletes_after_the_turn_is_not_found_any_more(bench: Bench) -> None:
    bench.agent.answer = lambda _: "Noted."
    request_id = await said(bench, "my secret is 鯨", "m")
    await bench.say("", message_id="m", kind="delete")
    await bench.idle()
    assert await bench.lines() == [("assistant", "Noted.")]
    assert await everything(bench) == ["my secret is 鯨", "Noted."], "nothing is erased"
    assert bench.agent.forgot == [KEY]
    (line,) = await bench.archive.removals(KEY)
    assert (line.role, line.text, line.message_id, line.user_id) == ("system", "", "m", "77")
    meta = line.meta or {}
    assert meta == {
        "deleted": True,
        "requestId": meta["requestId"],
        "of": [request_id],
        "ofRole": "user",
        "turns": [request_id],
    }
    assert [
        None if record.open else record.detail or record.state
        for record in await bench.journal.about(KEY, "m")
    ] == ["answered", "came too late"]


async def test_an_edit_hides_what_was_said_before_and_a_deletion_both(bench: Bench) -> None:
    await said(bench, "teh", "m")
    await bench.say("the", message_id="m", kind="edit")
    await bench.idle()
    assert await bench.lines() == [("assistant", "re: teh"), ("user", "the")]
    await bench.say("", message_id="m", kind="delete")
    await bench.idle()
    assert await bench.lines() == [("assistant", "re: teh")]
    (line,) = await bench.archive.removals(KEY)
    assert len((line.meta or {})["of"]) == 2


async def test_a_message_that_is_deleted_before_its_turn_is_not_found_either(bench: Bench) -> None:
    hold = bench.agent.hold = asyncio.Event()
    await bench.say("busy", message_id="busy")
    await bench.agent.began.wait()
    await bench.say("never mind", message_id="m")
    await bench.say("", message_id="m", kind="delete")
    hold.set()
    await bench.idle()
    assert await bench.lines() == [("user", "busy"), ("assistant", "re: busy")]


@pytest.mark.parametrize("late", [False, True])
async def test_a_turn_begins_once_what_was_deleted_before_it_is_in_the_archive(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    await said(bench, "my secret is 鯨", "m")
    gate, written, waits = asyncio.Event(), asyncio.Event(), asyncio.Event()
    append, settled = bench.archive.append, bench.deletions.settled

    async def held(line: ArchiveLine, *, hurry: bool = True) -> None:
        if line.role == "system":
            written.set()
            await gate.wait()
        await append(line, hurry=hurry)

    async def seen(chat_key: ChatKey) -> None:
        waits.set()
        await settled(chat_key)

    monkeypatch.setattr(bench.archive, "append", held)
    monkeypatch.setattr(bench.deletions, "settled", seen)
    bench.agent.began.clear()
    await bench.say("", message_id="m", kind="delete")
    await written.wait()
    await bench.say("and now?", message_id="n")
    await waits.wait()
    await bench.clock.advance(0)
    await bench.clock.advance(deletions.PATIENCE - 1)
    assert len(bench.agent.requests) == 1
    if late:
        await bench.clock.advance(1)  # nobody waits for ever
    else:
        gate.set()
    await bench.agent.began.wait()
    assert bench.agent.forgot == ([] if late else [KEY])
    gate.set()
    await bench.idle()
    assert bench.agent.forgot == [KEY]


@pytest.mark.parametrize("more", [{"user_id": "5"}, {"message_id": "unknown", "chat_key": "tele:chat:-200"}])
async def test_a_deletion_by_somebody_else_or_where_nothing_was_said_removes_nothing(
    bench: Bench, more: dict[str, Any]
) -> None:
    await said(bench, "mine", "m", **GROUP)
    await bench.say("", **{"message_id": "m", "kind": "delete"} | GROUP | more)
    await bench.idle()
    assert await bench.archive.removals(ChatKey.parse("tele:chat:-100")) == []
    assert await bench.archive.removals(ChatKey.parse("tele:chat:-200")) == []
    assert bench.agent.forgot == []


@pytest.mark.parametrize("deleted", [True, False])
async def test_what_was_only_quoted_is_forgotten_too(bench: Bench, *, deleted: bool) -> None:
    quote = Quoted(user_id="5", text="my secret is 鯨", message_id="q")
    turn = await said(bench, "keep that in mind", "m", answers="q", quoted=(quote,), **GROUP)
    owner = MemoryOwner("chat", "tele:chat:-100")
    await bench.memory.change(
        owner, "a.md", lambda _: "鯨", Written(1, turn, ChatKey.parse("tele:chat:-100"), "77")
    )
    if deleted:
        await bench.say("", message_id="q", kind="delete", user_id="5", **GROUP)
        await bench.idle()
    else:
        assert await asked(bench, "q", quoted=(quote,), **GROUP) == say("forget.not_yours")
        assert await asked(bench, "q", quoted=(quote,), user_id="5", **GROUP) == say("forget.done")
    (line,) = await bench.archive.removals(ChatKey.parse("tele:chat:-100"))
    assert (line.message_id, (line.meta or {})["turns"]) == ("q", [turn])
    assert await bench.memory.read(owner, "a.md") is None
    assert bench.agent.forgot == [ChatKey.parse("tele:chat:-100")]


async def test_what_the_bot_itself_said_beside_the_conversation_is_nobodys(bench: Bench) -> None:
    await said(bench, "hello", "m", **GROUP)
    quote = Quoted(user_id="77", text="Forgotten: …", message_id="q", from_self=True)
    assert await asked(bench, "q", quoted=(quote,), **GROUP) == say("forget.unknown")


async def test_forget_as_a_reply_removes_the_message(bench: Bench) -> None:
    await said(bench, "my secret is 鯨", "m")
    assert await asked(bench, "m") == say("forget.done")
    assert await bench.lines() == [("assistant", "re: my secret is 鯨")]
    assert bench.agent.forgot == [KEY]
    assert await asked(bench, "m") == say("forget.done")
    assert len(await bench.archive.removals(KEY)) == 1


async def test_forget_as_a_reply_to_any_part_of_an_answer_removes_the_answer(bench: Bench) -> None:
    bench.agent.answer = lambda _: "x" * 1_500
    await said(bench, "hello", "m")
    assert await asked(bench, "m2") == say("forget.done")
    assert await bench.lines() == [("user", "hello")]
    (line,) = await bench.archive.removals(KEY)
    assert (line.message_id, (line.meta or {})["ofRole"]) == ("m1", "assistant")


@pytest.mark.parametrize("message_id", ["m", "m1"])
async def test_in_a_group_only_the_author_or_an_operator_may(bench: Bench, message_id: str) -> None:
    await said(bench, "mine", "m", **GROUP)
    assert await asked(bench, message_id, **GROUP, user_id="5") == say("forget.not_yours")
    assert await bench.archive.removals(ChatKey.parse("tele:chat:-100")) == []
    assert await asked(bench, message_id, **GROUP, user_id="1") == say("forget.done")
    assert len(await bench.archive.removals(ChatKey.parse("tele:chat:-100"))) == 1


async def test_another_chat_cannot_be_reached(bench: Bench) -> None:
    await said(bench, "mine", "m", **GROUP)
    assert await asked(bench, "m") == say("forget.unknown")
    assert await asked(bench, "nothing") == say("forget.unknown")
    assert await bench.archive.removals(ChatKey.parse("tele:chat:-100")) == []


async def test_without_a_reply_it_says_how_where_messages_can_be_replied_to(bench: Bench) -> None:
    await said(bench, "hello", "m")
    assert await asked(bench) == say("forget.how", prefix="/")
    assert await bench.archive.removals(KEY) == []


@pytest.mark.parametrize(("more", "args"), [(LOCAL, ""), ({}, "last")])
async def test_the_last_message_goes_with_its_answer(bench: Bench, more: dict[str, Any], args: str) -> None:
    key = more.get("chat_key", KEY)
    await said(bench, "first", "a", **more)
    await said(bench, "second", "b", **more)
    assert await asked(bench, args=args, **more) == say("forget.done")
    assert await bench.lines(key) == [("user", "first"), ("assistant", "re: first")]
    assert await asked(bench, args=args, **more) == say("forget.done")
    assert await bench.lines(key) == []
    assert await asked(bench, args=args, **more) == say("forget.nothing")


async def test_what_its_turn_made_goes_too(bench: Bench) -> None:
    request_id = await said(bench, "my secret is 鯨", "m")
    await bench.artifacts.put("鯨", chat_key=KEY, request_id=request_id, tool="look", tool_use_id="t")
    me, chat = MemoryOwner("person", "tele:77"), MemoryOwner("chat", str(KEY))
    for owner in (me, chat):
        await bench.memory.change(owner, "a.md", lambda _: "kept", Written(1, "R0", KEY, "77"))
        await bench.memory.change(owner, "a.md", lambda _: "kept\n鯨", Written(2, request_id, KEY, "77"))
    await bench.say("", message_id="m", kind="delete")
    await bench.idle()
    files = [await bench.memory.read(owner, "a.md") for owner in (me, chat)]
    assert [file.text for file in files if file is not None] == ["kept", "kept"]
    assert not list((bench.root / "artifacts").rglob("*.txt"))


async def makes_something(bench: Bench, request_id: str) -> None:
    """What tools leave behind that had begun before the turn was stopped."""
    await bench.artifacts.put("鯨", chat_key=KEY, request_id=request_id, tool="look", tool_use_id="t")
    for owner in (MemoryOwner("person", "tele:77"), MemoryOwner("chat", str(KEY))):
        await bench.memory.change(owner, "a.md", lambda _: "鯨", Written(2, request_id, KEY, "77"))


async def left_of(bench: Bench) -> list[str]:
    files = [path.name for path in (bench.root / "artifacts").rglob("*.txt")]
    for owner in (MemoryOwner("person", "tele:77"), MemoryOwner("chat", str(KEY))):
        file = await bench.memory.read(owner, "a.md")
        files += [file.text] if file is not None and file.text else []
    return files


@pytest.mark.parametrize("killed_then", [False, True])
async def test_what_its_turn_makes_behind_the_removal_goes_too(tmp_path: Path, *, killed_then: bool) -> None:
    bench = Bench(tmp_path)
    await bench.open()
    remove = bench.deletions.remove

    async def removed(deletion: Inbound) -> list[ChatKey] | None:
        places = await remove(deletion)
        await makes_something(bench, bench.agent.requests[0].request_id)
        return places

    async def dead(turn: Turn) -> None: ...

    bench.deletions.remove = removed  # type: ignore[method-assign]
    bench.agent.hold = asyncio.Event()
    await bench.say("my secret is 鯨", message_id="m")
    await bench.agent.began.wait()
    if killed_then:
        bench.deletions.end = dead  # type: ignore[method-assign]
        bench.journal.post.end_turn = unwritten  # type: ignore[method-assign]
    await bench.say("", message_id="m", kind="delete")
    await bench.idle()
    if killed_then:
        assert await left_of(bench)
        await bench.close()
        bench = Bench(tmp_path)
        await bench.open()
        await bench.idle()
    assert await left_of(bench) == []
    await bench.close()


async def test_what_a_withdrawn_turn_made_goes_once_the_disk_takes_that(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, forget = bench.deletions.remove, bench.artifacts.forget

    async def full(*_: Any, **__: Any) -> int:
        raise errors.StorageError("the disk is full")

    async def removed(deletion: Inbound) -> list[ChatKey] | None:
        places = await remove(deletion)
        await makes_something(bench, bench.agent.requests[0].request_id)
        monkeypatch.setattr(bench.artifacts, "forget", full)
        return places

    bench.deletions.remove = removed  # type: ignore[method-assign]
    bench.agent.hold = asyncio.Event()
    await bench.say("my secret is 鯨", message_id="m")
    await bench.agent.began.wait()
    await bench.say("", message_id="m", kind="delete")
    await until(lambda: any("still kept" in one.message for one in bench.log.at("error")))
    assert await left_of(bench)
    monkeypatch.setattr(bench.artifacts, "forget", forget)
    async with asyncio.timeout(90):
        while await left_of(bench):
            await bench.clock.advance(deletions.AGAIN_SECONDS)
    await bench.idle()
    assert await left_of(bench) == []


async def test_what_joined_a_turn_takes_along_what_the_turn_made(bench: Bench) -> None:
    hold = bench.agent.hold = asyncio.Event()
    await bench.say("one", message_id="a")
    await bench.agent.began.wait()
    await bench.say("two", message_id="b")
    take = bench.agent.requests[0].arrivals.take_more
    assert [one.text for one in take()] == ["two"]
    hold.set()
    await bench.idle()
    await bench.say("", message_id="b", kind="delete")
    await bench.idle()
    (line,) = await bench.archive.removals(KEY)
    meta = line.meta or {}
    assert meta["turns"] == [bench.agent.requests[0].request_id]
    assert meta["of"] != meta["turns"]


async def test_a_deletion_that_a_crash_cut_off_is_carried_out_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path)
    await first.open()
    await said(first, "my secret is 鯨", "m")

    async def died(_: Inbound) -> bool:
        raise errors.StorageError("the process ends here")

    monkeypatch.setattr(first.deletions, "deleted", died)
    leave_open(first.journal)
    await first.say("", message_id="m", kind="delete")
    await until(lambda: first.clock.sleeping > 0)
    assert await first.archive.removals(KEY) == []
    await first.close()
    second = Bench(tmp_path)
    await second.open()
    await second.idle()
    assert await second.lines() == []
    await second.close()


async def test_a_forget_that_a_crash_cut_off_takes_no_other_message_after_it(bench: Bench) -> None:
    await said(bench, "first", "a")
    await said(bench, "second", "b")
    inbound = forget(bench, args="last").model_copy(update={"request_id": bench.ids.ulid()})
    for _ in range(2):
        assert await bench.deletions.command(inbound) == say("forget.done")
    assert await bench.lines() == [("user", "first"), ("assistant", "re: first")]


async def test_a_disk_that_refuses_is_told_to_the_person(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(bench, "hello", "m")

    async def full(*_: Any, **__: Any) -> int:
        raise errors.StorageError("no space")

    monkeypatch.setattr(bench.artifacts, "forget", full)
    assert await asked(bench, "m") == errors.StorageError().person


@pytest.mark.parametrize("kind", ["edit", "delete"])
async def test_a_change_is_not_closed_before_the_archive_tells_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Else a crash in between would leave the old words for good."""
    await said(bench, "teh", "m")
    gate, append = asyncio.Event(), bench.archive.append

    async def slow(*args: Any, **how: Any) -> None:
        await gate.wait()
        await append(*args, **how)

    monkeypatch.setattr(bench.archive, "append", slow)
    taking = asyncio.create_task(bench.say("the", message_id="m", kind=kind))
    while not (about := await bench.journal.about(KEY, "m"))[1:]:
        assert not taking.done()
    assert [None if record.open else record.detail or record.state for record in about] == ["answered", None]
    for _ in range(50):  # whatever could run has run
        await bench.journal.about(KEY, "m")
    assert [
        None if record.open else record.detail or record.state
        for record in await bench.journal.about(KEY, "m")
    ] == ["answered", None]
    gate.set()
    await taking
    await bench.idle()
    assert [
        None if record.open else record.detail or record.state
        for record in await bench.journal.about(KEY, "m")
    ] == ["answered", "came too late"]


async def test_what_was_made_for_somebody_who_quoted_a_removed_message_goes_too(bench: Bench) -> None:
    own = await said(bench, "my secret is 鯨", "m")
    quote = Quoted(user_id="77", text="my secret is 鯨", message_id="m")
    answering = await said(bench, "keep that in mind", "n", answers="m", quoted=(quote,))
    other = await said(bench, "and lunch", "o")
    owner = MemoryOwner("chat", str(KEY))
    await bench.memory.change(owner, "a.md", lambda _: "kept", Written(1, other, KEY, "77"))
    await bench.memory.change(owner, "a.md", lambda _: "kept\n鯨", Written(2, answering, KEY, "77"))
    assert await asked(bench, "m") == say("forget.done")
    file = await bench.memory.read(owner, "a.md")
    assert file is not None
    assert file.text == "kept"
    (line,) = await bench.archive.removals(KEY)
    assert (line.meta or {})["turns"] == [own, answering]
    assert ("user", "keep that in mind") in await bench.lines(), "whoever quoted it keeps their own words"


async def test_the_removal_of_an_answer_names_all_of_its_messages(bench: Bench) -> None:
    await bench.archive.append(
        ArchiveLine(
            ts=1,
            channel="tele",
            chat_id="77",
            chat_key=KEY,
            user_id="bot",
            message_id="a1",
            role="assistant",
            text="one two",
            meta={"requestId": "R", "messageIds": ["a1", "a2"]},
        )
    )
    assert await asked(bench, "a2", user_id="1") == say("forget.done"), "an operator may"
    (line,) = await bench.archive.removals(KEY)
    assert (line.message_id, (line.meta or {})["messageIds"]) == ("a1", ["a1", "a2"])


async def test_what_the_disk_refuses_to_remove_goes_once_it_takes_that(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(bench, "my secret is 鯨", "m")
    append = bench.archive.append

    async def full(*_: Any, **__: Any) -> None:
        raise errors.StorageError("the disk is full")

    monkeypatch.setattr(bench.archive, "append", full)
    await bench.say("", message_id="m", kind="delete")
    await until(lambda: bench.clock.sleeping > 0)
    assert bench.agent.forgot == []
    await bench.clock.advance(deletions.AGAIN_SECONDS)
    await until(lambda: bench.clock.sleeping > 0)
    monkeypatch.setattr(bench.archive, "append", append)
    async with asyncio.timeout(90):
        while (
            not bench.agent.forgot
        ):  # something else may sleep too, and the next try have yet to begin its wait
            await bench.clock.advance(deletions.AGAIN_SECONDS)
    await bench.idle()
    assert bench.agent.forgot == [KEY]
    assert await bench.lines() == []
    assert await bench.journal.unfinished() == []


async def test_what_the_disk_refused_to_remove_goes_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path)
    await first.open()
    hold = first.agent.hold = asyncio.Event()
    await first.say("my secret is 鯨", message_id="m")
    await first.agent.began.wait()
    await makes_something(first, first.agent.requests[0].request_id)

    async def full(*_: Any, **__: Any) -> int:
        raise errors.StorageError("the disk is full")

    with monkeypatch.context() as disk:
        disk.setattr(first.artifacts, "forget", full)
        await first.say("", message_id="m", kind="delete")
        await until(lambda: not first.agent.running)  # stopped, whatever the disk says
        assert not hold.is_set()
        await first.close()
        assert await left_of(first)
    second = Bench(tmp_path)
    await second.open()
    await second.idle()
    assert await left_of(second) == []
    assert await second.journal.unfinished() == []
    await second.close()


class Amended(Bench):
    """`edits` is what its messages were changed into, by message id."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.edits: dict[str, str] = {}

        async def edit(message: Outbound, message_id: str) -> None:
            self.edits[message_id] = message.text

        self.tele.edit = edit  # type: ignore[attr-defined]


async def test_what_is_deleted_goes_from_the_answer_that_repeats_it(tmp_path: Path) -> None:
    bench = Amended(tmp_path)
    await bench.open()
    answers = ["I keep this: the code is 7731.", "It is sunny.", "7732, then."]
    bench.agent.answer = lambda _: answers[len(bench.agent.requests) - 1]
    await said(bench, "the code is 7731", "m")
    await said(bench, "and the weather?", "n")
    await said(bench, "rather 7732", "o")
    await bench.say("the code is 7733", message_id="m", kind="edit")
    await bench.idle()
    await bench.say("", message_id="m", kind="delete")
    await bench.idle()
    assert bench.edits == {"m1": "I keep this: [removed]."}
    assert await bench.lines() == [
        ("user", "and the weather?"),
        ("assistant", "It is sunny."),
        ("user", "rather 7732"),
        ("assistant", "7732, then."),
    ]
    assert {line.message_id for line in await bench.archive.removals(KEY)} == {"m", "m1"}
    bench.edits.clear()
    await bench.say("", message_id="m", kind="delete", keys=("again",))
    await bench.idle()
    assert bench.edits == {}, "it is done once"
    await bench.close()


async def test_what_is_only_forgotten_stays_where_people_see_it(tmp_path: Path) -> None:
    bench = Amended(tmp_path)
    await bench.open()
    await said(bench, "the code is 7731", "m")
    assert await asked(bench, "m") == say("forget.done")
    assert bench.edits == {}
    await bench.close()
