"""The typing indicator and its stop button."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.words import say
from channels.slack.adapter import LOADING

SESSION, LINE = "agents.sessions.setStatus", "assistant.threads.setStatus"


@pytest.fixture
async def target(stage: Any) -> dict[str, str]:
    asked = await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    await stage.arrived()
    return {"channel": stage.direct, "thread_ts": asked}


async def test_work_is_a_session_with_a_stop_button_and_its_end_takes_it_away(
    stage: Any, target: dict[str, str]
) -> None:
    place = tuple(target.values())
    await stage.slack.indicate(target, working=True)
    assert stage.server.session_of(*place) == "processing"
    assert stage.server.status_of(*place) == "is thinking…"
    (line,) = stage.server.called(LINE)
    assert line.params["loading_messages"] == [
        say(f"slack.loading_{number}") for number in range(1, LOADING + 1)
    ]
    await stage.slack.indicate(target, working=False)
    assert stage.server.session_of(*place) == "active"
    assert stage.server.status_of(*place) == ""


async def test_an_app_without_the_right_gives_no_titles_and_says_so_once(
    stage: Any, target: dict[str, str]
) -> None:
    stage.server.api.scopes -= {"assistant:write"}
    for _ in range(2):
        await stage.slack.entitle(target, "Plans")
    assert len(stage.server.called("assistant.threads.setTitle")) == 1
    assert stage.log.text.count("no titles") == 1
    assert set(stage.intake.lacking) == {"assistant:write"}


async def test_while_a_person_is_waited_for_the_session_is_suspended(
    stage: Any, target: dict[str, str]
) -> None:
    await stage.slack.indicate(target, working=True)
    await stage.slack.suspend(target)
    assert stage.server.session_of(*target.values()) == "suspended"
    assert stage.server.status_of(*target.values()) == ""
    await stage.slack.suspend({"channel": stage.direct})
    stage.server.world.agent = False
    await stage.slack.suspend(target)
    await stage.slack.suspend(target)
    assert len(stage.server.called(SESSION)) == 3, "where there is none it is tried once"


@pytest.mark.parametrize("answer", ["unknown_method", "missing_scope", "not_authorized"])
async def test_without_sessions_there_is_a_line_of_status(
    stage: Any, target: dict[str, str], answer: str
) -> None:
    stage.server.fail(SESSION, status=200, body={"ok": False, "error": answer})
    for _ in range(2):
        await stage.slack.indicate(target, working=True)
    assert stage.server.status_of(*target.values()) == "is thinking…"
    await stage.slack.indicate(target, working=False)
    assert stage.server.status_of(*target.values()) == ""
    assert len(stage.server.called(SESSION)) == 1
    assert [(line.message, line.details["error"]) for line in stage.log.entries] == [
        ("Slack shows no stop button", answer)
    ]


@pytest.mark.parametrize("place", ["direct", "channel"])
async def test_the_stop_button_is_an_inbound_about_the_place_that_works(stage: Any, place: str) -> None:
    where = getattr(stage, place)
    asked = await stage.server.say("<@U0SHIP> 仕事して", channel=where, user=stage.ada)
    (message,) = await stage.arrived()
    await stage.slack.indicate(message.target, working=True)
    delivery = await stage.server.press_stop(where, asked, user=stage.ada)
    _, stop = await stage.arrived(2)
    assert (stop.kind, stop.user_id, stop.text, stop.command) == ("stop", stage.ada, "", None)
    assert (stop.target, stop.chat_id, stop.chat_type) == (message.target, where, message.chat_type)
    assert str(stop.chat_key) == f"slack:chat:{where}:thread:{asked}"
    assert stop.addressed == ("direct" if place == "direct" else "command")
    assert stop.keys[0] == f"slack:T0TEAM:event:{delivery.payload['event_id']}"
    assert stop.keys[1].startswith(f"slack:T0TEAM:stop:{where}:{asked}:")


async def test_a_stop_that_is_pressed_twice_or_comes_twice_is_told_apart(
    stage: Any, target: dict[str, str]
) -> None:
    await stage.slack.indicate(target, working=True)
    first = await stage.server.press_stop(*target.values(), user=stage.ada)
    await stage.server.redeliver(first)
    await stage.arrived(2)
    await stage.slack.indicate(target, working=True)
    await stage.server.press_stop(*target.values(), user=stage.ada)
    assert [inbound.kind for inbound in await stage.arrived(3)] == ["message", "stop", "stop"]


async def test_what_was_seen_has_one_reaction(stage: Any, target: dict[str, str]) -> None:
    ts = target["thread_ts"]
    for _ in range(2):
        await stage.slack.react(target, ts)
    post = stage.server.world.rooms[stage.direct].posts[ts]
    assert [one["name"] for one in post.reactions] == ["eyes"]
    stage.server.limit("reactions.add")
    with pytest.raises(errors.DeliveryThrottled):
        await stage.slack.react(target, ts)
