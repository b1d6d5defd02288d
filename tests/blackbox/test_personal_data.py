"""Export and erasure of all data of one person. Data of other people stays."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.testing.anthropic_script import reply, tool_use
from tests import quick
from tests.blackbox.conftest import START_SECONDS, World, eventually

ANN, BOB = 7_310_001, 7_310_002
GROUP = -100_731
SECRET = "鯨のひみつ"
"""Word in all messages of Ann and in all answers to her."""
OF_BOB = "Bob's own words"


async def command(root: Path, *words: str) -> tuple[int, str]:
    """Run a command of `shipmate`, and return its exit code and output."""
    code, out, err = await quick.run(*words, "--dir", str(root))
    return code, out.decode() + err


def holds(root: Path, words: str) -> list[str]:
    """Return the files below `.ship` that contain a text, plain or compressed."""
    found = []
    for path in sorted((root / ".ship").rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        forms = [data]
        if path.suffix == ".gz":
            forms.append(zlib.decompress(data, 31))
        if any(form in one for one in forms for form in (words.encode(), json.dumps(words)[1:-1].encode())):
            found.append(str(path.relative_to(root)))
    return found


@pytest.fixture
async def told(world: World) -> World:
    """A stopped gateway to which Ann has written in a direct chat and in a group with Bob."""
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.process.env["SMA_LOG_LLM_PAYLOAD"] = "1"
    await world.start("telegram")
    note = {"command": "create", "path": "/memories/me/a.md", "file_text": f"likes {SECRET}"}

    def answer(body: Any) -> Any:
        if len(world.model.requests) == 1:
            return reply(tool_use("memory", note))
        asked = [one for one in body["messages"] if one["role"] == "user" and "tool_result" not in str(one)]
        return reply(SECRET if SECRET in str(asked[-1]) else "well")

    world.model.script(answer)
    world.telegram.say(f"my secret is {SECRET}", chat_id=ANN, name="Ann")
    await world.heard(SECRET, chat_id=ANN)
    world.telegram.say(
        f"read {SECRET}",
        chat_id=ANN,
        name="Ann",
        media="document",
        data=f"{SECRET}\n".encode() * 50,
        file_name="a.txt",
        mime="text/plain",
    )
    await world.heard(SECRET, SECRET, chat_id=ANN)
    world.telegram.say(f"@shipmate_bot {OF_BOB}", chat_id=GROUP, user_id=BOB, name="Bob")
    await world.heard("well", chat_id=GROUP)
    world.telegram.say(f"@shipmate_bot {SECRET} in the group", chat_id=GROUP, user_id=ANN, name="Ann")
    await world.heard("well", SECRET, chat_id=GROUP)
    world.telegram.say(f"@shipmate_bot {OF_BOB} again", chat_id=GROUP, user_id=BOB, name="Bob")
    await eventually(lambda: len(world.texts(GROUP)) == 3)
    await world.turns(5)
    assert await world.process.stop() == 0
    return world


async def test_a_person_is_erased_everywhere_and_the_others_go_on(told: World) -> None:
    rooms = {path.split("/")[1] for path in holds(told.root, SECRET)}
    assert rooms == {"artifacts", "chats", "index.db", "shipmate.db", "logs", "memory"}
    code, out = await command(told.root, "erase", "--yes", f"telegram:{ANN}")
    assert code == 0, out
    for what in ("log", "memory", "artifact", "requests to the model", "event", "archive"):
        assert what in out
    assert holds(told.root, SECRET) == []
    assert holds(told.root, "Ann") == []
    # Event ids stay for a while, so that old messages are not answered again.
    assert holds(told.root, str(ANN)) == [".ship/shipmate.db"]
    assert {line["text"] for line in told.archive() if line["role"] == "user"} == {
        OF_BOB,
        f"{OF_BOB} again",
    }
    code, out = await command(told.root, "erase", "--yes", f"telegram:{ANN}")
    assert (code, out) == (0, f"Nothing was kept of telegram:{ANN}.\n")
    before = len(told.model.requests)
    await told.start()
    told.telegram.say(f"@shipmate_bot {OF_BOB} a third time", chat_id=GROUP, user_id=BOB, name="Bob")
    await told.model.until(lambda: len(told.model.requests) > before)
    asked = json.dumps(told.model.bodies[-1]["messages"], ensure_ascii=False)
    assert f"{OF_BOB} again" in asked
    assert SECRET not in asked
    await eventually(lambda: told.texts(GROUP)[-1] == "well")
    told.telegram.say("hello again", chat_id=ANN, name="Ann")
    await eventually(lambda: told.texts(ANN)[-1] == "well")
    assert SECRET not in json.dumps(told.model.bodies[-1], ensure_ascii=False)
    assert await told.process.stop() == 0


async def test_a_person_is_given_out_beside_a_running_gateway_which_is_not_erased(told: World) -> None:
    await told.start()
    code, out = await command(told.root, "export", f"telegram:{ANN}")
    assert code == 0, out
    given = [json.loads(line) for line in out.splitlines()]
    places = {item["from"] for item in given}
    assert places >= {
        "chats",
        "memory",
        "artifacts",
        "requests",
        "logs",
        "usage",
        "events",
    }
    said = [item["value"]["text"] for item in given if item["from"] == "chats"]
    assert sorted(said) == sorted(
        [
            f"my secret is {SECRET}",
            SECRET,
            f"read {SECRET}",
            SECRET,
            f"{SECRET} in the group",
            SECRET,
        ]
    )
    assert OF_BOB not in "".join(json.dumps(item) for item in given if item["from"] in {"chats", "events"})
    before = holds(told.root, SECRET)
    code, out = await command(told.root, "erase", "--yes", f"telegram:{ANN}")
    assert code == 75
    assert f"held by process {told.process.pid}" in out
    assert holds(told.root, SECRET) == before
    assert await told.process.stop() == 0


async def test_a_person_of_the_web_chat_is_given_out_and_erased_as_any_other(world: World) -> None:
    world.model.script(lambda body: SECRET if SECRET in str(body["messages"][-1]) else "well")
    await world.start("web")
    page = world.process.ready_line.split()[2]
    said = {SECRET: "", OF_BOB: ""}
    for words in said:
        # Each session is a different browser.
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            await (await browser.get(f"{page}/api/info")).read()
            async with browser.post(f"{page}/api/messages", json={"text": words, "clientId": "m1"}) as answer:
                assert answer.status == 202
        await eventually(lambda: any(line["text"] == words for line in world.archive()))  # noqa: B023 - waited for
        said[words] = next(line["userId"] for line in world.archive() if line["text"] == words)
    await world.turns(2)
    assert said[SECRET] != said[OF_BOB]
    given: list[dict[str, Any]] = []
    out = ""
    async with asyncio.timeout(START_SECONDS):  # the request is recorded some time after the turn
        while not {"requests", "logs", "events"} <= {item["from"] for item in given}:
            code, out = await command(world.root, "export", f"web:{said[SECRET]}")
            assert code == 0, out
            given = [json.loads(line) for line in out.splitlines()]
    assert [item["value"]["text"] for item in given if item["from"] == "chats"] == [SECRET, SECRET]
    assert OF_BOB not in out
    assert await world.process.stop() == 0
    code, out = await command(world.root, "erase", "--yes", f"web:{said[SECRET]}")
    assert code == 0, out
    assert holds(world.root, SECRET) == []
    assert [line["text"] for line in world.archive()] == [OF_BOB, "well"]
    code, out = await command(world.root, "erase", "--yes", f"web:{said[SECRET]}")
    assert (code, out) == (0, f"Nothing was kept of web:{said[SECRET]}.\n")
