"""Claims in a reply of the real process are corrected before the reply is final, even if a preview showed them."""

from __future__ import annotations

import asyncio

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_streaming import goes_on, streaming, told

CLAIM = "I've saved the list to notes.md for you, and it is all there, down to the very last line of it. "
TRUTH = "I have not saved anything: files are closed to me."


async def test_what_was_shown_of_an_unfounded_claim_becomes_the_correction(world: World) -> None:
    streaming(world, "telegram")
    gate = asyncio.Event()
    world.model.then(told(CLAIM * 3, (0.6, gate)), reply(tool_use("chat_send", {"text": TRUTH})))
    await world.start()
    world.telegram.say("save the list to notes.md")
    await goes_on(world)
    gate.set()
    await world.telegram.until(lambda: world.texts() == [TRUTH])
    await world.turns(1)
    await eventually(lambda: len(world.archive()) == 2)
    assert [line["text"] for line in world.archive()] == ["save the list to notes.md", TRUTH]
    (line,) = [line for line in world.log() if line["kind"] == "claim"]
    assert (line["level"], line["details"]["action"], line["details"]["claims"]) == (
        "warn",
        "corrected",
        ["saved"],
    )


async def test_a_claim_that_a_tool_bears_out_is_said(world: World) -> None:
    world.config["permissions"] = {"allow": ["write_file(docs/)"]}
    said = "I've saved it to docs/a.md."
    world.model.answer(
        tool_use("write_file", {"path": "docs/a.md", "content": "x"}), tool_use("chat_send", {"text": said})
    )
    world.model.answer(tool_use("chat_send", {"text": "I've also emailed Bob."}))
    world.model.answer("I've emailed Bob.")
    await world.start("telegram")
    world.telegram.say("save it to docs/a.md and email Bob")
    await world.telegram.until(lambda: said in world.texts())
    await world.turns(1)
    assert world.texts()[0] == said
    assert (world.root / "docs" / "a.md").read_text(encoding="utf-8") == "x"
    assert not any(text == "I've also emailed Bob." for text in world.texts())


async def test_a_plain_answer_with_an_unfounded_claim_is_sent_with_a_note(world: World) -> None:
    world.model.answer("I've emailed Bob.")
    await world.start("telegram")
    world.telegram.say("email Bob")
    await world.telegram.until(lambda: len(world.texts()) == 1)
    (text,) = world.texts()
    assert text.startswith("I've emailed Bob.\n\n")
