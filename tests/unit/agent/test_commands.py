"""What `/stats`, `/history` and `/undo` rest on; all of it holds after a restart."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from bot.contracts.agent import TurnRequest
from bot.contracts.archive import HistoryQuery
from bot.contracts.model import ModelReply, Usage
from bot.contracts.transcript import Event, TranscriptLine, TurnEnd
from bot.core.notes.memories import Memories
from bot.system import SystemDisk
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench, words
from tests.unit.agent.provider import Look

SECRET = "sk-very-secret-東京"


def priced(answer: ModelReply, cost: float | None = 0.25, read: int = 60) -> ModelReply:
    return replace(answer, usage=Usage(30, 7, read, 10), cost_usd=cost)


async def test_a_chat_is_counted_from_its_beginning_over_restarts_and_new_conversations(bench: Bench) -> None:
    empty = await bench.pool.stats(KEY)
    assert (empty.turns, empty.calls, empty.cost_usd, empty.tokens) == (0, 0, 0.0, 0)
    bench.model.answers.extend([priced(reply(tool_use("skills_list"))), priced(reply(text("fertig 🏁")))])
    await bench.say("你好")
    bench.restart()
    bench.model.answers.append(priced(reply(text("again")), cost=None))
    await bench.say("und?")
    await bench.pool.reset(KEY)
    bench.restart()
    found = await bench.pool.stats(KEY)
    assert (found.turns, found.calls, found.unpriced, found.cost_usd) == (2, 3, 1, 0.5)
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (90, 180, 30)
    assert (found.output_tokens, found.epochs, found.messages) == (21, 1, 0)


async def test_what_a_cut_off_turn_had_asked_is_counted_once_it_goes_on(bench: Bench) -> None:
    bench.model.answers.append(priced(reply(text("first"))))
    await bench.say("one")
    inbound = bench.inbound("eins")
    runtime = bench.pool.runtime(KEY)
    bench.model.answers.extend([priced(reply(tool_use("skills_list"))), RuntimeError("the power goes")])
    ledger_add = runtime.ledger.add

    def no_end(event: Event, request_id: str | None = None) -> TranscriptLine:
        if isinstance(event, TurnEnd):
            return TranscriptLine(uuid="", ts=0, event=event)
        return ledger_add(event, request_id)

    runtime.ledger.add = no_end  # type: ignore[method-assign]
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    await bench.pool.run(request)
    await bench.pool.flush()
    bench.restart()
    bench.model.answers.clear()
    bench.model.answers.append(priced(reply(text("done"))))
    await bench.pool.run(request)
    bench.restart()
    found = await bench.pool.stats(KEY)
    assert (found.turns, found.calls, found.cost_usd) == (2, 3, 0.75)


async def test_what_a_fork_costs_is_the_chats_cost_too(bench: Bench) -> None:
    bench.configure(memories=Memories(bench.root / "memory", disk=SystemDisk()))
    bench.model.answers.append(reply(text("x" * 60_000)))
    notes = "## Facts\n- 東京\n\n## Decisions\n(none)\n\n## Preferences\n(none)\n\n## Open tasks\n(none)"
    bench.model.answers.append(priced(reply(text(f"<memory>\n{notes}\n</memory>")), cost=0.125))
    await bench.say("tell me everything")
    runtime = bench.pool.runtime(KEY)
    while runtime.busy:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)
    assert bench.model.requests[-1].purpose == "memory"
    await bench.pool.flush()
    bench.restart()
    found = await bench.pool.stats(KEY)
    assert (found.calls, found.cost_usd) == (2, 0.125)


async def test_tokens_that_are_masked_are_told_apart(bench: Bench) -> None:
    bench.add_tools(Look())
    bench.configure(mask_threshold=2_000, keep_observations=3)
    for _ in range(12):
        bench.model.answers.extend([reply(tool_use("look", lines=40)), reply(text("seen"))])
        await bench.say("look")
    assert (await bench.pool.stats(KEY)).masked_tokens == 0
    await bench.clock.advance(400)
    await bench.say("cold")
    found = await bench.pool.stats(KEY)
    assert 1_000 < found.masked_tokens < found.tokens
    assert found.epochs == 1
    bench.restart()
    assert await bench.pool.stats(KEY) == found


async def test_people_see_what_is_kept_without_secrets_and_not_all_of_it(bench: Bench) -> None:
    bench.configure(redact=lambda said: said.replace(SECRET, "[redacted]"))
    assert await bench.pool.history(KEY) == ""
    bench.model.answers.extend([reply(tool_use("skills_list")), reply(text("答え"))])
    await bench.say(f"mein {SECRET} 👩‍👩‍👧")
    shown = await bench.pool.history(KEY)
    assert shown.splitlines()[0] == "You: mein [redacted] 👩‍👩‍👧"
    assert "skills_list" not in shown
    assert shown.endswith("Me: 答え")
    bench.model.answers.append(reply(text("a" * 1_800 + SECRET + "b" * 3_000)))
    await bench.say("and long")
    bench.restart()
    shown = await bench.pool.history(KEY)
    assert len(shown) <= 2_000
    assert shown.startswith("…\n")
    assert shown.endswith("b" * 1_000)
    bench.model.answers.append(reply(text("the newest")))
    await bench.say("short")
    shown = await bench.pool.history(KEY)
    assert shown.endswith("You: short\nMe: the newest")
    assert SECRET[:8] not in shown


async def test_the_last_turn_is_taken_back_also_for_who_starts_again(bench: Bench) -> None:
    bench.model.answers.extend([reply(text("eins")), reply(text("zwei"))])
    await bench.say("first 你好")
    await bench.say("second\nof them")
    assert await bench.pool.undo(KEY) == "second of them"
    (told,) = bench.log.of("compaction")
    assert told.details["reason"] == "undo"
    kept = json.dumps(bench.pool.runtime(KEY).store.messages())
    bench.restart()
    bench.model.answers.append(reply(text("drei")))
    await bench.say("third")
    said = [one for message in bench.sent for one in words(message)]
    assert said == ["first 你好", "eins", "third"]
    assert json.dumps(bench.sent[:2]).count("zwei") == 0
    assert "first" in kept
    assert "second" not in kept
    page = [line.text for line in (await bench.archive.search(KEY, HistoryQuery(limit=100))).lines]
    assert "second\nof them" in page, "the archive keeps it"
    assert await bench.pool.undo(KEY) == "third"
    assert await bench.pool.undo(KEY) == "first 你好"
    assert await bench.pool.undo(KEY) is None
