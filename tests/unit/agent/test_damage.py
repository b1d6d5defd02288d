"""Transcripts that lost lines: the conversation goes on, and no request of it is refused as malformed."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnRequest
from bot.contracts.model import ModelRequest
from bot.testing import anthropic_rules as rules
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.provider import Look, Provider, thinking, wanderer
from tests.unit.agent.test_stop import after_restart, history


class Strict(Provider):
    """Says of thinking that stands elsewhere than where it was thought what the real client says of it."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        try:
            async for event in super().stream(request):
                yield event
        except rules.Refused as refused:
            if "bound to a different conversation" not in refused.message:
                raise
            raise errors.ThinkingUnbound(refused.message, status=400) from None


@pytest.fixture
def provider(bench: Bench) -> Provider:
    made = Strict(bench.clock, bench.log, lambda _: reply(text("unused")))
    bench.add_tools(Look())
    bench.configure(model=made, default_model="claude-sonnet-5-5")
    return made


def file_of(bench: Bench) -> Path:
    (found,) = (bench.root / "transcripts").rglob("*.jsonl")
    return found


async def conversation(bench: Bench, provider: Provider) -> list[bytes]:
    """Two turns with thinking and parallel calls; the lines of their transcript."""
    script = iter(
        [
            reply(thinking(), text("Ich sehe nach. 👀"), tool_use("look"), tool_use("look", lines=3)),
            reply(thinking(), text("四十二。")),
            reply(thinking(), tool_use("look")),
            reply(thinking(), tool_use("chat_send", text="完了", more=True)),
            reply(thinking(), text("I have told them.")),
        ]
    )
    provider.script = lambda _: next(script)
    await bench.say("what is it?")
    await bench.say("und jetzt?")
    await bench.pool.flush()
    return file_of(bench).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("lost", one_in(3, range(14)))
async def test_a_lost_line_never_makes_a_request_that_is_refused(
    bench: Bench, provider: Provider, lost: int
) -> None:
    lines = await conversation(bench, provider)
    assert len(lines) == 14
    await damaged(bench, provider, [*lines[:lost], *lines[lost + 1 :]])


@pytest.mark.parametrize("seed", one_in(3, range(30)))
async def test_whatever_lines_are_lost_doubled_or_moved_the_conversation_goes_on(
    bench: Bench, provider: Provider, seed: int
) -> None:
    rng = random.Random(seed)
    lines = await conversation(bench, provider)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        line = lines.pop(at)
        if rng.random() < 0.3:
            again = json.loads(line) | {"uuid": bench.ids.ulid()}
            lines[at:at] = [line, json.dumps(again).encode() + b"\n"]
        elif rng.random() < 0.3:
            lines.insert(rng.randrange(len(lines)), line)
    await damaged(bench, provider, lines)


async def damaged(bench: Bench, provider: Provider, lines: list[bytes]) -> None:
    file_of(bench).write_bytes(b"".join(lines))
    bench.restart()
    provider.script = wanderer(random.Random(1), think=True)
    cut_off = await bench.pool.cut_off(KEY)
    if cut_off:
        inbound = bench.inbound("what is it?", request_id=cut_off[0])
        await bench.pool.run(TurnRequest(cut_off[0], KEY, inbound=inbound, reply=bench.chat))
    for number in range(3):
        outcome = await bench.say(f"message {number}")
        assert outcome.status == "done", outcome
    assert not bench.log.of("repair"), "it was mended when it was loaded"
    live = history(bench)
    assert await after_restart(bench) == live
    bench.restart()
    assert (await bench.say("and once more")).status == "done"
