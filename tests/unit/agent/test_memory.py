"""After a restart the conversation goes on, byte for byte; old turns come back when asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.contracts.model import ModelRequest
from bot.contracts.transcript import Injection
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench, words


def body(request: ModelRequest) -> bytes:
    return json.dumps(
        [list(request.system), list(request.tools), list(request.messages)], ensure_ascii=False
    ).encode()


async def conversation(bench: Bench, turns: int) -> None:
    for number in range(turns):
        if number % 3 == 0:
            bench.model.answers += [
                reply(
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    tool_use("chat_load_history", limit=2),
                ),
            ]
        await bench.say(f"message {number} 你好 👩‍👩‍👧")


@pytest.mark.parametrize("turns", [1, 2, 5, 11, 23])
async def test_the_next_request_after_a_restart_is_the_one_that_would_have_been_sent(
    bench: Bench, turns: int
) -> None:
    bench.configure(max_messages=16)
    await conversation(bench, turns)
    store = bench.pool.runtime(KEY).store
    kept, sources = store.messages(), store.sources()
    bench.restart()
    runtime = bench.pool.runtime(KEY)
    await runtime.fill()
    assert json.dumps(runtime.store.messages()) == json.dumps(kept)
    assert runtime.store.sources() == sources
    await bench.say("after")
    assert words(bench.sent[-1]) == ["after"]
    assert bench.chat.seen[-1].endswith("after")


async def test_an_eviction_changes_no_byte_of_the_next_request(bench: Bench) -> None:
    await conversation(bench, 4)
    await bench.say("a")
    before = body(bench.model.requests[-1])
    assert bench.pool.evict(idle_seconds=-1) == 1
    await bench.say("b")
    after = bench.model.requests[-1].messages
    prefix = json.loads(before)[2]
    assert [words(m) for m in after[: len(prefix)]] == [words(m) for m in prefix]


async def test_a_turn_cut_off_by_a_crash_goes_on_in_one_chain(bench: Bench) -> None:
    import asyncio

    await bench.say("one")
    bench.model.hold = asyncio.Event()
    bench.model.asked.clear()
    inbound = bench.inbound("two")
    from bot.contracts.agent import TurnRequest

    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    running = asyncio.create_task(bench.pool.run(request))
    await bench.model.asked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.model.hold = None
    bench.restart()
    await bench.pool.run(request)
    assert bench.chat.seen == ["echo: one", "echo: two"]
    asked = [words(m) for m in bench.model.requests[-1].messages if m["role"] == "user" and words(m)]
    assert asked == [["one"], ["two"]]
    lines = await bench.transcript.load(KEY)
    chain = {line.uuid: line.parent_uuid for line in lines if line.type in {"user", "assistant"}}
    tip = [line.uuid for line in lines if line.type in {"user", "assistant"}][-1]
    walked = []
    while tip is not None:
        walked.append(tip)
        tip = chain[tip]  # type: ignore[assignment]
    assert len(walked) == len(bench.pool.runtime(KEY).store)


async def test_without_a_transcript_the_archive_gives_the_conversation_back_once(bench: Bench) -> None:
    for number in range(4):
        await bench.store(
            1_600_000_000_000 + number, "user" if number % 2 == 0 else "assistant", f"line {number}"
        )
    await bench.say("hello")
    assert [words(m)[-1] for m in bench.sent[:5]] == ["line 0", "line 1", "line 2", "line 3", "hello"]
    first = bench.sent[:4]
    bench.restart()
    await bench.say("again")
    assert [words(m) for m in bench.sent[:4]] == [words(m) for m in first]


async def test_asking_for_the_status_first_does_not_take_the_current_message_for_history(
    bench: Bench,
) -> None:
    inbound = bench.inbound("hello")
    await bench.store(inbound.ts, "user", "hello", request_id=inbound.request_id)
    assert (await bench.pool.describe(KEY)).messages == 0
    from bot.contracts.agent import TurnRequest

    await bench.pool.run(TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat))
    assert json.dumps(bench.model.requests[0].messages).count("hello") == 1


async def test_a_new_conversation_forgets_and_stays_forgotten_after_a_restart(bench: Bench) -> None:
    await bench.say("the word is Rosebud")
    assert await bench.pool.reset(KEY) == 3
    bench.restart()
    await bench.say("hello")
    assert "Rosebud" not in json.dumps(bench.sent)


class TestLoadedHistory:
    async def old(self, bench: Bench, count: int = 100) -> None:
        for number in range(count):
            role = "user" if number % 2 == 0 else "assistant"
            await bench.store(
                1_600_000_000_000 + number * 1000, role, f"old {number}", request_id=f"00{number:03}"
            )
        bench.configure(max_messages=2)
        await bench.say("first")  # adopts the newest of the archive and cuts it away again

    async def load(self, bench: Bench, *calls: dict[str, Any]) -> tuple[list[str], list[str]]:
        """The texts injected and the receipts."""
        bench.model.answers += [reply(tool_use("chat_load_history", **call)) for call in calls]
        bench.model.answers += [reply(text("done"))]
        await bench.say("do you remember?")
        loaded = [
            m["content"][1]["text"]
            for m in bench.sent
            if "<loaded_history-" in m["content"][0].get("text", "")
        ]
        receipts = [b["content"] for m in bench.sent for b in m["content"] if b["type"] == "tool_result"]
        return loaded, receipts[-len(calls) :]

    async def test_the_newest_older_turns_stand_before_the_current_message_in_time_order(
        self, bench: Bench
    ) -> None:
        await self.old(bench)
        loaded, receipts = await self.load(bench, {"limit": 5, "keyword": "OLD"})
        assert loaded == [f"old {n}" for n in range(95, 100)]
        at = [n for n, m in enumerate(bench.sent) if "<loaded_history-" in json.dumps(m)]
        current = next(n for n, m in enumerate(bench.sent) if words(m) == ["do you remember?"])
        assert at == list(range(current - 5, current))
        assert "Loaded 5 older messages" in receipts[0]
        assert "95 more match" in receipts[0]
        assert "old 9" not in receipts[0], "the receipt does not say the texts again"

    async def test_it_lives_for_this_run_only_and_the_transcript_records_it(self, bench: Bench) -> None:
        await self.old(bench)
        await self.load(bench, {"limit": 5, "keyword": "old"})
        await bench.say("next")
        assert "old 99" not in json.dumps(bench.sent)
        assert "old 99" not in json.dumps(bench.pool.runtime(KEY).store.messages())
        lines = await bench.transcript.load(KEY)
        (injection,) = [line.event for line in lines if isinstance(line.event, Injection)]
        assert "old 99" in json.dumps(injection.messages)
        archived = await bench.archive.search(KEY, _query("old 99"))
        assert archived.total == 1

    async def test_asking_again_goes_on_where_it_ended_and_never_twice_the_same(self, bench: Bench) -> None:
        await self.old(bench)
        loaded, _ = await self.load(bench, {"limit": 5, "keyword": "old"}, {"limit": 5, "keyword": "old"})
        assert loaded == [f"old {n}" for n in range(90, 100)]

    async def test_role_offset_and_time_narrow_it(self, bench: Bench) -> None:
        await self.old(bench)
        loaded, _ = await self.load(
            bench,
            {
                "limit": 2,
                "role": "assistant",
                "offset": 1,
                "before": "2020-09-13T12:27:30Z",
                "after": "2020-09-13T12:26:40",
            },
        )
        assert loaded == ["old 45", "old 47"]

    async def test_at_most_120_a_run_and_200_a_call(self, bench: Bench) -> None:
        await self.old(bench, 300)
        loaded, receipts = await self.load(bench, {"limit": 200}, {"limit": 5})
        assert len(loaded) == 120
        assert "as much history as it may" in receipts[1]
        _, receipts = await self.load(bench, {"limit": 201})
        assert "- limit: expected 200 or less, got 201" in receipts[0]

    async def test_neither_the_current_message_nor_what_is_in_view_is_loaded(self, bench: Bench) -> None:
        await bench.say("in view already")
        loaded, receipts = await self.load(bench, {"limit": 200})
        assert loaded == []
        assert "Nothing was loaded" in receipts[0]

    async def test_the_keyword_is_literal_and_quick(self, bench: Bench) -> None:
        await bench.store(1_600_000_000_000, "user", "a" * 28)
        await bench.store(1_600_000_000_001, "user", "costs $5.00 (or 退款)")
        bench.configure(max_messages=2)
        await bench.say("x")
        loaded, _ = await self.load(bench, {"keyword": "^(a+)+$"}, {"keyword": "$5.00 (OR 退款)"})
        assert loaded == ["costs $5.00 (or 退款)"]

    async def test_thinking_behind_the_insertion_point_is_stripped(self, bench: Bench) -> None:
        await self.old(bench, 10)
        thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
        bench.model.answers += [reply(thinking, tool_use("chat_load_history", keyword="old"))]
        await bench.say("remember?")
        assert '"thinking"' not in json.dumps(bench.sent)
        await bench.say("next")
        assert '"thinking"' not in json.dumps(bench.sent)


def _query(keyword: str) -> Any:
    from bot.contracts.archive import HistoryQuery

    return HistoryQuery(keyword=keyword)


async def test_a_changed_role_file_counts_once_the_cache_is_cold_and_not_before(bench: Bench) -> None:
    role = bench.root / "Agent.md"
    role.write_text("You are a pilot.", encoding="utf-8")
    await bench.say("one")
    role.write_text("You are a 船长.", encoding="utf-8")
    await bench.clock.advance(299)
    await bench.pool.describe(KEY)  # a question for the status asks no model
    await bench.say("two")
    assert "pilot" in bench.model.requests[-1].system[0]["text"]
    await bench.clock.advance(200)
    await bench.pool.describe(KEY)
    await bench.clock.advance(200)
    await bench.say("three")
    assert "船长" in bench.model.requests[-1].system[0]["text"]
