"""Calls a platform's API to check credentials, without the platform's library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from bot import errors
from bot.contracts.channel import LOOPBACK

SECONDS = 10.0
"""Timeout of a call in seconds."""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A JSON response of the platform's API. `time` is the platform's clock in epoch seconds."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    time: float | None


async def ask(address: str, *, token: str | None = None, form: Mapping[str, str] | None = None) -> ApiAnswer:
    """Send a POST request to a method of the API and return the response. Raises `errors.ChannelUnreachable`
    if there is no response, if its status is 5xx, or if it is no JSON object.
    """
    import aiohttp  # imported late, since manifests import this module and must be fast to import

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    waits = aiohttp.ClientTimeout(total=SECONDS)
    direct = urlsplit(address).hostname in LOOPBACK
    try:
        async with (
            aiohttp.ClientSession(timeout=waits, trust_env=not direct) as session,
            session.post(address, data=form, headers=headers, allow_redirects=False) as answer,
        ):
            body = json.loads(await answer.read())
            if answer.status >= 500 or not isinstance(body, dict):
                raise errors.ChannelUnreachable(f"HTTP {answer.status}")
            return ApiAnswer(answer.status, body, answer.headers, _time(answer.headers.get("Date", "")))
    except ValueError:
        raise errors.ChannelUnreachable("something else answers there") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.ChannelUnreachable(errors.connection_reason(error)) from None


def _time(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
