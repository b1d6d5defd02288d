"""Slack reports a mention twice, in any order and sometimes incompletely. The message is answered once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.testing.slack import Telling
from tests.blackbox.conftest import ANN, BOB, ROOM, World, eventually, fast

SAID = "<@U0SHIP> what is in it?"
HELD = "the harbour code is 7731"


async def begun(world: World) -> None:
    world.model.script(
        lambda body: f"answer {len([one for one in body['messages'] if one['role'] == 'user'])}"
    )
    await world.start("slack")


def shown(world: World) -> str:
    return json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False) if world.model.bodies else ""


async def settled(world: World) -> None:
    """Check that all events of Slack are acknowledged and all messages answered."""
    await world.slack.until(lambda: not world.slack.unacked())
    await eventually(
        lambda: (
            sum(one["kind"] == "turn_end" for one in world.log())
            == sum(one["kind"] == "turn_start" for one in world.log())
        )
    )


ORDERS: list[tuple[Telling, ...]] = [
    ("message", "app_mention"),
    ("message", "bare_mention"),
    ("app_mention", "message"),
    ("bare_mention", "message"),
    ("bare_mention", "message", "bare_mention", "message"),
]


@pytest.mark.parametrize("told", ORDERS, ids="-".join)
async def test_a_message_with_a_file_is_answered_once_and_whole(
    world: World, told: tuple[Telling, ...]
) -> None:
    await begun(world)
    file = world.slack.add_file("code.txt", HELD.encode())
    ts = await world.slack.say(SAID, channel=ROOM, user=ANN, files=[file], told=told)
    await world.slack.until(lambda: bool(world.slack.replies(ROOM)))
    assert HELD in shown(world)
    await settled(world)
    assert [one.text for one in world.slack.replies(ROOM)] == ["answer 1"]
    await world.slack.tell(ROOM, ts, ("bare_mention", "message"))
    await settled(world)
    assert len(world.slack.replies(ROOM)) == 1
    assert len(world.slack.called("file")) == 1


@pytest.mark.parametrize("kill", [True, False])
async def test_what_the_mention_lacked_is_read_after_a_restart_too(world: World, *, kill: bool) -> None:
    await begun(world)
    file = world.slack.add_file("code.txt", HELD.encode())
    ts = await world.slack.say(SAID, channel=ROOM, user=ANN, files=[file], told=("bare_mention",))
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) == 1)
    await world.turns(1)
    await (world.process.kill() if kill else world.process.stop())
    await world.start()
    await world.slack.tell(ROOM, ts, ("message",))
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) == 2)
    last = json.dumps(world.model.bodies[-1]["messages"][-1], ensure_ascii=False)
    assert HELD in last
    assert '{\\"from\\": \\"Ann\\"' in last or '{\\"from\\": \\"U0ANN\\"' in last, "its words stand beside it"
    said = [line["text"] for line in world.archive() if line["role"] == "user"]
    assert said == ["what is in it?", ""]
    await world.slack.tell(ROOM, ts, ("bare_mention", "message"))
    await settled(world)
    assert len(world.slack.replies(ROOM)) == 2


@fast
async def test_a_kill_before_the_second_event_loses_and_doubles_nothing(world: World) -> None:
    await begun(world)
    ts = await world.slack.say(SAID, channel=ROOM, user=ANN, told=("bare_mention",))
    await world.process.kill()
    await world.start()
    await world.slack.tell(ROOM, ts, ("message",))
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) >= 1)
    await settled(world)
    assert len(world.slack.replies(ROOM)) == 1


async def test_a_share_that_comes_behind_its_mention_is_read(world: World) -> None:
    await begun(world)
    other = await world.slack.say(HELD, channel=ROOM, user=BOB)
    share = world.slack.shared(ROOM, other)
    await world.slack.say(SAID, channel=ROOM, user=ANN, attachments=[share], told=("bare_mention", "message"))
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) == 1)
    assert HELD in shown(world)
    await settled(world)
    assert len(world.slack.replies(ROOM)) == 1


BLOCKS: dict[str, list[dict[str, Any]]] = {
    "rich_text": [
        {
            "type": "rich_text",
            "elements": [
                {
                    "type": "rich_text_section",
                    "elements": [
                        {"type": "user", "user_id": "U0SHIP"},
                        {"type": "text", "text": " what is 2 < 3 & "},
                        {"type": "link", "url": "https://example.org/a", "text": "this"},
                    ],
                },
                {
                    "type": "rich_text_list",
                    "style": "bullet",
                    "elements": [
                        {
                            "type": "rich_text_section",
                            "elements": [{"type": "text", "text": "鯨"}, {"type": "emoji", "name": "whale"}],
                        },
                    ],
                },
                {"type": "rich_text_quote", "elements": [{"type": "text", "text": "!new"}]},
            ],
        }
    ],
    "section": [
        {"type": "header", "text": {"type": "plain_text", "text": "Report"}},
        {
            "type": "section",
            "text": {
                "type": "mrkdwn",
                "text": "<@U0SHIP> what is 2 &lt; 3 &amp; <https://example.org/a|this>",
            },
            "fields": [{"type": "plain_text", "text": "鯨"}],
        },
        {"type": "divider"},
        {
            "type": "context",
            "elements": [{"type": "mrkdwn", "text": "by *Ann*"}, {"type": "image", "alt_text": "a whale"}],
        },
    ],
}


@pytest.mark.parametrize("told", [("message", "app_mention"), ("bare_mention", "message")], ids="-".join)
@pytest.mark.parametrize("kind", BLOCKS)
async def test_a_message_of_blocks_alone_is_read(world: World, kind: str, told: tuple[Telling, ...]) -> None:
    await begun(world)
    await world.slack.say("", channel=ROOM, user=ANN, blocks=BLOCKS[kind], told=told)
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) == 1)
    await settled(world)
    assert len(world.slack.replies(ROOM)) == 1
    said = [block["text"] for block in world.model.bodies[-1]["messages"][-1]["content"]][-1]
    assert "what is 2 < 3 & this (https://example.org/a)" in said
    assert "鯨" in said
    (line,) = [one for one in world.archive() if one["role"] == "user"]
    assert line["text"] == said


async def test_a_command_in_blocks_is_one_and_what_is_typed_out_in_them_is_no_mention(world: World) -> None:
    await begun(world)
    typed = {"type": "text", "text": "<@U0SHIP> hello"}
    await world.slack.say(
        "",
        channel=ROOM,
        user=ANN,
        blocks=[{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [typed]}]}],
    )
    command = {"type": "text", "text": "!whoami"}
    await world.slack.say(
        "",
        channel="D0ANN",
        user=ANN,
        blocks=[{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [command]}]}],
    )
    await world.slack.until(lambda: len(world.slack.replies("D0ANN")) == 1)
    assert "You're `Ann` (slack:U0ANN), " in world.slack.replies("D0ANN")[0].text
    assert not world.slack.replies(ROOM)
    assert not world.model.requests


async def test_the_model_knows_who_writes_from_the_first_message_on(world: World) -> None:
    await begun(world)
    await world.slack.say("hello", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: len(world.slack.replies("D0ANN")) == 1)
    told = [block["text"] for block in world.model.bodies[-1]["messages"][-1]["content"]]
    assert any('"userName": "Ann"' in one or '"userName":"Ann"' in one for one in told)


async def test_what_a_slash_command_asks_in_a_channel_is_seen_there_with_who_asked(world: World) -> None:
    world.slack.add_user(ANN, name="Ann *x*")
    world.model.answer("At noon.")
    await world.start("slack")
    await world.slack.command("when do\n<!here> we eat?", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM)) == 1)
    (shown,) = world.slack.replies(ROOM)
    assert shown.text == "> `Ann *x*`: when do <\u200b!here> we eat?\n\nAt noon."
