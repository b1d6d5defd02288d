"""Random conversations: every request is valid, and memory and disk keep the same history.

Judged by the rules of the loopback provider, which share nothing with those that the requests are made by.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import batch, errors
from bot.agent.ledger import ParentChain
from bot.context import replay
from bot.context.store import AgentContextStore
from bot.contracts.agent import TurnRequest
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.core import blocks
from bot.llm.body import body_of, headers_of
from bot.system_role import told
from bot.testing import anthropic_rules as rules
from bot.testing.anthropic_cache import Binding, check_breakpoints
from bot.testing.anthropic_compaction import Compactions
from bot.testing.model import ScriptedModel, reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Added, Bench
from tests.unit.agent.short_bench import AtOnce, ShortBench

SUMMARY = "<summary>## What happened\n- 聊天\n## Open tasks\n(none)\n</summary>"
SHORT = 100
MODELS = ("scripted", "other")
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def search() -> Json:
    """A call of one of the provider's own tools."""
    return {
        "type": "server_tool_use",
        "id": f"srv{tool_use('search')['id']}",
        "name": "web_search",
        "input": {},
    }


def result(call: Json) -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": call["id"], "content": []}


def searched() -> ModelReply:
    call = search()
    return reply(THINKING, call, result(call), text("found 見つけた"))


def found(request: ModelRequest) -> list[Json]:
    """Where the provider paused before it had a result, its answer goes on with that."""
    last = request.messages[-1]
    open_calls = blocks.without_open_calls(last["content"])
    if last["role"] == "user" or request.summarize is not None:
        return []
    return [result(block) for block in last["content"] if block not in open_calls and "id" in block]


def cut_call() -> ModelReply:
    call = tool_use("nothing", a=1)
    return reply(call, stop_reason="max_tokens", cut=[call["id"]])


class Judged(ScriptedModel):
    """Says what it is told to; `refused` is what the provider would have refused, thinking in the wrong place too.

    One that `compacts` writes summaries itself; one that has forgotten them refuses them, which is no fault of ours.
    """

    def __init__(self, *, compacts: bool = False) -> None:
        super().__init__()
        self.known = ModelFacts(compacts=compacts)
        self.refused: list[str] = []
        self._binding = Binding()
        self._compactions = Compactions()
        self._forgot = False
        self._leave = rules.Leave(
            types={"thinking", "compaction", "server_tool_use", "web_search_tool_result"}, system_role=True
        )

    def forget(self) -> None:
        """Know none of the summaries that it wrote."""
        self._compactions, self._forgot = Compactions(), True

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        body = body_of(replace(request, messages=told(request.messages)))
        talk = body | {"tools": []}  # they are the same throughout, and long
        try:
            self._compactions.check(talk, headers_of(request).get("anthropic-beta", ""))
            rules.check(body, replace(self._leave, prefill=request.summarize is not None))
            check_breakpoints(body)
            if request.purpose == "turn":  # a fork of a chat whose system prompt is not known yet thinks anew
                self._binding.check(talk)
        except rules.Refused as refused:
            forgotten = self._forgot and refused.code == "compaction_signature_invalid"
            if forgotten or ("prefill" in refused.message and self._thought_less(request)):
                self.requests.append(request)
                raise errors.RequestInvalid(refused.message) from None
            self.refused.append(refused.message)
        async for event in super().stream(request):
            if isinstance(event, ModelReply) and request.summarize is not None:
                block = self._compactions.sign(blocks.plain_text(event.content), talk)
                yield replace(event, content=[block], stop_reason="compaction")
            elif isinstance(event, ModelReply):
                content = [*found(request), *(dict(block) for block in event.content)]
                self._binding.sign(talk, content)
                self._leave.resumable.append(content)
                yield replace(event, content=content)
            else:
                yield event

    def _thought_less(self, request: ModelRequest) -> bool:
        """Whether it is a paused answer that comes back without its thinking: an epoch took that."""
        before = [{"content": content} for content in self._leave.resumable]
        last = rules.unmarked({"content": request.messages[-1]["content"]})
        return last in blocks.without_thinking(before)


ANSWERS: list[Any] = [
    lambda _: reply(tool_use("chat_send", text="hi 🏳️‍🌈")),
    lambda _: reply(tool_use("chat_send", text="你好")),
    lambda _: reply(THINKING, text("x"), tool_use("skills_list"), tool_use("skills_list")),
    lambda rng: reply(THINKING, tool_use("chat_load_history", limit=rng.choice([1, 5, 200]))),
    lambda rng: errors.ContextOverflow(
        "too long", tokens=rng.choice([None, 300_000]), window=rng.choice([None, 200_000])
    ),
    lambda _: reply(text("final")),
    lambda _: reply(stop_reason="refusal"),
    lambda _: reply(text("wait"), stop_reason="pause_turn"),
    lambda _: reply(THINKING, search(), stop_reason="pause_turn"),
    lambda _: reply(text("I search"), search(), stop_reason="pause_turn"),
    lambda _: searched(),
    lambda _: errors.StreamBroken("cut"),
    lambda _: reply(THINKING),
    lambda _: cut_call(),
    lambda _: errors.ThinkingUnbound("bound elsewhere"),
    lambda _: reply(THINKING, text("to be 続"), stop_reason="max_tokens"),
    lambda _: reply(text("to be "), THINKING, stop_reason="max_tokens"),
    lambda _: reply(THINKING, stop_reason="max_tokens"),
    lambda _: reply(THINKING, text("as far"), stop_reason="model_context_window_exceeded"),
    lambda _: reply(THINKING, stop_reason="model_context_window_exceeded"),
    lambda _: reply(),
    lambda _: reply(text("of late"), stop_reason="brand_new"),
    lambda _: errors.OutputOverflow("too much", limit=None),
    lambda _: errors.RequestTooLarge("413"),
]


async def converse(bench: Bench, rng: random.Random, most: int = 14) -> None:
    model = Judged(compacts=rng.random() < 0.6)
    bench.configure(model=model, max_messages=rng.choice([4, 8, 12, 60]))
    for name in MODELS:
        await bench.deps.models.windows.ask(model, name)
    for number in range(rng.randrange(6)):
        await bench.store(number, rng.choice(["user", "assistant"]), f"old {number}")
    for number in range(rng.randrange(3, most)):
        bench.model.answers.clear()
        step = rng.randrange(10)
        if step == 0:
            await elsewhere(bench, rng)
        elif step == 1:
            await restarted(bench)
        elif step == 2:
            await another(bench, rng)
        elif step == 3:
            await compacted(bench, rng)
        elif step == 4:
            await crashed(bench, rng, number)
        else:
            await turn(bench, rng, number)
    assert model.refused == []
    assert not bench.log.of("repair"), "nothing had to be mended either"


async def elsewhere(bench: Bench, rng: random.Random) -> None:
    """What a person may ask for between turns: each gives the same store from the newest boundary and from all lines."""
    turns, asked = bench.pool.runtime(KEY).store.turns, rng.randrange(5)
    if asked == 0:
        with contextlib.suppress(errors.TurnSummarized):
            await bench.pool.undo(KEY)
    elif asked == 1:
        await bench.pool.reset(KEY)
    elif asked == 2:
        await bench.pool.fork(KEY, back=rng.randrange(3))
    elif asked == 3:
        earlier = [one.id for one in await bench.pool.sessions(KEY) if not one.current]
        if earlier:
            await bench.pool.resume(KEY, rng.choice(earlier))
    elif turns and turns[-1].request_id:
        await removed(bench, turns[-1].request_id, rng.choice(["user", "assistant"]))
    await bench.pool.describe(KEY)
    await as_from_the_beginning(bench)


async def removed(bench: Bench, turn: str, role: str) -> None:
    """A removal of what was said in a turn, as the gateway has it."""
    meta = {"deleted": True, "of": [turn], "ofRole": role, "turns": [turn]}
    await bench.archive.append(
        ArchiveLine(
            ts=1,
            channel="telegram",
            chat_id="1",
            chat_key=KEY,
            message_id=f"{role} {turn}",
            role="system",
            text="",
            meta=meta,
        )
    )
    await bench.pool.forget(KEY)


async def compacted(bench: Bench, rng: random.Random) -> None:
    """Compact, or fail to; whatever the model says, the next request is valid and a restart gives the same."""
    said: list[ModelReply | Exception] = [reply(text(SUMMARY)), reply(text("no")), errors.Overloaded()]
    bench.model.answers.extend(rng.choice(said) for _ in range(2))
    facts = await bench.pool.compact(KEY)
    assert facts.outcome in {"summary", "provider", "nothing", "failed"}
    bench.model.answers.clear()
    await restarted(bench)


async def another(bench: Bench, rng: random.Random) -> None:
    """A new process with another model, or with a provider that never saw this conversation."""
    await restarted(bench)
    if rng.random() < 0.5:
        bench.model.forget()  # type: ignore[attr-defined]
    else:
        bench.configure(default_model=rng.choice(MODELS))
    await bench.pool.describe(KEY)


async def restarted(bench: Bench) -> None:
    """A new process fills the store with the same bytes."""
    await bench.pool.flush()  # a turn that was stopped leaves its lines on their way
    runtime = bench.pool.runtime(KEY)
    kept, filled = json.dumps([*runtime.store.view(), *runtime.store.messages()]), runtime.filled
    bench.restart()
    await bench.pool.describe(KEY)
    if filled:
        store = bench.pool.runtime(KEY).store
        assert json.dumps([*store.view(), *store.messages()]) == kept
    await as_from_the_beginning(bench)


async def as_from_the_beginning(bench: Bench) -> None:
    """What was filled from the newest boundary on is what all lines of the session give."""
    runtime, lines = bench.pool.runtime(KEY), await bench.transcript.load(KEY)
    store, trail = AgentContextStore(bench.deps.limits.max_messages), ParentChain()
    assert not replay.replay(store, lines)
    for line in lines:
        trail.follow(line)
    trail.close()
    assert (store.turns, store.head, store.masked, store.running) == (
        runtime.store.turns,
        runtime.store.head,
        runtime.store.masked,
        runtime.store.running,
    )
    assert (trail.tip, trail.turn, trail.facts) == (
        runtime.ledger.chain.tip,
        runtime.ledger.chain.turn,
        runtime.ledger.facts,
    )


async def crashed(bench: Bench, rng: random.Random, number: int) -> None:
    """The process dies in the middle of a turn, and the next one goes on with it."""
    bench.model.answers.extend(rng.choice(ANSWERS)(rng) for _ in range(rng.randrange(5)))
    inbound = bench.inbound(f"message {number}")
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    running = asyncio.create_task(bench.pool.run(request))
    for _ in range(rng.randrange(60)):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bench.pool.flush()
    bench.restart()
    if await bench.pool.cut_off(KEY):
        await bench.pool.run(request)


async def turn(bench: Bench, rng: random.Random, number: int) -> None:
    """One turn of random answers, steered or not, stopped somewhere or not."""
    bench.model.answers.extend(rng.choice(ANSWERS)(rng) for _ in range(rng.randrange(5)))
    more = [bench.inbound(f"and {number}")] if rng.random() < 0.4 else []
    saying = asyncio.create_task(
        bench.say(
            f"message {number}", arrivals=Added(lambda: [more.pop()] if more and rng.random() < 0.6 else [])
        )
    )
    if rng.random() < 0.3:
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        await bench.pool.stop(KEY)
    outcome = await saying
    # A request that is not valid never leaves: the turn would end with this.
    assert "RequestInvalid" not in outcome.detail
    assert "Something went wrong" not in (outcome.notice or ""), outcome
    store = bench.pool.runtime(KEY).store
    before = sum(len(turn.entries) for turn in store.turns[:-1])
    assert before <= max(bench.deps.limits.max_messages, 4) or len(store.turns) <= 2
    assert not store.turns or store.messages()[0]["role"] == "user"


async def many(folder: Path, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations side by side, each on files of its own, and without a thread. The first that fails ends all."""
    monkeypatch.setattr(batch, "ThreadPoolExecutor", AtOnce)
    asyncio.get_running_loop().set_default_executor(AtOnce(1))
    benches = {seed: ShortBench(folder / str(seed)) for seed in seeds}
    talks = [asyncio.create_task(seeded(bench, seed)) for seed, bench in benches.items()]
    gc.disable()  # a fourth of the time: nothing here lives long
    try:
        await asyncio.gather(*talks)
    finally:
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await asyncio.gather(*(bench.close() for bench in benches.values()))
        gc.enable()


async def seeded(bench: Bench, seed: int) -> None:
    """A short conversation; where it fails, the error says which it was."""
    try:
        await converse(bench, random.Random(seed), 6)
    except Exception as error:
        error.add_note(f"the conversation with seed {seed}")
        raise


@pytest.mark.parametrize("seed", one_in(3, range(24)))
async def test_a_random_conversation_keeps_its_promises(bench: Bench, seed: int) -> None:
    await converse(bench, random.Random(seed))


@pytest.mark.parametrize("part", range(SHORT // 50))
async def test_short_random_conversations_keep_their_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    await many(tmp_path, range(part * 50, part * 50 + 50), monkeypatch)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(int(os.environ.get("CONVERSATIONS", "1000")) // 50))
async def test_very_many_random_conversations_keep_their_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    first = SHORT + part * 50
    await many(tmp_path, range(first, first + 50), monkeypatch)
