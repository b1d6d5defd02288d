"""What people send in Telegram that is neither words nor a file: the model is told, and it is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.blackbox.conftest import World

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
LINK = {"type": "url", "text": "the plan", "url": "https://a.example/plan"}
CONTENT: dict[str, tuple[dict[str, Any], list[str]]] = {
    "location": ({"location": PLACE}, ["location", "52.520008", "13.404954"]),
    "contact": ({"contact": {"phone_number": "+49301", "first_name": "Eve"}}, ["contact", "Eve", "+49301"]),
    "poll": ({"poll": POLL}, ["poll", "Where?", "Rome", "東京"]),
    "rich": (
        {"rich_message": {"blocks": [{"type": "paragraph", "text": ["read ", LINK]}]}},
        ["read the plan", "https://a.example/plan"],
    ),
    "link": (
        {
            "text": "read this",
            "entities": [{"type": "text_link", "offset": 5, "length": 4, "url": "https://a.example/plan"}],
        },
        ["read this", "https://a.example/plan"],
    ),
    "unknown": ({"hologram": {"depth": 3}}, ["hologram"]),
}


@pytest.mark.parametrize("kind", CONTENT)
async def test_the_model_is_told_and_the_person_gets_an_answer(world: World, kind: str) -> None:
    fields, words = CONTENT[kind]
    world.only("telegram")
    world.model.script(lambda _: "I see.")
    await world.start()
    world.telegram.say(fields=fields)
    await world.heard("I see.")
    told = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    (line,) = [one for one in world.archive() if one["role"] == "user"]
    kept = json.dumps(line, ensure_ascii=False)
    for one in words:
        assert one in told
        assert one in kept
    assert await world.process.stop() == 0


async def test_the_built_in_model_answers_them_too(world: World) -> None:
    world.only("telegram")
    world.config["llm"] = {"provider": "demo"}
    await world.start()
    world.telegram.say(fields={"location": PLACE})
    await world.telegram.until(lambda: bool(world.texts()))
    assert world.texts()[0].strip()
