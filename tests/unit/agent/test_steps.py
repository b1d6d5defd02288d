"""Every model and tool call of a turn is a step in the journal: nobody waits for it who need not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.agent import reply as agent_reply
from bot.agent.steps import StepLog
from bot.contracts.agent import NoArrivals, PriorReply, TurnRequest
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.journal import StepRecord
from bot.contracts.model import ModelReply, Usage
from bot.testing.journal import JournalFailure
from bot.testing.model import reply, text, tool_use
from bot.tools.dispatch import UNRECORDED
from tests.unit.agent.conftest import KEY, Added, Bench, Written, each, said, words
from tests.unit.agent.test_turn import Press
from tests.unit.gateway.test_hard_times import Hanging


async def steps_of(bench: Bench) -> list[StepRecord]:
    """Every step that is recorded, turn by turn."""
    await bench.pool.flush()
    turns = {line.request_id: None for line in await bench.transcript.load(KEY) if line.request_id}
    return [step for request_id in turns for step in await bench.journal.steps(request_id)]


async def test_a_model_call_is_recorded_with_what_it_cost_and_where_its_answer_stands(bench: Bench) -> None:
    bench.model.answers.append(
        ModelReply([text("答え")], "end_turn", Usage(1, 2, 3, 4), cost_usd=0.5, provider_request_id="req_1")
    )
    await bench.say("hello")
    (step,) = await steps_of(bench)
    answer = (await bench.transcript.load(KEY))[2]
    assert (step.kind, step.name, step.ended_at is not None) == ("model", "scripted", True)
    assert step.request_id == answer.request_id
    assert step.result == {
        "uuid": answer.uuid,
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4},
        "costUsd": 0.5,
        "providerRequestId": "req_1",
    }


async def test_a_call_that_failed_ends_with_its_error(bench: Bench) -> None:
    bench.model.answers += [errors.Overloaded("529")]
    await bench.say("hello")
    bench.model.answers += [RuntimeError("who knows")]
    await bench.say("hello")
    bench.model.answers += [reply(text("no"), stop_reason="refusal")]
    await bench.say("hello")
    results = [step.result or {} for step in await steps_of(bench)]
    assert [one.get("error") for one in results] == ["Overloaded", "failed", None]
    assert (results[2]["uuid"], results[2]["stopReason"]) == (None, "refusal")


async def test_tools_are_recorded_with_their_results_and_what_they_said(bench: Bench) -> None:
    press = Press("gedrückt")
    bench.add_tools(press)
    bench.model.answers += [
        reply(tool_use("press"), tool_use("chat_send", text="one"), tool_use("chat_send", text="two")),
        reply(tool_use("skills_list"), tool_use("nonsense")),
        reply(),
    ]
    chat = bench.chat
    written = Written(chat, lambda: [f"o{number}" for number, _ in enumerate(chat.seen)])
    await bench.say("hello", reply=written)
    steps = [step for step in await steps_of(bench) if step.kind == "tool"]
    assert [step.name for step in steps[:3]] == ["press", "chat_send", "chat_send"]
    assert all(step.ended_at for step in steps)
    # What only reads runs side by side.
    steps[3:] = sorted(steps[3:], key=lambda step: step.name, reverse=True)
    assert [step.name for step in steps[3:]] == ["skills_list", "nonsense"]
    results: list[Json] = [step.result or {} for step in steps]
    assert results[0] == {
        "type": "tool_result",
        "tool_use_id": steps[0].id,
        "content": "gedrückt",
        "origin": [],
    }
    assert [one.get("written") for one in results] == [None, ["o0"], ["o1"], None, None]
    assert results[4]["is_error"] is True


async def test_a_tool_with_effects_begins_once_its_beginning_is_on_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    press, begin_step = Press(), bench.journal.begin_step
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(step: StepRecord) -> None:
        if step.kind == "tool":
            asked.set()
            await go_on.wait()
        await begin_step(step)

    monkeypatch.setattr(bench.journal, "begin_step", slow)
    bench.add_tools(press)
    bench.model.answers += [reply(tool_use("press")), reply()]
    running = asyncio.create_task(bench.say("press"))
    await asked.wait()
    assert press.pressed == 0
    go_on.set()
    await running
    assert press.pressed == 1


@pytest.mark.parametrize("who", ["quoting", "sessions", "flush"])
async def test_whoever_waits_for_a_step_of_a_turn_and_is_cancelled_leaves_the_turn_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    bench = Bench(tmp_path, streams=True)
    await bench.start()
    await bench.say("hi", archive=False)
    bench.add_tools(Press())
    begin_step, began, go_on = bench.journal.begin_step, asyncio.Event(), asyncio.Event()

    async def slow(step: StepRecord) -> None:
        if step.kind == "tool":
            began.set()
            await go_on.wait()
        await begin_step(step)

    monkeypatch.setattr(bench.journal, "begin_step", slow)
    bench.model.answers += [reply(tool_use("press")), reply(text("done"))]
    turn = asyncio.ensure_future(bench.say("press it", archive=False))
    async with asyncio.timeout(90):
        await began.wait()
        asks: dict[str, Callable[[], Awaitable[object]]] = {
            "quoting": lambda: bench.pool.quoting(KEY, ["x"], "41"),
            "sessions": lambda: bench.pool.sessions(KEY),
            "flush": bench.pool.flush,
        }
        asked = asyncio.ensure_future(asks[who]())
        await asyncio.sleep(0)
        await bench.pool.runtime(KEY).ledger.flush()  # by then its own flush of the lines is over
        for _ in range(100):
            await asyncio.sleep(0)
        assert not asked.done()
        asked.cancel()
        await asyncio.wait([asked])
        go_on.set()
        assert (await turn).status == "done"
    await bench.close()


class TestAJournalThatCannotWrite:
    @pytest.fixture(autouse=True)
    def _full(self, bench: Bench) -> None:
        bench.journal.fail(JournalFailure(times=None))

    async def test_the_conversation_goes_on(self, bench: Bench) -> None:
        bench.model.answers += [reply(tool_use("skills_list")), reply(tool_use("chat_send", text="Da."))]
        assert (await bench.say("hello")).status == "done"
        assert bench.chat.seen == ["Da."]
        assert any("step" in entry.message for entry in bench.log.at("error"))

    async def test_a_tool_with_effects_is_not_run_and_the_model_is_told(self, bench: Bench) -> None:
        press = Press()
        bench.add_tools(press)
        bench.model.answers += [reply(tool_use("press")), reply(text("I could not."))]
        await bench.say("press")
        assert press.pressed == 0
        (result,) = bench.sent[-1]["content"]
        assert (result["content"], result["is_error"]) == (UNRECORDED, True)
        assert any(entry.details.get("tool") == "press" for entry in bench.log.at("error"))

    async def test_a_turn_whose_steps_cannot_be_read_repeats_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.journal.mend()
        press = Press()
        press.hold = asyncio.Event()
        bench.add_tools(press)
        inbound = bench.inbound("press")
        request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
        bench.model.answers += [reply(tool_use("press"))]
        running = asyncio.create_task(bench.pool.run(request))
        await press.began.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        bench.restart()

        async def unreadable(_: str) -> list[StepRecord]:
            raise errors.StorageError("EIO")

        monkeypatch.setattr(bench.journal, "steps", unreadable)
        outcome = await bench.pool.run(request)
        assert (outcome.status, outcome.notice) == ("failed", errors.StorageError().person)
        assert press.pressed == 1
        assert (await bench.say("and on")).status == "done"


async def test_a_tool_is_not_run_either_where_the_transcript_cannot_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: str, __: Sequence[Any], **how: Any) -> str:
        raise errors.StorageError("no space left")

    monkeypatch.setattr(bench.transcript, "append", refused)
    press = Press()
    bench.add_tools(press)
    bench.model.answers += [reply(tool_use("press")), reply(text("I could not."))]
    await bench.say("press")
    assert press.pressed == 0
    assert bench.chat.seen == ["I could not."]


async def test_between_the_models_answer_and_the_outbox_stands_one_write(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: asyncio.Queue[tuple[str, asyncio.Event]] = asyncio.Queue()
    released: list[asyncio.Event] = []
    append, begin_step = bench.transcript.append, bench.journal.begin_step

    async def gate(name: str) -> None:
        done = asyncio.Event()
        released.append(done)
        waiting.put_nowait((name, done))
        await done.wait()

    async def slow_append(chat_key: ChatKey, lines: Sequence[Any], **how: Any) -> str:
        await gate("transcript")
        return await append(chat_key, lines, **how)

    async def slow_begin(step: StepRecord) -> None:
        await gate("journal")
        await begin_step(step)

    bench.model.hold = asyncio.Event()
    running = asyncio.create_task(bench.say("hello"))
    await bench.model.asked.wait()
    await bench.pool.flush()
    monkeypatch.setattr(bench.transcript, "append", slow_append)
    monkeypatch.setattr(bench.journal, "begin_step", slow_begin)
    bench.model.hold.set()
    async with asyncio.timeout(90):
        begun = dict([await waiting.get(), await waiting.get()])
        assert bench.chat.seen == []
        begun["transcript"].set()
        await waiting.get()
    assert bench.chat.seen == ["echo: hello"], "for the journal, which keeps its order, nobody waited"
    monkeypatch.undo()
    for gated in released:
        gated.set()
    await running


async def test_what_a_person_changed_is_told_with_the_time_of_the_message_that_it_changes(
    bench: Bench,
) -> None:
    first = bench.inbound("Treffen um drei", message_id="m1", ts=1_700_000_000_000)
    base = {"channel": "telegram", "chat_id": "1", "chat_key": KEY, "role": "user", "message_id": "m1"}
    await bench.archive.append(ArchiveLine(ts=first.ts, text="Treffen um drei", **base))
    await bench.archive.append(ArchiveLine(ts=first.ts + 5, text="…um vier", meta={"edited": True}, **base))
    press = Press()
    bench.add_tools(press)
    more = [bench.inbound("Treffen um fünf 🕔", kind="edit", message_id="m1", ts=first.ts + 60_000)]
    bench.model.answers += [reply(tool_use("press")), reply(tool_use("chat_send", text="Fünf.")), reply()]
    request = TurnRequest(first.request_id, KEY, inbound=first, reply=bench.chat, arrivals=Added(each(more)))
    await bench.pool.run(request)
    told = bench.model.requests[1].messages[-1]
    assert words(told) == ["Treffen um fünf 🕔"]
    assert "has changed a message that was sent at 2023-11-14T22:13:20Z" in told["content"][0]["text"]

    edit = bench.inbound("neu", kind="edit", message_id="m99")
    await bench.pool.run(TurnRequest(edit.request_id, KEY, inbound=edit, reply=bench.chat))
    facts = next(m for m in reversed(bench.sent) if words(m) == ["neu"])["content"][0]["text"]
    assert "has changed a message that was sent earlier" in facts
    assert "edit" not in bench.model.requests[0].messages[0]["content"][0]["text"]


class TestABurst:
    def request(self, bench: Bench, *texts: str) -> TurnRequest:
        first, *rest = [bench.inbound(one) for one in texts]
        return TurnRequest(first.request_id, KEY, inbound=first, reply=bench.chat, also=tuple(rest))

    async def test_is_one_turn_with_a_message_for_each(self, bench: Bench) -> None:
        request = self.request(bench, "eins", "二", "שלוש")
        await bench.pool.run(request)
        asked = bench.model.requests[0].messages
        assert [words(message) for message in asked] == [["eins"], ["二"], ["שלוש"]]
        assert all(one.request_id in asked[n + 1]["content"][0]["text"] for n, one in enumerate(request.also))
        assert bench.chat.seen == ["echo: שלוש"]
        live = bench.pool.runtime(KEY).store.turns
        bench.restart()
        await bench.pool.describe(KEY)
        assert bench.pool.runtime(KEY).store.turns == live
        assert live[0].sources == (request.request_id, *(one.request_id for one in request.also))

    async def cut(self, bench: Bench, request: TurnRequest, keep: int, *answers: Any) -> None:
        """Run the request and let the process die: of the transcript only so many lines reached the disk."""
        await bench.pool.run(request)
        await bench.pool.flush()
        file = min((bench.root / "transcripts").rglob("*.jsonl"))
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:keep]))
        bench.chat.seen.clear()
        bench.model.requests.clear()
        bench.restart()

    @pytest.mark.parametrize("keep", [1, 2, 3, 4])
    async def test_of_which_a_part_was_written_is_answered_whole(self, bench: Bench, keep: int) -> None:
        request = self.request(bench, "eins", "zwei", "drei")
        await self.cut(bench, request, keep)
        await bench.pool.run(request)
        assert [words(m) for m in bench.model.requests[0].messages] == [["eins"], ["zwei"], ["drei"]]
        assert bench.chat.seen == ["echo: drei"]

    async def test_that_has_grown_since_the_answer_gets_a_second_one(self, bench: Bench) -> None:
        request = self.request(bench, "eins")
        bench.model.answers += [reply(text("Antwort eins"))]
        await self.cut(bench, request, 3)
        bench.model.answers += [reply(text("Antwort zwei"))]
        await bench.pool.run(replace(request, also=(bench.inbound("zwei"),)))
        assert bench.chat.seen == ["Antwort eins", "Antwort zwei"]

    async def test_that_has_grown_since_a_tool_was_called_is_seen_after_its_result(
        self, bench: Bench
    ) -> None:
        request = self.request(bench, "eins")
        await self.cut(bench, request, 3)
        late = bench.inbound("zwei")
        bench.model.answers += [reply(text("Beides."))]
        await bench.pool.run(replace(request, also=(late,), begun=said("1")))
        assert [message["role"] for message in bench.sent] == ["user", "assistant", "user", "user"]
        assert words(bench.sent[-1]) == ["zwei"]
        assert bench.chat.seen == ["Beides."]

    @pytest.mark.parametrize("arrived", [["Bin dran."], ["Bin dran.", "Beides."]])
    async def test_that_has_grown_since_something_was_sent_is_answered_once_more_and_once_only(
        self, bench: Bench, arrived: list[str]
    ) -> None:
        late, sent = [bench.inbound("zwei")], ["Bin dran."]
        request = replace(
            self.request(bench, "eins"),
            reply=Written(bench.chat, lambda: list(sent)),
            arrivals=Added(each(late)),
        )
        bench.model.answers += [reply(tool_use("chat_send", text="Bin dran.")), reply(text("Beides."))]
        await self.cut(bench, request, -1)
        sent[:] = arrived
        begun = tuple(PriorReply(one, (f"m{number}",)) for number, one in enumerate(arrived))
        await bench.pool.run(replace(request, reply=bench.chat, begun=begun))
        assert [*arrived, *bench.chat.seen] == ["Bin dran.", "Beides."]
        assert bench.model.requests == []


class TestADeliveryThatIsPutOff:
    async def test_counts_as_settled_and_the_model_is_told_when(self, bench: Bench) -> None:
        bench.chat.failures = [errors.DeliveryDeferred(wait=1_800)]
        bench.model.answers += [reply(tool_use("chat_send", text="later"))]
        outcome = await bench.say("hello")
        assert bench.chat.seen == []
        await bench.say("next")
        result = bench.sent[2]["content"][0]
        assert "is_error" not in result
        assert "in about 30 min" in result["content"]
        assert "Do not send it again" in result["content"]
        assert (outcome.status, outcome.notice) == ("done", None)

    async def test_of_the_last_text_ends_the_turn(self, bench: Bench) -> None:
        bench.chat.failures = [errors.DeliveryDeferred(wait=90)]
        bench.model.answers += [reply(text("later"))]
        outcome = await bench.say("hello")
        assert (outcome.status, outcome.notice, bench.chat.seen) == ("done", None, [])

    async def test_that_takes_longer_than_a_turn_waits_is_not_said_a_second_time(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(agent_reply, "LONGEST", 0.0)
        monkeypatch.setattr(bench.chat, "send", Hanging())
        bench.model.answers += [reply(tool_use("chat_send", text="later")), reply()]
        async with asyncio.timeout(90):
            outcome = await bench.say("hello")
            await bench.say("next")
        (result,) = bench.sent[2]["content"]
        assert "It will then be delivered by itself. Do not send it again" in result["content"]
        assert (outcome.status, outcome.notice) == ("done", None)

    async def test_or_is_cut_off_by_the_time_of_its_tool_is_settled_too(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hanging = Hanging()
        monkeypatch.setattr(bench.chat, "send", hanging)
        reply = agent_reply.TrackedReply(bench.chat, bench.pool.runtime(KEY).ledger, NoArrivals())
        sending = asyncio.create_task(reply.send("later"))
        await hanging.called.wait()
        sending.cancel()
        await asyncio.wait([sending])
        assert reply.settled


async def test_a_death_before_the_recording_of_an_end_begins_leaves_nothing_behind(bench: Bench) -> None:
    pending: set[asyncio.Task[bool]] = set()
    steps = StepLog("r-1", bench.journal, pending, clock=bench.clock, log=bench.log)
    steps.end("s-1", {}, after=asyncio.Event().wait)
    (recording,) = pending
    recording.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recording
