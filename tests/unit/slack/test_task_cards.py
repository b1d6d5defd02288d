"""What is being done, as task cards of Slack, or in words where Slack does not take them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from bot.contracts.outbound import Card, Outbound

CARDS = (
    Card("01A", "Look at <alpha> 你好", "complete", "0:10"),
    Card("01B", "Look at beta", "in_progress", "0:04 · web_fetch"),
    Card("01C", "Look at gamma", "error", "0:02 · No page."),
    Card("01D", "Look at delta", "pending"),
)


def progress(out: Any, stage: Any, asked: str) -> Outbound:
    message: Outbound = out("**Working: 1 of 4**", stage.direct, asked)
    return replace(message, kind="progress", title="Working: 1 of 4", cards=CARDS)


def blocks(call: Any) -> Any:
    found = call.params.get("blocks")
    return json.loads(found) if isinstance(found, str) else found


async def test_work_is_a_plan_of_cards_that_is_changed_in_place(stage: Any, out: Any) -> None:
    asked = await stage.server.say("?", channel=stage.direct, user=stage.ada)
    message = progress(out, stage, asked)
    sent = await stage.slack.send(message)
    await stage.slack.edit(replace(message, text="**Done: 4 of 4**", title="Done: 4 of 4"), sent.message_id)
    (seen,) = stage.server.replies(stage.direct)
    assert seen.text == "**Done: 4 of 4**", "what a notification shows"
    (posted,) = stage.server.called("chat.postMessage")
    (updated,) = stage.server.called("chat.update")
    (plan,) = blocks(posted)
    assert (plan["type"], plan["title"]) == ("plan", "Working: 1 of 4")
    assert [(task["task_id"], task["title"], task["status"]) for task in plan["tasks"]] == [
        (card.id, card.title, card.state) for card in CARDS
    ]
    assert plan["tasks"][1]["details"]["elements"][0]["elements"][0]["text"] == "0:04 · web_fetch"
    assert "details" not in plan["tasks"][3]
    assert blocks(updated)[0]["title"] == "Done: 4 of 4"


async def test_a_slack_that_does_not_take_cards_gets_words_from_then_on(stage: Any, out: Any) -> None:
    asked = await stage.server.say("?", channel=stage.direct, user=stage.ada)
    stage.server.fail("chat.postMessage", status=200, body={"ok": False, "error": "invalid_blocks"})
    message = progress(out, stage, asked)
    sent = await stage.slack.send(message)
    await stage.slack.edit(replace(message, text="**Done**"), sent.message_id)
    (seen,) = stage.server.replies(stage.direct)
    assert (seen.ts, seen.text) == (sent.message_id, "**Done**")
    tried = [*stage.server.called("chat.postMessage"), *stage.server.called("chat.update")]
    assert [blocks(call) is not None for call in tried] == [True, False, False]
