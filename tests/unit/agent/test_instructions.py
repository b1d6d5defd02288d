"""Instruction files in the turns of a chat: frozen for an epoch, a person's with what they say."""

from __future__ import annotations

import json

import pytest

from bot.contracts.model import ModelReply
from bot.testing.model import reply, text, tool_use

from .conftest import KEY, Bench


def write(bench: Bench, name: str, words: str) -> None:
    path = bench.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, encoding="utf-8")


def system(bench: Bench) -> str:
    return json.dumps(list(bench.model.requests[-1].system), ensure_ascii=False)


async def test_a_changed_file_takes_effect_when_the_cache_is_cold_and_is_told(bench: Bench) -> None:
    await bench.say("one")
    write(bench, "Agent.md", "You are the ship's cat.")
    write(bench, ".ship/instructions/channels/telegram.md", "没有表格。")
    await bench.say("two")
    assert "cat" not in system(bench)
    await bench.clock.advance(301)
    await bench.say("three")
    assert "You are the ship's cat." in system(bench)
    assert "没有表格。" in system(bench)
    assert [line.message for line in bench.log.of("prompt")] == [
        "the instructions or the skills have changed"
    ]


async def test_the_instructions_for_a_person_go_with_their_words_once(bench: Bench) -> None:
    write(bench, ".ship/instructions/people/telegram-77.md", "Call her 船长.")
    for words in ("one", "two"):
        await bench.say(words)
    told = json.dumps(bench.sent, ensure_ascii=False)
    assert told.count("Call her 船长.") == 1
    assert "船长" not in system(bench)
    bench.restart()
    await bench.say("three")
    assert json.dumps(bench.sent, ensure_ascii=False).count("Call her 船长.") == 1
    await bench.pool.reset(KEY)
    await bench.say("four")
    assert "Call her 船长." in json.dumps(bench.sent[:1], ensure_ascii=False), "gone from view, so told again"


async def test_rules_that_do_not_fit_the_prompt_end_the_turn_with_the_truth(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.agent.deps.LEAST_BUDGET", 10)
    monkeypatch.setattr("bot.agent.deps.MOST_BUDGET", 10)
    outcome = await bench.say("one")
    assert outcome.status == "failed"
    assert outcome.notice is not None
    assert "leave the language model no room" in outcome.notice
    assert "required sections of the prompt" in outcome.detail
    assert bench.model.requests == []


def reads(path: str) -> ModelReply:
    return reply(tool_use("read_file", path=path))


async def test_instructions_of_a_folder_come_behind_the_results_that_touched_it_once(bench: Bench) -> None:
    write(bench, "docs/Agent.md", "No tables in docs.")
    write(bench, "docs/de/Agent.md", "Duzen, bitte.")
    write(bench, "docs/de/a.md", "words")
    bench.model.answers += [reads("docs/de/a.md"), reads("docs/de/a.md"), reply(text("fine"))]
    await bench.say("look")
    roles = [(message["role"], message["content"][0]["type"]) for message in bench.sent]
    assert roles[1:5] == [
        ("assistant", "tool_use"),
        ("user", "tool_result"),
        ("user", "text"),
        ("assistant", "tool_use"),
    ]
    told = [block["text"] for block in bench.sent[3]["content"]]
    assert ["No tables in docs." in told[0], "Duzen, bitte." in told[1], len(told)] == [True, True, 2]
    bench.restart()
    bench.model.answers += [reads("docs/de/a.md"), reply(text("again"))]
    await bench.say("once more")
    assert [block["text"] for block in bench.sent[3]["content"]] == told
    assert json.dumps(bench.sent).count("Duzen, bitte.") == 1
    await bench.pool.reset(KEY)
    bench.model.answers += [reads("docs/de/a.md"), reply(text("new"))]
    await bench.say("anew")
    assert json.dumps(bench.sent).count("Duzen, bitte.") == 1, "gone from view, so attached again"


async def test_a_model_that_has_nothing_to_say_after_instructions_is_asked_once_more(bench: Bench) -> None:
    write(bench, "docs/Agent.md", "No tables in docs.")
    write(bench, "docs/a.md", "words")
    bench.model.answers += [reads("docs/a.md"), reply(), reply(text("here"))]
    await bench.say("look")
    assert bench.chat.seen == ["here"]
