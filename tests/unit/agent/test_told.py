"""What went wrong just before is told to the model with the next message, in words of its own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bot import errors
from bot.agent.runtime import UNANSWERED
from bot.testing.model import reply, text
from tests.unit.agent.conftest import KEY, Bench


def told(message: Any) -> list[str]:
    """What its first block says went wrong."""
    found = re.search(
        r"<turn_context-[0-9a-f]{8}>(.*)</turn_context-", message["content"][0]["text"], re.DOTALL
    )
    assert found is not None
    return list(json.loads(found[1]).get("recentErrors", ()))


@pytest.mark.parametrize("restart", [False, True])
async def test_the_model_knows_what_went_wrong(bench: Bench, restart: bool) -> None:
    bench.model.answers += [errors.Overloaded(), reply(stop_reason="refusal"), reply(text("fine"))]
    notice = (await bench.say("one")).notice
    await bench.say("two")
    if restart:
        bench.restart()
    await bench.say("three")
    assert told(bench.sent[-1]) == [f"{UNANSWERED} (overloaded)", f"{UNANSWERED} (refused)"]
    if restart:
        bench.restart()
    bench.model.answers.append(reply(text("good")))
    await bench.say("four")
    assert told(bench.sent[-1]) == [], "the last turn went well"
    assert told(bench.sent[-3]) == [f"{UNANSWERED} (overloaded)", f"{UNANSWERED} (refused)"], (
        "what was said stays as it was"
    )
    assert str(notice) not in json.dumps(bench.sent), "the words for people are for people"


async def test_the_newest_three_of_them_and_none_of_another_conversation(bench: Bench) -> None:
    for _ in range(5):
        bench.model.answers.append(errors.Overloaded())
        await bench.say("hello")
    await bench.say("hello")
    assert len(told(bench.model.requests[5].messages[-1])) == 3
    bench.model.answers.append(errors.Overloaded())
    await bench.say("hello")
    await bench.pool.reset(KEY)
    bench.restart()
    await bench.say("hello")
    assert told(bench.sent[0]) == []
