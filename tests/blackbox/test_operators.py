"""Operators hear of trouble in their direct chats, and each part says how it is."""

from __future__ import annotations

from tests.blackbox.conftest import ANN, PERSON, World


async def test_an_event_that_cannot_be_read_is_told_to_operators_on_every_channel_once(world: World) -> None:
    world.only("telegram", "slack")
    world.config["operators"] = [f"telegram:{PERSON}", f"slack:{ANN}", "telegram:999999"]
    world.config["dashboard"] = {"port": 0}
    await world.start()
    first = world.telegram.push_raw({"message": {"message_id": "secret words"}})
    world.telegram.push_raw({"message": {"message_id": "secret words"}})
    world.telegram.say("what stands behind it goes on")
    await world.telegram.until(lambda: len(world.texts()) >= 2)
    await world.slack.until(lambda: bool(world.slack.called("chat.postMessage")))
    told = [text for text in world.texts() if "dead letters" in text]
    assert len(told) == 1
    assert f"update:{first['update_id']}" in told[0]
    assert "secret words" not in told[0]
    (post,) = world.slack.called("chat.postMessage")
    assert "dead letters" in str(post)
    address = world.process.ready_line.split()[-1]
    async with world.session.get(f"{address}/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
    async with world.session.get(f"{address}/readyz") as answer:
        parts = (await answer.json())["parts"]
    assert set(parts) == {"journal", "disk", "model", "memory", "slack", "telegram"}
    assert all(part["ok"] for part in parts.values())
    assert "GB are free (" in parts["disk"]["detail"]
    assert await world.process.stop() == 0


async def test_an_operator_lets_a_stranger_in_from_the_chat(world: World) -> None:
    world.only("telegram")
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = []
    await world.start()
    world.telegram.say("hello?", chat_id=2002)
    await world.telegram.until(lambda: len(world.texts(2002)) == 1)
    world.telegram.say("/allow")
    await world.telegram.until(lambda: len(world.texts()) == 1)
    assert "Person 2002: /allow telegram:2002" in world.texts()[0]
    world.telegram.say("/allow 2002")
    await world.telegram.until(lambda: len(world.texts()) == 2)
    assert world.texts()[1] == "telegram:2002 may talk to me from now on."
    world.telegram.say("and now?", chat_id=2002)
    await world.telegram.until(lambda: len(world.texts(2002)) == 2)
    assert len(world.model.requests) == 1
    world.telegram.say("/block 2002")
    await world.telegram.until(lambda: len(world.texts()) == 3)
    world.telegram.say("and again?", chat_id=2002)
    world.telegram.say("I am here")
    await world.telegram.until(lambda: len(world.texts()) == 4)
    assert len(world.texts(2002)) == 2
    assert len(world.model.requests) == 2
