"""Access to the web chat and operators' rights there: this user, another user of the machine, a proxy, a link."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests import quick
from tests.blackbox.conftest import World

OTHER = 65534
ASK = """
import json, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None
try:
    asked = urllib.request.Request(sys.argv[1], headers={"Cookie": sys.argv[2]})
    answer = urllib.request.build_opener(Stay).open(asked, timeout=10)
except urllib.error.HTTPError as failure:
    answer = failure
print(json.dumps([answer.status, answer.headers.get("Set-Cookie"), answer.read(2000).decode()]))
"""


async def as_other(address: str, cookie: str = "") -> tuple[int, str | None, str]:
    """Return the response to a program of another user of this machine."""
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/env",
        "python3",
        "-c",
        ASK,
        address,
        cookie,
        stdout=asyncio.subprocess.PIPE,
        user=OTHER,
        group=OTHER,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin", "no_proxy": "*"},
        cwd="/",
    )
    out, _ = await process.communicate()
    status, given, body = json.loads(out)
    return status, given, body


@pytest.fixture
async def page(world: World) -> str:
    """Start a Shipmate, and return the address of its web chat."""
    await world.start("web")
    return world.process.ready_line.split()[2]


def printed(world: World) -> str:
    """Return the link that was printed at the start."""
    (link,) = re.findall(r"http://\S+/open/\S+", "\n".join(world.process.lines))
    return str(link)


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def info(session: aiohttp.ClientSession, page: str, **headers: str) -> tuple[int, Any]:
    async with session.get(f"{page}/api/info", headers=headers) as answer:
        return answer.status, await answer.json()


async def test_the_user_who_started_it_talks_and_is_no_operator_without_the_link(
    world: World, page: str
) -> None:
    async with browser() as session:
        assert await info(session, page) == (
            200,
            {"name": "shipmate", "model": "claude-sonnet-5-5", "operator": False},
        )
        body = {"text": "/whoami", "clientId": "m1"}
        async with session.post(f"{page}/api/messages", json=body) as answer:
            assert answer.status == 202


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_of_the_machine_is_refused(world: World, page: str) -> None:
    for path in ("/", "/app.js", "/api/info", "/api/events"):
        status, cookie, body = await as_other(page + path)
        assert (status, cookie) == (403, None)
        assert "shipmate link" in body


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_a_cookie_that_another_user_got_hold_of_opens_nothing(world: World, page: str) -> None:
    async with browser() as session:
        async with session.get(printed(world)) as answer:
            assert answer.status == 200
        cookie = "; ".join(f"{one.key}={one.value}" for one in session.cookie_jar)
        assert (await info(session, page))[1]["operator"]
    assert (await as_other(f"{page}/api/info", cookie))[0] == 403


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_the_link_opens_it_once_for_whoever_was_given_it(world: World, page: str) -> None:
    link = printed(world)
    status, cookie, _ = await as_other(link)
    assert status == 303
    assert cookie is not None
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert (await as_other(link))[0] == 410


async def test_behind_a_proxy_the_user_at_the_other_end_counts_for_nothing(page: str) -> None:
    for header in (
        "X-Forwarded-For",
        "Forwarded",
        "Via",
        "X-Real-IP",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
    ):
        async with browser() as session:
            assert (await info(session, page, **{header: "192.0.2.1"}))[0] == 403


async def test_the_link_works_once_over_restarts_too_and_is_nowhere_on_disk(world: World, page: str) -> None:
    link = printed(world)
    assert len(link.rpartition("/")[2]) == 22  # 128 bits
    async with browser() as session:
        async with session.head(link, allow_redirects=False) as answer:
            assert answer.status == 405, "a preview of the link uses it up"
        async with session.get(link, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert (await info(session, page))[1]["operator"]
        world.config["channels"]["web"]["port"] = urlsplit(page).port
        await world.process.stop()
        await world.start()
        assert (await info(session, page))[1]["operator"]
        async with browser() as other:
            for used in (link, link[:-1] + "x", f"{page}/open/x"):
                async with other.get(used) as answer:
                    assert answer.status == 410
            assert not (await info(other, page))[1]["operator"]
            async with other.get(printed(world)) as answer:
                assert answer.status == 200
            assert (await info(other, page))[1]["operator"]
    key = link.rpartition("/")[2].encode()
    assert key not in world.everything_on_disk()
    assert printed(world).rpartition("/")[2].encode() not in world.everything_on_disk()


async def test_a_new_link_is_printed_while_it_runs_and_of_two_who_open_it_one_gets_in(
    world: World, page: str
) -> None:
    link = (await world.shipmate("link")).strip()
    assert link.startswith(f"{page}/open/")
    async with browser() as one, browser() as two:
        answers = await asyncio.gather(*(session.get(link, allow_redirects=False) for session in (one, two)))
        assert sorted(answer.status for answer in answers) == [303, 410]
        for answer in answers:
            answer.release()


async def test_a_cookie_that_a_program_has_planted_is_not_made_an_operators(world: World, page: str) -> None:
    planted = {"Cookie": f"shipmate_web={'0123456789abcdef' * 2}"}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        async with session.get(f"{page}/api/info", headers=planted) as answer:
            kept = {"Cookie": f"shipmate_web={answer.cookies['shipmate_web'].value}"}
        async with session.get(printed(world), headers=kept, allow_redirects=False) as answer:
            assert answer.status == 303
            person = {"Cookie": f"shipmate_web={answer.cookies['shipmate_web'].value}"}
        for known in (planted, kept):
            assert not (await info(session, page, **known))[1]["operator"]
        assert (await info(session, page, **person))[1]["operator"]
        async with session.get((await world.shipmate("link")).strip(), headers=person) as answer:
            assert answer.status == 200
        assert (await info(session, page, **person))[1]["operator"], "whoever is one keeps the chat"


async def test_whoever_is_blocked_is_no_operator_any_more(world: World, page: str) -> None:
    async with browser() as session:
        async with session.get(printed(world)) as answer:
            assert answer.status == 200
        lists = json.loads((world.root / ".ship" / "access.json").read_bytes())
        (person,) = lists["channels"]["web"]["operators"]
        await world.shipmate("block", "web", person)
        async with asyncio.timeout(90):
            while (await info(session, page))[1]["operator"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the gateway checks once a second


async def test_a_browser_is_redirected_to_a_host_name_of_our_own(world: World, page: str) -> None:
    navigates = {"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        link = printed(world)
        async with session.get(link, headers=navigates, allow_redirects=False) as answer:
            assert (answer.status, len(answer.cookies)) == (303, 0)
            target = urlsplit(answer.headers["Location"])
        assert re.fullmatch(r"shipmate-[a-z2-7]{16}\.localhost", target.hostname or "")
        assert (target.port, target.path) == (urlsplit(page).port, urlsplit(link).path)
        there = {**navigates, "Host": target.netloc}
        async with session.get(page + target.path, headers=there, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Refresh"]) == (200, "0")  # the page asks again
            assert not answer.cookies
        again = {**there, "Sec-Fetch-Site": "same-origin"}
        async with session.get(page + target.path, headers=again, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.cookies["shipmate_web"]
        assert f".{os.getuid()}o." in cookie.value
        assert (cookie["httponly"], cookie["samesite"], cookie["domain"]) == (True, "Strict", "")
        for headers in (there, {}):
            async with session.get(page, headers=headers, allow_redirects=False) as answer:
                assert answer.status == 200  # a program is not redirected


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
async def test_another_user_cannot_talk_through_the_terminals_socket(world: World) -> None:
    await world.start("console")
    (world.root / ".ship").chmod(0o711)  # as a careless administrator might set it
    (world.root / ".ship" / "console.sock").chmod(0o666)
    # The script changes into the folder before it changes its user, because other users may not open the folders above.
    script = (
        "import os, socket, sys\n"
        "other = int(sys.argv[1]); os.setgroups([]); os.setgid(other); os.setuid(other)\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect('console.sock')\n"
        "print(s.makefile().readline())"
    )
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/env",
        "python3",
        "-c",
        script,
        str(OTHER),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin"},
        cwd=world.root / ".ship",
    )
    out, _ = await process.communicate()
    assert json.loads(out) == {"error": "This terminal is for the user who started Shipmate."}


async def test_the_terminals_user_is_an_operator(world: World) -> None:
    world.config = {
        "llm": {"provider": "demo"},
        "channels": {"web": {"enabled": False}},
        "dashboard": {"enabled": False},
    }
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    async with asyncio.timeout(60):
        _, out, _ = await quick.run("chat", "--dir", str(world.root), given=b"/whoami\n")
    assert b"operator" in out
