"""What was asked of the model is on disk: the same bytes, for every request of every turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from bot import errors
from bot.agent import recording
from bot.agent.recording import Call, RecordedTurn
from bot.cli import recorded
from bot.cli.recorded import Found
from bot.contracts.transcript import TranscriptLine
from bot.core.removal import REMOVED
from bot.history.transcript import requests, sessions
from bot.history.transcript.lines import parsed
from bot.llm.body import prefix_digest, wire
from bot.llm.client import AnthropicModel
from bot.system import SystemClock, SystemDisk
from bot.testing import anthropic_script as say
from bot.testing.anthropic import KEY as API_KEY
from bot.testing.anthropic import AnthropicServer
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Added, Bench, each
from tests.unit.agent.short_bench import ShortBench
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_random import SUMMARY, converse

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


def turn_of(bench: Bench, request_id: str) -> sessions.FoundTurn:
    found = sessions.find_turn(DISK, bench.root / "transcripts", request_id)
    assert found is not None
    return found


async def find(bench: Bench, name: str) -> Found:
    """What is recorded of a turn or a task."""
    await bench.pool.flush()
    await bench.requests.close()
    return recorded.find(bench.root / "transcripts", name)


async def again(bench: Bench, name: str) -> RecordedTurn:
    """The requests of its own conversation with the model."""
    return (await find(bench, name)).turn


async def lines(bench: Bench) -> list[TranscriptLine]:
    """Those of every session, in the order in which they were written."""
    await bench.pool.flush()
    found: list[TranscriptLine] = []
    for file in (bench.root / "transcripts").glob("*/*.jsonl"):
        found += [one for raw in file.read_bytes().splitlines() if (one := parsed(raw)) is not None]
    return sorted(found, key=lambda line: line.uuid)


async def calls(bench: Bench) -> list[Call]:
    """Every request of every turn and its tasks, and of what was done beside them."""
    begun = [line.request_id or "" for line in await lines(bench) if line.type == "turn_start"]
    made: list[Call] = []
    for one in dict.fromkeys(begun):
        with contextlib.suppress(errors.NotFound):  # as a turn that came from an archive
            found = await find(bench, one)
            made += [call for part in (found, *found.tasks) for call in part.calls]
    return sorted(made, key=lambda call: call.record.id)


def bodies(made: Sequence[Call]) -> list[bytes | None]:
    return [call.record.body for call in made]


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
        say.reply(say.tool_use("chat_send", {"text": "完了", "more": True})),
        say.reply(say.text("done")),
    )
    await bench.say(
        "Was war das?", arrivals=Added(lambda: [more.pop()] if more and len(server.heard) > 1 else [])
    )
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
    assert (await bench.pool.compact(KEY)).outcome == "summary"
    server.then(say.reply(say.text("to be "), stop_reason="max_tokens"), say.reply(say.text("continued")))
    await bench.say("short")
    await bench.pool.reset(KEY)
    await bench.say("new")
    made = await calls(bench)
    kinds = {line.type for line in await lines(bench)}
    assert {"injection", "mask", "boundary"} <= kinds
    assert bodies(made) == server.heard
    assert all(call.exact for call in made)
    assert [call.record.purpose for call in made].count("compaction") == 1


@pytest.mark.parametrize("seed", one_in(2, range(8)))
async def test_random_conversations_are_recorded(tmp_path: Path, seed: int) -> None:
    """With memories and summaries."""
    bench = ShortBench(tmp_path)
    await converse(bench, random.Random(seed), 8)
    made = await calls(bench)
    # A summary that is asked for before the first turn of a process is no turn's.
    own = [call for call in made if call.record.purpose == "turn"]
    assert bodies(own) == [wire(one) for one in bench.model.requests if one.purpose == "turn"]
    assert all(call.exact for call in made)
    await bench.close()


async def test_what_a_call_came_to_stands_beside_it(bench: Bench) -> None:
    more = [bench.inbound("and more")]
    joined = more[0].request_id
    bench.model.answers.extend(
        [reply(tool_use("skills_list")), reply(text("all")), reply(stop_reason="refusal")]
    )
    await bench.say("hello", arrivals=Added(each(more)))
    await bench.say("bad")
    first, second = await request_ids(bench)
    turn = await again(bench, joined)
    assert turn_of(bench, joined).request_id == first
    answers = [call.record.answer or {} for call in turn.calls]
    assert [one["stopReason"] for one in answers] == ["tool_use", "end_turn"]
    assert [len(call.results) for call in turn.calls] == [1, 0]
    assert [one["content"][-1]["text"] for one in turn.joined] == ["and more"]
    assert all(one["usage"]["inputTokens"] == 0 for one in answers)
    (refused,) = (await again(bench, second)).calls
    assert refused.answer is None
    assert (refused.record.answer or {})["stopReason"] == "refusal"


async def test_an_answer_that_goes_on_is_one_answer(bench: Bench) -> None:
    bench.model.answers.extend([reply(text("to be "), stop_reason="max_tokens"), reply(text("continued"))])
    await bench.say("hello")
    assert recording.recorded(await again(bench, (await request_ids(bench))[0])).answer == "to be continued"


def on_disk(bench: Bench) -> bytes:
    """All that the files of recorded requests say."""
    found = []
    for file in (bench.root / "transcripts").glob("*/*.requests"):
        for name in {json.loads(raw).get("requestId") for raw in file.read_bytes().splitlines()}:
            of = requests.find(DISK, bench.root / "transcripts", name or "")
            assert of is not None
            found += [(one.body or b"") + json.dumps(one.answer).encode() for one in of.requests]
            found.append(json.dumps(of.tasks).encode())
        found.append(file.read_bytes())
    return b"".join(found)


async def test_words_that_were_removed_are_erased(bench: Bench) -> None:
    bench.model.answers.append(reply(text("Hello")))
    await bench.say("hello")
    for words in ("my secret is plum", "next"):
        bench.model.answers.append(reply(text("I see, plum")))
        await bench.say(words)
    first, second, third = await request_ids(bench)
    await find(bench, third)
    assert b"plum" in on_disk(bench)
    await remove(bench, "2", second)
    await bench.say("last")
    last = (await request_ids(bench))[-1]
    assert [call.record.wrong for call in (await again(bench, first)).calls] == [None]
    for request_id in (second, third):
        for call in (await again(bench, request_id)).calls:
            assert (call.exact, call.record.body, call.answer) == (False, None, None)
            assert call.record.wrong == requests.REMOVED
    assert all(call.exact for call in (await again(bench, last)).calls)
    assert REMOVED.encode() in ((await again(bench, last)).calls[0].record.body or b"")


async def test_a_restart_erases_nothing_more(bench: Bench) -> None:
    """What was asked since the removal stays, however often the chat comes back."""
    await bench.say("my secret is plum")
    (first,) = await request_ids(bench)
    await remove(bench, "1", first)
    for words in ("one", "two"):
        await bench.say(words)
        bench.restart()
    made = await calls(bench)
    assert [call.record.wrong for call in made] == [requests.REMOVED, None, None]


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_the_disk_did_not_let_go_is_erased_later(tmp_path: Path, restarts: bool) -> None:
    """All of it: what a turn that ran on asked behind the wish too."""
    disk = FaultyDisk(SystemDisk())
    bench = Bench(tmp_path, disk)
    bench.model.answers.append(reply(text("I see")))
    await bench.say("my secret is plum")
    (first,) = await request_ids(bench)
    bench.model.hold = asyncio.Event()
    bench.model.asked.clear()
    bench.model.answers.extend([reply(tool_use("skills_list")), reply(text("done")), reply(text("bye"))])
    running = asyncio.create_task(bench.say("next"))
    await bench.model.asked.wait()
    await remove(bench, "1", first, forget=False)
    bench.requests.shrink()  # what comes stands by itself
    bench.model.hold.set()
    await running
    disk.fail(Failure("replace", named=".requests", times=None))
    await bench.pool.forget(KEY)
    await bench.requests.close()
    disk.mend()
    assert [call.record.body is not None for call in await calls(bench)] == [True] * 3
    if restarts:
        bench.restart()
    await bench.say("last")
    await bench.requests.close()
    assert b"plum" not in on_disk(bench)
    assert [call.exact for call in await calls(bench)] == [False, False, False, True]
    await bench.close()


async def test_neither_do_those_that_were_loaded_or_summed_up_stay(bench: Bench) -> None:
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
    assert (await bench.pool.compact(KEY)).outcome == "summary"
    bench.model.answers.append(reply(text("so it is")))
    await bench.say("and then?")
    assert all(call.exact for call in await calls(bench))
    loads = next(one for one in await request_ids(bench) if one and one[:2] != "00")
    assert b"the plum" in on_disk(bench)
    await remove(bench, "1", loads)
    await remove(bench, "m3", f"00{3:024}")
    await find(bench, loads)
    assert b"plum" not in on_disk(bench)
    assert "früher 3!".encode() not in on_disk(bench)


async def test_a_turn_that_nobody_knows(bench: Bench) -> None:
    await bench.say("hello")
    await bench.pool.flush()
    for name in ("01" + "0" * 24, "../etc"):
        assert sessions.find_turn(DISK, bench.root / "transcripts", name) is None
        with pytest.raises(errors.NotFound):
            await find(bench, name)


async def test_secrets_are_not_recorded_with_a_prompt(bench: Bench) -> None:
    (bench.root / "Agent.md").write_text("Say hunter22.", encoding="utf-8")
    bench.configure(redact=lambda words: words.replace("hunter22", "[redacted]"))
    await bench.say("hello")
    call = (await again(bench, (await request_ids(bench))[0])).calls[0]
    assert "hunter22" in json.dumps(bench.model.requests[0].system)
    assert b"hunter22" not in on_disk(bench)
    assert (call.exact, call.record.wrong) == (False, requests.REDACTED)
    assert b"Say [redacted]." in (call.record.body or b"")


def test_what_stands_before_the_messages_has_a_digest() -> None:
    tools = [{"name": "a"}]
    assert prefix_digest([text("a")], tools) == prefix_digest([text("a")], list(tools))
    assert prefix_digest([text("a")], tools) != prefix_digest([text("b")], tools)
