"""The server side of Slack events over HTTP: signed POST requests to the app's request URL."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp

from bot.contracts.base import Json
from bot.contracts.environment import Clock

PATIENCE = 3.0
SIGNING_SECRET = "0123456789abcdef0123456789abcdef"


def signed(body: str, at: float, secret: str = SIGNING_SECRET) -> dict[str, str]:
    """Return the headers with which Slack signs a request body at the time `at` (epoch seconds)."""
    stamp = str(int(at))
    code = hmac.new(secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={code}"}


class RequestUrl:
    """Posts payloads to one request URL. Call `verify` first, as Slack does when the app's settings are saved."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self._clock = clock

    async def verify(self) -> None:
        """Send the challenge to the request URL. Raises `ValueError` if the URL does not answer with the challenge."""
        challenge = secrets.token_hex(20)
        body: Json = {"token": "old", "challenge": challenge, "type": "url_verification"}
        status, text = await self._post(json.dumps(body), "application/json", {})
        if status != 200 or text != challenge:
            raise ValueError(f"the request URL answered {status}, and not with the challenge")

    async def deliver(self, kind: str, payload: Any, *, retry: tuple[int, str]) -> bool:
        """Post a payload once; return True if the app answered in time with a 2xx status."""
        again = {"X-Slack-Retry-Num": str(retry[0]), "X-Slack-Retry-Reason": retry[1]} if retry[0] else {}
        if kind == "events_api":
            body, form = json.dumps(payload), "application/json"
        else:
            fields = payload if kind == "slash_commands" else {"payload": json.dumps(payload)}
            body, form = urlencode(fields), "application/x-www-form-urlencoded"
        try:
            status, _ = await self._post(body, form, again)
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False
        return 200 <= status < 300

    async def _post(self, body: str, form: str, headers: Mapping[str, str]) -> tuple[int, str]:
        sent = {"Content-Type": form, **signed(body, self._clock.now()), **headers}
        waits = aiohttp.ClientTimeout(total=PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=waits) as session,
            session.post(self.url, data=body.encode(), headers=sent) as answer,
        ):
            return answer.status, await answer.text()
