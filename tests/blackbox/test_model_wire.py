"""What leaves for the model, and what people see of its answers: live words, effort and thinking, room, prices."""

from __future__ import annotations

import asyncio

from bot.testing.anthropic_script import Frame, reply, tool_use
from tests.blackbox.conftest import ANN, World
from tests.blackbox.test_web_approvals import Tabs, link, say

ANSWER = "Sixty tokens a second, 你好, and so it goes on. " * 66


async def test_first_words_are_seen_everywhere_while_the_model_writes(world: World) -> None:
    world.model.chunk = 4
    gate = asyncio.Event()

    def held(frames: list[Frame]) -> list[Frame]:
        return [*frames[:100], gate, *frames[100:]]

    world.only("telegram", "slack", "web")
    world.model.script(lambda _: reply(tool_use("chat_send", {"text": ANSWER}), edit=held))
    await world.start()
    page = link(world).partition("/open/")[0]
    async with Tabs() as tabs:
        async with tabs.browser.get(link(world)) as answer:
            assert answer.status == 200
        stream = await tabs.open(page)
        await say(tabs.browser, page, "and?", "m1")
        world.telegram.say("and?")
        asked = await world.slack.say("and?", channel="D0ANN", user=ANN)
        words = ANSWER[:20]
        await world.telegram.until(lambda: any(text.startswith(words) for text in world.texts()))
        await world.slack.until(
            lambda: any(one.text.startswith(words) for one in world.slack.replies("D0ANN", asked))
        )
        while words not in str(await stream.next()):
            pass
    gate.set()
    await world.turns(3)
    declared = {one["name"]: one for one in world.model.bodies[0]["tools"]}
    eager = {name for name, one in declared.items() if one.get("eager_input_streaming")}
    assert eager == {"chat_send", "write_file", "edit_file"}
