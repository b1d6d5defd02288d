"""`/receipt` shows the actions of a turn and `/stats` the usage of a chat, also after a kill."""

from __future__ import annotations

import re

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import PERSON, World

OTHER = 1002


async def test_a_turn_is_accounted_for_in_its_chat_alone_and_what_it_used_is_counted(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["channels"]["telegram"]["allow"] = [str(PERSON), str(OTHER)]
    await world.start("telegram")
    assert await world.ask("/receipt") == "I haven't answered anything here yet."
    world.model.then(reply(tool_use("list_files", {"path": "."})), reply("Done."))
    assert await world.ask("look 東京") == "Done."
    answer = world.telegram.visible(PERSON)[-1].message_id
    world.model.then(reply("Again."))
    assert await world.ask("and again") == "Again."
    await world.turns(2)
    await world.sent()
    for _ in range(2):
        last = (await world.ask("/receipt")).splitlines()
        assert re.fullmatch(r"You asked today .*: “and again”", last[0])
        first = await world.ask("/receipt", reply_to=answer)
        lines = [line.strip() for line in first.splitlines()]
        assert re.fullmatch(r"You asked today .*: “look 東京”", lines[0])
        assert re.fullmatch(r"It took [\d.]+ s\.", lines[1])
        assert re.fullmatch(r"• list_files: \w+ \([\d.]+ s\)", lines[3])
        assert lines[4].startswith("2 requests to claude-sonnet-5-5: ")
        assert lines[5] == "My answer was delivered."
        name = lines[6].rpartition(" ")[2]
        assert await world.ask(f"/receipt {name}") == first
        assert (await world.ask(f"/receipt {name}", chat_id=OTHER, user_id=OTHER)).startswith(
            "I know nothing of mine"
        )
        stats = (await world.ask("/stats")).splitlines()
        assert stats[0].startswith("2 answers")
        assert stats[1].startswith("3 ")
        assert len((await world.ask("/usage", chat_id=OTHER, user_id=OTHER)).splitlines()) == 1
        await world.sent()
        await world.process.kill()
        await world.start()
