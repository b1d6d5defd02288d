"""The console's page of open items in the real process: decisions on it, and requests without the right to decide."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import aiohttp

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_schedules import in_an_hour

TOKEN = "a token of the console, 12 words"
LOGIN = {"Authorization": aiohttp.encode_basic_auth("operator", TOKEN), "Accept-Language": "en"}
OPERATOR = 2002
STRANGER = 3003

Form = dict[str, str]


class Visitor:
    """A browser with the console open."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self.url = f"{address}/waiting"
        self._own = {
            **LOGIN,
            "Origin": address,
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Dest": "document",
        }

    async def page(self, query: str = "") -> str:
        async with self._session.get(self.url + query, headers=LOGIN) as answer:
            assert answer.status == 200
            assert "form-action 'self'" in answer.headers["Content-Security-Policy"]
            return await answer.text()

    async def form(self, kind: str, act: str) -> Form:
        """Return the fields of the form with the button `act`, as a browser sends them."""
        for form in re.findall(r"<form.*?</form>", await self.page(f"?kind={kind}"), re.DOTALL):
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form.partition("<button")[0]))
            if f'value="{act}"' in form and fields["kind"] == kind:
                return {name: html.unescape(value) for name, value in fields.items()} | {"act": act}
        raise AssertionError((kind, act))

    async def send(self, form: Form, status: int = 303, **more: str | None) -> str:
        """Send a form with changed headers, and return the sentence that the page shows afterwards."""
        headers = {name: value for name, value in (self._own | more).items() if value is not None}
        async with self._session.post(self.url, data=form, headers=headers, allow_redirects=False) as answer:
            assert answer.status == status, await answer.text()
            where = answer.headers.get("Location", "")
        if not where:
            return ""
        page = await self.page(where.removeprefix("/waiting"))
        assert 'role="status"' not in await self.page(where.removeprefix("/waiting"))  # shown only once
        return html.unescape(re.findall(r'role="status">(.*?)</p>', page)[0])

    async def decide(self, kind: str, act: str) -> str:
        return await self.send(await self.form(kind, act))


async def filled(world: World, token: str | None = TOKEN) -> None:
    """Create one open item of each kind."""
    world.only("telegram")
    world.config["dashboard"] = {"enabled": True, "port": 0, "token": token}
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.config["permissions"] = {"ask": ["skills_list", "read_artifact"]}
    await world.start()
    world.telegram.say("/whoami", chat_id=OPERATOR)
    await world.telegram.until(lambda: bool(world.texts(OPERATOR)))
    world.model.then(reply(tool_use("schedule_create", {"prompt": "Look", "when": in_an_hour()})))
    world.model.answer("I will.")
    world.telegram.say("remind me <b>now</b>", name="渡辺 さん")
    await world.heard("I will.")
    world.model.answer("It is down. I'll look again tomorrow.")
    await world.ask("is it up?", 2)
    world.model.answer(tool_use("read_artifact", {"id": "none"}))
    world.model.answer("Nothing there.")
    world.telegram.say("read it")
    await world.telegram.until(lambda: any("read_artifact" in text for text in world.texts(OPERATOR)))
    world.telegram.say("/approve always", chat_id=OPERATOR)
    await world.telegram.until(lambda: "Nothing there." in world.texts())
    world.telegram.say("let me in", chat_id=STRANGER, name="Eve")
    await world.telegram.until(lambda: bool(world.texts(STRANGER)))
    world.model.answer(tool_use("skills_list", {}))
    world.telegram.say("which skills?")
    await world.telegram.until(lambda: any("skills_list" in text for text in world.texts(OPERATOR)))


async def test_operators_decide_in_the_console_and_nobody_without_the_right_does(world: World) -> None:
    await filled(world)
    address = world.process.ready_line.split()[-1]
    async with aiohttp.ClientSession() as session:
        visitor = Visitor(session, address)
        await refused(visitor)
        assert not _acts(world)

        first = await visitor.form("person", "admit")
        assert await visitor.send(first) == "Eve is let in"
        assert "no longer waits" in await visitor.send(first)
        await world.telegram.until(lambda: len(world.texts(STRANGER)) == 2)

        world.model.answer("None.")
        press = await visitor.form("approval", "once")
        assert "skills_list" in (allowed := await visitor.send(press))
        assert allowed.startswith("Allowed once: ")
        assert "no longer waits" in await visitor.send(press | {"act": "deny"})
        await world.telegram.until(lambda: "None." in world.texts())
        await world.telegram.until(
            lambda: any("Allowed by an operator in the console" in text for text in world.texts(OPERATOR))
        )
        assert await visitor.decide("job", "pause") == "Paused: Look"
        assert await visitor.decide("job", "resume") == "Resumed: Look"
        assert await visitor.decide("job", "cancel") == "Cancelled: Look"
        assert "look again tomorrow" in await visitor.decide("promise", "done")
        assert "Taken back: use my tool read_artifact" in await visitor.decide("lasting", "revoke")
        assert "<form" not in await visitor.page()
    acts = ["admit", "once", "pause", "resume", "cancel", "done", "revoke"]
    await eventually(lambda: [line["details"]["act"] for line in _acts(world)] == acts)
    assert {line["level"] for line in _acts(world)} == {"action"}
    world.model.answer("Hello.")
    world.telegram.say("hi", chat_id=STRANGER)  # the log says that this person is let in
    await world.telegram.until(lambda: "Hello." in world.texts(STRANGER))


async def refused(visitor: Visitor) -> None:
    """Send all forms that must be refused, and check that the open items do not change."""
    before = _loops(await visitor.page())
    assert len(before) == 5
    form = await visitor.form("person", "admit")
    cases: list[tuple[Form, int, Mapping[str, Any]]] = [
        (form, 401, {"Authorization": None}),
        (form, 403, {"Origin": "https://evil.example"}),
        (form, 403, {"Origin": "null"}),
        (form, 403, {"Origin": None}),
        (form, 403, {"Sec-Fetch-Site": "cross-site"}),
        (form, 403, {"Sec-Fetch-Site": "same-site"}),
        (form | {"token": ""}, 403, {}),
        (form | {"token": form["token"][:-1] + "é"}, 403, {}),
    ]
    for sent, status, headers in cases:
        await visitor.send(sent, status, **headers)
    for fields in (form | {"act": "cancel"}, form | {"id": "telegram:4"}, form | {"kind": "job"}):
        assert "no longer waits" in await visitor.send(fields)
    await visitor.page("?" + "&".join(f"{name}={value}" for name, value in form.items()))
    assert _loops(await visitor.page()) == before


def _acts(world: World) -> list[dict[str, Any]]:
    return [line for line in world.log() if line["kind"] == "console"]


def _loops(page: str) -> list[str]:
    return re.findall(r'name="id" value="([^"]*)"', page)


async def test_a_board_longer_than_a_page_has_pages(world: World) -> None:
    world.only("telegram")
    world.config["dashboard"] = {"enabled": True, "port": 0, "token": TOKEN}
    await world.start()
    strangers = range(3001, 3053)
    for stranger in strangers:
        world.telegram.say("let me in", chat_id=stranger, name="Eve")
    await world.telegram.until(lambda: all(world.texts(stranger) for stranger in strangers))
    async with aiohttp.ClientSession() as session:
        visitor = Visitor(session, world.process.ready_line.split()[-1])
        pages = [await visitor.page(query) for query in ("?kind=person", "?kind=person&page=2")]
    assert [len(_loops(page)) for page in pages] == [50, 2]
    assert 'href="?kind=person&amp;page=2"' in pages[0]
