"""Telegram messages without text and file, such as a location. The model learns of them, and they are answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import World, eventually

PLACE = {"latitude": 52.520008, "longitude": 13.404954}
OPTIONS = [{"text": one, "voter_count": 0, "persistent_id": one} for one in ("Rome", "東京")]
POLL = {
    "id": "1",
    "question": "Where?",
    "options": OPTIONS,
    "total_voter_count": 0,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
}
STICKER = {
    "file_id": "s",
    "file_unique_id": "s",
    "type": "regular",
    "emoji": "😀",
    "width": 512,
    "height": 512,
}
CONTENT: dict[str, tuple[dict[str, Any], list[str]]] = {
    "location": ({"location": PLACE}, ["location", "52.520008", "13.404954"]),
    "contact": ({"contact": {"phone_number": "+49301", "first_name": "Eve"}}, ["contact", "Eve", "+49301"]),
    "poll": ({"poll": POLL}, ["poll", "Where?", "Rome", "東京"]),
    "link": (
        {
            "text": "read this",
            "entities": [{"type": "text_link", "offset": 5, "length": 4, "url": "https://a.example/plan"}],
        },
        ["read this", "https://a.example/plan"],
    ),
    "sticker": ({"sticker": STICKER | {"is_animated": False, "is_video": False}}, ["😀"]),
    "unknown": ({"hologram": {"depth": 3}, "effect_id": "5104841245755180586"}, ["hologram"]),
}


async def test_the_model_is_told_and_the_person_gets_an_answer(world: World) -> None:
    world.model.script(lambda _: "I see.")
    await world.start("telegram")
    for count, (fields, words) in enumerate(CONTENT.values(), 1):
        world.telegram.say(fields=fields)
        await world.heard(*["I see."] * count)
        await world.turns(count)
        told = json.dumps(world.model.bodies[-1]["messages"][-1], ensure_ascii=False)
        await eventually(lambda: len(world.archive()) == 2 * count)  # noqa: B023 - awaited here
        kept = json.dumps(world.archive()[-2], ensure_ascii=False)
        for one in words:
            assert one in told
            assert one in kept
    assert await world.process.stop() == 0


EVE = {"type": "hidden_user", "sender_user_name": "Eve", "date": 1_700_000_000}
PICKED = {
    "text": "read this",
    "position": 0,
    "entities": [{"type": "text_link", "offset": 5, "length": 4, "url": "https://a.example/plan"}],
}
BROUGHT: dict[str, dict[str, Any]] = {
    "a passage of another chat": {"text": "and that?", "quote": PICKED, "external_reply": {"origin": EVE}},
    "a passage of this chat": {"text": "and that?", "quote": PICKED},
}


@pytest.mark.parametrize("how", BROUGHT)
async def test_an_address_behind_words_that_are_passed_on_reaches_the_model(world: World, how: str) -> None:
    world.model.script(lambda _: "I see.")
    await world.start("telegram")
    answered = None
    if "external_reply" not in BROUGHT[how]:
        answered = world.telegram.say("read this")["message"]["message_id"]
        await world.heard("I see.")
        await world.turns(1)
    world.telegram.say(fields=BROUGHT[how], reply_to=answered)
    await world.telegram.until(lambda: len(world.texts()) == (1 if answered is None else 2))
    newest = json.dumps(world.model.bodies[-1]["messages"][-1], ensure_ascii=False)
    assert "https://a.example/plan" in newest
    assert world.archive()
    assert await world.process.stop() == 0


async def test_the_built_in_model_answers_them_too(world: World) -> None:
    world.config["llm"] = {"provider": "demo"}
    await world.start("telegram")
    world.telegram.say(fields={"location": PLACE})
    await world.telegram.until(lambda: bool(world.texts()))
    assert world.texts()[0].strip()
