"""What was asked of the model is made again from what is on disk: the same bytes, for every call of every turn."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.agent.rebuilding import Call, Rebuilt, rebuild
from bot.agent.request_log import PrefixBuilder
from bot.context.deletions import REMOVED, read_deletions
from bot.contracts.model import ModelRequest
from bot.contracts.transcript import Meta, TranscriptLine
from bot.history import frames, turns
from bot.history.transcript_lines import parsed
from bot.llm.body import wire
from bot.llm.client import AnthropicModel
from bot.system import SystemClock, SystemDisk
from bot.testing import anthropic_script as say
from bot.testing.anthropic import KEY as API_KEY
from bot.testing.anthropic import AnthropicServer
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.short_bench import ShortBench
from tests.unit.agent.test_random import SUMMARY, converse
from tests.unit.agent.test_removing import remove

DISK = SystemDisk()
MODEL = "claude-sonnet-5-5"


class Listening(AnthropicServer):
    """Keeps the bytes of each request."""

    def __init__(self) -> None:
        super().__init__(bind_thinking=True)
        self.heard: list[bytes] = []

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        self.heard.append(await request.read())
        return await super()._messages(request)


@pytest.fixture
async def server() -> AsyncIterator[Listening]:
    async with Listening() as running:
        yield running


@pytest.fixture
async def model(server: Listening) -> AsyncIterator[AnthropicModel]:
    client = AnthropicModel(api_key=API_KEY, base_url=server.url, clock=SystemClock())
    yield client
    await client.close()


def find(bench: Bench, request_id: str) -> turns.FoundTurn:
    found = turns.find(DISK, bench.root / "transcripts", request_id)
    assert found is not None
    return found


async def again(bench: Bench, request_id: str) -> Rebuilt:
    found = find(bench, request_id)
    gone = read_deletions(await bench.archive.removals(KEY))
    return rebuild(
        found.lines,
        found.request_id,
        lambda name: frames.read(DISK, bench.root / "transcripts", name),
        gone,
    )


async def lines(bench: Bench) -> list[TranscriptLine]:
    """Those of every session, in the order in which they were written."""
    await bench.pool.flush()
    found: list[TranscriptLine] = []
    for file in (bench.root / "transcripts").glob("*/*.jsonl"):
        found += [one for raw in file.read_bytes().splitlines() if (one := parsed(raw)) is not None]
    return sorted(found, key=lambda line: line.uuid)


async def calls(bench: Bench) -> list[Call]:
    """Every call of every turn."""
    begun = [line.request_id or "" for line in await lines(bench) if line.type == "turn_start"]
    made = [call for one in dict.fromkeys(begun) if one for call in (await again(bench, one)).calls]
    return sorted(made, key=lambda call: str(call.record["step"]))


async def request_ids(bench: Bench) -> list[str]:
    return [line.request_id or "" for line in await lines(bench) if line.type == "turn_start"]


async def test_each_body_is_made_again_as_the_provider_got_it(
    bench: Bench, server: Listening, model: AnthropicModel
) -> None:
    """Tools, thinking, steering, loaded history, an overflow, masks, a compaction, a restart, a new session."""
    bench.configure(
        model=model, default_model=MODEL, mask_threshold=100, keep_observations=1, max_messages=40
    )
    (bench.root / "long.txt").write_text("十分長い一行 🚢\n" * 300, encoding="utf-8")
    for number in range(24):
        await bench.store(number, "user", f"früher {number}", request_id=f"00{number:024}")
    more = [bench.inbound("und blau")]
    server.then(
        say.reply(say.thinking(), "Ich sehe nach. 👀", say.tool_use("skills_list")),
        say.reply(say.tool_use("chat_load_history", {"limit": 2})),
        say.prompt_too_long(),
        say.reply(say.tool_use("chat_send", {"text": "完了"})),
        say.reply(say.text("done")),
    )
    await bench.say("Was war das?", take_more=lambda: [more.pop()] if more and len(server.heard) > 1 else [])
    bench.restart()
    server.then(say.reply(say.tool_use("list_dir", {"path": "."})), say.reply(say.text("two")))
    await bench.say("والآن؟")
    for number in range(5):
        server.then(say.reply(say.tool_use("read_file", {"path": "long.txt"})), say.reply("read"))
        await bench.say(f"and {number}")
    await bench.clock.advance(400)
    server.then(say.reply(say.text("cold")))
    await bench.say("cold?")
    server.then(say.reply(say.text(SUMMARY)))
    assert (await bench.pool.compact(KEY))["how"] == "summary"
    server.then(say.reply(say.text("to be "), stop_reason="max_tokens"), say.reply(say.text("continued")))
    await bench.say("short")
    await bench.pool.reset(KEY)
    await bench.say("new")
    made = await calls(bench)
    kinds = {line.type for line in await lines(bench)}
    assert {"injection", "mask", "boundary", "meta"} <= kinds
    asked_for_summary = server.heard.index(next(raw for raw in server.heard if b"</analysis>" in raw))
    del server.heard[asked_for_summary]
    assert [call.body for call in made] == server.heard
    assert all(call.exact and not call.wrong for call in made)


@pytest.mark.parametrize("seed", one_in(2, range(8)))
async def test_random_conversations_are_made_again(tmp_path: Path, seed: int) -> None:
    bench = ShortBench(tmp_path)
    await converse(bench, random.Random(seed), 8)
    sent = [wire(one) for one in bench.model.requests if one.purpose == "turn"]
    made = await calls(bench)
    assert [call.body for call in made] == sent
    assert all(call.exact for call in made)
    await bench.close()


async def test_what_a_call_came_to_stands_beside_it(bench: Bench) -> None:
    more = [bench.inbound("and more")]
    joined = more[0].request_id
    bench.model.answers.extend(
        [reply(tool_use("skills_list")), reply(text("all")), reply(stop_reason="refusal")]
    )
    await bench.say("hello", take_more=lambda: [more.pop()] if more else [])
    await bench.say("bad")
    first, second = await request_ids(bench)
    turn = await again(bench, joined)
    assert find(bench, joined).request_id == first
    assert [(call.facts or {})["stopReason"] for call in turn.calls] == ["tool_use", "end_turn"]
    assert [len(call.results) for call in turn.calls] == [1, 0]
    assert [one["content"][-1]["text"] for one in turn.joined] == ["and more"]
    assert turn.status == "done"
    assert all((call.facts or {})["usage"]["inputTokens"] == 0 for call in turn.calls)
    refused = await again(bench, second)
    assert refused.status == "withdrawn"
    assert [((call.facts or {})["stopReason"], call.answer) for call in refused.calls] == [("refusal", None)]


async def test_what_many_requests_begin_with_is_kept_once(bench: Bench) -> None:
    for _ in range(3):
        await bench.say("hello")
    kept = sorted((bench.root / "transcripts" / "frames").iterdir())
    assert len(kept) == 2, "the part that all chats share, and the tools"
    metas = [line.event for line in await lines(bench) if isinstance(line.event, Meta)]
    parts = [meta.parts for meta in metas if meta.parts]
    assert len(parts) == 1, "the chat's own part"
    records = [meta.asked for meta in metas if meta.asked]
    assert len({str(record["system"]) for record in records}) == 1


async def test_what_is_not_on_file_is_named(bench: Bench) -> None:
    await bench.say("hello")
    (request_id,) = await request_ids(bench)
    kept = sorted((bench.root / "transcripts" / "frames").iterdir())
    kept[0].write_bytes(kept[0].read_bytes().replace(b"the", b"The", 1))
    kept[1].unlink()
    (call, *_) = (await again(bench, request_id)).calls
    assert not call.exact
    assert any("held a secret or was changed" in words for words in call.wrong) or call.request is None
    assert any("not on file" in words for words in call.wrong)


async def test_lines_that_are_lost_make_a_difference(bench: Bench) -> None:
    await bench.say("one")
    await bench.say("two")
    first, second = await request_ids(bench)
    found = find(bench, second)
    left = [line for line in found.lines if not (line.request_id == first and line.type == "assistant")]

    def part(name: str) -> Any:
        return frames.read(DISK, bench.root / "transcripts", name)

    call = rebuild(left, second, part, read_deletions([])).calls[0]
    assert not call.exact
    assert "messages were sent" in call.wrong[0]


async def test_words_that_were_removed_do_not_come_back(bench: Bench) -> None:
    for words in ("my secret is plum", "next"):
        bench.model.answers.append(reply(text("I see")))
        await bench.say(words)
    first, second = await request_ids(bench)
    await remove(bench, "1", first)
    await bench.say("last")
    last = (await request_ids(bench))[-1]
    for request_id in (first, second):
        for call in (await again(bench, request_id)).calls:
            assert b"plum" not in call.body
            assert REMOVED.encode() in call.body
            assert not call.exact
            assert call.wrong == ["words were removed from this conversation since"]
    assert all(call.exact for call in (await again(bench, last)).calls)


async def test_a_turn_that_nobody_knows(bench: Bench) -> None:
    await bench.say("hello")
    await bench.pool.flush()
    folder = bench.root / "transcripts"
    assert turns.find(DISK, folder, "01" + "0" * 24) is None
    assert turns.find(DISK, folder, "../etc") is None


def test_secrets_are_not_kept_with_a_prompt() -> None:
    found = PrefixBuilder(lambda words: words.replace("hunter22", "[redacted]")).frame(
        [text("say hunter22"), text("own hunter22")],
        [{"name": "a", "description": "hunter22"}],
    )
    kept = str({**found.shared, **found.own})
    assert "hunter22" not in kept
    assert kept.count("[redacted]") == 3


def test_what_cannot_be_written_has_no_digest() -> None:
    from bot.llm.body import digest

    bad = ModelRequest("m", 1, (), ({"role": "user", "content": "\ud800"},))
    assert digest(bad) is None
    assert digest(ModelRequest("m", 1, (), ())) == digest(ModelRequest("m", 1, (), ()))


async def test_neither_do_those_that_were_loaded_or_summed_up(bench: Bench) -> None:
    bench.configure(max_messages=40)
    for number in range(24):
        await bench.store(
            number, "user", f"früher {number}!", request_id=f"00{number:024}", message_id=f"m{number}"
        )
    bench.model.answers.extend([reply(tool_use("chat_load_history", limit=2)), reply(text("loaded"))])
    await bench.say("the plum " + "x" * 9_000)
    for number in range(3):
        bench.model.answers.append(reply(text("I see")))
        await bench.say(f"{number} " + "y" * 9_000)
    bench.model.answers.append(reply(text(SUMMARY.replace("聊天", "the plum"))))
    assert (await bench.pool.compact(KEY))["how"] == "summary"
    bench.model.answers.append(reply(text("so it is")))
    await bench.say("and then?")
    loads, later = [one for one in await request_ids(bench) if one and one[:2] != "00"][0::4]
    loaded, after = (await again(bench, loads)).calls[1], (await again(bench, later)).calls[0]
    assert loaded.exact
    assert after.exact
    assert b"\\n- the plum" in after.body
    gone = next(name for name in ("m2", "m3") if f"früher {name[1:]}!".encode() in loaded.body)
    await remove(bench, gone, "")
    await remove(bench, "1", loads)
    loaded, after = (await again(bench, loads)).calls[1], (await again(bench, later)).calls[0]
    assert f"früher {gone[1:]}!".encode() not in loaded.body
    assert b"the plum" not in loaded.body + after.body
    assert loaded.wrong == after.wrong == ["words were removed from this conversation since"]
