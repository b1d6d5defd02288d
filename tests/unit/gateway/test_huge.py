"""Messages of a size that no person writes: taken in, archived, answered, and what comes after them too."""

from __future__ import annotations

import pytest

from bot.contracts.agent import TurnRequest
from bot.contracts.inbound import Attachment
from tests.unit.gateway.conftest import Bench

FILES = tuple(Attachment(kind="file", name=f"{n}.bin", size=2**32) for n in range(5_000))
HUGE = {
    "one line": ("x" * 10_000_000, ()),
    "newlines": ("\n" * 1_000_000 + "end", ()),
    "stacked marks": ("e" + "\u0301" * 10_000, ()),
    "quotes": (">" * 50_000, ()),
    "brackets": ("[" * 50_000, ()),
    "files": ("look at these", FILES),
}


@pytest.mark.parametrize("what", HUGE)
async def test_it_is_answered_and_so_is_what_comes_after_it(bench: Bench, what: str) -> None:
    def answer(request: TurnRequest) -> str:
        assert request.inbound is not None
        return f"{len(request.inbound.text)} letters, {len(request.inbound.attachments)} files"

    bench.agent.answer = answer
    words, files = HUGE[what]
    assert await bench.say(words, attachments=files)
    await bench.tele.until(1)
    assert await bench.say("and now?")
    told = await bench.tele.until(2)
    assert told[0].startswith(f"{len(words)} letters, {len(files)} files")
    assert len(told[0]) < 1_000
    assert told[1] == "8 letters, 0 files"
    await bench.idle()
    lines = await bench.lines()
    assert ("user", words) in [(role, said.split("\n[", 1)[0] if files else said) for role, said in lines]
