from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.contracts.base import Json
from bot.contracts.model import Model
from bot.llm.client import AnthropicModel
from bot.system import SystemClock
from bot.testing import anthropic_script as script
from bot.testing.anthropic import KEY, AnthropicServer
from tests.contracts.model_contract import ModelContract


def answer(body: Json) -> script.Reply:
    """Return a reply that repeats the person's words, through `chat_send` if the request offers that tool."""
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return script.reply("Done.")
    words = f"You said: {last['text']}"
    if body.get("tools"):
        return script.reply(
            script.thinking("Hm, 嗯"), "Sending.", script.tool_use("chat_send", {"text": words})
        )
    return script.reply(script.thinking(), words)


class TestAnthropicModel(ModelContract):
    @pytest.fixture
    async def model(self) -> AsyncIterator[Model]:
        async with AnthropicServer(bind_thinking=True, chunk=500) as server:
            server.script(answer)
            model = AnthropicModel(api_key=KEY, base_url=server.url, clock=SystemClock())
            yield model
            await model.close()
