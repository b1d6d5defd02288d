"""The dashboard's server: health, readiness, and access."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from bot import errors, http_server
from bot.dashboard.console import PartHealth
from bot.dashboard.server import Dashboard
from tests.unit.dashboard import pages
from tests.unit.dashboard.pages import PARTS

TOKEN = "sécret:token"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
async def dashboard() -> AsyncIterator[Dashboard]:
    async with served() as made:
        yield made


@contextlib.asynccontextmanager
async def served(**how: Any) -> AsyncIterator[Dashboard]:
    made = pages.dashboard(**how)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        await made.stop()


def basic(words: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


@pytest.mark.parametrize(
    ("how", "headers", "known"),
    [
        ({}, {}, True),
        ({}, {"X-Forwarded-For": "192.0.2.1"}, False),
        ({"user": None}, {}, False),
        ({"user": os.getuid() + 1}, {}, False),
        ({"token": TOKEN}, {}, False),
        ({"token": TOKEN}, {"Authorization": "Bearer wrong"}, False),
        ({"token": TOKEN}, {"Authorization": f"Digest {TOKEN}"}, False),
        ({"token": TOKEN}, {"Authorization": "Basic !!"}, False),
        ({"token": TOKEN}, basic("me:wrong"), False),
        ({"token": TOKEN}, basic(TOKEN), False),
        ({"token": TOKEN}, basic(f"me:{TOKEN}"), True),
        ({"token": TOKEN}, basic(f":{TOKEN}"), True),
        ({"token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}, True),
    ],
)
async def test_everybody_sees_whether_it_is_well_and_the_rest_is_for_who_started_it_or_has_the_token(
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, Any],
    headers: dict[str, str],
    known: bool,
) -> None:
    parts, how = dict(PARTS), dict(how)
    if "user" in how:
        user = how.pop("user")
        monkeypatch.setattr(http_server, "user_of", lambda *_: user)
    async with served(parts=parts, **how) as dashboard:

        async def body(path: str, status: int) -> Any:
            async with session.get(f"{dashboard.address}{path}", headers=headers) as answer:
                assert answer.status == status, path
                return await answer.json()

        slack = {"ok": True, "detail": "", "heardSecondsAgo": 1.5}
        assert (await body("/readyz", 200)).get("parts", {}).get("slack") == (slack if known else None)
        assert await body("/healthz", 200) == {"status": "ok"}
        parts["journal"] = PartHealth(ok=False, detail="the disk is full")
        assert ("parts" in await body("/readyz", 503)) == known
        trouble = {"journal": "the disk is full" if known else ""}
        assert await body("/healthz", 200) == {"status": "degraded", "trouble": trouble}
        for path in ("/", "/costs", "/configuration", "/style.css", "/metrics"):
            async with session.get(f"{dashboard.address}{path}", headers=headers) as answer:
                assert answer.status == (200 if known else 401), path
                asks = answer.headers.get("WWW-Authenticate", "")
                assert asks == (
                    'Basic realm="Shipmate", charset="UTF-8"' if "token" in how and not known else ""
                )
                assert known or "token" in await answer.text()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:3001", "10.0.0.1", ""])
async def test_a_name_that_is_not_this_machine_is_refused(
    dashboard: Dashboard, session: aiohttp.ClientSession, host: str
) -> None:
    async with session.get(f"{dashboard.address}/readyz", headers={"Host": host}) as answer:
        assert answer.status == 403


async def test_a_port_in_use_is_named_with_its_holder_where_that_is_known(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(dashboard.address.rpartition(":")[2])
    for pid, named in ((4242, "by process 4242"), (None, "in use;")):
        monkeypatch.setattr(http_server, "port_owner", {port: pid}.get)
        with pytest.raises(errors.Unavailable, match=rf"{port} on 127.0.0.1 .*{named}") as caught:
            await pages.dashboard(port=port).start()
        assert caught.value.exit_code == 75


async def test_a_refusal_says_why_in_a_sentence(session: aiohttp.ClientSession) -> None:
    async with served(token="secret-token-1") as dashboard, served() as open_to_us:
        for address, headers, status, words in (
            (f"{dashboard.address}/", {}, 401, "A token is needed"),
            (f"{open_to_us.address}/nothing", {}, 404, "There is no such page."),
            (f"{open_to_us.address}/", {"Host": "evil.example"}, 403, "Unknown host."),
        ):
            async with session.get(address, headers=headers) as answer:
                assert (answer.status, answer.content_type) == (status, "text/plain")
                assert words in await answer.text()
