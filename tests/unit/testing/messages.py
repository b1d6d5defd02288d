"""Messages and a bare client for the tests of the Messages API."""

from __future__ import annotations

import io
import json
from typing import Any

import aiohttp

from bot.contracts.base import Json
from bot.testing.anthropic import KEY, AnthropicServer

HEADERS = {"authorization": f"Bearer {KEY}", "anthropic-version": "2026-10-21"}
CACHE = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words} | more


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def assistant(*blocks: Json | str) -> Json:
    return user(*blocks) | {"role": "assistant"}


def use(name: str = "toolu_1", **more: Any) -> Json:
    return {"type": "tool_use", "id": name, "name": "look", "input": {}} | more


def result(name: str = "toolu_1", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": name, "content": "found"} | more


def body(*messages: Json, **more: Any) -> Json:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "messages": list(messages or (user("Hi"),)),
    } | more


class Caller:
    """A bare HTTP client that shows the server's real responses."""

    def __init__(self, server: AnthropicServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def post(
        self,
        given: Json | bytes | io.BytesIO,
        path: str = "/v1/messages",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        data = given if isinstance(given, bytes | io.BytesIO) else json.dumps(given).encode()
        url = self.server.url + path
        async with self.session.post(
            url, data=data, headers=HEADERS if headers is None else headers
        ) as response:
            assert response.headers["request-id"].startswith("req_")
            return response.status, await response.json()

    async def usage(self, given: Json) -> Json:
        status, answer = await self.post(given)
        assert status == 200, answer
        found: Json = answer["usage"]
        return found
