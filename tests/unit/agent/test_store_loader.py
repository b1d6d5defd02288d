"""A store is filled from its session: mended where it has to be, and looked at for removals in as few lines as tell of them."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from typing import Any

import pytest
from tests.unit.agent.test_recording import again

from bot import errors
from bot.context import deletions as removals
from bot.contracts.agent import TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Quoted
from bot.contracts.transcript import LineType, TranscriptLine
from bot.core.removal import REMOVED
from bot.history.transcript import lines as transcript_lines
from bot.history.transcript import reading
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Added, Bench
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_random import THINKING, Judged
from tests.unit.agent.test_resume import ask, killed_while_asking
from tests.unit.agent.test_turn import Press
from tests.unit.lines import line

ANSWERS: list[Any] = [
    lambda: reply(text("final")),
    lambda: reply(THINKING, text("thought")),
    lambda: reply(tool_use("chat_send", text="hi")),
    lambda: reply(THINKING, tool_use("skills_list"), tool_use("skills_list")),
    lambda: reply(tool_use("chat_load_history", limit=5)),
    lambda: reply(stop_reason="refusal"),
    lambda: reply(text("to be "), stop_reason="max_tokens"),
    lambda: errors.StreamBroken("cut"),
]


class Read:
    """How many lines were parsed, and whether older ones were left out at last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = 0
        parsed = transcript_lines.parsed

        def counted(raw: bytes) -> TranscriptLine | None:
            self.lines += 1
            return parsed(raw)

        monkeypatch.setattr(reading, "parsed", counted)


async def test_a_history_that_was_mended_keeps_what_the_chat_has_come_to(bench: Bench) -> None:
    await bench.say("hello")
    before = await bench.pool.stats(KEY)
    counts = (before.turns, before.calls)
    assert counts == (1, 1)
    call = {"role": "assistant", "content": [tool_use("skills_list")]}
    said: list[tuple[LineType, Any]] = [
        ("turn_start", None),
        ("user", {"role": "user", "content": [text("list them")]}),
        ("assistant", call),
        ("turn_end", None),
    ]
    lines = [line(bench.ids.ulid(), kind, "R", message, ts=1, chat_key=KEY) for kind, message in said]
    await bench.transcript.append(KEY, lines)
    bench.restart()
    after = await bench.pool.stats(KEY)
    assert len(bench.log.of("repair") or bench.log.of("compaction")) == 1
    assert (after.turns, after.calls) == counts


async def test_what_a_turn_asked_after_such_a_cut_is_made_again(bench: Bench) -> None:
    bench.configure(max_messages=1_000)
    bench.add_tools(Press())
    for number in range(12):
        bench.model.answers += [reply(text(f"answer {number}"))]
        await bench.say(f"message {number}")
    request = ask(bench)
    bench.model.answers += [reply(tool_use("press"))]
    await killed_while_asking(bench, request, 2)
    bench.configure(max_messages=8)
    bench.model.answers += [reply(text("done"))]
    assert (await bench.pool.run(request)).status == "done"
    await bench.pool.flush()
    made = (await again(bench, request.request_id)).calls
    before, after = (call.request for call in made[-2:])
    assert before is not None
    assert after is not None
    assert len(after.messages) < len(before.messages)
    assert [call.record.wrong for call in made] == [None, None, None]


async def test_with_a_removal_of_long_ago_it_costs_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.configure(max_messages=6)
    for number in range(40):
        await bench.say(f"message {number}")
    first = (await bench.transcript.load(KEY))[0].request_id or ""
    await remove(bench, "1", first)
    assert REMOVED not in json.dumps([one.message for one in await bench.transcript.load(KEY)])
    bench.restart()
    read = Read(monkeypatch)
    monkeypatch.setattr(bench.transcript, "load", None)
    await bench.say("and now?")
    assert read.lines < 60


@pytest.mark.parametrize("seed", one_in(3, range(12)))
async def test_what_is_looked_at_for_removals_tells_what_all_lines_do(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    bench.configure(model=Judged(), max_messages=rng.choice([4, 60]))
    for number in range(rng.randrange(6)):
        await bench.store(number, rng.choice(["user", "assistant"]), f"old {number}", message_id=f"o{number}")
    asked: list[str] = []
    for number in range(12):
        quoted = [
            Quoted(user_id="7", text=f"q{one}", message_id=str(one))
            for one in rng.sample(range(1, 14), rng.randrange(3))
        ]
        more = [bench.inbound("more")] if rng.random() < 0.4 else []
        asked += [one.request_id for one in more]
        inbound = bench.inbound(f"message {number}", quoted=quoted)
        asked.append(inbound.request_id)
        bench.model.answers += [rng.choice(ANSWERS)() for _ in range(rng.randrange(3))]
        take = functools.partial(_taken, more)
        await bench.pool.run(
            TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat, arrivals=Added(take))
        )
        bench.model.answers.clear()
        if rng.random() < 0.2:
            await bench.pool.compact(KEY)
        if rng.random() < 0.3:
            name = rng.choice([str(rng.randrange(14)), f"o{rng.randrange(6)}"])
            await remove(bench, name, rng.choice(asked), role=rng.choice(["user", "assistant"]))
    await remove(bench, str(rng.randrange(14)), rng.choice(asked), forget=False)
    await bench.pool.flush()
    wanted = removals.read_deletions(await bench.archive.removals(KEY))
    lines = await bench.transcript.load(KEY)
    names = wanted.words | wanted.answers
    told = await bench.transcript.telling(KEY, names, functools.partial(removals.tells, wanted))
    assert len(told) < len(lines)
    for found in (removals.ids_to_redact, removals.quoted, removals.with_quotes):
        assert found(told, wanted) == found(lines, wanted)
    for since in (0, lines[len(lines) // 2].ts):
        assert removals.summed_up(told, since) == removals.summed_up(lines, since)


def _taken(more: list[Any]) -> list[Any]:
    taken = more[:]
    more.clear()
    return taken


async def test_of_lines_of_another_making_all_are_looked_at_for_removals(bench: Bench) -> None:
    await bench.say("hello")
    await bench.pool.flush()
    (path,) = (bench.root / "transcripts").glob("*/*.jsonl")
    mine = path.read_bytes()
    path.write_bytes(mine + b"\0\0\n" + b'{"torn\n')
    assert await bench.transcript.telling(KEY, [], lambda _: False) == []
    theirs = {"uuid": "a", "parentUuid": None, "type": "user", "message": {"role": "user", "content": "hi"}}
    path.write_bytes(json.dumps(theirs).encode() + b"\n" + mine)
    found = await bench.transcript.telling(KEY, [], lambda _: False)
    assert found == await bench.transcript.load(KEY)
    assert "hi" in json.dumps([line.message for line in found])
    assert await bench.transcript.telling(ChatKey.parse("telegram:chat:9"), [], lambda _: False) == []


async def test_what_is_removed_while_its_turn_is_filled_goes_once_that_is_over(bench: Bench) -> None:
    await bench.say("hello")
    bench.restart()
    memory = bench.pool.runtime(KEY).memory
    load, loading, go_on = memory.load, asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        loading.set()
        await go_on.wait()
        await load()

    memory.load = slowly  # type: ignore[method-assign]
    first, gone = bench.inbound("look"), bench.inbound("and at this")
    asked = TurnRequest(first.request_id, KEY, inbound=first, reply=bench.chat, also=(gone,))
    running = asyncio.create_task(bench.pool.run(asked))
    await loading.wait()
    await remove(bench, str(gone.message_id), gone.request_id, forget=False)
    forgetting = asyncio.create_task(bench.pool.forget(KEY))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(running, forgetting)
    await bench.say("later")
    said = [block.get("text") for message in bench.sent for block in message["content"]]
    assert "look" in said
    assert REMOVED in said
    assert "and at this" not in said
