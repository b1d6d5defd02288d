"""Tasks of a turn are shown while they run, and their results are combined."""

from __future__ import annotations

import asyncio
import json

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import ANN, PERSON, World, eventually, fast

COUNT = 4


class Tasks:
    """A model that starts tasks. The answers of tasks are sent when the test allows them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, body: Json) -> Reply:
        asked = json.dumps(body["messages"])
        if "report on" in asked and "please look" not in asked:
            await self.go.wait()
            return reply("All is well.")
        if "tool_result" not in asked:
            return reply(
                *(
                    tool_use("task", {"prompt": f"report on {number}", "description": f"Area {number}"})
                    for number in range(COUNT)
                )
            )
        return reply("Everything is fine.")


def working(world: World, channel: str) -> Tasks:
    world.only(channel)
    tasks = Tasks()
    world.model.script(tasks)
    return tasks


@fast
async def test_telegram_shows_tasks_side_by_side_in_one_message(world: World) -> None:
    tasks = working(world, "telegram")
    await world.start()
    world.telegram.say("please look at everything")
    await world.telegram.until(lambda: any("Working: 0 of 4" in text for text in world.texts()))
    shown = world.texts()[0]
    assert all(f"Area {number}" in shown for number in range(COUNT))
    tasks.go.set()
    await world.telegram.until(lambda: world.texts() == ["Everything is fine."])
    tally = world.telegram.tally(PERSON)
    assert (tally.posted, tally.deleted) == (2, 1)
    await world.turns(1)
    said = ["please look at everything", "Everything is fine."]
    await eventually(lambda: [line["text"] for line in world.archive()] == said)


async def test_slack_shows_them_as_task_cards(world: World) -> None:
    tasks = working(world, "slack")
    await world.start()
    asked = await world.slack.say("please look at everything", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: bool(world.slack.replies("D0ANN", asked)))
    (begun,) = world.slack.called("chat.postMessage")
    (plan,) = begun.params["blocks"]
    assert [task["title"] for task in plan["tasks"]] == [f"Area {number}" for number in range(COUNT)]
    tasks.go.set()
    await world.slack.until(lambda: world.slack.tally("D0ANN").deleted == 1)
    assert [one.text for one in world.slack.replies("D0ANN", asked)] == ["Everything is fine."]
