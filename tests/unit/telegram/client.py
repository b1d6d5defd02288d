"""The Bot API as any HTTP client uses it."""

from __future__ import annotations

from typing import Any

import aiohttp

from bot.testing.telegram import TelegramServer


class Client:
    """Calls methods as any HTTP client would."""

    def __init__(self, server: TelegramServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def call(self, method: str, *, token: str | None = None, **params: Any) -> dict[str, Any]:
        address = f"{self.server.url}/bot{token or self.server.token}/{method}"
        async with self.session.post(address, json=params) as answer:
            body: dict[str, Any] = await answer.json()
            assert body["ok"] is (answer.status == 200)
            assert body.get("error_code", 200) == answer.status
            return body

    async def ok(self, method: str, **params: Any) -> Any:
        body = await self.call(method, **params)
        assert body["ok"], body
        return body["result"]

    async def refused(self, method: str, **params: Any) -> str:
        body = await self.call(method, **params)
        assert not body["ok"]
        return f"{body['error_code']} {body['description']}"
