"""Where the model can, the provider itself writes the summary: a signed block, which is sent back as it came, or its words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot.contracts.model import ModelFacts, ModelReply, ModelRequest
from bot.contracts.provenance import ANYBODYS, Provenance
from bot.core import forks, memory
from bot.core.compaction import Policy
from bot.core.forks import Prefix
from bot.core.found_tools import declared
from bot.core.notes.memories import Memories
from bot.llm.client import AnthropicModel
from bot.system import SystemClock, SystemDisk
from bot.testing import anthropic_script as say
from bot.testing.anthropic import KEY as API_KEY
from bot.testing.anthropic import AnthropicServer
from bot.testing.anthropic_compaction import Compactions
from bot.testing.anthropic_rules import unmarked
from bot.testing.model import ScriptedModel, reply, text
from bot.tools.permissions import taint
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_recording import again

MODEL = "claude-opus-5-5"
WRITTEN = "## What happened\n- 我们谈了船 🚢\n## Facts\n- the ship is called 海\n## Decisions\n(none)\n\
## Preferences\n(none)\n## Open tasks\n- paint it\n"
OWN = f"<analysis>hm</analysis><summary>{WRITTEN}</summary>"


class Writer:
    """Answers turns, thinking aloud; summaries are what `summary` says, forks get `own`."""

    def __init__(self, summary: say.Answer | None = None) -> None:
        self.summary = summary or say.reply(WRITTEN)
        self.own = OWN

    def __call__(self, body: Any) -> say.Answer | str:
        if "compaction" in body:
            return self.summary
        if "<summary_task>" in json.dumps(body["messages"][-1]):
            return self.own
        return say.reply(say.thinking(), f"返事 {len(body['messages'])}")


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(bind_thinking=True, compacts=True) as running:
        running.script(Writer())
        yield running


@pytest.fixture
async def provided(bench: Bench, server: AnthropicServer) -> AsyncIterator[Bench]:
    model = AnthropicModel(api_key=API_KEY, base_url=server.url, clock=SystemClock())
    memories = Memories(bench.root / "memory", disk=SystemDisk())
    bench.configure(model=model, default_model=MODEL, memories=memories)
    await bench.deps.models.windows.ask(model, MODEL)
    yield bench
    await model.close()


async def talked(bench: Bench, turns: int = 6) -> None:
    for number in range(turns):
        assert (await bench.say(f"message {number}")).status == "done"


def head(bench: Bench) -> Any:
    return bench.pool.runtime(KEY).store.head


def shown(bench: Bench) -> str:
    return json.dumps(list(bench.pool.runtime(KEY).store.view()), ensure_ascii=False)


def summaries(server: AnthropicServer) -> list[Any]:
    return [body for body in server.bodies if "compaction" in body]


def refused(server: AnthropicServer) -> list[int]:
    return [seen.status for seen in server.requests if seen.status != 200]


async def restarted(bench: Bench) -> None:
    before = shown(bench)
    bench.restart()
    await bench.pool.runtime(KEY).fill()
    assert shown(bench) == before


async def test_the_providers_summary_is_asked_behind_the_chats_own_bytes_and_sent_back_as_it_came(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    before = declared(json.loads(shown(provided)))[0]
    assert (await provided.pool.compact(KEY, "the ship")).outcome == "provider"
    (asked,) = summaries(server)
    assert unmarked(asked["messages"]) == before
    assert "the ship" in asked["compaction"]["instructions"]
    block = head(provided)["content"][0]
    assert (block["type"], block["content"], bool(block["signature"])) == ("compaction", WRITTEN, True)
    await provided.say("and now?")
    first = server.bodies[-1]["messages"][0]
    assert unmarked(first) == head(provided)
    assert first["content"][0] == block
    assert "message 0" not in json.dumps(server.bodies[-1])
    assert "message 5" in json.dumps(server.bodies[-1])
    assert refused(server) == []
    kept = await Memories(provided.root / "memory", disk=SystemDisk()).load(KEY)
    assert kept is not None
    assert memory.read(kept.markdown).open_tasks == ("paint it",)
    await restarted(provided)
    await provided.say("after the restart")
    assert server.bodies[-1]["messages"][0]["content"][0] == block
    assert refused(server) == []


async def test_it_is_told_whose_words_it_stands_for(provided: Bench) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    view = provided.pool.runtime(KEY).store.view()
    assert taint.seen(view) == Provenance(frozenset({"77"}))
    assert taint.seen([memory.head("x", nonce="0a1b2c3d", block=view[0]["content"][0])]) == ANYBODYS


async def test_what_it_cost_is_counted(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    before = provided.pool.runtime(KEY).view_changes.chat_totals.facts
    await provided.pool.compact(KEY)
    after = provided.pool.runtime(KEY).view_changes.chat_totals.facts
    assert after["calls"] == before["calls"] + 1
    assert after["outputTokens"] > before["outputTokens"]
    read = sum(after[name] - before[name] for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
    assert read > 500


async def test_a_summary_of_a_summary_takes_its_place(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    first = head(provided)["content"][0]
    await talked(provided)
    assert (await provided.pool.compact(KEY)).outcome == "provider"
    assert unmarked(summaries(server)[1]["messages"][0]["content"][0]) == first
    assert head(provided)["content"][0]["signature"] != first["signature"]
    await provided.say("go on")
    assert refused(server) == []


async def test_instructions_that_change_make_words_of_it(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    (provided.root / "Agent.md").write_text("You are a sailor. 水手", encoding="utf-8")
    provided.restart()
    await provided.say("who are you?")
    assert "水手" in json.dumps(server.bodies[-1]["system"], ensure_ascii=False)
    assert head(provided)["content"][0]["text"].startswith("<conversation_summary")
    assert "我们谈了船" in head(provided)["content"][0]["text"]
    assert "signature" not in json.dumps(server.bodies[-1]["messages"][0])
    reasons = [entry.details.get("reason") for entry in provided.log.of("compaction")]
    assert reasons == ["compact", "instructions"]
    assert refused(server) == []
    await restarted(provided)


async def test_another_model_gets_words(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    provided.configure(default_model="claude-sonnet-5-5")
    await provided.say("and you?")
    assert server.bodies[-1]["model"] == "claude-sonnet-5-5"
    assert "我们谈了船" in head(provided)["content"][0]["text"]
    assert refused(server) == []


async def test_a_provider_that_does_not_know_its_summary_gets_words_in_the_same_turn(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    server.compactions = Compactions()
    outcome = await provided.say("do you remember?")
    assert (outcome.status, outcome.notice) == ("done", None)
    assert refused(server) == [400]
    assert "我们谈了船" in head(provided)["content"][0]["text"]
    (epoch,) = (e for e in provided.log.of("compaction") if e.details.get("reason") == "summary_refused")
    assert epoch.level == "warn"
    await restarted(provided)


FAILED: dict[str, say.Reply] = {
    "cut": say.reply("## What hap", stop_reason="max_tokens"),
    "a call": say.reply(say.tool_use("chat_send", {"text": "hi"})),
    "nothing": say.reply(),
    "declined": say.reply(stop_reason="refusal"),
    "without the open tasks": say.reply("We talked."),
    "too long": say.reply(WRITTEN + "long words " * 4_000),
}


@pytest.mark.parametrize("why", FAILED)
async def test_where_it_writes_none_that_will_do_a_fork_does(
    provided: Bench, server: AnthropicServer, why: str
) -> None:
    server.script(Writer(FAILED[why]))
    await talked(provided)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    assert "我们谈了船" in head(provided)["content"][0]["text"]
    assert any("no summary" in entry.message for entry in provided.log.entries if entry.kind == "memory")
    await provided.say("go on")
    assert refused(server) == []


def unavailable() -> say.Answer:
    return say.error(529, "overloaded_error", "try later", code="compaction_unavailable")


async def test_a_turn_goes_on_in_words_where_only_summaries_cannot_be_read(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    server.script(lambda body: unavailable() if memory.condensed(body["messages"][0]) else "はい")
    outcome = await provided.say("do you remember?")
    assert (outcome.status, outcome.notice) == ("done", None)
    assert "我们谈了船" in head(provided)["content"][0]["text"]
    await restarted(provided)


@pytest.mark.parametrize(
    "answer",
    [
        unavailable(),
        say.error(400, "invalid_request_error", "no", code="compaction_too_many_tool_references"),
    ],
)
async def test_what_keeps_it_from_one_summary_is_no_word_about_the_model(
    provided: Bench, server: AnthropicServer, answer: say.Answer
) -> None:
    server.script(Writer(answer))
    await talked(provided)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    assert provided.deps.models.windows.compacts(MODEL)


async def test_a_provider_that_does_not_know_its_summary_still_makes_another(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    await talked(provided)
    server.compactions = Compactions()
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    asked = server.bodies[-1]
    assert "我们谈了船" in json.dumps(asked["messages"][0], ensure_ascii=False), "it reads what was before"
    assert not memory.condensed(asked["messages"][0])
    assert provided.deps.models.windows.compacts(MODEL)
    await provided.say("go on")


async def test_before_the_first_turn_of_a_process_a_fork_reads_it_in_words(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    await talked(provided)
    provided.restart()
    await provided.pool.describe(KEY)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    assert refused(server) == []


async def test_a_summary_that_does_not_fit_is_made_of_less_but_of_the_summary_before(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    await talked(provided, 12)
    server.script(Writer(say.prompt_too_long()))
    asked = len(server.bodies)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    first, second = server.bodies[asked:]
    assert "我们谈了船" in json.dumps(second["messages"][0], ensure_ascii=False)
    assert 1 < len(second["messages"]) < len(first["messages"])


async def test_a_provider_that_refuses_is_not_asked_again(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    server.compacts = False
    for _ in range(2):
        assert (await provided.pool.compact(KEY)).outcome == "summary"
        await talked(provided)
    assert len(summaries(server)) == 1
    assert not provided.deps.models.windows.compacts(MODEL)


async def test_where_nobody_wants_it_or_the_model_cannot_it_is_not_asked(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    provided.configure(compaction=Policy(provider=False))
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    provided.configure(compaction=Policy())
    provided.deps.models.windows.compacts_not(MODEL)
    await talked(provided)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    assert summaries(server) == []


async def test_before_the_first_turn_of_a_process_nobody_knows_what_it_would_stand_behind(
    provided: Bench, server: AnthropicServer
) -> None:
    await talked(provided)
    provided.restart()
    await provided.pool.describe(KEY)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    assert summaries(server) == []


async def test_it_goes_with_what_is_removed(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    turn = provided.pool.runtime(KEY).store.turns[-1].request_id
    await remove(provided, "6", turn)
    assert not memory.condensed(head(provided))
    assert "signature" not in shown(provided)
    await provided.say("what did I say?")
    assert refused(server) == []


async def test_a_summary_in_words_is_as_old_as_its_block(provided: Bench) -> None:
    """What was said after it does not take it along when it is removed."""
    await talked(provided)
    await provided.pool.compact(KEY)
    await provided.clock.advance(10)
    await provided.say("later words")
    turn = provided.pool.runtime(KEY).store.turns[-1].request_id
    await provided.clock.advance(10)
    (provided.root / "Agent.md").write_text("You are a sailor.", encoding="utf-8")
    provided.restart()
    await provided.say("go on")
    await remove(provided, "7", turn)
    assert "我们谈了船" in shown(provided)
    assert "later words" not in shown(provided)


async def test_a_secret_in_it_costs_it_its_signature(provided: Bench) -> None:
    provided.configure(redact=lambda words: words.replace("海", "***"))
    await talked(provided)
    assert (await provided.pool.compact(KEY)).outcome == "summary"
    assert "the ship is called ***" in head(provided)["content"][0]["text"]


async def test_a_turn_behind_it_is_made_again_byte_for_byte(provided: Bench, server: AnthropicServer) -> None:
    await talked(provided)
    await provided.pool.compact(KEY)
    await provided.say("go on")
    turn = provided.pool.runtime(KEY).store.turns[-1].request_id
    await provided.pool.flush()
    (call,) = (await again(provided, turn)).calls
    assert call.exact, call.record.wrong
    assert b'"type":"compaction"' in (call.record.body or b"")


async def test_in_the_middle_of_a_turn_a_fork_is_asked(bench: Bench) -> None:
    bench.model.known = ModelFacts(compacts=True)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    bench.model.answers.append(reply(text(OWN)))
    question = {"role": "user", "content": [text("and?")]}
    found = await forks.condense(Prefix([text("Cat.")], [question], [question]), None, "", bench.deps)
    assert (found.words, found.block) == (WRITTEN.strip(), None)
    assert bench.model.requests[-1].summarize is None


class Whole(ScriptedModel):
    """Sends the block in a delta, and half a character in it."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        block = {"type": "compaction", "content": WRITTEN + "\ud83d", "signature": "s"}
        yield ModelReply([block], "compaction")


async def test_what_could_not_be_sent_back_is_no_block(bench: Bench) -> None:
    model = Whole()
    model.known = ModelFacts(compacts=True)
    bench.configure(model=model)
    await bench.deps.models.windows.ask(model, "scripted")
    question = {"role": "user", "content": [text("and?")]}
    found = await forks.condense(Prefix([text("Cat.")], [question]), None, "", bench.deps)
    assert found.block is None
    found.words.encode()
