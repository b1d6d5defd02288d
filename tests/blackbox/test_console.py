"""All pages of the console of a real process with a long log. No page shows a secret."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time

import aiohttp
import pytest

from bot.features.search import index
from bot.testing.anthropic import KEY
from bot.testing.anthropic_script import reply
from tests.blackbox.conftest import START_SECONDS, World, eventually

TOKEN = "a token of the console, 12 words"
PATHS = [
    "/",
    "/?still",
    "/conversations",
    "/conversations?q=Ann+9999",
    "/conversations?q=question&page=150",
    "/conversations?q=key&channel=telegram&state=failed",
    "/conversations/telegram:chat:1001?q=repeat",
    "/conversations/telegram:chat:1001",
    *(f"/costs?by={by}&days=all" for by in ("day", "person", "chat", "model")),
    "/charts",
    "/charts?span=month",
    "/slow?days=all",
    "/errors?days=all",
    "/errors?days=all&level=warn",
    "/waiting",
    "/configuration",
]


@pytest.mark.parametrize(
    ("lines", "chats", "seconds"),
    [(2_000, 200, 60.0), pytest.param(1_000_000, 10_000, 0.5, marks=pytest.mark.torture)],
)
async def test_every_page_comes_soon_beside_a_long_log_and_many_chats_and_has_no_secret(
    world: World, lines: int, chats: int, seconds: float
) -> None:
    world.only("telegram")
    world.config["dashboard"] = {"enabled": True, "port": 0, "token": TOKEN}
    logs = world.root / ".ship" / "logs"
    logs.mkdir(parents=True)
    fields = {"id": "0" * 26, "timestamp": "2026-01-15T12:00:00.000Z", "type": "info", "level": "info"}
    fine = json.dumps(fields | {"kind": "delivery", "message": "sent", "details": {}}).encode() + b"\n"
    bad = fine.replace(b'"info"', b'"error"')
    # Compressed lines are read more slowly.
    (logs / "2026-01-15.jsonl.gz").write_bytes(gzip.compress((fine * 999 + bad) * (lines // 1_000), 1))
    with contextlib.closing(index.opened(world.root / ".ship" / index.FILE)) as db, db:
        rows = ((f"telegram:chat:{n}", 10, n, f"question {n}", f"Ann {n}") for n in range(chats))
        put = "INSERT INTO chats (name, lines, last_ts, first, people) VALUES (?, ?, ?, ?, ?)"
        db.executemany(put, rows)
    await world.start()
    address = world.process.ready_line.split()[-1]
    world.telegram.say(f"My key is {KEY}")
    world.model.answer("I do not repeat it.")
    await world.heard("I do not repeat it.")
    await world.turns(1)
    request = next(line["requestId"] for line in world.log() if line["kind"] == "turn_start")
    login = {"Authorization": aiohttp.encode_basic_auth("operator", TOKEN)}
    for path in [*PATHS, f"/turns/{request}"]:
        took, page = list[float](), ""
        while min(took, default=seconds) >= seconds:  # try again, because other programs run on the machine
            assert len(took) < 5, (path, took)
            began = time.perf_counter()
            async with world.session.get(address + path, headers=login) as answer:
                page = await answer.text()
                assert answer.status == 200, page
            took.append(time.perf_counter() - began)
        if path == "/conversations":
            assert '<td data-label="Messages" class="number">10</td>' in page
        for secret in (TOKEN, *(value for value in world.process.env.values() if len(value) > 10)):
            assert secret not in page
    async with world.session.get(f"{address}/") as answer:
        assert answer.status == 401


async def test_what_runs_now_is_shown_until_it_is_over(world: World) -> None:
    world.only("telegram")
    world.config["dashboard"] = {"enabled": True, "port": 0}
    await world.start()
    address = world.process.ready_line.split()[-1]
    gate = asyncio.Event()
    world.model.then(reply("Done.", edit=lambda frames: [gate, *frames]))
    world.telegram.say("take your time")
    await eventually(lambda: any(line["kind"] == "turn_start" for line in world.log()))
    async with world.session.get(address) as answer:
        page = await answer.text()
    assert "/conversations/telegram%3Achat%3A1001" in page
    assert '<td data-label="State">Running</td>' in page
    gate.set()
    await world.heard("Done.")
    async with asyncio.timeout(START_SECONDS):
        while "Nothing is running or queued." not in page:
            async with world.session.get(address) as answer:
                page = await answer.text()
