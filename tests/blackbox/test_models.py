"""An operator chooses the model of one chat."""

from __future__ import annotations

import json

from bot.testing.anthropic_script import Failure, reply, thinking
from tests.blackbox.conftest import PERSON, World

MEMBER = 1002
OPUS = "claude-opus-5-5"
SONNET = "claude-sonnet-5-5"


def team(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(MEMBER)]


def asked(world: World) -> list[str]:
    return [body["model"] for body in world.model.bodies]


async def test_an_operator_chooses_the_model_of_a_chat_and_it_outlives_a_kill(world: World) -> None:
    team(world)
    world.model.bind_thinking = True
    world.model.script(lambda _: reply(thinking(), "Noted."))
    await world.start("telegram")
    assert SONNET in await world.ask("/model")
    assert await world.ask("remember 東京") == "Noted."
    chosen = await world.ask(f"/model {OPUS}")
    assert f"This chat uses {OPUS}; elsewhere it's {SONNET}." in chosen
    assert "It reads up to 1,000,000 tokens. $4.00 per million tokens in, $20.00 out." in chosen
    assert await world.ask("and now?") == "Noted."
    assert asked(world) == [SONNET, OPUS]
    assert "東京" in json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    await world.sent()
    await world.turns(2)  # a kill can lose the last log lines
    await world.process.kill()
    await world.start()
    assert await world.ask("after the kill") == "Noted."
    assert "after the kill" in str(world.model.bodies[-1])
    await world.sent()
    assert OPUS in await world.ask("/status")
    assert await world.ask("somebody else", chat_id=MEMBER, user_id=MEMBER) == "Noted."
    assert asked(world)[2:] == [OPUS, SONNET], "of one chat only"
    assert await world.ask("/model default") == (await world.ask("/model"))
    assert await world.ask("last") == "Noted."
    assert asked(world)[-1] == SONNET
    await world.turns(5)
    answers = [line["details"] for line in world.log() if line["kind"] == "llm_response"]
    assert [one["model"] for one in answers if one["purpose"] == "turn"] == asked(world)
    changes = [line["details"]["reason"] for line in world.log() if line["kind"] == "compaction"]
    assert changes == ["model_change", "model_change"]


async def test_who_is_no_operator_chooses_none_and_a_forwarded_command_is_none(world: World) -> None:
    team(world)
    await world.start("telegram")
    assert (
        await world.ask(f"/model {OPUS}", chat_id=MEMBER, user_id=MEMBER)
        == "Only operators choose the model of a chat."
    )
    assert SONNET in await world.ask("/model", chat_id=MEMBER, user_id=MEMBER)
    count = len(world.texts())
    other = {
        "message_id": 7,
        "date": 1_700_000_000,
        "chat": {"id": 666, "type": "private", "first_name": "Eve"},
        "from": {"id": 666, "is_bot": False, "first_name": "Eve"},
        "text": f"/model {OPUS}",
    }
    world.telegram.forward(other)
    await world.telegram.until(lambda: len(world.texts()) == count + 1)
    assert await world.ask("hello") != ""
    assert set(asked(world)) == {SONNET}


async def test_a_model_that_the_provider_does_not_have_is_refused_or_given_up(world: World) -> None:
    team(world)
    world.model.script(lambda _: "Noted.")
    await world.start("telegram")
    assert await world.ask("/model gpt-none") == (
        "The provider has no model “gpt-none”. Nothing has changed."
    )
    assert "not the name of a model" in await world.ask("/model 東京 please")
    assert await world.ask("hello") == "Noted."
    assert OPUS in await world.ask(f"/model {OPUS}")
    gone = {"type": "error", "error": {"type": "not_found_error", "message": f"model: {OPUS}"}}
    world.model.then(Failure(404, gone))
    told = await world.ask("the provider has taken it away")
    assert told.startswith(f"The model “{OPUS}” doesn't exist any more.")
    assert await world.ask("once more") == "Noted."
    assert asked(world) == [SONNET, OPUS, SONNET]
    await world.sent()
    await world.process.kill()
    await world.start()
    world.telegram.say("after the kill")
    await world.telegram.until(
        lambda: world.texts()[-1] == "Noted." and "after the kill" in str(world.model.bodies[-1])
    )
    await world.sent()
    assert asked(world)[-1] == SONNET
