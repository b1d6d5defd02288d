"""Checks that a request must pass to reach the gateway."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import socket
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import aiohttp
import pytest
from pydantic import ValidationError

from bot import errors
from bot.contracts.channel import Channel
from bot.contracts.identity import ChatKey
from bot.testing.intake import RecordingIntake
from channels.web import guard
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import surroundings
from tests.contracts.web_rig import Browser
from tests.timers import leap, leap_until_done

TOKEN = "correct horse battery staple"
MESSAGE = {"text": "hello", "clientId": "m1"}


async def test_the_listening_socket_is_bound_to_loopback(channel: Channel) -> None:
    port = urlsplit(channel.addresses[0]).port
    for address, refuses in (("127.0.0.1", 0), ("127.0.0.2", errno.ECONNREFUSED)):
        with socket.socket() as client:
            assert client.connect_ex((address, port)) == refuses


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "", "example.com", "127.0.0.1.example.com"])
def test_other_addresses_are_refused_without_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"channels\.web\.token"):
        MANIFEST.build(WebSettings(host=host), surroundings(tmp_path))
    MANIFEST.build(WebSettings(host=host, token=TOKEN), surroundings(tmp_path))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "::1", "127.0.0.2"])
def test_loopback_needs_no_token(host: str, tmp_path: Path) -> None:
    MANIFEST.build(WebSettings(host=host), surroundings(tmp_path))


@pytest.mark.parametrize("token", ["", "short"])
def test_a_token_that_can_be_guessed_is_a_finding(token: str) -> None:
    with pytest.raises(ValidationError):
        WebSettings(token=token)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:3000", "127.0.0.1.evil.example", "localhost.evil", ""]
)
@pytest.mark.parametrize("path", ["/", "/api/info", "/api/events"])
async def test_a_foreign_host_name_is_refused(browser: Browser, host: str, path: str) -> None:
    status, body = await browser.get(path, headers={"Host": host})
    assert (status, body) == (403, {"error": "This address isn't one of mine."})


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]", "[::1]:3000"])
async def test_own_host_names_are_fine_on_any_port(browser: Browser, host: str) -> None:
    status, _ = await browser.get("/api/info", headers={"Host": host})
    assert status == 200


async def test_any_host_name_is_fine_where_a_token_guards_an_open_address(
    tmp_path: Path, intake: RecordingIntake
) -> None:
    channel = MANIFEST.build(WebSettings(host="0.0.0.0", port=0, token=TOKEN), surroundings(tmp_path))
    await channel.start(intake)
    async with Browser(channel) as browser:
        assert (await browser.get("/api/info", headers={"Host": "chat.example"}))[0] == 401
    await channel.stop()


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://["},
    {"Origin": "file://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_requests_that_other_pages_cause_are_refused(
    browser: Browser, intake: RecordingIntake, headers: dict[str, str]
) -> None:
    assert (await browser.post("/api/messages", MESSAGE, headers=headers))[0] == 403
    assert (await browser.get("/api/events", headers=headers))[0] == 403
    assert (await browser.post("/login", {"token": TOKEN}, headers=headers))[0] == 403
    assert (await browser.post("/api/files", {}, headers=headers))[0] == 403
    async with browser.http.delete(f"{browser.url}/api/files/x", headers=headers) as answer:
        assert answer.status == 403
    assert intake.offered == []


async def test_the_pages_own_requests_are_taken(browser: Browser, intake: RecordingIntake) -> None:
    headers = {"Origin": browser.url, "Sec-Fetch-Site": "same-origin"}
    assert (await browser.post("/api/messages", MESSAGE, headers=headers))[0] == 202
    assert len(intake.accepted) == 1


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", ""]
)
async def test_what_a_form_can_send_is_refused(browser: Browser, intake: RecordingIntake, kind: str) -> None:
    how: dict[str, Any] = {"data": b'{"text":"hello","clientId":"m1"}', "headers": {"Content-Type": kind}}
    piece = ("/api/files/01J00000000000000000000000?at=0",) if kind else ()
    for path in ("/api/messages", "/api/files", *piece):
        async with browser.http.post(browser.url + path, **how) as answer:
            assert answer.status == 415
    assert intake.offered == []


async def _cookie(browser: Browser, path: str) -> SimpleCookie:
    async with browser.http.get(browser.url + path) as answer:
        return answer.cookies


async def test_a_browser_gets_one_secret_that_scripts_cannot_read(
    browser: Browser, intake: RecordingIntake
) -> None:
    given = (await _cookie(browser, "/api/info"))[guard.COOKIE]
    assert re.fullmatch(rf"[0-9a-f]{{32}}\.{os.getuid()}\.[0-9a-f]{{64}}", given.value)
    assert (given["httponly"], given["samesite"], given["path"]) == (True, "Strict", "/")
    assert not await _cookie(browser, "/api/info")
    await browser.say("hello")
    user = hashlib.sha256(given.value[:32].encode()).hexdigest()[:16]
    assert intake.accepted[0].user_id == user
    assert intake.accepted[0].chat_key == ChatKey.parse(f"web:chat:{user}")
    assert intake.accepted[0].keys == (f"web:{user}:m1",)


async def test_the_page_itself_never_replaces_the_cookie(browser: Browser) -> None:
    """After a link from another site, a browser first sends no Strict cookie."""
    assert not await _cookie(browser, "/")
    assert not await _cookie(browser, "/style.css")


@pytest.mark.parametrize("cookie", ["", "x", "../../etc", "A" * 32, "0" * 31, "0" * 33, "0" * 32 + ".x"])
async def test_a_cookie_that_is_none_of_ours_is_replaced(browser: Browser, cookie: str) -> None:
    async with browser.http.get(
        f"{browser.url}/api/info", headers={"Cookie": f"{guard.COOKIE}={cookie}"}
    ) as answer:
        assert answer.cookies[guard.COOKIE].value != cookie


async def test_nobody_reads_the_chat_of_another_browser(channel: Channel, browser: Browser) -> None:
    await browser.say("private words")
    async with Browser(channel) as other:
        assert await other.page() == []
    assert [message["text"] for message in await browser.page()] == ["private words"]


async def test_without_the_token_only_the_page_is_given(stranger: Browser, intake: RecordingIntake) -> None:
    assert (await stranger.get("/api/info"))[0] == 401
    assert (await stranger.get("/api/events"))[0] == 401
    assert await stranger.say("hello") == 401
    assert (await stranger.post("/api/files", {"name": "a", "type": "", "size": 3}))[0] == 401
    assert (await stranger.piece("01J00000000000000000000000", 0, b"abc"))[0] == 401
    assert (await stranger.get(f"/api/info?token={TOKEN}"))[0] == 401
    async with stranger.http.get(stranger.url) as page:
        assert page.status == 200
    assert intake.offered == []
    assert not list(stranger.http.cookie_jar)


async def test_the_token_given_once_admits_the_browser(stranger: Browser, intake: RecordingIntake) -> None:
    async with stranger.http.post(f"{stranger.url}/login", json={"token": TOKEN}) as answer:
        assert answer.status == 204
        given = answer.cookies[guard.COOKIE]
    assert (given["httponly"], given["samesite"], given["secure"]) == (True, "Strict", "")
    assert TOKEN not in given.value
    assert await stranger.say("hello") == 202
    assert intake.accepted[0].user_id == hashlib.sha256(given.value[:32].encode()).hexdigest()[:16]


async def test_behind_tls_the_cookie_stays_there(tmp_path: Path, intake: RecordingIntake) -> None:
    channel = MANIFEST.build(WebSettings(host="0.0.0.0", port=0, token=TOKEN), surroundings(tmp_path))
    await channel.start(intake)
    headers = {"Host": "chat.example", "Origin": "https://chat.example"}
    async with (
        Browser(channel) as browser,
        browser.http.post(f"{browser.url}/login", json={"token": TOKEN}, headers=headers) as answer,
    ):
        assert answer.cookies[guard.COOKIE]["secure"]
    await channel.stop()


@pytest.mark.parametrize(
    "body",
    [{"token": "wrong"}, {"token": TOKEN + "x"}, {"token": None}, {}, {"token": "\ud800"}, {"token": ""}],
)
async def test_a_wrong_token_admits_nobody(stranger: Browser, body: dict[str, Any]) -> None:
    assert await stranger.post("/login", body) == (401, {"error": "That's not the token."})
    assert (await stranger.get("/api/info"))[0] == 401


async def test_a_made_up_cookie_does_not_replace_the_token(stranger: Browser) -> None:
    for value in ("0" * 32, "0" * 32 + "." + "0" * 64):
        async with stranger.http.get(
            f"{stranger.url}/api/info", headers={"Cookie": f"{guard.COOKIE}={value}"}
        ) as answer:
            assert answer.status == 401


async def test_a_changed_token_ends_every_session(stranger: Browser, tmp_path: Path) -> None:
    await stranger.post("/login", {"token": TOKEN})
    kept = {cookie.key: cookie.value for cookie in stranger.http.cookie_jar}
    changed = MANIFEST.build(WebSettings(port=0, token=TOKEN + "!"), surroundings(tmp_path))
    await changed.start(RecordingIntake())
    async with (
        aiohttp.ClientSession(cookies=kept) as http,
        http.get(changed.addresses[0] + "/api/info") as answer,
    ):
        assert answer.status == 401
    await changed.stop()


async def test_eight_wrong_tokens_make_further_tries_wait_and_lock_nobody_out(
    locked: Channel, stranger: Browser
) -> None:
    for _ in range(8):
        assert (await stranger.post("/login", {"token": "wrong"}))[0] == 401
    async with Browser(locked) as person:
        mine = asyncio.create_task(person.post("/login", {"token": TOKEN}))
        await asyncio.wait([mine], timeout=0.05)
        assert not mine.done()
        await leap_until_done(mine, guard.DELAY)
        assert (await mine)[0] == 204
        assert (await person.get("/api/info"))[0] == 200


async def test_who_has_gone_keeps_no_place(tmp_path: Path) -> None:
    doors = guard.Guard(WebSettings(token=TOKEN), guard.load(tmp_path), surroundings(tmp_path))
    here, gone = Mock(transport=Mock()), Mock(transport=None)
    for _ in range(8):
        assert not await doors.fits(here, "wrong")
    waiting = [asyncio.create_task(doors.fits(gone, "wrong")) for _ in range(100)]
    mine = asyncio.create_task(doors.fits(here, TOKEN))
    await asyncio.sleep(0)
    leap(guard.DELAY)
    for _ in range(200):
        await asyncio.sleep(0)
    assert mine.done(), "it waits behind those who have gone"
    assert await mine
    assert not any(await asyncio.gather(*waiting))


async def test_there_is_nothing_to_log_in_to_without_a_token(browser: Browser) -> None:
    assert (await browser.post("/login", {"token": "anything"}))[0] == 404


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/api/info", "/api/events", "/nothing.here", "/api/nothing"]
)
async def test_every_answer_forbids_what_pages_of_others_could_do(browser: Browser, path: str) -> None:
    async with browser.http.get(browser.url + path) as answer:
        headers = answer.headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert "aiohttp" not in headers["Server"]
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/../manifest.py",
        "/..%2fmanifest.py",
        "/%2e%2e/manifest.py",
        "/manifest.py",
        "/page/app.js",
        "//etc/passwd",
    ],
)
async def test_only_the_pages_own_files_are_served(browser: Browser, path: str) -> None:
    target = urlsplit(browser.url)
    reader, writer = await asyncio.open_connection(target.hostname, target.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
