"""Bad input gets a clear answer, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from bot.testing import anthropic_script as scripts
from tests.blackbox.conftest import Process, World, eventually, fast


class TestStart:
    async def refused(self, world: World) -> tuple[int, str]:
        await world.start(wait=False)
        code = await world.process.ended()
        assert "Traceback" not in world.process.stderr
        return code, world.process.stderr

    @pytest.mark.parametrize(
        ("channel", "name", "value", "said"),
        [
            ("telegram", "TELEGRAM_BOT_TOKEN", "1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "telegram"),
            ("slack", "SLACK_BOT_TOKEN", "xoxb-wrong-wrong-wrong", "slack"),
            ("telegram", "TELEGRAM_BOT_TOKEN", "", "TELEGRAM_BOT_TOKEN"),
            ("telegram", "ANTHROPIC_API_KEY", "sk-ant-wrong-000000", "llm.apiKey"),
        ],
    )
    async def test_a_token_or_a_key_that_is_refused_or_missing_is_named_and_not_shown(
        self, world: World, channel: str, name: str, value: str, said: str
    ) -> None:
        world.only(channel)
        world.process.env[name] = value
        code, told = await self.refused(world)
        assert code == 78
        assert said in told
        assert not value or value[:10] not in told

    async def test_broken_configuration(self, world: World) -> None:
        world.config["queue"] = {"maxConcurrentTurns": "many"}
        world.config["colour"] = "blue"
        code, said = await self.refused(world)
        assert code == 78
        assert len(said.strip().splitlines()) == 2
        assert "queue.maxConcurrentTurns" in said
        assert "colour" in said

    async def test_a_port_in_use(self, world: World) -> None:
        world.only("web")
        world.config["channels"]["web"]["port"] = world.model.port
        code, said = await self.refused(world)
        assert code == 75
        assert str(world.model.port) in said

    async def test_two_processes_on_one_folder(self, world: World) -> None:
        await world.start("telegram")
        second = await Process(world.root, world.process.env).start(wait=False)
        assert await second.ended() == 75
        assert str(world.process.pid) in second.stderr
        assert world.process.running

    async def test_a_network_that_is_down_is_waited_for(self, world: World) -> None:
        await world.telegram.stop()
        await world.start("telegram", wait=False)
        await eventually(lambda: any("cannot be reached" in line for line in world.process.lines))
        await world.telegram.start()
        await eventually(lambda: any(line.startswith("ready ") for line in world.process.lines))
        assert await world.process.stop() == 0


WEIRD = [
    "x" * 4096,
    "\u202eevil\u202c שלום עולם مرحبا",
    "🇩🇪🇫🇷👨‍👩‍👧‍👦👍🏽" * 50,
    "a" + "́" * 500,
    "nul:\0 c1:\x85 bom:﻿",
    "<!channel> @everyone <turn_context>{}</turn_context>",
    "```" * 300,
]


async def test_every_kind_of_text_is_answered_and_kept_unchanged(world: World) -> None:
    await world.start("telegram")
    for number, text in enumerate(WEIRD):
        world.telegram.say(text)
        await world.model.until(lambda n=number: len(world.model.requests) > n)  # type: ignore[misc]
        assert world.model.bodies[-1]["messages"][-1]["content"][-1]["text"] == text
    await world.turns(len(WEIRD))
    kept = [line["text"] for line in world.archive() if line["role"] == "user"]
    assert kept == WEIRD


async def test_lone_surrogates_are_replaced_and_the_rest_of_the_message_is_kept(world: World) -> None:
    await world.start("telegram")
    await world.ask("half \ud83d of a pair", 1)
    assert world.model.bodies[-1]["messages"][-1]["content"][-1]["text"] == "half � of a pair"


async def test_a_hundred_thousand_characters_come_back_in_parts(world: World) -> None:
    world.only("web")
    await world.start("telegram")
    world.model.answer("字" * 100_000)
    world.telegram.say("long please")
    await world.telegram.until(lambda: len("".join(world.texts())) >= 100_000)
    assert "".join(world.texts()) == "字" * 100_000
    assert all(len(text) <= 4096 for text in world.texts())


async def test_what_cannot_be_opened_is_named_and_its_caption_answered(world: World) -> None:
    await world.start("telegram")
    world.model.answer("A fine caption.")
    await world.ask("what is this?", 1, media="photo")
    assert world.texts()[0].startswith("A fine caption.")
    assert "I couldn't look at the photo" in world.texts()[0]
    world.telegram.say(media="voice")
    await world.telegram.until(lambda: len(world.texts()) == 2)
    assert "voice notes" in world.texts()[1]
    assert len(world.model.requests) == 1, "without words there is nothing to ask the model"


FAILURES: list[tuple[list[Any], str]] = [
    ([scripts.overloaded()] * 3, "overloaded"),
    ([scripts.rate_limited(3600)], "busy"),
    ([scripts.html_page()] * 3, "Please try again"),
    ([scripts.empty_body()] * 3, "broke off"),
    ([scripts.refusal()], "I can\n\nThe language model declined"),
    ([scripts.unpaid()], "no longer serves my account"),
    ([scripts.error(404, "not_found_error", "model: claude-nope")], "The people who run me have to look"),
]


@fast
async def test_a_model_that_fails_is_told_plainly(world: World) -> None:
    world.config["channels"]["telegram"]["allow"] = ["*"]
    await world.start("telegram")
    for chat, (answers, said) in enumerate(FAILURES, 4001):
        world.model.then(*answers)
        await world.ask("hello", 1, chat_id=chat)
        assert said in world.texts(chat)[0]
        assert "Traceback" not in world.texts(chat)[0]
        world.model.answer("All is well again.")
        await world.ask("and now?", 2, chat_id=chat)
        assert world.texts(chat)[1] == "All is well again."


async def test_a_broken_stream_is_asked_for_again_and_answered_once(world: World) -> None:
    await world.start("telegram")
    for count, fault in enumerate((scripts.cut, scripts.end_early, scripts.garble), 1):
        world.model.then(fault(scripts.reply("Half of an answer")), scripts.reply("The whole answer."))
        world.telegram.say("hello")
        await world.heard(*["The whole answer."] * count)


async def test_a_tool_call_with_wrong_arguments_or_an_unknown_name_is_told_to_the_model(world: World) -> None:
    await world.start("telegram")
    world.model.answer(scripts.tool_use("chat_send", {"txt": "hello"}))
    world.model.answer(scripts.tool_use("launch_rocket", {}))
    world.model.answer("Plain text then.")
    world.telegram.say("hello")
    await world.heard("Plain text then.")
    first, second = (body["messages"][-1]["content"][0] for body in world.model.bodies[1:])
    assert "- text: expected a value, got nothing" in first["content"]
    assert "There is no tool named 'launch_rocket'" in second["content"]
    assert "chat_send" in second["content"]
