"""Payloads that Slack never sends: each is kept as a dead letter, ignored or read, always acked, and never more than that."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from channels.slack.dead_letters import skeleton

HUGE = "🚢" * 20_000
WRONG: tuple[Any, ...] = (
    None,
    5,
    True,
    "",
    "\ud800",
    "a b",
    [],
    ["x"],
    {},
    {"a": {"b": [1]}},
    1.5,
    10**40,
    HUGE,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        yield (*path, key)
        yield from paths(part, (*path, key))


def broken(payload: Any) -> Iterator[Any]:
    """The payload with each field removed, and with each field wrong in each way."""
    for path in paths(payload):
        for wrong in ("remove", *WRONG):
            damaged = copy.deepcopy(payload)
            parent = damaged
            for key in path[:-1]:
                parent = parent[key]
            if isinstance(wrong, str) and wrong == "remove":
                del parent[path[-1]]
            else:
                parent[path[-1]] = wrong
            yield damaged


async def recorded(stage: Any) -> list[tuple[str, Any]]:
    """One payload of each kind."""
    server = stage.server
    files = [{"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 1}]
    root = await server.say("hello", channel=stage.direct, user=stage.ada, files=files)
    await server.say("<@U0SHIP> !help", channel=stage.channel, user=stage.ada)
    await server.edit(stage.direct, root, "hello!")
    await server.delete(stage.direct, root)
    await server.command("help", channel=stage.direct, user=stage.ada)
    asked = await server.say("<@U0SHIP> 你好", channel=stage.channel, user=stage.ada)
    server.world.sessions[stage.channel, asked] = "processing"
    await server.press_stop(stage.channel, asked, user=stage.ada)
    await server.edit(stage.channel, asked, "<@U0SHIP> مرحبا")
    await server.delete(stage.channel, asked)
    await stage.settled()
    return [(delivery.kind, delivery.payload) for delivery in server.deliveries]


async def test_no_damage_to_a_payload_does_more_than_bury_it(stage: Any) -> None:
    whole = await recorded(stage)
    people = {inbound.user_id for inbound in stage.intake.accepted}
    assert {inbound.kind for inbound in stage.intake.accepted} == {"message", "edit", "delete", "stop"}
    assert len(whole) == 11
    for kind, payload in whole:
        for damaged in broken(payload):
            await stage.server.envelope(damaged, kind=kind)
        await stage.settled()
    assert len(stage.server.deliveries) > 4_000
    assert len(stage.intake.dead_letters) > 500
    assert {inbound.user_id for inbound in stage.intake.accepted} <= people
    assert {inbound.chat_id for inbound in stage.intake.accepted} <= {stage.direct, stage.channel}
    assert stage.slack.health().connected
    json.dumps([inbound.model_dump() for inbound in stage.intake.accepted]).encode()
    for letter in stage.intake.dead_letters:
        (letter.key + letter.raw + letter.reason).encode()


@pytest.mark.parametrize("payload", [None, 5, "words", [], [1], {}, {"type": 5}, {"type": "event_callback"}])
async def test_an_envelope_without_a_payload_is_buried_and_acked(stage: Any, payload: Any) -> None:
    delivery = await stage.server.envelope(payload)
    await stage.settled()
    assert delivery.attempts == 1
    assert len(stage.intake.dead_letters) == 1


async def test_what_cannot_be_buried_is_not_acked(stage: Any) -> None:
    stage.intake.broken = 3
    await stage.server.envelope([])
    await stage.server.envelope({"authorizations": 5})
    await stage.server.push({"type": "message"})
    await stage.until(lambda: stage.intake.broken == 0)
    assert len(stage.server.unacked()) == 3
    await stage.clock.advance(3)
    await stage.settled()
    assert len(stage.intake.dead_letters) == 3


async def test_what_stands_behind_a_poisoned_event_goes_on(stage: Any) -> None:
    await stage.server.push({"type": "message", "channel": [], "ts": {}})
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert [message.text for message in await stage.arrived()] == ["hello"]
    (letter,) = stage.intake.dead_letters
    assert letter.key.startswith("slack:T0TEAM:event:Ev")
    assert "channel: string_type" in letter.reason


@pytest.mark.parametrize(
    "frame", ["", "nonsense", "[1]", "{", '{"a":' * 5_000, '{"type": "hello", "payload": 5}']
)
async def test_frames_that_are_nothing_are_passed_over(stage: Any, frame: str) -> None:
    for socket in stage.server.link.sockets:
        await socket.send_str(frame)
        await socket.send_bytes(b"\xff\x00")
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert len(await stage.arrived()) == 1


async def test_a_lone_surrogate_does_not_cost_the_message(stage: Any) -> None:
    await stage.server.say("a\ud800b\x00", channel=stage.direct, user=stage.ada)
    (message,) = await stage.arrived()
    assert message.text == "a\ufffdb\x00"


def test_a_dead_letter_keeps_the_shape_and_not_the_words() -> None:
    body = {"type": "x", "event": {"text": "secret", "user": "U1", "n": 5, "blocks": [{"text": "secret"}]}}
    assert skeleton(body) == {
        "type": "x",
        "event": {"text": "<6 characters>", "user": "U1", "n": 5, "blocks": [{"text": "<6 characters>"}]},
    }


def test_a_deep_or_wide_dead_letter_is_cut() -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": [deep]}
    assert len(json.dumps(skeleton(deep))) < 200
    assert len(skeleton({str(n): n for n in range(1_000)})) == 40
