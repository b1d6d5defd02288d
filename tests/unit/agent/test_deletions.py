"""What was removed leaves the view, the summary and the memory, and stays away over restarts and sessions."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.core import validate
from bot.core.memory import SessionMemory
from bot.core.notes import provenance
from bot.core.notes.memories import Memories
from bot.core.removal import REMOVED
from bot.system import SystemDisk
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Added, Bench
from tests.unit.agent.keeping import SUMMARY, Answers
from tests.unit.agent.test_resume import ask, killed_while_asking

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
LONG = "x" * 30_000


def spoken(bench: Bench) -> str:
    """All that the newest request shows, without the time of day and the names of turns."""
    return re.sub(r"<turn_context-.*?</turn_context-", "", json.dumps(bench.sent, ensure_ascii=False))


async def remove(bench: Bench, message_id: str, of: str, *, role: str = "user", forget: bool = True) -> None:
    await bench.archive.append(
        ArchiveLine(
            ts=1,
            channel="telegram",
            chat_id="1",
            chat_key=KEY,
            message_id=message_id,
            role="system",
            text="",
            meta={"deleted": True, "requestId": bench.ids.ulid(), "of": [of], "ofRole": role, "turns": [of]},
        )
    )
    if forget:
        await bench.pool.forget(KEY)


async def idle(bench: Bench) -> None:
    runtime = bench.pool.runtime(KEY)
    for task in (runtime.memory.writing, runtime.compactor.compacting):
        if task is not None:
            await asyncio.wait([task])


def request_ids(bench: Bench) -> list[str]:
    return [turn.request_id for turn in bench.pool.runtime(KEY).store.turns]


def deletions(bench: Bench) -> int:
    return sum(entry.details.get("reason") == "deletion" for entry in bench.log.entries)


async def talked(bench: Bench) -> None:
    bench.model.answers += [
        reply(THINKING, tool_use("chat_send", text="the secret is noted")),
        reply(THINKING, text("fine")),
    ]
    await bench.say("my secret is 鯨")
    await bench.say("how are you?")


async def test_a_removed_message_is_not_shown_again_and_pairs_stay_whole(bench: Bench) -> None:
    await talked(bench)
    await remove(bench, "1", request_ids(bench)[0])
    await bench.say("and now?")
    assert "鯨" not in spoken(bench)
    assert spoken(bench).count(REMOVED) == 1
    assert "the secret is noted" in spoken(bench), "the answer is a message of its own"
    assert "thinking" not in json.dumps(bench.sent[:-1])
    validate.validate(bench.model.requests[-1])
    assert "鯨" not in await bench.pool.history(KEY)


async def test_a_removed_answer_is_not_shown_again(bench: Bench) -> None:
    await talked(bench)
    await remove(bench, "1", request_ids(bench)[0], role="assistant")
    await bench.say("and now?")
    assert "鯨" in spoken(bench)
    assert "noted" not in spoken(bench)
    validate.validate(bench.model.requests[-1])


async def test_it_stays_away_after_a_restart_byte_for_byte(bench: Bench) -> None:
    await talked(bench)
    await remove(bench, "1", request_ids(bench)[0])
    view = json.dumps(bench.pool.runtime(KEY).store.view())
    for _ in range(2):
        bench.restart()
        await bench.pool.runtime(KEY).fill()
        assert json.dumps(bench.pool.runtime(KEY).store.view()) == view
    assert deletions(bench) == 1


async def test_a_compaction_behind_it_does_not_bring_it_back(bench: Bench) -> None:
    Answers(bench)
    for number in range(6):
        await bench.say(f"short {number}")
    last = request_ids(bench)[-1]
    await remove(bench, "6", last)
    assert (await bench.pool.compact(KEY)).outcome == "summary"
    view = json.dumps(bench.pool.runtime(KEY).store.view())
    assert REMOVED in view
    bench.restart()
    await bench.pool.runtime(KEY).fill()
    assert json.dumps(bench.pool.runtime(KEY).store.view()) == view


async def test_a_removal_of_an_earlier_session_costs_the_current_one_nothing(bench: Bench) -> None:
    await talked(bench)
    first = request_ids(bench)[0]
    await bench.pool.reset(KEY)
    await bench.say("hello")
    await remove(bench, "1", first)
    assert deletions(bench) == 0
    assert len(await bench.transcript.sessions(KEY)) == 2


@pytest.mark.parametrize("fork", [False, True])
async def test_a_session_that_is_taken_up_again_has_lost_it(bench: Bench, *, fork: bool) -> None:
    await talked(bench)
    first = request_ids(bench)[0]
    if fork:
        await remove(bench, "1", first)
        assert (await bench.pool.fork(KEY)).outcome == "done"
    else:
        await bench.pool.reset(KEY)
        await bench.say("hello")
        await remove(bench, "1", first)
        (earlier,) = (one for one in await bench.pool.sessions(KEY) if not one.current)
        assert (await bench.pool.resume(KEY, earlier.id)).outcome == "done"
    await bench.say("and now?")
    assert "how are you?" in spoken(bench)
    assert "鯨" not in spoken(bench)
    assert spoken(bench).count(REMOVED) == 1


async def test_a_crash_right_behind_the_removal_does_not_bring_it_back(bench: Bench) -> None:
    await talked(bench)
    await remove(bench, "1", request_ids(bench)[0], forget=False)
    bench.restart()
    await bench.say("and now?")
    assert "鯨" not in spoken(bench)


async def test_a_conversation_that_was_adopted_from_the_archive_forgets_too(bench: Bench) -> None:
    await bench.store(1, "user", "my secret is 鯨", message_id="m1")
    await bench.store(2, "assistant", "noted, 鯨", message_id="m2")
    await bench.say("hello")
    await remove(bench, "m1", "")
    await remove(bench, "m2", "", role="assistant")
    await bench.say("and now?")
    assert "鯨" not in spoken(bench)
    assert spoken(bench).count(REMOVED) == 2


async def test_what_was_removed_before_an_adoption_is_not_adopted(bench: Bench) -> None:
    await bench.store(1, "user", "my secret is 鯨", message_id="m1")
    await remove(bench, "m1", "", forget=False)
    await bench.say("hello")
    assert "鯨" not in spoken(bench)


async def test_a_running_turn_ends_first_and_is_blanked_then(bench: Bench) -> None:
    gate, began = asyncio.Event(), asyncio.Event()

    async def held(request: Any) -> Any:
        began.set()
        await gate.wait()
        async for event in stream(request):
            yield event

    stream, bench.model.stream = bench.model.stream, held  # type: ignore[method-assign]
    inbound = bench.inbound("my secret is 鯨")
    turn = asyncio.create_task(bench.say("my secret is 鯨"))
    await began.wait()
    running = bench.pool.runtime(KEY).store.running
    assert running is not None
    await remove(bench, inbound.message_id or "", running.request_id, forget=False)
    removal = asyncio.create_task(bench.pool.forget(KEY))
    await asyncio.sleep(0)
    assert bench.pool.runtime(KEY).deletions.due
    gate.set()
    await turn
    await removal
    await bench.say("and now?")
    assert "鯨" not in spoken(bench).replace("echo: my secret is 鯨", "")


async def test_a_message_that_joined_a_turn_is_blanked_alone(bench: Bench) -> None:
    joined = bench.inbound("my secret is 鯨")
    more = [[joined], []]
    bench.model.answers += [reply(tool_use("skills_list")), reply(text("fine"))]
    await bench.say("look it up", arrivals=Added(lambda: more.pop(0) if more else []))
    await remove(bench, joined.message_id or "", joined.request_id)
    await bench.say("and now?")
    assert "鯨" not in spoken(bench)
    assert "look it up" in spoken(bench)
    validate.validate(bench.model.requests[-1])


async def summed_up(bench: Bench, answers: Answers) -> str:
    """A secret is told, and summed up with what came after it; the requestId of its turn."""
    answers.summary = reply(text(SUMMARY.replace("海", "鯨")))
    bench.configure(soft_tokens=14_000, memories=Memories(bench.root / "memory", disk=SystemDisk()))
    await bench.say("my secret is 鯨")
    first = request_ids(bench)[0]
    for number in range(8):
        await bench.say(f"message {number} {LONG}")
        await idle(bench)
    return first


async def test_the_memory_and_the_summary_lose_what_may_come_from_it(bench: Bench) -> None:
    answers = Answers(bench)
    answers.memory = reply(text(SessionMemory(facts=("the secret is 鯨",)).markdown))
    first = await summed_up(bench, answers)
    runtime = bench.pool.runtime(KEY)
    assert runtime.store.head is not None
    assert first not in request_ids(bench), "it was compacted away"
    assert "鯨" in json.dumps(runtime.store.head, ensure_ascii=False)
    await remove(bench, "1", first)
    assert "鯨" not in json.dumps(runtime.store.view(), ensure_ascii=False)
    assert "鯨" not in runtime.memory.markdown
    kept = await Memories(bench.root / "memory", disk=SystemDisk()).load(KEY)
    assert kept is None or "鯨" not in kept.markdown
    bench.restart()
    await bench.pool.runtime(KEY).fill()
    assert "鯨" not in json.dumps(bench.pool.runtime(KEY).store.view(), ensure_ascii=False)


@pytest.mark.parametrize("fork", [False, True])
async def test_what_a_summary_brought_back_with_its_conversation_loses_it_too(
    bench: Bench, *, fork: bool
) -> None:
    answers = Answers(bench)
    first = await summed_up(bench, answers)
    assert first not in request_ids(bench), "it was compacted away"
    if fork:
        assert (await bench.pool.fork(KEY)).outcome == "done"
    else:
        await bench.pool.reset(KEY)
        await bench.say("hello")
        (earlier,) = (one for one in await bench.pool.sessions(KEY) if not one.current)
        assert (await bench.pool.resume(KEY, earlier.id)).outcome == "done"
    answers.memory = reply(text(SessionMemory(facts=("the secret is 鯨",)).markdown))
    for number in range(4):
        await bench.say(f"again {number} {LONG}")
        await idle(bench)
    runtime = bench.pool.runtime(KEY)
    assert "鯨" in runtime.memory.markdown
    await remove(bench, "1", first)
    assert "鯨" not in runtime.memory.markdown
    assert "鯨" not in json.dumps(runtime.store.view(), ensure_ascii=False)


@pytest.mark.parametrize("removed_first", [False, True])
@pytest.mark.parametrize("fork", [False, True])
async def test_what_is_removed_while_another_session_is_taken_up_changes_that_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, fork: bool, removed_first: bool
) -> None:
    answers = Answers(bench)
    await bench.say("of the earlier session")
    await bench.pool.reset(KEY)
    gone = await summed_up(bench, answers)
    (earlier,) = (one for one in await bench.pool.sessions(KEY) if not one.current)
    found, at_switch, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def held(name: str, begun: asyncio.Event, until: asyncio.Event, *, behind: bool) -> None:
        work = getattr(bench.transcript, name)

        async def slowly(*args: Any) -> Any:
            answer = await work(*args) if behind else None
            begun.set()
            await until.wait()
            return answer if behind else await work(*args)

        monkeypatch.setattr(bench.transcript, name, slowly)

    held("current" if removed_first else "fork" if fork else "resume", at_switch, found, behind=False)
    held("telling", found, go_on, behind=True)
    change = bench.pool.fork(KEY) if fork else bench.pool.resume(KEY, earlier.id)
    changing = asyncio.create_task(change)
    await at_switch.wait()
    removing = asyncio.create_task(remove(bench, "1", gone))
    for _ in range(20):  # as far as they come
        await bench.transcript.sessions(KEY)
    found.set()
    for _ in range(20):
        await bench.transcript.sessions(KEY)
    go_on.set()
    await removing
    assert (await changing).outcome == "done"
    assert bench.pool.weights.keys() == bench.pool.runtimes.keys()
    bench.restart()
    await bench.pool.runtime(KEY).fill()
    view = json.dumps(bench.pool.runtime(KEY).store.view(), ensure_ascii=False)
    assert ("of the earlier session" in view, "鯨" in view) == (not fork, False)
    told = [line for line in await bench.transcript.load(KEY) if line.type == "boundary"]
    assert fork or not told, "nothing of the other session is in this one"


async def test_a_line_that_was_written_anew_again_and_again_still_knows_where_it_began(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "MOST", 4)
    answers = Answers(bench)
    memories = Memories(bench.root / "memory", disk=SystemDisk())
    bench.configure(soft_tokens=100_000, max_messages=6, memories=memories)
    await bench.say("my secret is 鯨")
    first = request_ids(bench)[0]
    for number in range(12):
        answers.memory = reply(text(f"## Facts\n- [1] the secret is 鯨, {number}"))
        await bench.say(f"message {number} {LONG}")
        await idle(bench)
    kept = await memories.load(KEY)
    assert kept is not None
    assert max(map(len, kept.written)) == provenance.MOST
    await remove(bench, "1", first)
    assert "鯨" not in bench.pool.runtime(KEY).memory.markdown


async def test_the_memory_keeps_what_was_known_before(bench: Bench) -> None:
    answers = Answers(bench)
    bench.configure(soft_tokens=100_000, memories=Memories(bench.root / "memory", disk=SystemDisk()))
    answers.memory = reply(text(SessionMemory(facts=("the ship is red",)).markdown))
    for number in range(3):
        await bench.say(f"message {number} {LONG}")
    runtime = bench.pool.runtime(KEY)
    await idle(bench)
    assert "red" in runtime.memory.markdown
    answers.memory = reply(text("<memory>\n## Facts\n- the secret is 鯨\n</memory>"))
    await bench.say("my secret is 鯨")
    last = request_ids(bench)[-1]
    for number in range(3):
        await bench.say(f"more {number} {LONG}")
    await idle(bench)
    assert "鯨" in runtime.memory.markdown
    await remove(bench, "4", last)
    assert runtime.memory.markdown.split("\n## ")[0] == "## Facts\n- the ship is red\n"


async def test_a_memory_that_is_written_after_a_removal_outlives_a_restart(bench: Bench) -> None:
    answers = Answers(bench)
    memories = Memories(bench.root / "memory", disk=SystemDisk())
    bench.configure(soft_tokens=100_000, memories=memories)
    await bench.say("my secret is 鯨")
    first = request_ids(bench)[0]
    await remove(bench, "1", first)
    answers.memory = reply(text(SessionMemory(facts=("the ship is red",)).markdown))
    for number in range(3):
        await bench.say(f"message {number} {LONG}")
    await idle(bench)
    bench.restart()
    await bench.pool.runtime(KEY).fill()
    assert "red" in bench.pool.runtime(KEY).memory.markdown
    path = bench.root / "memory" / "telegram%3Achat%3A1" / "session.md"
    path.write_text(SessionMemory(facts=("an operator was here",)).markdown, encoding="utf-8")
    bench.restart()
    await bench.pool.runtime(KEY).fill()
    assert "an operator was here" in bench.pool.runtime(KEY).memory.markdown
    await remove(bench, "a1", first, role="assistant")
    assert bench.pool.runtime(KEY).memory.markdown == "", (
        "the answer of that turn was in view, and may be told"
    )


async def test_what_an_operator_made_of_the_memory_is_taken_up(bench: Bench) -> None:
    answers = Answers(bench)
    memories = Memories(bench.root / "memory", disk=SystemDisk())
    bench.configure(soft_tokens=100_000, memories=memories)
    for number in range(3):
        await bench.say(f"message {number} {LONG}")
    await idle(bench)
    before = answers.forks("memory")
    (bench.root / "memory" / "telegram%3Achat%3A1" / "session.md").write_text(
        SessionMemory(facts=("an operator was here",)).markdown, encoding="utf-8"
    )
    for number in range(3):
        await bench.say(f"more {number} {LONG}")
    await idle(bench)
    asked = [request for request in bench.model.requests if request.purpose == "memory"][before]
    assert "an operator was here" in json.dumps(asked.messages[-1])


async def test_an_archive_that_cannot_be_read_stops_nobody_and_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talked(bench)
    await remove(bench, "1", request_ids(bench)[0], forget=False)
    bench.restart()

    async def broken(_: str) -> list[ArchiveLine]:
        raise errors.StorageError("no")

    with monkeypatch.context() as patch:
        patch.setattr(bench.archive, "removals", broken)
        await bench.say("hello?")
        with pytest.raises(errors.StorageError):
            await bench.pool.forget(KEY)
    assert bench.chat.seen[-1] == "echo: hello?"
    await bench.say("and now?")
    assert "鯨" not in spoken(bench)


async def test_where_nothing_was_removed_nothing_is_declared(bench: Bench) -> None:
    await talked(bench)
    await bench.pool.forget(KEY)
    assert deletions(bench) == 0


@pytest.mark.parametrize("unknown", [False, True])
async def test_a_turn_that_a_crash_cut_off_goes_on_without_what_it_had_loaded_and_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, unknown: bool
) -> None:
    bench.configure(max_messages=4)
    for number, words in enumerate(["my secret is 鯨", "the ship is red", *"abcdef"]):
        await bench.store(number, "user", words, message_id=f"m{number}")
    request = ask(bench, "what was it?")
    bench.model.answers += [reply(tool_use("chat_load_history", limit=30))]
    await killed_while_asking(bench, request, 2)
    assert "鯨" in spoken(bench)
    await remove(bench, "m0", "", forget=False)
    if unknown:

        async def refused(chat_key: ChatKey) -> list[ArchiveLine]:
            raise errors.StorageError(f"{chat_key}: no")

        monkeypatch.setattr(bench.archive, "removals", refused)
    bench.model.answers += [reply(text("gone"))]
    await bench.pool.run(request)
    assert "鯨" not in spoken(bench)
    assert ("the ship is red" in spoken(bench)) is not unknown
    validate.validate(bench.model.requests[-1])


async def test_a_wish_that_comes_while_another_one_is_carried_out_is_carried_out_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.model.answers += [reply(text("noted")), reply(text("too"))]
    await bench.say("my secret is 鯨")
    await bench.say("and plum")
    first, second = request_ids(bench)
    removals, read, go_on = bench.archive.removals, asyncio.Event(), asyncio.Event()

    async def slow(chat_key: ChatKey) -> list[ArchiveLine]:
        found = await removals(chat_key)
        read.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(bench.archive, "removals", slow)
    wish = asyncio.create_task(remove(bench, "1", first))
    await read.wait()
    await remove(bench, "2", second, forget=False)
    other = asyncio.create_task(bench.pool.forget(KEY))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(wish, other)
    bench.model.answers.append(reply(text("yes")))
    await bench.say("and now?")
    assert "鯨" not in spoken(bench)
    assert "plum" not in spoken(bench)
