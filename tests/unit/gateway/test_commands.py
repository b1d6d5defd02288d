"""What the commands tell of what the agent keeps."""

from __future__ import annotations

from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.test_turns import command


async def test_a_person_sees_what_the_conversation_has_come_to(bench: Bench) -> None:
    bench.agent.totals |= {
        "turns": 1,
        "calls": 3,
        "unpriced": 1,
        "inputTokens": 500,
        "cacheReadTokens": 9_000,
    }
    bench.agent.totals |= {"cacheWriteTokens": 500, "outputTokens": 1_250, "costUsd": 0.126, "epochs": 2}
    bench.agent.totals |= {"messages": 4, "tokens": 8_000, "maskedTokens": 5_000}
    await bench.say("/stats", **command("stats"))
    (said,) = await bench.tele.until(1)
    assert said == (
        "1 turn so far, 3 questions to the model. It has read 10,000 tokens, 90% of that from its cache, and written "
        "1,250. Cost: $0.13, and 1 question whose price I do not know.\nIn mind: 4 messages, about 8,000 tokens, of "
        "which 5,000 are masked. What I see of our conversation was rewritten 2 times."
    )


async def test_a_person_sees_what_is_kept_and_is_told_what_was_taken_back(bench: Bench) -> None:
    bench.agent.kept, bench.agent.last_said = "Person: 你好\nI: こんにちは", "das Budget für 東京"
    await bench.say("/history", **command("history"))
    await bench.say("/undo", **command("undo"))
    kept, undone = await bench.tele.until(2)
    assert kept == "Person: 你好\nI: こんにちは"
    assert "forgotten the message “das Budget für 東京”" in undone
    assert bench.agent.undone == ["tele:chat:77"]
    assert bench.agent.requests == []
