"""Payloads that Slack never sends: each is read, ignored or stored as a dead letter."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from channels.slack import inbound

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
    10**40,
    "🚢" * 20_000,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        yield (*path, key)
        yield from paths(part, (*path, key))


def broken(payload: Any) -> Iterator[Any]:
    """Yield the payload with each field removed, and with each field replaced by wrong values."""
    for path in paths(payload):
        for wrong in ("remove", *WRONG):
            damaged = copy.deepcopy(payload)
            parent = damaged
            for key in path[:-1]:
                parent = parent[key]
            if wrong == "remove":
                del parent[path[-1]]
            else:
                parent[path[-1]] = wrong
            yield damaged


async def recorded(stage: Any) -> list[Any]:
    """Return one payload of each kind."""
    server = stage.server
    files = [{"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 1}]
    root = await server.say("hello", channel=stage.direct, user=stage.ada, files=files)
    await server.say("<@U0SHIP> !help", channel=stage.channel, user=stage.ada)
    await server.edit(stage.direct, root, "hello!")
    await server.press(stage.direct, root, "rating good", user=stage.ada)
    await server.delete(stage.direct, root)
    await server.command("help", channel=stage.direct, user=stage.ada)
    server.world.sessions[stage.channel, root] = "processing"
    await server.press_stop(stage.channel, root, user=stage.ada)
    return [delivery.payload for delivery in server.deliveries]


async def test_a_damaged_payload_is_read_ignored_or_unreadable(stage: Any) -> None:
    me = inbound.BotIdentity("T0TEAM", "U0SHIP", "B0SHIP")
    places = {stage.direct, stage.channel}
    kinds, refused = set[str](), 0

    for payload in await recorded(stage):
        for damaged in (payload, *broken(payload)):
            json.dumps(inbound.skeleton(damaged)).encode()
            try:
                found = inbound.read(damaged, me, 1.0)
            except inbound.Unreadable as error:
                refused += 1
                str(error).encode()
                continue
            if found is not None:
                kinds.add(found.kind)
                found.model_dump_json()
                assert found.user_id == stage.ada
                assert found.chat_id in places
    assert kinds == {"message", "edit", "delete", "stop", "rating"}
    assert refused > 500


async def test_an_unreadable_event_is_a_dead_letter_and_acknowledged(stage: Any) -> None:
    await stage.server.push({"type": "message", "channel": [], "ts": {}})
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert [message.text for message in await stage.arrived()] == ["hello"]
    (letter,) = stage.intake.dead_letters
    assert letter.key.startswith("slack:T0TEAM:event:Ev")
    assert "channel: string_type" in letter.reason


async def test_a_dead_letter_that_cannot_be_kept_is_not_acknowledged(stage: Any) -> None:
    stage.intake.broken = 1
    await stage.server.push({"type": "message"})
    await stage.until(lambda: stage.intake.broken == 0)
    assert len(stage.server.unacked()) == 1
    await stage.clock.advance(3)
    await stage.settled()
    assert len(stage.intake.dead_letters) == 1


@pytest.mark.parametrize("frame", ["", "nonsense", "[1]", "{", '{"type": "hello", "payload": 5}'])
async def test_frames_that_are_no_messages_are_ignored(stage: Any, frame: str) -> None:
    for socket in stage.server.link.sockets:
        await socket.send_str(frame)
        await socket.send_bytes(b"\xff\x00")
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert len(await stage.arrived()) == 1


def test_a_dead_letter_has_ids_and_no_words() -> None:
    body = {
        "type": "x",
        "event": {"type": "message", "text": "secret", "user": "U1", "blocks": [{"text": "secret"}]},
    }
    assert inbound.skeleton(body) == {"type": "x", "user": "U1"}
