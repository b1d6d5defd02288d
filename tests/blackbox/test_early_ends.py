"""Tests of answers that are cut off, empty or failed: the message to the person, and the next request to the model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bot.testing.anthropic_script import Answer, cut_call, error, refusal, reply, thinking, tool_use
from bot.words import say
from tests.blackbox.conftest import World

GO_ON, GIVE_IT = "Continue exactly", "still waits for your answer"
LOOK = tool_use("list_dir", {"path": "."})
CASES: dict[str, tuple[Sequence[Answer], Sequence[str]]] = {
    "cut in its text": (
        (reply("The ship is ca", stop_reason="max_tokens"), reply("lled 海.")),
        ["The ship is called 海."],
    ),
    "cut, and its end said again": (
        (reply("今天的会议改到下午三点", stop_reason="max_tokens"), reply("下午三点开始。")),
        ["今天的会议改到下午三点开始。"],
    ),
    "cut between equal lines": (
        (reply("no ship today\n" * 2, stop_reason="max_tokens"), reply("no ship today\nthe end")),
        ["no ship today\n" * 3 + "the end"],
    ),
    "cut in its text again and again": (
        tuple(reply(f"part {number}, ", stop_reason="max_tokens") for number in range(4)),
        [f"part 0, part 1, part 2, part 3,\n\n{say('turn.truncated')}"],
    ),
    "the rest fails": (
        (reply("Half of it", stop_reason="max_tokens"), error(401, "authentication_error", "no")),
        [f"Half of it\n\n{say('turn.broken_off')}"],
    ),
    "cut in a call, then whole": (
        (cut_call(), reply(tool_use("chat_send", {"text": "Whole."}))),
        ["Whole."],
    ),
    "cut in each call": ((cut_call(), cut_call(), cut_call()), [say("turn.too_many_cuts")]),
    "paused": ((reply("First, ", stop_reason="pause_turn"), reply("then.")), ["First, then."]),
    "nothing behind tools": ((reply(LOOK), reply(), reply("It is empty.")), ["It is empty."]),
    "nothing behind tools, twice": ((reply(LOOK), reply(), reply()), [say("turn.nothing_to_say")]),
    "nothing at all": ((reply(),), [say("turn.nothing_to_say")]),
    "words below a message": (
        (reply(tool_use("chat_send", {"text": "Here."}), LOOK), reply("I have sent it.")),
        ["Here."],
    ),
    "two messages at once": (
        (reply(tool_use("chat_send", {"text": "One."}), tool_use("chat_send", {"text": "Two."})),),
        ["One.", "Two."],
    ),
    "more is promised": (
        (
            reply(tool_use("chat_send", {"text": "On it.", "more": True})),
            reply(LOOK),
            reply(),
            reply("Done."),
        ),
        ["On it.", "Done."],
    ),
    "refused": ((refusal(),), [f"I can\n\n{say('turn.declined')}"]),
    "thinking alone": ((reply(thinking(), stop_reason="max_tokens"), reply("Thought.")), ["Thought."]),
}
"""For each question: the model's answers, and the texts that the person gets."""


async def test_each_answer_comes_to_an_end_and_no_line_of_ours_is_kept(world: World) -> None:
    world.model.script(lambda _: "Nobody has asked for this.")
    await world.start("telegram")
    for number, (name, (answers, shown)) in enumerate(CASES.items()):
        before, asked = len(world.texts()), len(world.model.requests)
        count = before + len(shown)
        world.model.then(*answers)
        await world.ask(name, count)
        await world.turns(number + 1)
        assert world.texts()[before:] == list(shown), name
        assert len(world.model.requests) - asked <= len(answers), name
    asked_last = [json.dumps(body["messages"][-1]) for body in world.model.bodies]
    assert sum(GO_ON in one for one in asked_last) >= 4
    assert sum(GIVE_IT in one for one in asked_last) == 3
    world.telegram.say("and now?")
    await world.turns(len(CASES) + 1)
    kept = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    assert GO_ON not in kept
    assert GIVE_IT not in kept
    assert "The ship is called 海." in kept
    assert '"refused"' not in kept, "what was refused would be refused again"
    assert not any(line["kind"] == "repair" for line in world.log())
