"""Alive, ready, and closed to everybody who should not ask."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from bot import errors
from bot.dashboard.console import PartHealth
from bot.dashboard.server import Dashboard
from tests.unit.dashboard import pages
from tests.unit.dashboard.pages import PARTS


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
def parts() -> dict[str, PartHealth]:
    return dict(PARTS)


@pytest.fixture
async def dashboard(parts: dict[str, PartHealth]) -> AsyncIterator[Dashboard]:
    async with served(parts=parts) as made:
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


async def test_ready_tells_each_part_and_is_503_where_one_is_not(
    dashboard: Dashboard, parts: dict[str, PartHealth], session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{dashboard.address}/readyz") as answer:
        assert answer.status == 200
        body = await answer.json()
    assert body["parts"]["slack"] == {"ok": True, "detail": "", "heardSecondsAgo": 1.5}
    parts["telegram"] = PartHealth(ok=False, detail="another process polls")
    async with session.get(f"{dashboard.address}/readyz") as answer:
        assert answer.status == 503
        assert (await answer.json())["parts"]["telegram"]["detail"] == "another process polls"


async def test_alive_is_200_whatever_is_in_trouble_and_says_what_is(
    dashboard: Dashboard, parts: dict[str, PartHealth], session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{dashboard.address}/healthz") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
    parts["journal"] = PartHealth(ok=False, detail="the disk is full")
    async with session.get(f"{dashboard.address}/healthz") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "degraded", "trouble": {"journal": "the disk is full"}}


async def test_others_of_this_machine_hear_whether_it_is_ready_and_no_more(
    session: aiohttp.ClientSession,
) -> None:
    parts = {"telegram": PartHealth(ok=False, detail="another process polls")}
    for user in (None, os.getuid() + 1):
        async with served(parts=parts, user_of=lambda *_, seen=user: seen) as dashboard:
            async with session.get(f"{dashboard.address}/readyz") as answer:
                assert (answer.status, await answer.json()) == (503, {"ready": False})
            async with session.get(f"{dashboard.address}/healthz") as answer:
                assert await answer.json() == {"status": "degraded", "trouble": {"telegram": ""}}
    async with (
        served(parts=parts) as dashboard,
        session.get(f"{dashboard.address}/readyz", headers={"X-Forwarded-For": "192.0.2.1"}) as answer,
    ):
        assert await answer.json() == {"ready": False}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:3001", "10.0.0.1", ""])
async def test_a_name_that_is_not_this_machine_is_refused(
    dashboard: Dashboard, session: aiohttp.ClientSession, host: str
) -> None:
    async with session.get(f"{dashboard.address}/readyz", headers={"Host": host}) as answer:
        assert answer.status == 403


async def test_with_a_token_only_its_bearer_sees_the_parts(session: aiohttp.ClientSession) -> None:
    parts = dict(PARTS)
    guarded = pages.dashboard(token="secret-token-1", user_of=lambda *_: None, parts=parts)
    await guarded.start()
    right, wrong = {"Authorization": "Bearer secret-token-1"}, {"Authorization": "Bearer wrong"}
    for headers in ({}, wrong):
        async with session.get(f"{guarded.address}/readyz", headers=headers) as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True})
        async with session.get(f"{guarded.address}/", headers=headers) as answer:
            assert answer.status == 401
    async with session.get(f"{guarded.address}/readyz", headers=right) as answer:
        assert (answer.status, set((await answer.json())["parts"])) == (200, set(PARTS))
    parts["journal"] = PartHealth(ok=False, detail="the disk is full")
    async with session.get(f"{guarded.address}/readyz") as answer:
        assert (answer.status, await answer.json()) == (503, {"ready": False})
    for headers, told in (({}, ""), (right, "the disk is full")):
        async with session.get(f"{guarded.address}/healthz", headers=headers) as answer:
            assert answer.status == 200
            assert await answer.json() == {"status": "degraded", "trouble": {"journal": told}}
    for headers, status in (({}, 401), (wrong, 401), (right, 200)):
        async with session.get(f"{guarded.address}/metrics", headers=headers) as answer:
            assert answer.status == status
    await guarded.stop()


async def test_metrics_are_for_who_started_it_and_for_nobody_else_without_a_token(
    dashboard: Dashboard, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{dashboard.address}/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert "\nshipmate_queue_messages 5.0\n" in await answer.text()
    async with session.get(f"{dashboard.address}/metrics", headers={"X-Forwarded-For": "::1"}) as answer:
        assert answer.status == 401
        assert "dashboard.token" in await answer.text()


async def test_others_can_reach_it_only_with_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(errors.ConfigError):
            pages.dashboard(host)
    pages.dashboard("0.0.0.0", token="secret-token-1")


async def test_a_port_in_use_is_named_with_its_holder_where_that_is_known(dashboard: Dashboard) -> None:
    port = int(dashboard.address.rpartition(":")[2])
    for pid, named in ((4242, "by process 4242"), (None, "in use;")):
        with pytest.raises(errors.Unavailable, match=rf"{port} on 127.0.0.1 .*{named}") as caught:
            await pages.dashboard(port=port, holder={port: pid}.get).start()
        assert caught.value.exit_code == 75


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Dest": "document"}, {"Accept": "text/html,*/*;q=0.8"}], ids=["told", "asked"]
)
async def test_a_window_of_a_browser_gets_a_page_where_programs_get_json(
    session: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    async with served(token="secret-token-1") as dashboard, served() as open_to_us:
        known, elsewhere = open_to_us.address, {"Host": "evil.example"}
        for address, more, status, words in (
            (f"{dashboard.address}/", {}, 401, "A token is needed"),
            (f"{known}/nothing", {}, 404, "There is no such page."),
            (f"{known}/", elsewhere, 403, "Unknown host."),
        ):
            async with session.get(address, headers=headers | more) as answer:
                assert (answer.status, answer.content_type) == (status, "text/html")
                assert words in await answer.text()
            async with session.get(address, headers=more) as answer:
                assert (answer.status, answer.content_type) == (status, "application/json")
            fetched = headers | more | {"Sec-Fetch-Dest": "empty"}
            async with session.get(address, headers=fetched) as answer:
                assert answer.content_type == "application/json"
